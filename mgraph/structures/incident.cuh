// Lists the edges from and to a set of vertices, in any structure: a first scan counts them by row, and a second one
// writes them at the prefix sums of the counts. Rows are balanced as in rows.cuh.
#pragma once
#include "structures/deleted_set.cuh"
#include "kernels/rows.cuh"

struct Vertices {  // bitmaps: vertices whose in-edges, and rows whose edges are listed
    const u32* dead;
    const u32* dead_rows;
};

// Processes the tile's part of a unit: counts into next[row + 1], or, if `keys` is given, writes from next[row] on.
template <class View, class Group>
DEVICE void list_unit(const View& graph, Group group, i64 row, i64 unit, const Vertices& sought, i64* next, u64* keys) {
    bool all = is_deleted(sought.dead_rows, (u32)row);
    i64 mine = 0;
    graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
        bool hit = live && (all || is_deleted(sought.dead, id));
        u32 hits = group.ballot(hit);
        if (!keys) mine += popcount(hits);
        if (!keys || !hits) return false;
        i64 to = group.rank() == 0 ? atomic_add(next + row, (i64)popcount(hits)) : 0;
        to = group.shfl(to, 0) + popcount(hits & ((1u << group.rank()) - 1));
        if (hit) keys[to] = (u64)row << 32 | id;
        return false;
    });
    if (mine && group.rank() == 0) atomic_add(next + row + 1, mine);
}

template <class View>
struct Incident {  // one lane per row; hubs are added to the tasks
    static constexpr int lanes = 32;
    View graph;
    i64 rows;
    Vertices sought;
    u64* tasks;
    i64* n_tasks;
    i64* next;
    u64* keys;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (rows + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            visit_rows(graph, tile, row < rows ? row : -1, tasks, n_tasks,
                       [&](auto group, i64 its, i64 unit) { list_unit(graph, group, its, unit, sought, next, keys); });
        }
    }
};

template <class View>
struct IncidentHubs {  // one tile per task
    static constexpr int lanes = 32;
    View graph;
    Vertices sought;
    const u64* tasks;
    const i64* n_tasks;
    i64* next;
    u64* keys;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks))
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                list_unit(graph, tile, row, unit, sought, next, keys);
                return false;
            });
    }
};
