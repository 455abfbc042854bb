// The vertices that were cut forget their lengths, and get the least that a neighbour gives them. What hung below a root
// grows by no more than the root's length does, but for what was rounded: longer paths are not followed. Such a bound
// needs no proof, since whoever found no path below it is searched again without one.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"

template <class View>
struct Rise {  // a tile 32 vertices that were cut: by how much the lengths of the roots among them grow at most
    static constexpr int lanes = 32;
    View graph;  // the in-edges
    Known known;
    i64 count;
    i64 nested;  // 0 to leave out neighbours that are cut, too
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, (count + tile.size() - 1) / tile.size())) {
            i64 at = i * tile.size() + tile.rank(), v = at < count ? (i64)known.gone[at] : -1;
            bool root = v >= 0 && load(known.root + v) == (u32)v;
            for (u32 rest = tile.ballot(root); rest; rest &= rest - 1) {
                i64 one = tile.shfl(v, lowest_bit(rest));
                f32 by = rise_of(tile, one, edges);
                if (tile.rank() == 0) store(known.rise + one, by);
            }
        }
        count_visited(known, tile, edges);
    }
    DEVICE f32 rise_of(Tile<lanes> tile, i64 v, i64& edges) const {
        u32 most = 0;  // of ~bits: floats of 0 or more are in the order of their bits
        visit_edges(graph, known, tile, v, edges, [&](u32 u, i64 slot, bool live) {
            if (!live || !known.reached(u) || !(known.length[u] < known.length[v])) return false;
            f64 by = real_of(longer(known.length[u], graph.weight(slot))) - real_of(known.length[v]);
            if (get_bit(known.cut, u)) {
                if (!nested) return false;
                by += known.risen(u);
            }
            most = greater(most, ~bits_of((f32)greater(by, 0.0)));
            return false;
        });
        return float_of(lesser(~tile.most(most), infinite));
    }
};

struct Forget {  // one lane a vertex that was cut: its length is not known, but less than a bound, if it has one
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    Word* bounds;  // of the listed; null for none
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            Word bound = bounds ? known.bound(list[i]) : (Word)known.none;
            known.length[list[i]] = bound;
            if (bounds) bounds[i] = bound;
        }
    }
};

struct Uncut {  // one lane a vertex that was cut: it is no longer marked
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) atomic_and(known.cut + list[i] / word_bits, ~bit_of(list[i]));
    }
};

template <class View>
struct Refill {  // a tile an own vertex that was cut: the least length that an in-neighbour gives it, if any
    static constexpr int lanes = 32;
    View graph;  // the in-edges of own vertices
    Known known;
    i64 count;
    u32* seeds;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, count)) {
            u64 least = known.none;
            u32 v = known.gone[i];
            visit_edges(graph, known, tile, v, edges, [&](u32 u, i64 slot, bool live) {
                if (live && !get_bit(known.cut, u) && known.reached(u))
                    least = lesser(least, (u64)longer(known.length[u], graph.weight(slot)));
                return false;
            });
            least = ~tile.most(~least);
            if (tile.rank() > 0 || !(least < known.length[v])) continue;
            i64 to = take_place(known.state + r_seeds);
            seeds[to] = v, words[to] = least;
        }
        count_visited(known, tile, edges);
    }
};

struct Seed {  // one lane a changed arc that is there: its end, if it gives that a smaller length
    static constexpr int lanes = 1;
    Known known;
    Changed changed;
    u32* seeds;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            i64 u = changed.src(i), v = changed.dst(i);
            if (!changed.is(i) || get_bit(known.cut, u) || !known.reached(u)) continue;
            Word word = longer(known.length[u], changed.after(i));
            if (!(word < known.length[v]) || (known.forest() && known.reached(v))) continue;
            i64 to = take_place(known.state + r_seeds);
            seeds[to] = (u32)v, words[to] = word;
        }
    }
};

struct Lost {  // one lane a vertex that was cut: if no path was found below its bound, it is not reached
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    const Word* bounds;
    DEVICE void operator()(Grid grid) const {
        bool left = false;
        for (i64 i : grid.items(n)) {
            if (bounds[i] == (Word)known.none || known.length[list[i]] != bounds[i]) continue;
            known.length[list[i]] = (Word)known.none;
            left = true;
        }
        if (left) store(known.state + r_left, (i64)1);
    }
};
