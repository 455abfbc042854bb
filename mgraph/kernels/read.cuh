// Reads of any structure through its View: degree(v), units(v), visit(tile, v, unit, f), weight(slot), find(v, dst).
#pragma once

template <class View>
struct Degrees {  // one lane a vertex
    static constexpr int lanes = 1;
    View graph;
    const u32* vertices;
    i64 n;
    u32* degrees;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) degrees[i] = graph.degree(vertices[i]);
    }
};

template <class View>
struct HasEdges {  // one lane a query
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
struct Neighbors {  // one tile a vertex; slots are visited in order, so sorted rows come out sorted
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
