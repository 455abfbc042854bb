// Rows dealt by degree, so that one long row does not hold up the rest: a short one goes to one lane, a longer one to a
// whole tile, and a hub, more than HUB_DEGREE edges, is cut into tasks of about that many edges for any tile to take. A
// task is row << 32 | first unit. A graph of m edges has at most 2 m / HUB_DEGREE tasks, so their list never overflows.
#pragma once

constexpr i64 short_degree = 8;
static_assert(HUB_DEGREE >= short_degree, "a row is short, long or a hub");

template <class View> DEVICE i64 task_units(const View& graph, i64 row) {
    i64 degree = graph.degree(row);
    return (graph.units(row) * HUB_DEGREE + degree - 1) / degree;
}

template <class View> DEVICE void add_tasks(const View& graph, i64 row, u64* tasks, i64* n_tasks) {
    i64 units = graph.units(row), step = task_units(graph, row);
    i64 at = atomic_add(n_tasks, (units + step - 1) / step);
    for (i64 unit = 0; unit < units; unit += step) tasks[at++] = (u64)row << 32 | (u64)unit;
}

// The tile visits a task's edges: visit(row, unit) until it returns true.
template <class View, class Visit> DEVICE void visit_task(const View& graph, u64 task, Visit visit) {
    i64 row = (i64)(task >> 32), unit = (i64)(u32)task;
    i64 end = lesser(unit + task_units(graph, row), (i64)graph.units(row));
    while (unit < end && !visit(row, unit)) ++unit;
}

// Each lane of the tile brings a row, or -1: visit(group, row, unit) for every unit of them, `group` being a tile of
// one lane or the whole tile. Hubs are added to the tasks, or left out where `tasks` is null.
template <class Tile32, class View, class Visit>
DEVICE void visit_rows(const View& graph, Tile32 tile, i64 row, u64* tasks, i64* n_tasks, Visit visit) {
    i64 degree = row < 0 ? 0 : (i64)graph.degree(row);
    if (degree > 0 && degree <= short_degree) {
        i64 units = graph.units(row);
        for (i64 unit = 0; unit < units; ++unit) visit(Tile<1>{}, row, unit);
    }
    for (u32 rest = tile.ballot(degree > short_degree && degree <= HUB_DEGREE); rest; rest &= rest - 1) {
        i64 next = tile.shfl(row, lowest_bit(rest)), units = graph.units(next);
        for (i64 unit = 0; unit < units; ++unit) visit(tile, next, unit);
    }
    if (degree > HUB_DEGREE && tasks) add_tasks(graph, row, tasks, n_tasks);
}

template <class View>
struct FirstIds {  // one lane per task: the id in its first live slot
    static constexpr int lanes = 1;
    View graph;
    const u64* tasks;
    i64 n;
    u32* ids;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            ids[i] = 0;
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                bool found = false;
                graph.visit(Tile<1>{}, row, unit, [&](u32 id, i64, bool live) {
                    if (live) ids[i] = id, found = true;
                    return found;
                });
                return found;
            });
        }
    }
};

template <class View>
struct ListHubs {  // one lane per row: the tasks of all hubs; state: how many tasks, one past the last hub's row
    static constexpr int lanes = 1;
    View graph;
    i64 n;
    u64* tasks;
    i64* state;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n))
            if ((i64)graph.degree(row) > HUB_DEGREE) {
                add_tasks(graph, row, tasks, state);
                atomic_max(state + 1, row + 1);
            }
    }
};
