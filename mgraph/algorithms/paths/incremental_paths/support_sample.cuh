// Sample of deleted arcs of a search by hops, whose distances tell how much an update has to visit. A single rank.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"

static constexpr u64 SUSPECT = 1ull << 62, HELD = 1ull << 63;  // in a word of `SampleSupports`

// `parts` tiles per changed arc, of every `every`-th: look for another support of the vertex that the arc supported.
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
    i64 parts;   // of a row, which are read at the same time
    i64 enough;  // visited edges with which the sample ends
    u64* words;  // per sample, the visited edges, SUSPECT, and HELD if there is another support; then all visited edges
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 item : grid.items(tile, samples * parts)) {
            i64 at = item / parts * every, part = item % parts, src = changed.src(at), dst = changed.dst(at);
            i64 u = inward ? dst : src, v = inward ? src : dst;
            if (changed.is(at) || u >= n || v >= n || distance[u] < 0 || distance[v] != distance[u] + 1) continue;
            if (tile.any(load(words + samples) > (u64)enough)) break;
            u64* word = words + item / parts;
            i64 edges = 0, units = graph.units(v);
            bool held = false;
            for (i64 unit = part; unit < units && !tile.any(load(word) & HELD); unit += parts)
                graph.visit(tile, v, unit, [&](u32 w, i64, bool live) {
                    edges += live;
                    held = tile.any(live && (i64)w < n && distance[w] == distance[v] - 1);
                    if (held && tile.rank() == 0) atomic_or(word, HELD);
                    return held;
                });
            edges = tile.sum(edges);
            if (tile.rank() > 0) continue;
            if (part == 0) atomic_or(word, SUSPECT);
            atomic_add(word, (u64)edges);
            atomic_add(words + samples, (u64)edges);
        }
    }
};
