// Cut vertices forget their lengths, and get the least that a neighbour gives them. The lengths in a root's subtree
// grow by no more than the root's length does, up to rounding: longer paths are not followed. A wrong bound does no
// harm: a vertex for which no path below its bound was found is searched again without a bound.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"

template <class View>
struct RiseOfRoots {  // one tile per 32 cut vertices: bounds the increase of the lengths of the roots among them
    static constexpr int lanes = 32;
    View graph;  // the in-edges
    TreeState tree;
    i64 count;
    i64 nested;  // 0 to leave out neighbours that are cut, too
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, (count + tile.size() - 1) / tile.size())) {
            i64 at = i * tile.size() + tile.rank(), v = at < count ? (i64)tree.gone[at] : -1;
            bool root = v >= 0 && load(tree.root + v) == (u32)v;
            for (u32 rest = tile.ballot(root); rest; rest &= rest - 1) {
                i64 one = tile.shfl(v, lowest_bit(rest));
                f32 by = rise_of(tile, one, edges);
                if (tile.rank() == 0) store(tree.rise + one, by);
            }
        }
        count_visited(tree, tile, edges);
    }
    DEVICE f32 rise_of(Tile<lanes> tile, i64 v, i64& edges) const {
        u32 most = 0;  // of ~bits: floats of 0 or more are in the order of their bits
        visit_edges(graph, tree, tile, v, edges, [&](u32 u, i64 slot, bool live) {
            if (!live || !tree.reached(u) || !(tree.length[u] < tree.length[v])) return false;
            f64 by = real_of(longer(tree.length[u], graph.weight(slot))) - real_of(tree.length[v]);
            if (get_bit(tree.cut, u)) {
                if (!nested) return false;
                by += tree.risen(u);
            }
            most = greater(most, ~bits_of((f32)greater(by, 0.0)));
            return false;
        });
        return float_of(lesser(~tile.most(most), infinite));
    }
};

struct ForgetLengths {  // one lane per cut vertex: its length is reset to its bound, or to unreached without bounds
    static constexpr int lanes = 1;
    TreeState tree;
    const u32* list;
    i64 n;
    Word* bounds;  // of the listed vertices; or null
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            Word bound = bounds ? tree.bound(list[i]) : (Word)tree.none;
            tree.length[list[i]] = bound;
            if (bounds) bounds[i] = bound;
        }
    }
};

struct UnmarkInvalid {  // one lane per cut vertex: it is no longer marked
    static constexpr int lanes = 1;
    TreeState tree;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) atomic_and(tree.cut + list[i] / word_bits, ~bit_of(list[i]));
    }
};

template <class View>
struct SeedInvalid {  // one tile per own cut vertex: the least length that an in-neighbour gives it, if any
    static constexpr int lanes = 32;
    View graph;  // the in-edges of own vertices
    TreeState tree;
    i64 count;
    u32* seeds;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, count)) {
            u64 least = tree.none;
            u32 v = tree.gone[i];
            visit_edges(graph, tree, tile, v, edges, [&](u32 u, i64 slot, bool live) {
                if (live && !get_bit(tree.cut, u) && tree.reached(u))
                    least = lesser(least, (u64)longer(tree.length[u], graph.weight(slot)));
                return false;
            });
            least = ~tile.most(~least);
            if (tile.rank() > 0 || !(least < tree.length[v])) continue;
            i64 to = take_place(tree.state + r_seeds);
            seeds[to] = v, words[to] = least;
        }
        count_visited(tree, tile, edges);
    }
};

struct SeedInserted {  // one lane per changed arc that exists now: its end, if it gets a smaller length
    static constexpr int lanes = 1;
    TreeState tree;
    EdgeDelta changed;
    u32* seeds;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            i64 u = changed.src(i), v = changed.dst(i);
            if (!changed.is(i) || get_bit(tree.cut, u) || !tree.reached(u)) continue;
            Word word = longer(tree.length[u], changed.after(i));
            if (!(word < tree.length[v])) continue;
            i64 to = take_place(tree.state + r_seeds);
            seeds[to] = (u32)v, words[to] = word;
        }
    }
};

struct DropUnreached {  // one lane per cut vertex: if no path was found below its bound, it is not reached
    static constexpr int lanes = 1;
    TreeState tree;
    const u32* list;
    i64 n;
    const Word* bounds;
    DEVICE void operator()(Grid grid) const {
        bool left = false;
        for (i64 i : grid.items(n)) {
            if (bounds[i] == (Word)tree.none || tree.length[list[i]] != bounds[i]) continue;
            tree.length[list[i]] = (Word)tree.none;
            left = true;
        }
        if (left) store(tree.state + r_left, (i64)1);
    }
};
