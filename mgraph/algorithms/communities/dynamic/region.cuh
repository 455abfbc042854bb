// Copies the rows of a region: communities that are improved on all levels, while those outside stay as they are. Each
// of these is a single vertex of the copy, without a row of its own.
#pragma once
#include "algorithms/primitives/fixed_point.cuh"
#include "kernels/rows.cuh"

struct RegionRows {  // the own rows in the region
    const u32* rows;
    DEVICE i64 operator()(i64 at) const { return rows[at]; }
};

struct RegionCopy {
    const u32* labels;  // per vertex of the graph
    const u32* places;  // per vertex of the graph: its vertex in the copy; no_id outside
    i64 first;
    i64 begin;  // place of the first own row
    f64 unit;
    u8* near;  // out, per label: 1 for communities outside with a neighbour in the region; null while copying
    const u32* ranks;  // per label: the vertex of a community outside
    const i64* offsets;  // per own row of the copy
    u32* counts;
    u32* dst;
    u64* weights;
    template <class View, class Group> DEVICE void take(const View& graph, Group group, i64 row,
                                                        i64 unit_of_row) const {
        i64 at = (i64)places[first + row] - begin;
        graph.visit(group, row, unit_of_row, [&](u32 id, i64 slot, bool live) {
            u32 to = live ? places[id] : no_id;
            if (near) {
                if (live && to == no_id) store(near + labels[id], (u8)1);
                return false;
            }
            u32 all = group.ballot(live);
            if (all == 0) return false;
            u32 place = group.shfl(group.rank() == 0 ? atomic_add(counts + at, (u32)popcount(all)) : 0u, 0);
            if (!live) return false;
            i64 next = offsets[at] + place + popcount(all & ((1u << group.rank()) - 1));
            dst[next] = to == no_id ? ranks[labels[id]] : to;
            weights[next] = fixed(graph, slot, unit);
            return false;
        });
    }
};

template <class View>
struct CopyRegion {  // copies the own rows, or marks the communities near them, a row per lane; leaves hubs
    static constexpr int lanes = 32;
    View graph;
    RegionRows rows;
    i64 n;
    RegionCopy copy;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_all(grid, graph, n, rows, tasks, n_tasks,
                  [&](auto group, i64 row, i64 unit) { copy.take(graph, group, row, unit); });
    }
};

template <class View>
struct CopyRegionHubs {  // the same for a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    RegionCopy copy;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks,
                   [&](auto tile, i64 row, i64 unit) { copy.take(graph, tile, row, unit); });
    }
};
