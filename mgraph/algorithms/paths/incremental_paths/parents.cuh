// Predecessors: the smallest id among the vertices that support v.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"

struct ListEnds {  // one lane per changed arc: an own end is listed
    static constexpr int lanes = 1;
    TreeState tree;
    EdgeDelta changed;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n))
            if (tree.owns(changed.dst(i))) tree.suspect((u32)changed.dst(i));
    }
};

template <class View>
struct ListNeighbors {  // one tile per own vertex: it and its out-neighbours are listed
    static constexpr int lanes = 32;
    View graph;
    TreeState tree;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, n)) {
            if (tile.rank() == 0) tree.suspect(list[i]);
            visit_edges(graph, tree, tile, list[i], edges, [&](u32 v, i64, bool live) {
                if (live) tree.suspect(v);
                return false;
            });
        }
        count_visited(tree, tile, edges);
    }
};

template <class View>
struct FindParents {  // one tile per listed own vertex: finds its predecessor, or -1, and clears its mark
    static constexpr int lanes = 32;
    View graph;  // the in-edges of own vertices
    TreeState tree;
    i64 count;
    i64* parents;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, count)) {
            i64 v = tree.suspects[i];
            u64 least = ~(u64)0;
            if (!tree.rooted(v))
                visit_edges(graph, tree, tile, v, edges, [&](u32 u, i64 slot, bool live) {
                    if (live && tree.length[u] < tree.length[v] && tree.leads(u, v, graph.weight(slot)))
                        least = lesser(least, (u64)u);
                    return false;
                });
            least = ~tile.most(~least);
            if (tile.rank() > 0) continue;
            parents[v - tree.first] = (i64)least;
            tree.unlist((u32)v);
        }
        count_visited(tree, tile, edges);
    }
};
