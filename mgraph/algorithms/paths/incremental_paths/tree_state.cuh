// Lengths of a maintained search, supports of vertices, and suspects.
#pragma once
#include "algorithms/paths/near_far/lengths.cuh"
#include "algorithms/primitives/edge_delta.cuh"
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"

// the words of `state`, and nine of InvalidatePersistent
enum Counter { r_suspects, r_cut, r_seeds, r_edges, r_refused, r_tied, r_left, r_turns };

constexpr u32 infinite = 0x7f800000;  // the bits of an f32

struct TreeState {
    Word* length;  // of all vertices
    u64 none;  // the length of an unreached vertex
    i64 first;
    i64 n;
    i64 source;  // it needs no support
    u32* cut;  // a bitmap of all vertices
    u32* listed;  // a bitmap of all vertices: the suspects
    u32* suspects;  // vertices of any rank
    u32* gone;  // own vertices that are cut
    u32* root;  // of a cut vertex: the root of its subtree; null without bounds
    f32* rise;  // of a root: an upper bound on the increase of its length
    i64* state;
    DEVICE bool owns(i64 v) const { return v >= first && v < first + n; }
    DEVICE bool rooted(i64 v) const { return v == source; }
    DEVICE bool reached(i64 v) const { return (u64)length[v] != none; }
    // True if an edge of this weight from u gives v its length, or less: then the length of v can only fall.
    DEVICE bool leads(i64 u, i64 v, f32 weight) const {
        if (!reached(u) || !reached(v)) return false;
        Word word = longer(length[u], weight);
        return hops ? word == length[v] : word <= length[v];
    }
    DEVICE bool holds(i64 u, i64 v, f32 weight) const { return length[u] < length[v] && leads(u, v, weight); }
    // Upper bound on the increase of the length of a cut vertex: that of its root, infinity if unknown.
    DEVICE f32 risen(i64 v) const {
        u32 top = load(root + v);  // another vertex's root, if both were cut at the same time
        bool sound = (i64)top < n && get_bit(cut, top) && load(root + top) == top;
        return sound ? load(rise + top) : float_of(infinite);
    }
    // Upper bound on the new length, with a margin: sums of f32 that begin elsewhere are rounded differently.
    DEVICE Word bound(i64 v) const {
        f64 now = real_of(length[v]), rounded = LENGTHS == 32 ? 1.0 / (1 << 16) : 1.0 / ((u64)1 << 45);
        f64 most = now + risen(v) * (1 + 1.0 / (1 << 20)) + now * rounded;
        if (!(most < real_of((Word)none))) return (Word)none;
        return LENGTHS == 32 ? (Word)bits_of((f32)most) : (Word)bits_of(most);
    }
    DEVICE bool lists(u32 v) const {  // true if it was not listed before
        return mark(listed, v);
    }
    DEVICE void unlist(u32 v) const { unmark(listed, v); }
    DEVICE void suspect(u32 v) const {
        if (lists(v)) suspects[take_place(state + r_suspects)] = v;
    }
};

// One lane per changed arc: lists an own end that it supported, and supports no longer. Counts invalid weights.
struct ListSuspects {
    static constexpr int lanes = 1;
    TreeState tree;
    EdgeDelta changed;
    u32* stale;  // a bitmap, to add the ends of all changed arcs to; null unless on a single rank
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            i64 u = changed.src(i), v = changed.dst(i);
            if (stale) set_bit(stale, v);
            if (!hops && changed.is(i) && !(changed.after(i) >= 0)) take_place(tree.state + r_refused);
            if (!tree.owns(v) || tree.rooted(v) || !changed.was(i) || !tree.leads(u, v, changed.before(i))) continue;
            if (!changed.is(i) || !tree.leads(u, v, changed.after(i))) tree.suspect((u32)v);
        }
    }
};

// The tile visits an own vertex's edges: visit(id, weight, live) until it returns true. Returns true if it did.
template <class View, class Tile32, class Visit>
DEVICE bool visit_edges(const View& graph, const TreeState& tree, Tile32 tile, i64 v, i64& edges, Visit visit) {
    i64 row = v - tree.first, units = graph.units(row);
    bool done = false;
    for (i64 unit = 0; unit < units && !done; ++unit)
        graph.visit(tile, row, unit, [&](u32 id, i64 slot, bool live) {
            edges += live;
            return done = visit(id, slot, live);
        });
    return done;
}
template <class Tile32> DEVICE void count_visited(const TreeState& tree, Tile32 tile, i64 edges) {
    edges = tile.sum(edges);
    if (tile.rank() == 0 && edges) atomic_add(tree.state + r_edges, edges);
}

constexpr u32 nobodys = ~(u32)0;  // a lane has seen no root
template <class Tile32> DEVICE u32 root_of(Tile32 tile, u32 seen, u32 v) {  // the least that a lane has seen, or v
    u32 least = ~tile.most(~seen);
    return least == nobodys ? v : least;
}
// True if v has a support that is not cut. Lanes that see a cut support note its root.
template <class View, class Tile32>
DEVICE bool supported(const View& graph, const TreeState& tree, Tile32 tile, i64 v, u32& root, i64& edges) {
    return visit_edges(graph, tree, tile, v, edges, [&](u32 u, i64 slot, bool live) {
        bool holds = live && tree.holds(u, v, graph.weight(slot)), gone = holds && get_bit(tree.cut, u);
        if (gone && tree.root) root = lesser(root, load(tree.root + u));
        return tile.any(holds && !gone);
    });
}
// Calls take(v) for the vertices that the own vertex u, now cut, supported.
template <class View, class Tile32, class Take>
DEVICE void visit_children(const View& graph, const TreeState& tree, Tile32 tile, i64 u, i64& edges, Take take) {
    visit_edges(graph, tree, tile, u, edges, [&](u32 v, i64 slot, bool live) {
        if (live && !get_bit(tree.cut, v) && !tree.rooted(v) && tree.leads(u, v, graph.weight(slot))) take(v);
        return false;
    });
}
