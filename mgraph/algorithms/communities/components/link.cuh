// Connected components by concurrent union-find over all vertices of the graph. parent[v] <= v, so a tree's root is
// its smallest vertex. A write links a root to a smaller vertex of another tree, or moves a vertex closer to its
// tree's root. A parent that a lane has read may be outdated, but is in the same tree: lanes may race in any order.
// This rank owns the `rows` vertices from `first` on, a row each; a row's neighbours may belong to any rank.
#pragma once
#include "kernels/rows.cuh"

constexpr i64 sampled = 2;  // neighbours of each vertex that are linked before the largest tree is searched for

// The arcs that have joined trees are a spanning forest of the graph. `links` has the arc by which a vertex was linked,
// src << 32 | dst, and `unlinked` for a root.
constexpr u64 unlinked = ~(u64)0;

DEVICE u64 arc_of(i64 src, i64 dst) { return (u64)src << 32 | (u64)dst; }

// The other end of the arc by which v was linked, if v is an end and the other is smaller, else v.
DEVICE u32 hung_on(u64 arc, i64 v) {
    i64 src = (i64)(arc >> 32), dst = (i64)(u32)arc, other = src == v ? dst : dst == v ? src : v;
    return (u32)lesser(other, v);
}

// Marks the ends of an arc by which another vertex was linked.
DEVICE void note_hook(const u64* links, u8* hooks, i64 v) {
    u64 arc = links[v];
    if (arc == unlinked || hung_on(arc, v) != (u32)v) return;
    store(hooks + (arc >> 32), (u8)1);
    store(hooks + (u32)arc, (u8)1);
}

// Joins the trees of a and b: moves up from the larger of the two until both are equal, or until it is a root, which is
// linked to the other. Returns a vertex of the joined tree that is not larger than a or b. Notes the arc, and that a tree
// was linked, unless the pointers are null.
DEVICE u32 link(u32* parent, u32 a, u32 b, u64* links = nullptr, u64 arc = unlinked, bool* linked = nullptr) {
    while (a != b) {
        u32 high = greater(a, b), low = lesser(a, b), up = stale_load(parent + high);
        if (up == high) up = atomic_cas(parent + high, high, low);
        if (up == high) {
            if (links) links[high] = arc;
            if (linked) *linked = true;
            return low;
        }
        if (up == low) return low;
        u32 over = stale_load(parent + up);  // the path is made shorter on the way
        if (over != up) store(parent + high, over);
        a = over, b = low;
    }
    return a;
}

// `back` if the row has the sources of arcs.
template <class View, class Tile>
DEVICE void link_unit(const View& graph, Tile tile, i64 vertex, i64 row, i64 unit, u32* parent, u64* links, bool back) {
    u32 near = (u32)vertex;  // a vertex of the same tree, closer to the root after each link
    graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
        if (live) near = link(parent, near, id, links, back ? arc_of(id, vertex) : arc_of(vertex, id));
        return false;
    });
}

// Calls visit(id) for the first neighbours of a row, `most` at most.
template <class View, class Visit>
DEVICE void visit_sample(const View& graph, i64 row, Visit visit, i64 most = sampled) {
    i64 left = lesser((i64)graph.degree(row), most), units = left ? (i64)graph.units(row) : 0;
    for (i64 unit = 0; unit < units && left > 0; ++unit)
        graph.visit(Tile<1>{}, row, unit, [&](u32 id, i64, bool live) {
            if (live && left > 0) visit(id), --left;
            return left <= 0;
        });
}

DEVICE void add_neighbour(u32 (&ids)[sampled], u32 id) {  // to those before, in registers
    static_assert(sampled == 2, "the first and the second");
    if (ids[0] == no_id) ids[0] = id;
    else if (ids[1] == no_id) ids[1] = id;
}

// The first neighbours of own rows, -1 for none; no_id for those that are missing.
template <class View, int count>
DEVICE void first_neighbours(const View& graph, i64 rows, const i64 (&row)[count], u32 (&ids)[count][sampled]) {
    for (int k = 0; k < count; ++k)
        for (int j = 0; j < sampled; ++j) ids[k][j] = no_id;
    if constexpr (count > 1 && in_stretches<View>) {
        constexpr int looks = 2;  // at once, and again if there are gaps between few edges
        i64 at[count];
        u32 length[count];
#pragma unroll
        for (int k = 0; k < count; ++k) {
            at[k] = row[k] < 0 ? 0 : graph.begins(row[k]);
            length[k] = row[k] < 0 ? 0 : (u32)(graph.ends(row[k]) - at[k]);
        }
#pragma unroll
        for (u32 from = 0; from <= looks; from += looks) {
            u32 id[looks][count];
#pragma unroll
            for (int j = 0; j < looks; ++j)
                for (int k = 0; k < count; ++k)
                    id[j][k] = from + j < length[k] && ids[k][1] == no_id ? graph.id_at(at[k] + from + j) : no_id;
#pragma unroll
            for (int j = 0; j < looks; ++j)
                for (int k = 0; k < count; ++k) add_neighbour(ids[k], id[j][k]);
        }
#pragma unroll
        for (int k = 0; k < count; ++k)
            if (length[k] > 2 * looks && ids[k][1] == no_id) {
                ids[k][0] = no_id;
                visit_sample(graph, row[k], [&](u32 id) { add_neighbour(ids[k], id); });
            }
    } else {
        for (int k = 0; k < count; ++k) {
            if (row[k] < 0) continue;
            fetch_row(graph, row[k], rows, EveryRow{});
            int n = 0;
            visit_sample(graph, row[k], [&](u32 id) { ids[k][n++] = id; });
        }
    }
}

// After so many steps of a path, words are read past L1. Stale ones would lead to where others were long ago, so that no
// lane gains by what others have shortened.
constexpr u32 short_steps = 4;

// The root becomes the parent of v, while no lane links.
DEVICE void compress(u32* parent, i64 v) {
    u32 up = stale_load(parent + v), steps = 0;
    for (u32 next; (next = steps < short_steps ? stale_load(parent + up) : load(parent + up)) != up; up = next, ++steps)
        store(parent + v, next);
}

// The same for v and those behind it, in steps of a tile's lanes, that are `live`; `up` are their parents. A lane writes
// only its own words, after each step, which shortens the paths of other lanes. `root` is one that the lane has found: it
// is not read again, since the memory gives lanes the same word one after another. gives_up(steps) is asked before each
// step; returns true if it did.
template <int n, class GivesUp>
DEVICE bool compress(u32* parent, i64 v, u32 (&up)[n], u32 live, u32& root, GivesUp gives_up) {
    u32 next[n];
    auto look = [&](auto word) {
        for (int k = 0; k < n; ++k) next[k] = live >> k & 1 && up[k] != root ? word(parent + up[k]) : up[k];
    };
    for (bool moves = true; moves; live += 1u << n) {
        u32 steps = live >> n;
        if (gives_up(steps)) return true;
        if (steps < short_steps) look([](const u32* p) { return stale_load(p); });
        else look([](const u32* p) { return load(p); });
        moves = false;
        for (int k = 0; k < n; ++k) {
            if (next[k] == up[k]) {
                if (live >> k & 1) root = up[k];
                continue;
            }
            store(parent + v + k * Tile<32>::size(), next[k]);
            up[k] = next[k], moves = true;
        }
    }
    return false;
}

DEVICE u32 root_of(const u32* parent, u32 v) {
    for (u32 up; (up = stale_load(parent + v)) != v; v = up) {}
    return v;
}

// Notes a vertex's name for its tree, which is called by the least one.
DEVICE void note_name(u32* least, u32 root, u32 name) {
    if (name < stale_load(least + root)) atomic_min(least + root, name);
}
