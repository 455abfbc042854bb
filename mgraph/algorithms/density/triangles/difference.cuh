// Counts the triangles that changed edges have added or removed. Changed arcs are sorted, each edge both ways; the
// places of the arcs from the smaller end order the edges. An added triangle counts at the first of its inserted edges.
// A removed one has a single deleted edge, or its two or three deleted edges meet at a vertex: then it counts at that
// vertex, or at the smallest of them. This rank owns the vertices from `lo` to `hi`.
#pragma once
#include "kernels/search.cuh"
#include "structures/outcome.cuh"

enum Totals { t_searches, t_counted, t_ids, t_units, t_pairs, t_triangles, t_sent, t_degrees };

struct Edges {  // changed arcs, equal on every rank; self-loops and new weights do not count
    const u64* keys;
    const u8* kinds;
    i64 n;
    DEVICE u32 src(i64 i) const { return (u32)(keys[i] >> 32); }
    DEVICE u32 dst(i64 i) const { return (u32)keys[i]; }
    DEVICE bool counts(i64 i) const { return kinds[i] != updated && src(i) != dst(i); }
    DEVICE bool gone(i64 i) const { return kinds[i] == deleted && src(i) != dst(i); }
    // Returns the place of the edge between a and b, or n.
    DEVICE i64 place(u32 a, u32 b) const {
        u64 key = (u64)lesser(a, b) << 32 | greater(a, b);
        i64 at = lower_bound(keys, 0, n, key);
        return at < n && keys[at] == key && kinds[at] != updated ? at : n;
    }
};

struct Counts {  // numbers of triangles at each own vertex
    i64 lo;
    i64 hi;
    i64* counts;
    u64* sent;  // out: additions to other ranks' vertices: vertex << 32 | amount as u32
    i64* totals;
    DEVICE bool owns(i64 v) const { return v >= lo && v < hi; }
    DEVICE void add(u32 v, i64 more) const {
        if (owns(v)) atomic_add(counts + (i64)v - lo, more);
        else sent[take_place(totals + t_sent)] = (u64)v << 32 | (u32)(i32)more;
    }
};
template <class Tile32> DEVICE void add_total(Tile32 tile, i64* total, i64 mine) {
    mine = tile.sum(mine);
    if (tile.rank() == 0 && mine) atomic_add(total, mine);
}

template <class View>
struct EndDegrees {  // writes the degrees of own ends, 0 for others, one lane per changed arc
    static constexpr int lanes = 1;
    View graph;
    Edges edges;
    i64 lo;
    i64 hi;
    u32* degrees;  // out: degrees of the sources, then of the destinations
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(edges.n)) {
            degrees[i] = of(edges.src(i));
            degrees[edges.n + i] = of(edges.dst(i));
        }
    }
    DEVICE u32 of(i64 v) const { return v >= lo && v < hi ? (u32)graph.degree(v - lo) : 0; }
};

template <class View>
struct LowerEnds {  // finds an edge's end of smaller degree, and the other, one lane per changed arc
    static constexpr int lanes = 1;
    View graph;
    Edges edges;
    Counts own;
    const u32* degrees;
    u32* lower;
    u32* upper;
    i64* lengths;  // out: lengths of the rows of own lower ends; else 0
    i64* units;  // out: units of these rows
    i64* dead;  // out: 1 for a deleted arc; may be null
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        i64 searches = 0, counted = 0, ids = 0, parts = 0;
        for (i64 i : grid.items(edges.n)) {
            bool counts = edges.counts(i), first = degrees[i] <= degrees[edges.n + i];
            u32 u = edges.src(i), v = edges.dst(i), low = first ? u : v;
            i64 degree = counts && u < v ? (i64)degrees[first ? i : edges.n + i] : 0;
            bool here = degree && own.owns(low);
            lower[i] = low, upper[i] = first ? v : u;
            lengths[i] = here ? degree : 0;
            units[i] = here ? (i64)graph.units((i64)low - own.lo) : 0;
            if (dead) dead[i] = edges.gone(i);
            searches += degree, counted += counts, ids += lengths[i], parts += units[i];
        }
        add_total(tile, own.totals + t_searches, searches);
        add_total(tile, own.totals + t_counted, counted);
        add_total(tile, own.totals + t_ids, ids);
        add_total(tile, own.totals + t_units, parts);
    }
};

template <class View>
struct RowIds {  // copies the neighbours of a row, in any order, a unit per tile
    static constexpr int lanes = 32;
    View graph;
    i64 lo;
    const u32* lower;
    const u32* list;  // edges
    const i64* offsets;  // offsets of their lower ends' rows in `ids`
    const i64* units;  // number of units before each
    i64 listed;
    i64 n;
    i64* used;  // zeros at first: number of ids of each edge
    u32* ids;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            i64 at = lower_bound(units, 0, listed + 1, i + 1) - 1, row = (i64)lower[list[at]] - lo;
            graph.visit(tile, row, i - units[at], [&](u32 id, i64, bool live) {
                u32 all = tile.ballot(live);
                if (all == 0) return false;
                i64 place = tile.shfl(tile.rank() == 0 ? atomic_add(used + at, (i64)popcount(all)) : (i64)0, 0);
                if (live) ids[offsets[at] + place + popcount(all & ((1u << tile.rank()) - 1))] = id;
                return false;
            });
        }
    }
};

// Tests neighbours of lower ends, 32 per tile: triangles with them count at all corners.
template <class View>
struct CloseEdges {
    static constexpr int lanes = 32;
    View graph;
    Edges edges;
    Counts own;
    const u32* lower;
    const u32* upper;  // of the edges in `list`; owned by this rank
    const u32* list;  // edges
    const i64* offsets;
    i64 listed;
    const u32* ids;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 row = 0, found = 0;
        for (i64 c : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 i = c * tile.size() + tile.rank(), e = -1;
            bool hit = false;
            if (i < n) {
                row = lower_bound_near(offsets, listed + 1, row, i + 1) - 1, e = list[row];
                hit = closes(e, ids[i]);
            }
            u32 hits = tile.ballot(hit);
            if (hits == 0) continue;
            i64 sign = e >= 0 && edges.kinds[e] == inserted ? 1 : -1;
            hits &= tile.match(e);  // lanes with equal edges add to its ends together
            if (hit) own.add(ids[i], sign);
            if (!hit || tile.rank() != lowest_bit(hits)) continue;
            i64 more = sign * popcount(hits);
            own.add(lower[e], more), own.add(upper[e], more);
            found += more;
        }
        add_total(tile, own.totals + t_triangles, found);
    }
    DEVICE bool closes(i64 e, u32 w) const {
        u32 x = lower[e], y = upper[e];
        if (w == x || w == y || graph.find((i64)y - own.lo, w) < 0) return false;
        i64 a = edges.place(x, w), b = edges.place(y, w);  // both edges exist: not deleted
        return edges.kinds[e] == inserted ? a > e && b > e : a == edges.n && b == edges.n;
    }
};

struct ListGone {  // lists the deleted arcs, one lane per changed arc
    static constexpr int lanes = 1;
    Edges edges;
    const i64* upto;  // number of deleted arcs up to each
    u64* gone;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(edges.n))
            if (edges.gone(i)) gone[upto[i] - 1] = edges.keys[i];
    }
};

constexpr u64 no_arc = ~(u64)0;

struct Later {  // counts the later deleted arcs from the same vertex, one lane per deleted arc
    static constexpr int lanes = 1;
    const u64* gone;  // ascending, then no_arc
    i64 n;
    i64* later;
    i64* totals;
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        i64 pairs = 0;
        for (i64 i : grid.items(n)) {
            later[i] = gone[i] == no_arc ? 0 : lower_bound(gone, i, n, first_key_of((i64)(gone[i] >> 32) + 1)) - i - 1;
            pairs += later[i];
        }
        add_total(tile, totals + t_pairs, pairs);
    }
};

// Tests pairs of deleted arcs from a vertex u, to v below w, one lane per pair.
template <class View>
struct ClosePairs {
    static constexpr int lanes = 1;
    View graph;
    Edges edges;
    Counts own;
    const u64* gone;
    const i64* offsets;  // number of pairs before each of them
    i64 n_gone;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        i64 arc = 0, found = 0;
        for (i64 i : grid.items(n)) {
            arc = lower_bound_near(offsets, n_gone + 1, arc, i + 1) - 1;
            u32 u = (u32)(gone[arc] >> 32), v = (u32)gone[arc], w = (u32)gone[arc + 1 + i - offsets[arc]];
            if (!own.owns(v) || !was(u, v, w)) continue;
            own.add(u, -1), own.add(v, -1), own.add(w, -1);
            --found;
        }
        add_total(tile, own.totals + t_triangles, found);
    }
    DEVICE bool was(u32 u, u32 v, u32 w) const {
        i64 third = edges.place(v, w);
        if (third < edges.n) return edges.kinds[third] == deleted && u < v;
        return graph.find((i64)v - own.lo, w) >= 0;
    }
};

struct AddCorners {  // adds the corners of another rank, one lane per corner
    static constexpr int lanes = 1;
    Counts own;
    const u64* corners;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) own.add((u32)(corners[i] >> 32), (i32)(u32)corners[i]);
    }
};

// Computes the growth of degree * (degree - 1), twice the pairs of a vertex's neighbours, at the first changed arc of
// each own vertex; one tile per changed arc.
template <class View>
struct CountPairs {
    static constexpr int lanes = 32;
    View graph;
    Edges edges;
    Counts own;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 grown = 0;
        for (i64 i : grid.items(tile, edges.n)) {
            i64 v = edges.src(i), row = v - own.lo, more = 0;
            if (!own.owns(v) || (i > 0 && (i64)edges.src(i - 1) == v)) continue;
            i64 end = lower_bound(edges.keys, i, edges.n, first_key_of(v + 1));
            for (i64 j = i + tile.rank(); j < end; j += tile.size())
                if (edges.counts(j)) more += edges.kinds[j] == deleted ? -1 : 1;
            more = tile.sum(more);
            if (tile.rank() > 0) continue;
            i64 now = (i64)graph.degree(row) - (graph.find(row, (u32)v) >= 0), before = now - more;
            grown += now * (now - 1) - before * (before - 1);
        }
        add_total(tile, own.totals + t_degrees, grown);
    }
};
