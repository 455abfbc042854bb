// Predecessors of a search whose distances are known to all ranks: the least vertex of the level before. One byte holds a
// vertex's depth, or four where there are more than 254 levels; all ones for a vertex that was not reached.
#pragma once
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"

#if DEPTH_BITS == 8
using Depth = u8;
#elif DEPTH_BITS == 32
using Depth = u32;
#endif

struct Depths {  // one lane per own vertex: its distance, -1 for none, as a depth
    static constexpr int lanes = 1;
    const i32* distance;
    i64 n;
    Depth* depth;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) depth[i] = (Depth)distance[i];
    }
};

// The least neighbour of a row, among the edges of a unit, that is one level nearer.
template <class View, class Group>
DEVICE u32 least_in(const View& graph, Group group, i64 row, i64 unit, const Depth* depths, Depth nearer) {
    u32 least = ~0u;
    graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
        bool hit = live && depths[id] == nearer;
        if (hit) least = lesser(least, id);
        return View::sorted && group.any(hit);
    });
    return ~group.most(~least);
}

template <class View>
struct Pull {  // one tile per 32 own vertices, along in-edges; rows of high degree become tasks
    static constexpr int lanes = 32;
    View graph;
    i64 first;
    i64 n;
    const Depth* depths;  // of all vertices
    u64* parents;  // all ones where none is known yet
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            Depth own = row < n ? depths[first + row] : (Depth)0;
            bool open = own != 0 && own != (Depth) ~(Depth)0 && parents[row] == ~(u64)0;
            i64 degree = open ? (i64)graph.degree(row) : 0;
            if (degree > 0 && degree <= short_degree) settle(row, search(Tile<1>{}, row, (Depth)(own - 1)));
            for (u32 rest = tile.ballot(degree > short_degree && degree <= HUB_DEGREE); rest; rest &= rest - 1) {
                int lane = lowest_bit(rest);
                i64 next = tile.shfl(row, lane);
                u32 least = search(tile, next, (Depth)(tile.shfl((u32)own, lane) - 1));
                if (tile.rank() == lane) settle(row, least);
            }
            for (u32 rest = tile.ballot(degree > HUB_DEGREE); rest; rest &= rest - 1) {
                int lane = lowest_bit(rest);  // mostly a predecessor is among the first edges
                i64 next = tile.shfl(row, lane);
                i64 units = View::sorted ? task_units(graph, next) : 0;
                u32 least = search(tile, next, (Depth)(tile.shfl((u32)own, lane) - 1), units);
                if (tile.rank() != lane) continue;
                if (least != ~0u) settle(row, least);
                else add_tasks(graph, row, tasks, n_tasks);
            }
        }
    }
    DEVICE void settle(i64 row, u32 least) const {
        if (least != ~0u) parents[row] = least;
    }
    template <class Group> DEVICE u32 search(Group group, i64 row, Depth nearer) const {
        return search(group, row, nearer, graph.units(row));
    }
    template <class Group> DEVICE u32 search(Group group, i64 row, Depth nearer, i64 units) const {
        u32 least = ~0u;
        for (i64 unit = 0; unit < units && !(View::sorted && least != ~0u); ++unit)
            least = lesser(least, least_in(graph, group, row, unit, depths, nearer));
        return least;
    }
};

template <class View>
struct PullTasks {  // one tile per task
    static constexpr int lanes = 32;
    View graph;
    i64 first;
    const Depth* depths;
    u64* parents;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks))
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                u32 least = least_in(graph, tile, row, unit, depths, (Depth)(depths[first + row] - 1));
                if (least == ~0u) return false;
                if (tile.rank() == 0) atomic_min(parents + row, (u64)least);
                return View::sorted;
            });
    }
};

// Without in-edges: each rank finds, for all vertices, the least of its own vertices that is one level nearer.
template <class View>
struct Push {  // one tile per 32 own vertices; rows of high degree become tasks
    static constexpr int lanes = 32;
    View graph;
    i64 first;
    i64 n;
    const Depth* depths;
    u64* least;  // of all vertices, all ones
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        auto row_at = [&](i64 row) { return depths[first + row] == (Depth) ~(Depth)0 ? -1 : row; };
        visit_all(grid, graph, n, row_at, tasks, n_tasks,
                  [&](auto group, i64 row, i64 unit) { offer(graph, group, first, row, unit, depths, least); });
    }
    template <class Group>
    static DEVICE void offer(const View& graph, Group group, i64 first, i64 row, i64 unit, const Depth* depths,
                             u64* least) {
        Depth further = (Depth)(depths[first + row] + 1);
        graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
            if (live && depths[id] == further && (u64)(first + row) < load(least + id))
                atomic_min(least + id, (u64)(first + row));
            return false;
        });
    }
};

template <class View>
struct PushTasks {  // one tile per task
    static constexpr int lanes = 32;
    View graph;
    i64 first;
    const Depth* depths;
    u64* least;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks, [&](auto tile, i64 row, i64 unit) {
            Push<View>::offer(graph, tile, first, row, unit, depths, least);
        });
    }
};
