// Predecessors: of the vertices that support v, the one of the smallest id.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"

struct Ends {  // one lane a changed arc: an own end is listed
    static constexpr int lanes = 1;
    Known known;
    Changed changed;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n))
            if (known.owns(changed.dst(i))) known.suspect((u32)changed.dst(i));
    }
};

template <class View>
struct Neighbours {  // a tile an own vertex: it and its out-neighbours are listed
    static constexpr int lanes = 32;
    View graph;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, n)) {
            if (tile.rank() == 0) known.suspect(list[i]);
            visit_edges(graph, known, tile, list[i], edges, [&](u32 v, i64, bool live) {
                if (live) known.suspect(v);
                return false;
            });
        }
        count_visited(known, tile, edges);
    }
};

template <class View>
struct Parents {  // a tile a listed own vertex: its predecessor, or -1; it is listed no longer
    static constexpr int lanes = 32;
    View graph;  // the in-edges of own vertices
    Known known;
    i64 count;
    i64* parents;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, count)) {
            i64 v = known.suspects[i];
            u64 least = ~(u64)0;
            if (!known.rooted(v))
                visit_edges(graph, known, tile, v, edges, [&](u32 u, i64 slot, bool live) {
                    if (live && known.length[u] < known.length[v] && known.leads(u, v, graph.weight(slot)))
                        least = lesser(least, (u64)u);
                    return false;
                });
            least = ~tile.most(~least);
            if (tile.rank() > 0) continue;
            parents[v - known.first] = (i64)least;
            known.unlist((u32)v);
        }
        count_visited(known, tile, edges);
    }
};
