// Sorts items in shared memory, by a block: runs in registers, then merges of neighbouring runs. Items are keys alone,
// unstably, or if PLACED keys with distinct places, compared by both.
#pragma once

constexpr bool placed = PLACED;

struct Key {
    u64 key;
    static DEVICE Key of(u64 key, u32) { return {key}; }
    DEVICE u32 place() const { return 0; }
    DEVICE bool operator<(const Key& other) const { return key < other.key; }
};
struct PlacedKey {
    u64 key;
    u32 at;
    static DEVICE PlacedKey of(u64 key, u32 place) { return {key, place}; }
    DEVICE u32 place() const { return at; }
    DEVICE bool operator<(const PlacedKey& other) const {
        return key < other.key || (key == other.key && at < other.at);
    }
};
#if PLACED
using Item = PlacedKey;
#else
using Item = Key;
#endif

struct ItemArray {
    u64* keys;
    u32* places;  // null for keys alone
    DEVICE Item get(i64 i) const { return Item::of(keys[i], placed ? places[i] : 0); }
    DEVICE void set(i64 i, const Item& item) const {
        keys[i] = item.key;
        if (placed) places[i] = item.place();
    }
    DEVICE ItemArray from(i64 first) const { return {keys + first, placed ? places + first : nullptr}; }
};

struct TileSort {
    static constexpr int run = placed ? 8 : 16;  // items per lane, in registers
    static constexpr int lanes = 512;
    static constexpr int most = lanes * run;  // items per GPU block; fewer on the host
    static constexpr int room = most + most / run;  // one of padding after each run, against bank conflicts
    static constexpr int bytes = room * (placed ? 12 : 8);
    Block block;
    ItemArray shared;  // [room]
    static DEVICE TileSort in(u64* shared) { return {Block(), {shared, (u32*)(shared + room)}}; }
    static DEVICE Item last() { return Item::of(~(u64)0, ~0u); }
    static DEVICE int place(int i) { return i + (int)((u32)i / run); }
    DEVICE Item item(int i) const { return shared.get(place(i)); }
    DEVICE int tile() const { return block.size() * run; }  // a power of two

    // Sorts get(i), i < m, into to[0, m); all lanes of the block call it. More than a tile is sorted in `to`, by a
    // bitonic network of tiles that always moves the greater item back, so items past the end need not exist.
    template <class Get> DEVICE void sort(i64 m, Get get, ItemArray to) const {
        if (m <= tile()) return sort_tile((int)m, get, to);
        for (i64 i = block.rank(); i < m; i += block.size()) to.set(i, get(i));
        block.sync();
        for (i64 width = tile();; width *= 2) {
            for (i64 first = 0; first < m; first += tile()) {
                ItemArray some = to.from(first);
                sort_tile((int)lesser(m - first, (i64)tile()), [=](i64 i) { return some.get(i); }, some);
            }
            if (width >= m) return;
            exchange(to, m, width, true);
            for (i64 step = width / 2; step >= tile(); step /= 2) exchange(to, m, step, false);
        }
    }
    // Compares and exchanges the halves of each 2 * step items, or the first half and the mirrored second.
    DEVICE void exchange(ItemArray items, i64 m, i64 step, bool mirror) const {
        for (i64 p = block.rank(); p < ((m - 1) / (2 * step) + 1) * step; p += block.size()) {
            i64 in = p & (step - 1), first = (p - in) * 2, i = first + in,
                j = mirror ? first + 2 * step - 1 - in : i + step;
            if (j >= m) continue;
            Item low = items.get(i), high = items.get(j);
            if (high < low) items.set(i, high), items.set(j, low);
        }
        block.sync();
    }
    template <class Get> DEVICE void sort_tile(int m, Get get, ItemArray to) const {
        Item mine[run];
        int working = (m + run - 1) / run, all = working * run, rank = block.rank();
        bool works = rank < working;
        if (m == 0) return;
#pragma unroll
        // Without a branch: all loads overlap.
        for (int j = 0; j < run; ++j) mine[j] = get(lesser(rank + j * working, m - 1));
#pragma unroll
        for (int j = 0; j < run; ++j) mine[j] = works && rank + j * working < m ? mine[j] : last();
        int width = run;
        if (rank - Tile<32>().rank() < working) {  // whole warps
            sort_mine(mine);
            if constexpr (Tile<32>::size() > 1)
                if (working > 1) join<2>(mine), join<4>(mine);
        }
        if constexpr (Tile<32>::size() > 1) width = 4 * run;
        if (works) write(mine, rank * run);
        for (; width < all; width *= 2) {
            wait(width);
            if (works) merge(mine, rank * run, width, all);
            wait(width);
            if (works) write(mine, rank * run);
        }
        block.sync();
        for (int i = rank; i < m; i += block.size()) to.set(i, item(i));
        block.sync();
    }
    DEVICE void wait(int width) const {  // for the lanes of the merged runs
        if (2 * width <= 32 * run) Tile<32>().sync();
        else block.sync();
    }
    DEVICE void write(const Item* mine, int at) const {
#pragma unroll
        for (int j = 0; j < run; ++j) shared.set(place(at) + j, mine[j]);
    }
    // Sorts a lane's items by Batcher's odd-even merge sort: runs of p become runs of 2 p by exchanges of items k apart,
    // k from p down to 1.
    static DEVICE void sort_mine(Item* mine) {
        exchange<1, 1>(mine);
        exchange<2, 2>(mine), exchange<2, 1>(mine);
        exchange<4, 4>(mine), exchange<4, 2>(mine), exchange<4, 1>(mine);
        if constexpr (run >= 16) exchange<8, 8>(mine), exchange<8, 4>(mine), exchange<8, 2>(mine), exchange<8, 1>(mine);
        if constexpr (run >= 32)
            exchange<16, 16>(mine), exchange<16, 8>(mine), exchange<16, 4>(mine), exchange<16, 2>(mine),
                exchange<16, 1>(mine);
    }
    template <int p, int k> static DEVICE void exchange(Item* mine) {
#pragma unroll
        for (int i = k % p; i + k < run; ++i) {
            if ((i - k % p) / k % 2 || i / (2 * p) != (i + k) / (2 * p)) continue;
            Item low = lesser(mine[i], mine[i + k]), high = greater(mine[i], mine[i + k]);
            mine[i] = low, mine[i + k] = high;
        }
    }
    // Merges the runs of W neighbouring lanes in registers (bitonic), which saves the first rounds in shared memory.
    template <int W> static DEVICE void join(Item* mine) {
        Tile<32> tile;
        int lane = tile.rank();
#pragma unroll
        for (int j = 0; j < run / 2; ++j) {  // the least of one half with the greatest of the other
            Item low = from(tile, mine[run - 1 - j], lane ^ (W - 1)), high = from(tile, mine[j], lane ^ (W - 1));
            mine[j] = pick(lane & W / 2, mine[j], low), mine[run - 1 - j] = pick(lane & W / 2, mine[run - 1 - j], high);
        }
#pragma unroll
        for (int step = W / 4; step > 0; step /= 2)
#pragma unroll
            for (int j = 0; j < run; ++j) mine[j] = pick(lane & step, mine[j], from(tile, mine[j], lane ^ step));
        halve<run / 2>(mine);
    }
    template <int k> static DEVICE void halve(Item* mine) {
#pragma unroll
        for (int i = 0; i < run; ++i) {
            if (i & k) continue;
            Item low = lesser(mine[i], mine[i + k]), high = greater(mine[i], mine[i + k]);
            mine[i] = low, mine[i + k] = high;
        }
        if constexpr (k > 1) halve<k / 2>(mine);
    }
    static DEVICE Item pick(bool high, const Item& one, const Item& other) { return other < one == high ? one : other; }
    static DEVICE Item from(Tile<32> tile, const Item& one, int lane) {
        return Item::of(tile.shfl(one.key, lane), placed ? tile.shfl(one.place(), lane) : 0);
    }
    // Merges a run of places of two runs of `width`, found by merge path. Items past the end of a run compare as the
    // greatest, like the padding of the last run. They are not read, since another warp may be writing there.
    DEVICE void merge(Item* mine, int at, int width, int all) const {
        int a = at & -2 * width, b = lesser(a + width, all), a_end = b, b_end = lesser(b + width, all), d = at - a;
        int low = greater(0, d - (b_end - b)), high = lesser(d, a_end - a);
        while (low < high) {
            int i = (low + high) >> 1;
            if (item(b + d - 1 - i) < item(a + i)) high = i;
            else low = i + 1;
        }
        a += low, b += d - low;
        Item x = a < a_end ? item(a) : last(), y = b < b_end ? item(b) : last();
#pragma unroll
        for (int j = 0; j < run; ++j) {
            bool second = y < x;
            mine[j] = second ? y : x;
            int next = (second ? b : a) + 1;
            Item then = last();
            if (next < (second ? b_end : a_end)) then = item(next);  // no jump: a load under a condition
            x = second ? x : then, y = second ? then : y;
            a = second ? a : next, b = second ? next : b;
        }
    }
};
