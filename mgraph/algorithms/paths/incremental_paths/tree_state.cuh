// The lengths that are known, who supports whom, and who is a suspect.
#pragma once
#include "algorithms/paths/near_far/lengths.cuh"
#include "algorithms/primitives/edge_delta.cuh"
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"

// the words of `state`, and nine of CutOff
enum Repair { r_suspects, r_cut, r_seeds, r_edges, r_refused, r_tied, r_left, r_turns };

constexpr u32 infinite = 0x7f800000;  // the bits of an f32

struct Known {
    Word* length;  // of all vertices
    u64 none;  // the length of what is not reached
    i64 first;
    i64 n;
    i64 source;  // it needs no support; if -1, no vertex of 0 hops does, and lengths are those in any forest
    u32* cut;  // a bitmap of all vertices
    u32* listed;  // a bitmap of all vertices: who is among the suspects
    u32* suspects;  // vertices of any rank
    u32* gone;  // own vertices that are cut
    u32* root;  // of a vertex that is cut: the suspect below which it hung; null if nobody asks
    f32* rise;  // of such a root: by how much its length grows at most
    i64* state;
    DEVICE bool owns(i64 v) const { return v >= first && v < first + n; }
    DEVICE bool rooted(i64 v) const { return forest() ? (u64)length[v] >> 32 == 0 : v == source; }
    DEVICE bool forest() const { return source < 0; }
    DEVICE bool reached(i64 v) const { return (u64)length[v] != none; }
    // Whether an edge of this weight from u leads to the length of v. If it leads to less, the length of v can only fall.
    DEVICE bool leads(i64 u, i64 v, f32 weight) const {
        if (!reached(u) || !reached(v)) return false;
        Word word = longer(length[u], weight);
        return hops ? word == length[v] : word <= length[v];
    }
    DEVICE bool holds(i64 u, i64 v, f32 weight) const { return length[u] < length[v] && leads(u, v, weight); }
    // By how much the length of a vertex that is cut grows at most, as far as is known.
    DEVICE f32 risen(i64 v) const {
        u32 top = load(root + v);  // another one's, if that was cut at the same time
        bool sound = (i64)top < n && get_bit(cut, top) && load(root + top) == top;
        return sound ? load(rise + top) : float_of(infinite);
    }
    // More than the length that it gets then. Sums of f32 that begin elsewhere are rounded differently.
    DEVICE Word bound(i64 v) const {
        f64 now = real_of(length[v]), rounded = LENGTHS == 32 ? 1.0 / (1 << 16) : 1.0 / ((u64)1 << 45);
        f64 most = now + risen(v) * (1 + 1.0 / (1 << 20)) + now * rounded;
        if (!(most < real_of((Word)none))) return (Word)none;
        return LENGTHS == 32 ? (Word)bits_of((f32)most) : (Word)bits_of(most);
    }
    DEVICE bool lists(u32 v) const {  // whether it was not listed before
        return !get_bit(listed, v) && !(atomic_or(listed + v / word_bits, bit_of(v)) & bit_of(v));
    }
    DEVICE void unlist(u32 v) const { atomic_and(listed + v / word_bits, ~bit_of(v)); }
    DEVICE void suspect(u32 v) const {
        if (lists(v)) suspects[take_place(state + r_suspects)] = v;
    }
};

// One lane a changed arc: an own end whose length it gave, and gives no longer. Counts weights that no search takes.
struct Suspect {
    static constexpr int lanes = 1;
    Known known;
    Changed changed;
    u32* stale;  // a bitmap to which the ends of all changed arcs are added, on a rank that is alone; or null
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            i64 u = changed.src(i), v = changed.dst(i);
            if (stale) set_bit(stale, v);
            if (!hops && changed.is(i) && !(changed.after(i) >= 0)) take_place(known.state + r_refused);
            if (!known.owns(v) || known.rooted(v) || !changed.was(i) || !known.leads(u, v, changed.before(i))) continue;
            if (!changed.is(i) || !known.leads(u, v, changed.after(i))) known.suspect((u32)v);
        }
    }
};

// The tile visits an own vertex's edges: visit(id, weight, live) until it returns true. Returns whether it did.
template <class View, class Tile32, class Visit>
DEVICE bool visit_edges(const View& graph, const Known& known, Tile32 tile, i64 v, i64& edges, Visit visit) {
    i64 row = v - known.first, units = graph.units(row);
    bool done = false;
    for (i64 unit = 0; unit < units && !done; ++unit)
        graph.visit(tile, row, unit, [&](u32 id, i64 slot, bool live) {
            edges += live;
            return done = visit(id, slot, live);
        });
    return done;
}
template <class Tile32> DEVICE void count_visited(const Known& known, Tile32 tile, i64 edges) {
    edges = tile.sum(edges);
    if (tile.rank() == 0 && edges) atomic_add(known.state + r_edges, edges);
}

constexpr u32 nobodys = ~(u32)0;  // a lane has seen no root
template <class Tile32> DEVICE u32 root_of(Tile32 tile, u32 seen, u32 v) {  // the least that a lane has seen, or v
    u32 least = ~tile.most(~seen);
    return least == nobodys ? v : least;
}
// Whether v has a support that is not cut. Lanes that see one that is cut note its root.
template <class View, class Tile32>
DEVICE bool supported(const View& graph, const Known& known, Tile32 tile, i64 v, u32& root, i64& edges) {
    return visit_edges(graph, known, tile, v, edges, [&](u32 u, i64 slot, bool live) {
        bool holds = live && known.holds(u, v, graph.weight(slot)), gone = holds && get_bit(known.cut, u);
        if (gone && known.root) root = lesser(root, load(known.root + u));
        return tile.any(holds && !gone);
    });
}
// Calls take(v) for the vertices whose length an own one gave, which was cut.
template <class View, class Tile32, class Take>
DEVICE void visit_children(const View& graph, const Known& known, Tile32 tile, i64 u, i64& edges, Take take) {
    visit_edges(graph, known, tile, u, edges, [&](u32 v, i64 slot, bool live) {
        if (live && !get_bit(known.cut, v) && !known.rooted(v) && known.leads(u, v, graph.weight(slot))) take(v);
        return false;
    });
}
