// A tile's part of a sorted batch: the rows of its keys, and a filter for edges that may be among them.
#pragma once
#include "structures/graphvine/view.cuh"
#include "kernels/search.cuh"

constexpr i64 long_run = 512;  // keys of a row; longer runs have a filter in memory
DEVICE u32 bits_of_run(i64 n) { return (u32)lesser(32 * n, (i64)0xffffffff); }
DEVICE u32 bit_for(u32 id, u32 bits, u32 row = 0) {
    return (u32)((u64)(id * 0x9E3779B1u + row * 0x85EBCA6Bu) * bits >> 32);
}

// A tile's keys, one per lane, and their rows. A row may begin before these keys and end behind them.
struct Share {
    Tile<32> tile;
    i32 first, k, n;  // the tile's first key, the lane's, and the number of keys: less than 2^31
    u64 key, last, back, on;  // the lane's key, the previous one, and those a tile's length before and behind
    i32 own = 0, end = 0;  // the keys of the lane's row; none past n
    DEVICE Share(const u64* keys, i64 its_first, i64 all) : first((i32)its_first), k(first + tile.rank()), n((i32)all) {
        const u64 none = ~(u64)0;  // belongs to no row
        const i32 size = tile.size();
        key = k < n ? keys[k] : none, last = k > 0 && k < n ? keys[k - 1] : none;
        back = k >= size ? keys[k - size] : none, on = k < n - size ? keys[k + size] : none;
    }
    DEVICE void find_rows(const u64* keys) {
        const i32 size = tile.size();
        u64 row = key >> 32, top = tile.shfl(row, 0), bottom = tile.shfl(row, size - 1);
        u32 leaders = tile.ballot(k < n && (k == 0 || last >> 32 != row));
        u32 upto = leaders & ((2u << tile.rank()) - 1), above = leaders >> tile.rank() >> 1;
        u32 others = tile.ballot(k < size || back >> 32 != top);  // among the tile's length of keys before
        i32 came = first - size + bit_width(others);
        if (!(leaders & 1) && !others) came = (i32)lower_bound_near(keys, n, first - size, top << 32);
        others = tile.ballot(k >= n - size || on >> 32 != bottom);  // and behind
        i32 goes = first + lesser(n - first, size + lowest_bit(others));
        if (!others) goes = (i32)lower_bound_near(keys, n, first + 2 * size, (bottom + 1) << 32);
        if (k >= n) return;
        own = upto ? first + bit_width(upto) - 1 : came;
        end = above ? k + 1 + lowest_bit(above) : goes;
    }
    DEVICE bool leads() const { return k < n && own == k; }
    DEVICE i32 run() const { return end - own; }
};

template <class T, int N> DEVICE T pick(const T (&from)[N], int i) {  // registers cannot be indexed
    T it = from[0];
#pragma unroll
    for (int j = 1; j < N; ++j) it = j == i ? from[j] : it;
    return it;
}

// A bit per key of the tile, in shared memory: few other edges find their bit set.
struct Filter {
    static constexpr int words = Tile<32>::size() > 8 ? 8 * Tile<32>::size() : 64;
    Tile<32> tile;
    u32* share;
    DEVICE Filter() {
        SHARED(Four, shares, 512);
        share = (u32*)(shares + tile.index() * words / 4);
        tile.sync();  // all lanes are done with the previous keys
        for (int i = tile.rank(); i < words / 4; i += tile.size()) ((Four*)share)[i] = {};
        tile.sync();
    }
    DEVICE void add(u32 id, u32 row) const {
        u32 bit = bit_for(id, 32 * words, row);
        atomic_or(share + bit / 32, 1u << bit % 32);
    }
    DEVICE bool has(u32 id, u32 row) const {
        u32 bit = bit_for(id, 32 * words, row);
        return share[bit / 32] >> bit % 32 & 1;
    }
};

// The keys of one row, n of them from `first` on, for the search of candidate edges.
struct Sought {
    const u64* keys;
    u32* position;
    i64 first, n;
    DEVICE void meet(u32 id, u32 at) const {
        const u64* base = keys + first;
        for (i64 left = n; left > 1;) {  // base: the last key not above, found without a branch
            i64 half = left >> 1;
            base += (u32)base[half] <= id ? half : 0;
            left -= half;
        }
        if ((u32)*base == id) position[base - keys] = at;
    }
    template <int N, class F> DEVICE void meet(const Four (&held)[N], int which, u32 at, u32 end, F may_meet) const {
        for (u32 i = 0; i < 4; ++i) {
            u32 id = held[0].id[i];
#pragma unroll
            for (int j = 1; j < N; ++j) id = j == which ? held[j].id[i] : id;
            if (at + i < end && may_meet(id)) meet(id, at + i);
        }
    }
};
