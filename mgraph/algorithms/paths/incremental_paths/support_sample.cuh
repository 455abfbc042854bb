// Sample of deleted arcs of a search by hops, whose distances tell how much an update has to visit. A single rank.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"

enum Sampled { s_suspects, s_visited, s_cut };

// One tile per changed arc, of every `every`-th: looks for another support of the vertex that the arc supported.
template <class View>
struct SampleSupports {
    static constexpr int lanes = 32;
    View graph;  // the in-edges
    EdgeDelta changed;
    const i32* distance;  // of the vertices that there were; -1 for those that were not reached
    i64 n;
    i64 inward;  // 1 if paths follow edges backwards
    i64 samples;
    i64 every;
    i64 enough;  // visited edges with which the sample ends
    i64* counts;  // the suspects, the visited edges, and those of the suspects without support
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, samples)) {
            i64 at = i * every, src = changed.src(at), dst = changed.dst(at);
            i64 u = inward ? dst : src, v = inward ? src : dst;
            if (changed.is(at) || u >= n || v >= n || distance[u] < 0 || distance[v] != distance[u] + 1) continue;
            if (tile.any(load(counts + s_visited) > enough)) break;
            i64 edges = 0, units = graph.units(v);
            bool held = false;
            for (i64 unit = 0; unit < units && !held; ++unit)
                graph.visit(tile, v, unit, [&](u32 w, i64, bool live) {
                    edges += live;
                    return held = tile.any(live && (i64)w < n && distance[w] == distance[v] - 1);
                });
            edges = tile.sum(edges);
            if (tile.rank() > 0) continue;
            atomic_add(counts + s_suspects, (i64)1);
            atomic_add(counts + s_visited, edges);
            if (!held) atomic_add(counts + s_cut, edges);
        }
    }
};
