// The vertices that were cut forget their lengths, and get the least that a neighbour gives them.
#pragma once
#include "algorithms/repair/known.cuh"

struct Forget {  // one lane a vertex that was cut: its length is not known, and it is no longer marked
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            known.length[list[i]] = (Word)known.none;
            atomic_and(known.cut + list[i] / word_bits, ~bit_of(list[i]));
        }
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
            visit_edges(graph, known, tile, known.gone[i], edges, [&](u32 u, i64 slot, bool live) {
                if (live && known.reached(u)) least = lesser(least, (u64)longer(known.length[u], graph.weight(slot)));
                return false;
            });
            least = ~tile.most(~least);
            if (tile.rank() > 0 || least == known.none) continue;
            i64 to = take_place(known.state + r_seeds);
            seeds[to] = known.gone[i], words[to] = least;
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
            if (!changed.is(i) || !known.reached(u)) continue;
            Word word = longer(known.length[u], changed.after(i));
            if (!(word < known.length[v]) || (known.forest() && known.reached(v))) continue;
            i64 to = take_place(known.state + r_seeds);
            seeds[to] = (u32)v, words[to] = word;
        }
    }
};
