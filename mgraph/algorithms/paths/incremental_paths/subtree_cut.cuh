// Cuts whole subtrees below unsupported suspects, for long chains: every vertex has a parent that supports it, and
// pointer jumping finds all roots in a number of rounds logarithmic in the depth. If a vertex has several supports,
// this cuts more than rounds of suspects do. On a single rank.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"
#include "kernels/buffered_append.cuh"

struct MarkStale {  // one lane per vertex: it is stale if its length has changed since the last call
    static constexpr int lanes = 1;
    TreeState tree;
    Word* then;  // the lengths in the last call; out: those now
    u32* stale;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(tree.n)) {
            if (then[v] == tree.length[v]) continue;
            then[v] = tree.length[v];
            set_bit(stale, v);
        }
    }
};

// One tile per 32 vertices: finds the parent of each. A vertex without support is a root. If it is a suspect, it is
// cut; otherwise it depends on a vertex of its own length: a tie.
template <class View>
struct HangOnSupport {
    static constexpr int lanes = 32;
    View graph;  // the in-edges
    TreeState tree;
    u32* hung;  // in and out: the parent of each vertex
    const u32* stale;  // a bitmap: these vertices and their children look for another parent; null if all do
    struct Fold {
        const View& graph;
        const TreeState& tree;
        DEVICE u32 nothing() const { return nobodys; }
        template <int n> DEVICE u32 chosen(const u32 (&)[n], u32 which) const { return which; }
        DEVICE u32 term(i64 v, u32 u, i64 slot) const {  // u if the edge holds v
            Word from = tree.length[u], to = tree.length[v];  // independent loads
            f32 weight = graph.weight(slot);
            bool holds = from != (Word)tree.none && from < to && longer(from, weight) <= to;
            return holds ? u : nobodys;
        }
        DEVICE u32 with(u32 part, u32 u) const { return lesser(part, u); }
        template <class Group> DEVICE u32 over(Group group, u32 part) const { return ~group.most(~part); }
    };
    DEVICE bool as_it_hung(i64 v) const {
        if (!stale || get_bit(stale, v)) return false;
        u32 on = hung[v];
        return on != nobodys && !get_bit(stale, on);
    }
    template <class Tile32> DEVICE u32 found_by(Tile32 tile, i64 v) const {  // each lane brings a vertex, or -1
        const Fold fold{graph, tree};
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
        for (i64 i : grid.items(tile, (tree.n + tile.size() - 1) / tile.size())) {
            i64 v = i * tile.size() + tile.rank();
            bool hangs = v < tree.n && tree.reached(v) && !tree.rooted(v), stays = hangs && as_it_hung(v);
            u32 on = nobodys;
            if (tile.any(hangs && !stays)) on = found_by(tile, hangs && !stays ? v : (i64)-1);
            if (stays) on = hung[v];
            if (v >= tree.n) continue;
            store(tree.root + v, on == nobodys ? (u32)v : on);
            if (!stays) store(hung + v, on);
            if (!hangs || on != nobodys) continue;
            if (get_bit(tree.listed, v)) set_bit(tree.cut, v);
            else store(tree.state + r_tied, (i64)1);
        }
    }
};

struct JumpToRoot {  // one lane per vertex: its pointer jumps up, unless no pointer moved in the round before
    static constexpr int lanes = 1, jumps = 12;  // per round: most pointers arrive in the first
    TreeState tree;
    i64 round;  // of at most nine
    DEVICE i64* moved_in(i64 round) const { return tree.state + r_turns + round; }
    DEVICE void operator()(Grid grid) const {
        bool moved = false;
        if (round && !load(moved_in(round - 1))) return;
        for (i64 v : grid.items(tree.n)) {
            u32 up = stale_load(tree.root + v), above = stale_load(tree.root + up);
            if (above == up) continue;
            for (int jump = 0; jump < jumps; ++jump) up = above, above = stale_load(tree.root + up);
            store(tree.root + v, above);
            moved = true;
        }
        if (moved) store(moved_in(round), (i64)1);
    }
};

struct CutSubtrees {  // one lane per vertex: it is cut if its root is, once no pointer moved in the last round
    static constexpr int lanes = 1;
    TreeState tree;
    i64 round;
    DEVICE void operator()(Grid grid) const {
        if (load(tree.state + r_tied) || load(tree.state + r_turns + round)) return;
        BufferedAppender gone(tree.gone, tree.state + r_cut);
        for (i64 v : grid.items(tree.n)) {
            if (!get_bit(tree.cut, load(tree.root + v))) continue;
            set_bit(tree.cut, v);
            gone.add((u32)v);
        }
    }
};
