// Numbers of shortest paths, and dependencies, level by level: every vertex of a level sums over its neighbours in the
// level before (forward, over in-edges) or after (backward, over out-edges). A vertex sums by itself, so that no sum
// depends on timing. Numbers of paths may be past any float: they are m * 2^(512 power), m from 1 to below 2^512.
#pragma once
#include "kernels/rows.cuh"

constexpr f64 step_up = 1.3407807929942597e154, step_down = 1 / step_up;  // 2^512

struct Big {
    f64 m;
    i64 power;
};
DEVICE f64 scaled(f64 m, i64 steps) {  // down by so many steps; what is two steps down is too small to count
    return steps == 0 ? m : steps == 1 ? m * step_down : 0;
}
DEVICE Big add(Big a, Big b) {
    if (a.m == 0 || b.m == 0) return a.m == 0 ? b : a;
    i64 power = greater(a.power, b.power);
    return {scaled(a.m, power - a.power) + scaled(b.m, power - b.power), power};
}
template <class Tile> DEVICE Big sum(Tile tile, Big part) {
    i64 power = (i64)tile.most((u64)(part.m == 0 ? 0 : part.power));
    return {tile.sum(part.m == 0 ? 0 : scaled(part.m, power - part.power)), power};
}

struct Counts {
    const i32* level;  // of all vertices, from the source; -1 if it does not reach them
    f64* paths;        // of all vertices: the number of shortest paths from the source
    i32* power;
    f64* dependency;   // of all vertices
    f64* total;        // of own rows: the sum of the dependencies of all sources
    i64 first;
    i64 backward;
    // What a neighbour adds to the sum of an own vertex.
    DEVICE Big term(i64 v, u32 id) const {
        if (level[id] != level[v] + (backward ? 1 : -1)) return {0, 0};
        if (!backward) return {paths[id], power[id]};
        return {scaled(paths[v] / paths[id], power[id] - power[v]) * (1 + dependency[id]), 0};
    }
    DEVICE void put(i64 row, Big sum) const {
        i64 v = first + row;
        if (backward) {
            dependency[v] = sum.m, total[row] += sum.m;
            return;
        }
        bool up = sum.m >= step_up;
        paths[v] = up ? sum.m * step_down : sum.m, power[v] = (i32)(sum.power + up);
    }
};

template <class View, class Tile>
DEVICE void add_unit(const View& graph, const Counts& counts, Tile tile, i64 row, i64 unit, Big& sum) {
    graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
        if (live) sum = add(sum, counts.term(counts.first + row, id));
        return false;
    });
}

template <class View>
struct SumRows {  // a tile 32 vertices of a level; hubs become tasks
    static constexpr int lanes = 32;
    View graph;
    Counts counts;
    const i64* listed;  // vertices
    i64 n;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 at = i * tile.size() + tile.rank();
            fetch_row(graph, at, n, [&](i64 next) { return listed[next] - counts.first; });
            take(tile, at < n ? listed[at] - counts.first : -1);
        }
    }
    template <class Tile32> DEVICE void take(Tile32 tile, i64 row) const {
        i64 degree = row < 0 ? 0 : (i64)graph.degree(row);
        if (row >= 0 && degree <= short_degree) counts.put(row, whole(Tile<1>{}, row));
        for (u32 rest = tile.ballot(degree > short_degree && degree <= HUB_DEGREE); rest; rest &= rest - 1) {
            i64 next = tile.shfl(row, lowest_bit(rest));
            Big all = sum(tile, whole(tile, next));
            if (tile.rank() == 0) counts.put(next, all);
        }
        if (degree > HUB_DEGREE) add_tasks(graph, row, tasks, n_tasks);
    }
    template <class Group> DEVICE Big whole(Group group, i64 row) const {
        Big sum{0, 0};
        i64 units = graph.units(row);
        for (i64 unit = 0; unit < units; ++unit) add_unit(graph, counts, group, row, unit, sum);
        return sum;
    }
};

template <class View>
struct SumHubs {  // a tile a task: its part of the sum
    static constexpr int lanes = 32;
    View graph;
    Counts counts;
    const u64* tasks;
    const i64* n_tasks;
    f64* parts;
    i64* powers;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks)) {
            Big part{0, 0};
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                add_unit(graph, counts, tile, row, unit, part);
                return false;
            });
            part = sum(tile, part);
            if (tile.rank() == 0) parts[i] = part.m, powers[i] = part.power;
        }
    }
};

template <class View>
struct JoinHubs {  // one lane a task: that of a row's first unit adds up the parts of the row, whose tasks follow it
    static constexpr int lanes = 1;
    View graph;
    Counts counts;
    const u64* tasks;
    const i64* n_tasks;
    const f64* parts;
    const i64* powers;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(*n_tasks)) {
            if ((u32)tasks[i] != 0) continue;
            i64 row = (i64)(tasks[i] >> 32), step = task_units(graph, row),
                count = (graph.units(row) + step - 1) / step;
            Big sum{0, 0};
            for (i64 k = i; k < i + count; ++k) sum = add(sum, {parts[k], powers[k]});
            counts.put(row, sum);
        }
    }
};
