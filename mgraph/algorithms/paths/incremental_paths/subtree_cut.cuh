// All that is below suspects without support, where chains are long: every vertex hangs on one that supports it, and
// pointers that jump find the root of each in as many rounds as the logarithm of the deepest has bits. More is cut than
// round by round where a vertex has several supports. On a rank that is alone.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"
#include "kernels/append.cuh"

struct Moved {  // one lane a vertex: it is stale if its length has changed since the last call
    static constexpr int lanes = 1;
    Known known;
    Word* then;  // the lengths in the last call; out: those now
    u32* stale;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(known.n)) {
            if (then[v] == known.length[v]) continue;
            then[v] = known.length[v];
            set_bit(stale, v);
        }
    }
};

// A tile 32 vertices: whom each hangs on. One without support is a root; it is cut if it is a suspect. One that is not
// hangs on another of its own length.
template <class View>
struct Hang {
    static constexpr int lanes = 32;
    View graph;  // the in-edges
    Known known;
    u32* hung;  // in and out: whom each hangs on
    const u32* stale;  // a bitmap: these, and those that hung on them, look for another one; null where all do
    struct Fold {
        const View& graph;
        const Known& known;
        DEVICE u32 nothing() const { return nobodys; }
        DEVICE u32 with(u32 part, i64 v, u32 u, i64 slot) const {
            Word from = known.length[u], to = known.length[v];  // no load waits for another
            f32 weight = graph.weight(slot);
            bool holds = from != (Word)known.none && from < to && longer(from, weight) <= to;
            return holds ? lesser(part, u) : part;
        }
        template <class Group> DEVICE u32 over(Group group, u32 part) const { return ~group.most(~part); }
    };
    DEVICE bool as_it_hung(i64 v) const {
        if (!stale || get_bit(stale, v)) return false;
        u32 on = hung[v];
        return on != nobodys && !get_bit(stale, on);
    }
    template <class Tile32> DEVICE u32 found_by(Tile32 tile, i64 v) const {  // each lane brings a vertex, or -1
        const Fold fold{graph, known};
        u32 on = fold_rows(graph, tile, v, fold);
        for (u32 hubs = tile.ballot(v >= 0 && (i64)graph.degree(v) > HUB_DEGREE); hubs; hubs &= hubs - 1) {
            int lane = lowest_bit(hubs);
            u32 found = fold.over(tile, fold_row(graph, tile, tile.shfl(v, lane), fold));
            if (tile.rank() == lane) on = found;
        }
        return on;
    }
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (known.n + tile.size() - 1) / tile.size())) {
            i64 v = i * tile.size() + tile.rank();
            bool hangs = v < known.n && known.reached(v) && !known.rooted(v), stays = hangs && as_it_hung(v);
            u32 on = nobodys;
            if (tile.any(hangs && !stays)) on = found_by(tile, hangs && !stays ? v : (i64)-1);
            if (stays) on = hung[v];
            if (v >= known.n) continue;
            store(known.root + v, on == nobodys ? (u32)v : on);
            if (!stays) store(hung + v, on);
            if (!hangs || on != nobodys) continue;
            if (get_bit(known.listed, v)) set_bit(known.cut, v);
            else store(known.state + r_tied, (i64)1);
        }
    }
};

struct Jump {  // one lane a vertex: it hangs on one further up, unless nothing moved in the round before
    static constexpr int lanes = 1, jumps = 12;  // after a first round of so many, most pointers have arrived
    Known known;
    i64 round;  // of at most nine
    DEVICE i64* moved_in(i64 round) const { return known.state + r_turns + round; }
    DEVICE void operator()(Grid grid) const {
        bool moved = false;
        if (round && !load(moved_in(round - 1))) return;
        for (i64 v : grid.items(known.n)) {
            u32 up = glance(known.root + v), above = glance(known.root + up);
            if (above == up) continue;
            for (int jump = 0; jump < jumps; ++jump) up = above, above = glance(known.root + up);
            store(known.root + v, above);
            moved = true;
        }
        if (moved) store(moved_in(round), (i64)1);
    }
};

struct Below {  // one lane a vertex: it is cut if its root is, after a last round in which nothing moved
    static constexpr int lanes = 1;
    Known known;
    i64 round;
    DEVICE void operator()(Grid grid) const {
        if (load(known.state + r_tied) || load(known.state + r_turns + round)) return;
        Appender gone(known.gone, known.state + r_cut);
        for (i64 v : grid.items(known.n)) {
            if (!get_bit(known.cut, load(known.root + v))) continue;
            set_bit(known.cut, v);
            gone.add((u32)v);
        }
    }
};
