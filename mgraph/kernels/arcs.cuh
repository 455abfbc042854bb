// Converts a batch's columns to keys of arcs, and rows to keys. One lane per item. Only the largest ids are shared, by
// atomics.
#pragma once
#include "kernels/search.cuh"

// Reduces the tile's ids by maximum into largest[0], largest[1].
DEVICE void note_largest(u64* largest, u64 src, u64 dst) {
    Tile<32> tile;
    src = tile.most(src), dst = tile.most(dst);
    if (tile.rank() == 0 && src > load(largest)) atomic_max(largest, src);
    if (tile.rank() == 0 && dst > load(largest + 1)) atomic_max(largest + 1, dst);
}

// Writes the keys, in internal ids, of edges in users' ids. With stride 2 the reverse arc follows each arc.
struct Arcs {
    static constexpr int lanes = 1;
    const u32* src;
    const u32* dst;
    const u32* order;  // the internal id of each user's id; null for the identity
    i64 n;
    i64 vertices;  // larger ids are not looked up; `largest` reports them
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

// Reduces src and dst to their largest ids.
struct LargestIds {
    static constexpr int lanes = 1;
    const u32* src;
    const u32* dst;
    i64 n;
    u64* largest;  // [2], maximum with the present values
    DEVICE void operator()(Grid grid) const {
        u64 most_src = 0, most_dst = 0;
        for (i64 i : grid.items(n))
            most_src = greater(most_src, (u64)src[i]), most_dst = greater(most_dst, (u64)dst[i]);
        note_largest(largest, most_src, most_dst);
    }
};

// Renumbers both ids of each key.
struct Renumber {
    static constexpr int lanes = 1;
    u64* keys;
    i64 n;
    const u32* ids;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) keys[i] = (u64)ids[keys[i] >> 32] << 32 | ids[keys[i] & 0xffffffffu];
    }
};

// Writes the keys of all rows' edges; the rows are numbered from `lo`.
struct RowKeys {
    static constexpr int lanes = 1;
    const i64* offsets;
    const u32* dst;
    i64 n;
    i64 rows;
    i64 lo;
    u64* keys;
    DEVICE void operator()(Grid grid) const {
        i64 next = 0;  // the row after the previous edge's: a lane's edges ascend
        for (i64 e : grid.items(n)) {
            next = lower_bound_near(offsets, rows + 1, next, e + 1);
            keys[e] = (u64)(lo + next - 1) << 32 | dst[e];
        }
    }
};
