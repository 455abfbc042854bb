// A list to which all lanes append. A CPU's threads buffer their items and reserve places for many at once, since an
// atomic per item would contend. The destructor flushes the buffer.
#pragma once

struct BufferedAppender {
    static constexpr bool holds = Tile<32>::size() == 1;
    static constexpr i64 most = holds ? 256 : 1;
    u32* list;
    i64* count;  // of the list
    i64 n = 0;
    u32 held[most];
    DEVICE BufferedAppender(u32* list, i64* count) : list(list), count(count) {}
    BufferedAppender(const BufferedAppender&) = delete;
    DEVICE ~BufferedAppender() { put(); }
    DEVICE void add(u32 id) {
        if constexpr (!holds) return store(list + take_place(count), id);
        if (n == most) put();
        held[n++] = id;
    }
    DEVICE void put() {
        if (!holds || n == 0) return;
        i64 place = atomic_add(count, n);
        for (i64 i = 0; i < n; ++i) store(list + place + i, held[i]);
        n = 0;
    }
};
