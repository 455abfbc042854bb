// Multiplies a matrix of edges with a vector: each row sums the values of its neighbours, times the weight of the edge
// with BY_WEIGHT. Each row sums in an order of its own, so that no sum depends on timing.
#pragma once
#include "kernels/rows.cuh"

template <class View, class Tile>
DEVICE f64 gathered(const View& graph, const f64* values, Tile tile, i64 row, i64 unit) {
    f64 sum = 0;
    graph.visit(tile, row, unit, [&](u32 id, i64 slot, bool live) {
        if (live) sum += BY_WEIGHT ? values[id] * graph.weight(slot) : values[id];
        return false;
    });
    return sum;
}

template <class View>
struct GatherRows {  // sums 32 rows per tile; hubs become tasks
    static constexpr int lanes = 32;
    View graph;
    const f64* values;  // per vertex of the graph
    f64* sums;
    i64 n;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            take(tile, row < n ? row : -1);
        }
    }
    template <class Tile32> DEVICE void take(Tile32 tile, i64 row) const {
        // Short rows per lane, longer rows per tile, hubs as tasks.
        i64 degree = row < 0 ? 0 : (i64)graph.degree(row);
        if (row >= 0 && degree <= short_degree) sums[row] = whole(Tile<1>{}, row);
        for (u32 rest = tile.ballot(degree > short_degree && degree <= HUB_DEGREE); rest; rest &= rest - 1) {
            i64 next = tile.shfl(row, lowest_bit(rest));
            f64 sum = tile.sum(whole(tile, next));
            if (tile.rank() == 0) sums[next] = sum;
        }
        if (degree > HUB_DEGREE) add_tasks(graph, row, tasks, n_tasks);
    }
    template <class Group> DEVICE f64 whole(Group group, i64 row) const {
        f64 sum = 0;
        i64 units = graph.units(row);
        for (i64 unit = 0; unit < units; ++unit) sum += gathered(graph, values, group, row, unit);
        return sum;
    }
};

template <class View>
struct GatherHubs {  // sums a task per tile
    static constexpr int lanes = 32;
    View graph;
    const f64* values;
    const u64* tasks;
    const i64* n_tasks;
    f64* parts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks)) {
            f64 part = 0;
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                part += gathered(graph, values, tile, row, unit);
                return false;
            });
            part = tile.sum(part);
            if (tile.rank() == 0) parts[i] = part;
        }
    }
};

template <class View>
struct JoinGathered {  // one lane per task: a row's first task adds up the row's parts, which follow it
    static constexpr int lanes = 1;
    View graph;
    f64* sums;
    const u64* tasks;
    const i64* n_tasks;
    const f64* parts;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(*n_tasks)) {
            if ((u32)tasks[i] != 0) continue;
            i64 row = (i64)(tasks[i] >> 32), step = task_units(graph, row);
            i64 count = (graph.units(row) + step - 1) / step;
            f64 sum = 0;
            for (i64 k = i; k < i + count; ++k) sum += parts[k];
            sums[row] = sum;
        }
    }
};
