// Reads of any structure through its View (view.cuh).
#pragma once
#include "structures/view.cuh"

template <class View>
struct Degrees {  // one lane per vertex
    static constexpr int lanes = 1;
    static_assert(AssertView<View>::value);
    View graph;
    const u32* vertices;
    i64 n;
    u32* degrees;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) degrees[i] = graph.degree(vertices[i]);
    }
};

template <class View>
struct HasEdges {  // one lane per query
    static constexpr int lanes = 1;
    View graph;
    const u32* src;
    const u32* dst;
    i64 n;
    u8* found;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) found[i] = graph.find(src[i], dst[i]) >= 0;
    }
};

template <class View>
struct Weights {  // one lane per query
    static constexpr int lanes = 1;
    View graph;
    const u32* src;
    const u32* dst;
    i64 n;
    f32* weights;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            i64 slot = graph.find(src[i], dst[i]);
            weights[i] = slot >= 0 ? graph.weight(slot) : float_of(0x7fc00000u);  // NaN
        }
    }
};

template <class View>
struct EdgeWeights {  // one lane per key, src << 32 | dst: reads the edge's weight, 0 if it does not exist
    static constexpr int lanes = 1;
    View graph;
    const u64* keys;
    i64 n;
    f32* weights;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            i64 slot = graph.find((i64)(keys[i] >> 32), (u32)keys[i]);
            weights[i] = slot < 0 ? 0 : graph.weight(slot);
        }
    }
};

template <class View>
struct Neighbors {  // one tile per vertex; visits slots in order, so sorted rows come out sorted
    static constexpr int lanes = 32;
    View graph;
    const u32* vertices;
    i64 n;
    const i64* offsets;
    u32* dst;
    f32* weight;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            i64 v = vertices[i], next = offsets[i], units = graph.units(v);
            for (i64 unit = 0; unit < units; ++unit)
                graph.visit(tile, v, unit, [&](u32 id, i64 slot, bool live) {
                    u32 lives = tile.ballot(live);
                    if (live) {
                        i64 to = next + popcount(lives & ((1u << tile.rank()) - 1));
                        dst[to] = id;
                        if (weight) weight[to] = graph.weight(slot);
                    }
                    next += popcount(lives);
                    return false;
                });
        }
    }
};

template <class View>
struct CommonNeighbors {  // one tile per pair of rows
    static constexpr int lanes = 32;
    View graph;
    const u32* u;
    const u32* v;
    i64 n;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            i64 mine = 0;
            intersect(graph, tile, u[i], v[i], [&](u32, i64, i64, bool live) {
                mine += live;
                return false;
            });
            i64 all = tile.sum(mine);
            if (tile.rank() == 0) counts[i] = all;
        }
    }
};
