// Copies the live edges of all rows, one row after another. A lane, a tile, or for a hub several tiles copy a row; its
// edges keep the order of visits.
#pragma once
#include "kernels/rows.cuh"

struct CompactCsr {
    const i64* offsets;  // first place of each row
    u32* dst;
    f32* weights;  // null without weights
    // Copies the edges of a unit to the places from `next` on. Returns the place after them.
    template <class View, class Group>
    DEVICE i64 copy(const View& graph, Group group, i64 row, i64 unit, i64 next) const {
        graph.visit(group, row, unit, [&](u32 id, i64 slot, bool live) {
            u32 lives = group.ballot(live);
            if (live) {
                i64 to = next + popcount(lives & ((1u << group.rank()) - 1));
                dst[to] = id;
                if (weights) weights[to] = graph.weight(slot);
            }
            next += popcount(lives);
            return false;
        });
        return next;
    }
};

template <class View>
struct CompactRows {  // copies rows, a row per lane; hubs become tasks
    static constexpr int lanes = 32;
    View graph;
    i64 n;
    CompactCsr out;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        i64 next = 0;
        visit_all(grid, graph, n, EveryRow{}, tasks, n_tasks, [&](auto group, i64 row, i64 unit) {
            next = out.copy(graph, group, row, unit, unit ? next : out.offsets[row]);
        });
    }
};

template <class View>
struct CountLive {  // counts the edges of a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    const u64* tasks;
    const i64* n_tasks;
    i64* places;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks)) {
            i64 found = 0;
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                graph.visit(tile, row, unit, [&](u32, i64, bool live) {
                    found += live;
                    return false;
                });
                return false;
            });
            found = tile.sum(found);
            if (tile.rank() == 0) places[i] = found;
        }
    }
};

template <class View>
struct PlaceTasks {  // one lane per task: the task of a row's first unit places the row's tasks, which follow it
    static constexpr int lanes = 1;
    View graph;
    CompactCsr out;
    const u64* tasks;
    const i64* n_tasks;
    i64* places;  // in: numbers of edges; out: their first places
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(*n_tasks)) {
            if ((u32)tasks[i] != 0) continue;
            i64 row = (i64)(tasks[i] >> 32), step = task_units(graph, row), next = out.offsets[row];
            for (i64 k = i, end = i + (graph.units(row) + step - 1) / step; k < end; ++k) {
                i64 edges = places[k];
                places[k] = next;
                next += edges;
            }
        }
    }
};

template <class View>
struct CompactHubs {  // copies a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    CompactCsr out;
    const u64* tasks;
    const i64* n_tasks;
    const i64* places;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks)) {
            i64 next = places[i];
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                next = out.copy(graph, tile, row, unit, next);
                return false;
            });
        }
    }
};
