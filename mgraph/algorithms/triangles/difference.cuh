// The triangles that changed edges have made or ended. Edges are sorted keys with the smaller end first; their places
// are their order. A triangle that was made counts at the first of its inserted edges. One that was ended has one
// deleted edge, or its two or three deleted edges meet at a vertex: then it counts at that, or at the smallest of them.
#pragma once
#include "structures/outcome.cuh"
#include "kernels/search.cuh"

struct Edges {  // that were inserted or deleted, without self-loops; the same on every rank
    const u64* keys;
    const u8* kinds;
    i64 n;
    // The place of the edge between a and b, or n.
    DEVICE i64 place(u32 a, u32 b) const {
        u64 key = (u64)lesser(a, b) << 32 | greater(a, b);
        i64 at = lower_bound(keys, 0, n, key);
        return at < n && keys[at] == key ? at : n;
    }
};

struct LowerEnds {  // one lane an edge: its end of smaller degree, and the other one
    static constexpr int lanes = 1;
    Edges edges;
    const u32* degrees;  // of the first ends, then of the others
    u32* lower;
    u32* upper;
    DEVICE void operator()(Grid grid) const {
        for (i64 e : grid.items(edges.n)) {
            u32 u = (u32)(edges.keys[e] >> 32), v = (u32)edges.keys[e];
            bool first = degrees[e] <= degrees[edges.n + e];
            lower[e] = first ? u : v, upper[e] = first ? v : u;
        }
    }
};

// One lane a neighbour of a lower end: what the triangle with it adds to the corners of all.
template <class View>
struct CloseEdges {
    static constexpr int lanes = 1;
    View graph;
    Edges edges;
    i64 lo;
    const u32* lower;
    const u32* upper;  // of those in `list`, owned by this rank
    const u32* list;  // edges
    const i64* offsets;  // their lower ends' rows in `ids`
    i64 listed;
    const u32* ids;
    i64 n;
    i8* adds;
    u32* places;  // out: the edge
    DEVICE void operator()(Grid grid) const {
        i64 row = 0;
        for (i64 i : grid.items(n)) {
            row = lower_bound_near(offsets, listed + 1, row, i + 1) - 1;
            i64 e = list[row];
            u32 x = lower[e], y = upper[e], w = ids[i];
            adds[i] = 0, places[i] = (u32)e;
            if (w == x || w == y || graph.find((i64)y - lo, w) < 0) continue;
            i64 a = edges.place(x, w), b = edges.place(y, w);  // both are there: not deleted
            if (edges.kinds[e] == inserted) adds[i] = a > e && b > e;
            else adds[i] = a == edges.n && b == edges.n ? -1 : 0;
        }
    }
};

// One lane a pair of deleted arcs from one vertex u, to v below w.
template <class View>
struct ClosePairs {
    static constexpr int lanes = 1;
    View graph;
    Edges edges;
    i64 lo;
    i64 hi;
    const u64* arcs;  // the deleted ones, each way; ascending
    const i64* offsets;  // how many pairs begin before each arc
    i64 n_arcs;
    i64 n;
    i8* adds;
    u32* corners;  // out: u, v and w of each pair
    DEVICE void operator()(Grid grid) const {
        i64 arc = 0;
        for (i64 i : grid.items(n)) {
            arc = lower_bound_near(offsets, n_arcs + 1, arc, i + 1) - 1;
            u32 u = (u32)(arcs[arc] >> 32), v = (u32)arcs[arc], w = (u32)arcs[arc + 1 + i - offsets[arc]];
            corners[3 * i] = u, corners[3 * i + 1] = v, corners[3 * i + 2] = w;
            adds[i] = (i64)v >= lo && (i64)v < hi && was(u, v, w) ? -1 : 0;
        }
    }
    DEVICE bool was(u32 u, u32 v, u32 w) const {
        i64 third = edges.place(v, w);
        if (third < edges.n) return edges.kinds[third] == deleted && u < v;
        return graph.find((i64)v - lo, w) >= 0;
    }
};

struct AddCorners {  // one lane a corner: vertex << 32 | what is added plus one
    static constexpr int lanes = 1;
    const u64* corners;
    i64 n;
    i64 lo;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) atomic_add(counts + (i64)(corners[i] >> 32) - lo, (i64)(u32)corners[i] - 1);
    }
};
