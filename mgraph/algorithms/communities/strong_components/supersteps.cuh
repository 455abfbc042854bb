// Searches forward and backward from many vertices at once, among the vertices that are `open`: in no component yet.
// Forward, each vertex gets the largest color of those that reach it. A root is a vertex that keeps its own color; its
// component are the vertices of that color from which it can be reached: backward, they get the root's id. A vertex is
// listed once a round: by the lane that first changes it since stamps[id] was raised to the round. Values for other
// ranks' vertices go to their owners' lists; color and root are arrays of all vertices of the graph.
#pragma once
#include "algorithms/communities/strong_components/color_of.cuh"
#include "kernels/rows.cuh"
#include "kernels/search.cuh"

struct ColorSearch {
    i64 first;
    i64 rows;
    i64 backward;
    i64 round;
    u32* color;
    u32* root;  // the component of each vertex, no_vertex while it is open; of other ranks' vertices what was sent
    u32* stamps;
    u32* next;  // out: own vertices that changed
    i64* count;
    u32* lists;  // by owner, in its range's place: other ranks' vertices that changed
    i64* lengths;
    const i64* starts;
    i64 owners;
    // Brings a color or a root to a vertex, which is listed if that changes it.
    DEVICE void bring(u32 id, u32 value) const {
        if (backward) {
            if (load(color + id) != color_of(value) || load(root + id) != no_vertex) return;
            if (atomic_cas(root + id, no_vertex, value) != no_vertex) return;
        } else {
            if (load(root + id) != no_vertex || load(color + id) >= value) return;
            if (atomic_max(color + id, value) >= value) return;
        }
        if (atomic_max(stamps + id, (u32)round) == (u32)round) return;
        if ((i64)id >= first && (i64)id < first + rows) {
            next[atomic_add(count, (i64)1)] = (u32)((i64)id - first);
            return;
        }
        i64 owner = upper_bound(starts, 0, owners + 1, (i64)id) - 1;
        lists[starts[owner] + atomic_add(lengths + owner, (i64)1)] = id;
    }
    DEVICE u32 value_of(i64 row) const { return load((backward ? root : color) + first + row); }
};

template <class View, class Group>
DEVICE void spread(const View& graph, Group group, i64 row, i64 unit, const ColorSearch& search) {
    u32 value = search.value_of(row);
    graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
        if (live) search.bring(id, value);
        return false;
    });
}

template <class View>
struct Spread {  // a lane brings a vertex of the frontier; hubs are left to SpreadHubs
    static constexpr int lanes = 32;
    View graph;
    const u32* frontier;
    i64 n;
    ColorSearch search;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_all(
            grid, graph, n, [&](i64 at) { return (i64)frontier[at]; }, tasks, n_tasks,
            [&](auto group, i64 row, i64 unit) { spread(graph, group, row, unit, search); });
    }
};

template <class View>
struct SpreadHubs {  // a tile a task of a hub's row
    static constexpr int lanes = 32;
    View graph;
    ColorSearch search;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks,
                   [&](auto tile, i64 row, i64 unit) { spread(graph, tile, row, unit, search); });
    }
};

struct Pack {  // one lane a listed vertex of another rank, with its new value: id << 32 | value
    static constexpr int lanes = 1;
    const u32* list;
    i64 n;
    const u32* values;
    u64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) out[i] = (u64)list[i] << 32 | values[list[i]];
    }
};

struct Receive {  // one lane an own vertex that another rank has listed
    static constexpr int lanes = 1;
    const u64* part;
    i64 n;
    ColorSearch search;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) search.bring((u32)(part[i] >> 32), (u32)part[i]);
    }
};

struct Trimmed {  // one lane an own vertex: one that has lost all its edges to or from others is a component of its own
    static constexpr int lanes = 1;
    const i64* level;  // that removed it, or -1
    i64 rows;
    i64 first;
    u32* root;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(rows))
            if (level[row] >= 0) root[first + row] = (u32)(first + row);
    }
};

struct Begin {  // one lane an own vertex: `pivot`, or with none each that is open, gets its color; other ones have none
    static constexpr int lanes = 1;
    i64 pivot;  // -1 for none
    i64 rows;
    i64 first;
    const u32* root;
    u32* color;
    u32* frontier;
    i64* count;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(rows)) {
            i64 id = first + row;
            bool begins = root[id] == no_vertex && (pivot < 0 || pivot == id);
            color[id] = begins ? color_of((u32)id) : no_color;
            if (begins) frontier[atomic_add(count, (i64)1)] = (u32)row;
        }
    }
};

struct Roots {  // one lane an own vertex: lists those that kept their own color, the roots
    static constexpr int lanes = 1;
    i64 rows;
    i64 first;
    const u32* color;
    u32* root;
    u32* frontier;
    i64* count;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(rows)) {
            i64 id = first + row;
            if (root[id] != no_vertex || color[id] != color_of((u32)id)) continue;
            root[id] = (u32)id;
            frontier[atomic_add(count, (i64)1)] = (u32)row;
        }
    }
};

struct Busiest {  // one lane an own vertex that is open: the most edges out of one, and how many are open
    static constexpr int lanes = 1;
    const u32* root;  // of own vertices
    const u32* degrees;
    i64 rows;
    i64 first;
    u64* most;  // degree << 32 | id
    i64* open;
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        u64 best = 0;
        i64 all = 0;
        for (i64 row : grid.items(rows))
            if (root[row] == no_vertex) best = greater(best, (u64)degrees[row] << 32 | (u64)(first + row)), ++all;
        best = tile.most(best), all = tile.sum(all);
        if (tile.rank() || all == 0) return;
        atomic_max(most, best);
        atomic_add(open, all);
    }
};

struct LeastIds {  // one lane an own vertex: least[root] becomes the smallest user's id of the component
    static constexpr int lanes = 1;
    const u32* root;  // of own vertices
    const u32* ids;  // their users' ids
    i64 rows;
    u32* least;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(rows))
            if (ids[row] < stale_load(least + root[row])) atomic_min(least + root[row], ids[row]);
    }
};
