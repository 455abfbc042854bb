// What changed edges mean for known lengths of shortest paths. A vertex is supported by an in-neighbour of smaller
// length from which an edge leads to its length; or to less, where a weight has fallen. A suspect may have lost its
// support; without one it is cut, and so its out-neighbours are suspects. In the end, those that are cut get lengths from
// neighbours that are not. Every rank knows the lengths of all vertices, and who is cut. It owns the n vertices from `first` on.
#pragma once
#include "algorithms/paths/incremental_paths/subtree_cut.cuh"
#include "algorithms/paths/incremental_paths/invalidate.cuh"
#include "algorithms/paths/incremental_paths/invalidate_persistent.cuh"
#include "algorithms/paths/incremental_paths/parents.cuh"
#include "algorithms/paths/incremental_paths/recompute.cuh"

struct Lengths {  // one lane an own vertex: its length for a result
    static constexpr int lanes = 1;
    Known known;
    Shown* out;  // hops, or -1
    i64* found;  // how many are reached, the most hops
    DEVICE void operator()(Grid grid) const {
        i64 reached = 0, most = 0;
        for (i64 i : grid.items(known.n)) {
            Word word = known.length[known.first + i];
            bool there = known.reached(known.first + i);
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
