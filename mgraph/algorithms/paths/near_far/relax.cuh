// Relaxation of the edges of near vertices.
#pragma once
#include "algorithms/paths/near_far/lengths.cuh"
#include "kernels/bits.cuh"
#include "kernels/buffered_append.cuh"
#include "kernels/rows.cuh"

// Calls take(row) for own vertices that are near now.
template <class View, class Tile, class Finds, class Take>
DEVICE void relax_and_take(const View& graph, Tile tile, i64 row, i64 unit, u64 limit, Finds& finds, Take take) {
    Word length = finds.length(row);
    graph.visit(tile, row, unit, [&](u32 id, i64 slot, bool live) {
        if (live && finds.takes(id, longer(length, graph.weight(slot)), limit)) take((u32)((i64)id - finds.first()));
        return false;
    });
}
template <class View, class Tile, class Finds>
DEVICE void relax(const View& graph, Tile tile, i64 row, i64 unit, u64 limit, Finds& finds) {
    relax_and_take(graph, tile, row, unit, limit, finds, [&](u32 found) { finds.add_near(found); });
}

// Few vertices, at most one per lane: 8 lanes follow a short row. Near vertices that they find are followed next, for
// some steps: the grid need not meet in between, and a vertex that is followed too early is followed again. Returns the
// number of edges that the lane has followed.
constexpr int steps_ahead = 8;
constexpr u32 no_row = ~0u;
template <class View, class Tile32, class Finds>
DEVICE int run_ahead(const View& graph, Tile32 tile, u32 row, u64 limit, Finds& finds) {
    Tile<narrow> group;
    int edges = 0;
    for (int step = 0; step < steps_ahead; ++step) {
        u32 waiting = tile.ballot(row != no_row), mine = waiting;
        if (waiting == 0) return edges;
        for (int g = tile.rank() / narrow; g; --g) mine &= mine - 1;
        u32 next = tile.shfl(row, mine ? lowest_bit(mine) : 0);
        if (popcount(waiting & ((1u << tile.rank()) - 1)) < tile.size() / narrow) row = no_row;  // a group takes it
        u32 degree = mine ? (u32)graph.degree(next) : 0;
        if (degree > short_degree) {
            if (group.rank() == 0) finds.add_near(next);
            degree = 0;
        }
        int units = degree ? (int)graph.units(next) : 0;
        for (int unit = 0; unit < units; ++unit)
            relax_and_take(graph, group, next, unit, limit, finds, [&](u32 found) {
                if (row == no_row) row = found;
                else finds.add_near(found);
            });
        if (group.rank() == 0) edges += degree;
        tile.sync();
    }
    if (row != no_row) finds.add_near(row);
    return edges;
}

// A tile follows the edges of one row per lane, of few rows. Returns the number of edges that the lane has followed.
template <class View, class Tile32, class Finds>
DEVICE i64 relax_few(const View& graph, Tile32 tile, i64 row, u64 limit, Finds& finds, u64* tasks, i64* n_tasks) {
    i64 degree = row < 0 ? 0 : (i64)graph.degree(row);
    bool brief = degree <= short_degree;
    visit_long_rows(graph, tile, row, degree, tasks, n_tasks,
                    [&](auto group, i64 its, i64 unit) { relax(graph, group, its, unit, limit, finds); });
    return run_ahead(graph, tile, brief ? (u32)row : no_row, limit, finds) + (brief ? 0 : degree);
}
template <class View, class Tile32, class Finds>
DEVICE void relax_task(const View& graph, Tile32 tile, u64 task, u64 limit, Finds& finds) {
    visit_task(graph, task, [&](i64 row, i64 unit) {
        relax(graph, tile, row, unit, limit, finds);
        return false;
    });
}
