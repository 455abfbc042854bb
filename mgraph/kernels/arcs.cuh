// From a batch's columns to keys of arcs, from rows back to keys, and what became of each edge of an undirected graph.
// One lane an item; only the largest ids and the counts are shared, by atomics.
#pragma once
#include "kernels/search.cuh"

DEVICE void note_largest(u64* largest, u64 src, u64 dst) {  // of all lanes
    Tile<32> tile;
    src = tile.most(src), dst = tile.most(dst);
    if (tile.rank() == 0 && src > load(largest)) atomic_max(largest, src);
    if (tile.rank() == 0 && dst > load(largest + 1)) atomic_max(largest + 1, dst);
}

struct Arcs {  // keys in internal ids of edges in users' ids; with stride 2 the arc back follows each arc
    static constexpr int lanes = 1;
    const u32* src;
    const u32* dst;
    const u32* order;  // the internal id of each user's id; null for the identity
    i64 n;
    i64 vertices;  // ids past it are not looked up: `largest` tells of them
    i64 stride;
    u64* keys;
    u64* largest;  // of src and of dst, in users' ids; may be null
    DEVICE void operator()(Grid grid) const {
        u64 most_src = 0, most_dst = 0;
        for (i64 i : grid.items(n)) {
            u64 a = src[i], b = dst[i];
            most_src = greater(most_src, a), most_dst = greater(most_dst, b);
            a = inside(a), b = inside(b);
            keys[i * stride] = a << 32 | b;
            if (stride == 2) keys[2 * i + 1] = b << 32 | a;
        }
        if (largest) note_largest(largest, most_src, most_dst);
    }
    DEVICE u64 inside(u64 id) const { return order && id < (u64)vertices ? order[id] : id; }
};

struct LargestIds {  // of src and of dst
    static constexpr int lanes = 1;
    const u32* src;
    const u32* dst;
    i64 n;
    u64* largest;  // two, and of what is there
    DEVICE void operator()(Grid grid) const {
        u64 most_src = 0, most_dst = 0;
        for (i64 i : grid.items(n))
            most_src = greater(most_src, (u64)src[i]), most_dst = greater(most_dst, (u64)dst[i]);
        note_largest(largest, most_src, most_dst);
    }
};

struct CountForward {  // of the arcs whose source `lo` + row is not above their destination: how many have each outcome
    static constexpr int lanes = 1;
    const u64* keys;
    const u8* outcome;
    i64 n;
    i64 lo;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        i64 found[5] = {};
        for (i64 k : grid.items(n))
            if ((keys[k] >> 32) + (u64)lo <= (keys[k] & 0xffffffffu)) ++found[outcome[k]];
        Tile<32> tile;
        for (int c = 0; c < 5; ++c) {
            i64 sum = tile.sum(found[c]);
            if (tile.rank() == 0 && sum) atomic_add(counts + c, sum);
        }
    }
};

struct Renumber {  // one lane per key: both its ids by a new numbering
    static constexpr int lanes = 1;
    u64* keys;
    i64 n;
    const u32* ids;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) keys[i] = (u64)ids[keys[i] >> 32] << 32 | ids[keys[i] & 0xffffffffu];
    }
};

struct RowKeys {  // keys of the edges of all rows, the rows numbered from `lo`
    static constexpr int lanes = 1;
    const i64* offsets;
    const u32* dst;
    i64 n;
    i64 rows;
    i64 lo;
    u64* keys;
    DEVICE void operator()(Grid grid) const {
        i64 next = 0;  // the row after the last edge's: a lane's edges ascend
        for (i64 e : grid.items(n)) {
            next = lower_bound_near(offsets, rows + 1, next, e + 1);
            keys[e] = (u64)(lo + next - 1) << 32 | dst[e];
        }
    }
};
