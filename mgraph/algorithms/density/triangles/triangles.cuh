// Counts triangles of the undirected graph behind the edges. Each edge is kept once, at its lower end: the vertex of
// smaller degree, or of smaller id among equals. So a vertex keeps at most sqrt(2 m) edges, and a triangle is found
// once, from its lowest vertex u: its edge to v is closed by each w to which both u and v keep an edge. Rows of kept
// edges ascend. twice[e] is 1 if an edge of a directed graph has arcs both ways.
#pragma once
#include "algorithms/density/edge_triangles.cuh"
#include "kernels/rows.cuh"

DEVICE bool is_lower(const u32* degrees, i64 a, i64 b) {
    u32 of_a = degrees[a], of_b = degrees[b];
    return of_a == of_b ? a < b : of_a < of_b;
}

template <class View>
struct AddDegrees {  // adds the degrees of rows, one lane per row
    static constexpr int lanes = 1;
    View graph;
    i64 rows;
    u32* degrees;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(rows)) degrees[row] += (u32)graph.degree(row);
    }
};

struct Kept {           // output of kept edges
    const u32* degrees;  // per vertex of the graph
    i64 first;           // the vertex of row 0
    u32* counts;         // number of edges that each row keeps
    u8* loops;           // out: rows with a self-loop
    const i64* offsets;
    u64* keys;  // out: row << 32 | neighbour
    u32* ids;   // or the neighbour alone; both are null while edges are only counted
    // Keeps the edges of a unit. next(n) returns the place of the first of n kept edges that a group has read.
    template <class View, class Group, class Next>
    DEVICE void take(const View& graph, Group group, i64 row, i64 unit, Next next) const {
        graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
            bool kept = live && is_lower(degrees, first + row, id);
            if (live && id == first + row) loops[row] = 1;
            u32 all = group.ballot(kept);
            if (all == 0) return false;
            i64 place = next((u32)popcount(all)) + popcount(all & ((1u << group.rank()) - 1));
            if (kept && keys) keys[offsets[row] + place] = (u64)row << 32 | id;
            if (kept && ids) ids[offsets[row] + place] = id;
            return false;
        });
    }
};

template <class View>
struct KeepRows {  // keeps the edges of rows, a row per lane; leaves hubs to KeepHubs
    static constexpr int lanes = 32;
    View graph;
    i64 rows;
    Kept kept;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        u32 place = 0;  // one group visits a row's units in order
        visit_all(grid, graph, rows, EveryRow{}, tasks, n_tasks, [&](auto group, i64 row, i64 unit) {
            if (unit == 0) place = kept.counts[row];
            kept.take(graph, group, row, unit, [&](u32 n) {
                place += n;
                return place - n;
            });
            group.sync();
            if (group.rank() == 0) kept.counts[row] = place;
        });
    }
};

template <class View>
struct KeepHubs {  // keeps the edges of a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    Kept kept;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks, [&](auto tile, i64 row, i64 unit) {
            kept.take(graph, tile, row, unit,
                      [&](u32 n) { return tile.shfl(tile.rank() == 0 ? atomic_add(kept.counts + row, n) : 0u, 0); });
        });
    }
};

struct MarkFirst {  // marks the first of equal keys of a directed graph, one lane per key
    static constexpr int lanes = 1;
    const u64* keys;
    i64 n;
    u8* firsts;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) firsts[i] = i == 0 || keys[i] != keys[i - 1];
    }
};

struct KeepOnce {  // merges equal keys to an edge, and notes if there were two, one lane per key
    static constexpr int lanes = 1;
    const u64* keys;
    const i64* upto;  // number of firsts up to each key
    i64 n;
    i64 first;
    u32* ids;
    u8* twice;
    u32* both;  // per vertex of the graph: edges with arcs both ways
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            if (i > 0 && keys[i] == keys[i - 1]) continue;
            bool two = i + 1 < n && keys[i + 1] == keys[i];
            ids[upto[i] - 1] = (u32)keys[i];
            twice[upto[i] - 1] = two;
            if (!two) continue;
            reduce_add(both + first + (i64)(keys[i] >> 32), 1u);
            reduce_add(both + (u32)keys[i], 1u);
        }
    }
};

// The amount that a triangle adds to each of its vertices: 1; or the arcs of the opposite edge; or the product of all
// edges' arcs.
enum Counting { triangles, arcs_opposite, arcs_multiplied };

struct Close {  // counts the triangles of an edge, from u of any rank to v, with the rows' common w; an edge per lane
    static constexpr int lanes = 32;
    Part lower;  // the rows of u; its offsets begin with 0
    Part upper;  // the rows of v
    i64 edges;
    i64 counting;
    u32* support;  // per edge from u to w: amount to add to w
    i64* counts;  // per vertex of the graph
    DEVICE void operator()(Grid grid) const {
        Items share = grid.items(Tile<lanes>{}, edges);
        with_places(lower, upper, [&](auto places) {
            close_edges(grid, lower, upper, edges, [&](i64 edge, i64 row, i64 v) {
                i64 from = lower.offsets[row], to = lower.offsets[row + 1];
                close(edge, row, v, places, Tile<lanes>::size() == 1 && from >= share.first && to <= share.last);
            });
        });
    }
    // `whole`: a CPU's thread has all edges of the row, so that it needs no atomics.
    template <bool several>
    DEVICE void close(i64 edge, i64 row, i64 v, Places<several>& places, bool whole) const {
        i64 to_u = 0, to_v = 0;
        u32 uv = lower.arcs(edge);
        each_common(lower, upper, row, v, places, [&](i64 at_u, i64 at_v) {
            u32 uw = lower.arcs(at_u), vw = upper.arcs(at_v), all = uv * uw * vw;
            u32 to_w = counting == arcs_opposite ? uv : all;
            if (whole) support[at_u] += to_w;
            else reduce_add(support + at_u, to_w);
            to_u += counting == arcs_opposite ? vw : all;
            to_v += counting == arcs_opposite ? uw : all;
        });
        if (to_v == 0) return;
        atomic_add(counts + lower.first + row, to_u);
        atomic_add(counts + upper.first + v, to_v);
    }
};

struct AddSupport {  // adds the amounts of an edge's triangles to w, one lane per edge from u to w
    static constexpr int lanes = 1;
    const u32* ids;
    const u32* support;
    i64 n;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n))
            if (support[i]) atomic_add(counts + ids[i], (i64)support[i]);
    }
};

struct Paths {  // sums the triangles and the pairs of neighbours, one lane per own vertex
    static constexpr int lanes = 1;
    const i64* counts;
    const u32* degrees;
    const u8* loops;
    i64 n;
    i64* sums;
    DEVICE void operator()(Grid grid) const {
        i64 corners = 0, pairs = 0;
        for (i64 row : grid.items(n)) {
            i64 degree = (i64)degrees[row] - loops[row];
            corners += counts[row], pairs += degree * (degree - 1) / 2;
        }
        Tile<32> tile;
        corners = tile.sum(corners), pairs = tile.sum(pairs);
        if (tile.rank() == 0) atomic_add(sums, corners), atomic_add(sums + 1, pairs);
    }
};

struct Coefficients {  // divides arcs among neighbours by all possible ones, one lane per own vertex
    static constexpr int lanes = 1;
    const i64* counts;
    const u32* degrees;
    const u8* loops;
    const u32* both;  // null in an undirected graph
    i64 n;
    i64 counting;
    f64* values;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) {
            i64 two = both ? both[row] : 0, arcs = (i64)degrees[row] - (both ? 2 : 1) * loops[row], near = arcs - two;
            f64 found = (f64)counts[row], could = (f64)near * (f64)(near - 1);
            if (counting == arcs_multiplied) could = (f64)arcs * (f64)(arcs - 1) - 2 * (f64)two;
            if (counting == triangles) found *= 2;
            values[row] = found > 0 ? found / could : 0;
        }
    }
};
