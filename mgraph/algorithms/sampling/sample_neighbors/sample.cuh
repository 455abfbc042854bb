// Lists candidates among the neighbours of each vertex. A sort then chooses those with the smallest draws.
#pragma once
#include "kernels/random_draws.cuh"

struct Lottery {
    i64 first;    // the vertex of row 0
    i64 fanout;   // number of neighbours to choose; -1 for all
    u64 seed;
    const u32* names;  // user's id of each vertex; null if it is the internal id
    DEVICE u32 name(u32 id) const { return names ? names[id] : id; }
    DEVICE u64 stream(u32 vertex) const { return stream_of(seed, name(vertex), 0); }
    // Returns the bound of candidates' draws: about twice as many as wanted are below it, and all of a short row.
    DEVICE u64 bound(i64 degree) const {
        i64 enough = 2 * fanout + 32;
        return fanout < 0 || degree <= enough ? ~(u64)0 : (u64)((f64)enough / (f64)degree * 18446744073709551616.0);
    }
};

template <class View>
struct CountCandidates {  // counts the candidates of a vertex per tile
    static constexpr int lanes = 32;
    View graph;
    const u32* vertices;
    i64 n;
    Lottery lottery;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            i64 row = (i64)vertices[i] - lottery.first, degree = (i64)graph.degree(row), mine = 0;
            u64 bound = lottery.bound(degree), stream = lottery.stream(vertices[i]);
            i64 units = bound == ~(u64)0 ? 0 : graph.units(row);
            for (i64 unit = 0; unit < units; ++unit)
                graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                    mine += live && scramble(stream ^ lottery.name(id)) < bound;
                    return false;
                });
            i64 all = tile.sum(mine);
            if (tile.rank() == 0) counts[i] = units == 0 || all < lottery.fanout ? degree : all;
        }
    }
};

template <class View>
struct TakeCandidates {  // lists the counted candidates of a vertex per tile
    static constexpr int lanes = 32;
    View graph;
    const u32* vertices;
    i64 n;
    Lottery lottery;
    const i64* offsets;
    u32* rows;  // per candidate: place of its vertex, draw, id
    u64* draws;
    u32* ids;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            i64 row = (i64)vertices[i] - lottery.first, degree = (i64)graph.degree(row), next = offsets[i];
            u64 bound = lottery.bound(degree), stream = lottery.stream(vertices[i]);
            bool every = offsets[i + 1] - next == degree;
            i64 units = graph.units(row);
            for (i64 unit = 0; unit < units; ++unit)
                graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                    u64 draw = live ? scramble(stream ^ lottery.name(id)) : 0;
                    bool taken = live && (every || draw < bound);
                    u32 all = tile.ballot(taken);
                    if (taken) {
                        i64 to = next + popcount(all & ((1u << tile.rank()) - 1));
                        rows[to] = (u32)i, draws[to] = draw, ids[to] = id;
                    }
                    next += popcount(all);
                    return false;
                });
        }
    }
};
