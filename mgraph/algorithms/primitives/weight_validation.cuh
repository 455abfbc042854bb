// Finds weights that are negative or NaN, and on demand infinite ones.
#pragma once
#include "kernels/rows.cuh"

struct InvalidWeight {  // the smallest edge with a bad weight: source << 32 | destination
    u64* edge;
    i64 first;
    i64 finite;  // 1 to refuse infinite weights, too
    DEVICE void see(i64 row, u32 id, f32 weight) const {
        if (!(weight >= 0) || (finite && weight == float_of((u32)0x7f800000)))
            atomic_min(edge, (u64)(first + row) << 32 | id);
    }
};

template <class View, class Tile>
DEVICE void check_weights(const View& graph, Tile tile, i64 row, i64 unit, InvalidWeight bad) {
    graph.visit(tile, row, unit, [&](u32 id, i64 slot, bool live) {
        if (live) bad.see(row, id, graph.weight(slot));
        return false;
    });
}

template <class View>
struct CheckWeights {  // checks 32 rows per tile; hubs become tasks
    static constexpr int lanes = 32;
    View graph;
    i64 rows;
    InvalidWeight bad;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_all(grid, graph, rows, EveryRow{}, tasks, n_tasks,
                  [&](auto group, i64 row, i64 unit) { check_weights(graph, group, row, unit, bad); });
    }
};

template <class View>
struct CheckHubs {  // checks a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    InvalidWeight bad;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks,
                   [&](auto tile, i64 row, i64 unit) { check_weights(graph, tile, row, unit, bad); });
    }
};
