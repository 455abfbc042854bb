// A list to which all lanes append. A CPU's threads buffer their items and reserve places for many at once, since an
// atomic per item would contend. The destructor flushes the buffer.
#pragma once

struct BufferedIds {  // what a lane of a CPU has not appended yet
    static constexpr bool holds = Tile<32>::size() == 1;
    static constexpr i64 most = holds ? 256 : 1;
    i64 n = 0;
    u32 held[most];
    DEVICE void add(u32 id, u32* list, i64* count) {
        if constexpr (!holds) return store(list + take_place(count), id);
        if (n == most) put(list, count);
        held[n++] = id;
    }
    DEVICE void put(u32* list, i64* count) {
        if (!holds || n == 0) return;
        i64 place = atomic_add(count, n);
        for (i64 i = 0; i < n; ++i) store(list + place + i, held[i]);
        n = 0;
    }
};

struct BufferedAppender {
    u32* list;
    i64* count;  // of the list
    BufferedIds ids;
    DEVICE BufferedAppender(u32* list, i64* count) : list(list), count(count) {}
    BufferedAppender(const BufferedAppender&) = delete;
    DEVICE ~BufferedAppender() { ids.put(list, count); }
    DEVICE void add(u32 id) { ids.add(id, list, count); }
};
