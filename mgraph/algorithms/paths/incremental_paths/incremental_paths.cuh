// Effects of changed edges on the lengths of shortest paths. A vertex is supported by an in-neighbour of smaller length
// from which an edge gives it its length, or less if a weight has fallen. A suspect may have lost its support. Without
// support it is cut, and the vertices that it supported become suspects. In the end, cut vertices get lengths from
// neighbours that are not cut. Every rank has the lengths and cut marks of all vertices. It owns the n vertices from
// `first` on.
#pragma once
#include "algorithms/paths/incremental_paths/subtree_cut.cuh"
#include "algorithms/paths/incremental_paths/invalidate.cuh"
#include "algorithms/paths/incremental_paths/invalidate_persistent.cuh"
#include "algorithms/paths/incremental_paths/parents.cuh"
#include "algorithms/paths/incremental_paths/recompute.cuh"
#include "algorithms/paths/incremental_paths/support_sample.cuh"

struct ResultLengths {  // one lane per own vertex: its length for a result
    static constexpr int lanes = 1;
    TreeState tree;
    Shown* out;  // hops, or -1
    i64* found;  // the number of reached vertices, the most hops
    DEVICE void operator()(Grid grid) const {
        i64 reached = 0, most = 0;
        for (i64 i : grid.items(tree.n)) {
            Word word = tree.length[tree.first + i];
            bool there = tree.reached(tree.first + i);
            out[i] = hops ? (there ? (Shown)((u64)word >> 32) : (Shown)-1) : (Shown)word;
            reached += there;
            if (hops && there) most = greater(most, (i64)((u64)word >> 32) + 1);
        }
        Tile<32> tile;
        reached = tile.sum(reached), most = (i64)tile.most((u64)most);
        if (tile.rank() > 0 || reached == 0) return;
        atomic_add(found, reached);
        if (most > load(found + 1)) atomic_max((u64*)found + 1, (u64)most);
    }
};

struct WordsOfHops {  // one lane per own vertex: the length of a distance in hops, -1 if it is not reached
    static constexpr int lanes = 1;
    const i32* distance;
    i64 n;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) words[i] = distance[i] < 0 ? ~(u64)0 : (u64)distance[i] << 32;
    }
};
