// Lists candidates among the neighbours of each vertex. A sort then chooses those with the smallest draws.
#pragma once
#include "kernels/random_draws.cuh"

// A row's units are dealt to so many tiles of a GPU: one that read a million edges alone would keep all others waiting.
constexpr i64 row_tiles = 32;
constexpr i64 row_parts = Tile<32>::size() > 1 ? row_tiles : 1;

// Visits the edges of n rows part by part: row_at(i), the i-th of them or -1, then visit(tile, id, live) for the part's
// edges, then after(tile, i). Neighbouring tiles have different rows.
template <class View, class RowAt, class Visit, class After>
DEVICE void visit_parts(Grid grid, const View& graph, i64 n, RowAt row_at, Visit visit, After after) {
    Tile<32> tile;
    for (i64 item : grid.items(tile, n * row_parts)) {
        i64 i = item % n, part = item / n, row = row_at(i), units = row < 0 ? 0 : graph.units(row);
        for (i64 unit = part; unit < units; unit += row_parts)
            graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                visit(tile, id, live);
                return false;
            });
        if (part < units) after(tile, i);
    }
}

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
struct CountCandidates {  // counts the candidates of each vertex with many neighbours, a part of a row per tile
    static constexpr int lanes = 32;
    View graph;
    const u32* vertices;
    i64 n;
    Lottery lottery;
    i64* counts;  // 0 before
    DEVICE void operator()(Grid grid) const {
        u64 bound = 0, stream = 0;
        i64 mine = 0;
        visit_parts(
            grid, graph, n,
            [&](i64 i) -> i64 {
                i64 row = (i64)vertices[i] - lottery.first;
                bound = lottery.bound(graph.degree(row)), stream = lottery.stream(vertices[i]), mine = 0;
                return bound == ~(u64)0 ? -1 : row;
            },
            [&](auto, u32 id, bool live) { mine += live && scramble(stream ^ lottery.name(id)) < bound; },
            [&](auto tile, i64 i) {
                i64 all = tile.sum(mine);
                if (tile.rank() == 0 && all) atomic_add(counts + i, all);
            });
    }
};

template <class View>
struct TakeAll {  // takes all neighbours where they are few, or too few are candidates, one lane per vertex
    static constexpr int lanes = 1;
    View graph;
    const u32* vertices;
    i64 n;
    Lottery lottery;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            i64 degree = (i64)graph.degree((i64)vertices[i] - lottery.first);
            if (lottery.bound(degree) == ~(u64)0 || counts[i] < lottery.fanout) counts[i] = degree;
        }
    }
};

template <class View>
struct TakeCandidates {  // lists the counted candidates of each vertex in any order, a part of a row per tile
    static constexpr int lanes = 32;
    View graph;
    const u32* vertices;
    i64 n;
    Lottery lottery;
    const i64* offsets;
    i64* taken;  // 0 before: the candidates of each vertex that have a place
    u32* rows;  // per candidate: place of its vertex, draw, id
    u64* draws;
    u32* ids;
    DEVICE void operator()(Grid grid) const {
        u64 bound = 0, stream = 0;
        i64 vertex = 0;
        visit_parts(
            grid, graph, n,
            [&](i64 i) {
                i64 row = (i64)vertices[i] - lottery.first, degree = graph.degree(row);
                vertex = i, stream = lottery.stream(vertices[i]);
                bound = offsets[i + 1] - offsets[i] == degree ? ~(u64)0 : lottery.bound(degree);
                return row;
            },
            [&](auto tile, u32 id, bool live) {
                u64 draw = live ? scramble(stream ^ lottery.name(id)) : 0;
                bool takes = live && (bound == ~(u64)0 || draw < bound);
                u32 all = tile.ballot(takes);
                if (!all) return;
                i64 first = tile.shfl(tile.rank() == 0 ? atomic_add(taken + vertex, (i64)popcount(all)) : 0, 0);
                if (!takes) return;
                i64 to = offsets[vertex] + first + popcount(all & ((1u << tile.rank()) - 1));
                rows[to] = (u32)vertex, draws[to] = draw, ids[to] = id;
            },
            [&](auto, i64) {});
    }
};
