// Connected components that follow the graph. link.cuh says how trees are joined.
#pragma once
#include "algorithms/communities/components/link.cuh"
#include "algorithms/primitives/edge_delta.cuh"
#include "kernels/bits.cuh"
#include "kernels/search.cuh"

// The root of v, which becomes its parent while no lane links.
DEVICE u32 flat_root(u32* parent, u32 v) {
    u32 up = stale_load(parent + v), root = root_of(parent, up);
    if (root != up) store(parent + v, root);
    return root;
}

DEVICE void count_roots(i64 found, i64* roots) {
    Tile<32> tile;
    found = tile.sum(found);
    if (tile.rank() == 0 && found) atomic_add(roots, found);
}

// One lane a vertex: least[root], in which a vertex has its own name before, becomes the least name of the tree. Counts the
// roots. All vertices get their roots as parents.
struct LeastNames {
    static constexpr int lanes = 1;
    const u32* names;  // null if they are the vertices' numbers
    i64 n;
    u32* parent;
    u32* least;
    i64* roots;
    DEVICE void operator()(Grid grid) const {
        i64 found = 0;
        for (i64 v : grid.items(n)) {
            u32 root = flat_root(parent, (u32)v);
            found += root == (u32)v;
            if (root != (u32)v) note_name(least, root, names ? names[v] : (u32)v);
        }
        count_roots(found, roots);
    }
};

struct NameJoined {  // one lane a root of a tree that was joined with others: their root gets the least of their names
    static constexpr int lanes = 1;
    const u32* joined;
    i64 n;
    const u32* parent;
    u32* least;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) note_name(least, root_of(parent, joined[i]), load(least + joined[i]));
    }
};

struct Label {  // one lane an own vertex: the least name in its component; its root becomes its parent
    static constexpr int lanes = 1;
    i64 first;
    i64 rows;
    u32* parent;
    const u32* least;
    i64* labels;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(rows)) labels[row] = least[flat_root(parent, (u32)(first + row))];
    }
};

// ---- links that changes cut -----------------------------------------------------------------------------------------

enum Counted { m_joins, m_cut, m_loose, m_parted, m_edges, m_linked };  // the words of `state`

struct Links {
    u64* of;  // of all vertices, as in link.cuh; null if they are not kept, and no arc was deleted
    u8* hooks;  // 1 at least for the ends of arcs by which other vertices were linked
    u32* stumps;  // a bitmap of all vertices: those from which others were cut in this update
    u32* suspects;  // a bitmap of all vertices: the sources of deleted arcs between hooks
    u32* parent;  // ways to the roots before the update; for `Relink`, the roots themselves
    u64* cut;  // vertex << 32 | the one that it hung on
    u64* joined;  // pairs of roots before the update, root << 32 | root, whose trees an arc joins
    i64* state;
    DEVICE i64 number(Counted word) const { return load(state + word); }
    DEVICE void count(Counted word) const { take_place(state + word); }
};

// One lane a changed arc: a vertex that was linked by a deleted one is cut. Another deleted arc between hooks may have
// linked a vertex that only a pass over all of them would find.
struct CutLinks {
    static constexpr int lanes = 1;
    EdgeDelta changed;
    Links links;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            if (changed.is(i)) continue;
            i64 src = changed.src(i), dst = changed.dst(i);
            if (src == dst || cuts(changed.keys[i], src, dst) || cuts(changed.keys[i], dst, src)) continue;
            if (!load(links.hooks + src) || !load(links.hooks + dst)) continue;
            set_bit(links.suspects, src);
            links.count(m_loose);
        }
    }
    DEVICE bool cuts(u64 arc, i64 v, i64 other) const {
        if (load(links.of + v) != arc) return false;
        store(links.of + v, unlinked);
        set_bit(links.stumps, other);
        links.cut[take_place(links.state + m_cut)] = arc_of(v, other);
        return true;
    }
};

// One lane a vertex: drops the links of other vertices' arcs that were deleted. The changed arcs ascend.
struct CutHooks {
    static constexpr int lanes = 1;
    EdgeDelta changed;
    Links links;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) {
            u64 arc = links.of[v];
            if (arc == unlinked || !get_bit(links.suspects, (i64)(arc >> 32))) continue;
            i64 at = lower_bound(changed.keys, (i64)0, changed.n, arc);
            if (at < changed.n && changed.keys[at] == arc && !changed.is(at)) links.of[v] = unlinked;
        }
    }
};

// One lane a vertex that was cut: links it again, by another of its arcs, or by one of a vertex below it. What is left is
// loose, and ends the kernel.
//
// Vertices hang on smaller ones, so two vertices are in the same tree if their ways down meet. A vertex whose smaller
// neighbour meets the one that it hung on is linked by that neighbour: the same vertices are connected as before.
//
// Otherwise all vertices that hang on it are looked for. If they are few, none of them is a hook, and nothing else was
// cut from them, then their only link was the deleted one. Any edge to a vertex of the same component links them again,
// provided that this vertex's way ends below: then no two parts are linked in a circle. Without edges to others they are
// a component.
template <class View>
struct Relink {
    static constexpr int lanes = 1;
    static constexpr int room = 16;
    static constexpr i64 many = 256;  // cut vertices, of which one is likely to be loose
    static constexpr i64 tries = 8, longest = 256;  // neighbours; edges of a part, and steps of a way
    View graph;
    i64 first;
    i64 rows;
    Links links;
    i64 parts;  // 1 if each arc is in the rows of both its ends, and all rows are here
    DEVICE void operator()(Grid grid) const {
        i64 edges = 0, cut = links.number(m_cut);
        if (cut > many) {
            for (i64 i : grid.items(1)) atomic_add(links.state + m_loose, 1 + i);
            return;
        }
        for (i64 i : grid.items(cut)) {
            if (links.number(m_loose)) break;
            u32 v = (u32)(links.cut[i] >> 32);
            if (!hangs(v, (u32)links.cut[i], edges) && !(parts && joins(v, edges))) links.count(m_loose);
        }
        Tile<32> tile;
        edges = tile.sum(edges);
        if (tile.rank() == 0 && edges) atomic_add(links.state + m_edges, edges);
    }
    DEVICE u32 down(u32 v) const { return hung_on(load(links.of + v), v); }
    DEVICE bool meet(u32 a, u32 b) const {
        for (i64 step = 0; a != b && step < longest; ++step) {
            u32 high = greater(a, b), next = down(high);
            if (next == high) return false;
            a = lesser(a, b), b = next;
        }
        return a == b;
    }
    DEVICE bool hangs(u32 v, u32 old, i64& edges) const {
        i64 row = (i64)v - first, left = tries, units = row >= 0 && row < rows ? (i64)graph.units(row) : 0;
        u32 on = v;
        for (i64 unit = 0; unit < units && left > 0; ++unit)
            graph.visit(Tile<1>{}, row, unit, [&](u32 id, i64, bool live) {
                if (!live || left <= 0) return left <= 0;
                ++edges, --left;
                if (id >= v) return View::sorted ? (left = 0, true) : false;
                if (meet(id, old)) on = id, left = 0;
                return left <= 0;
            });
        if (on != v) store(links.of + v, arc_of(v, on));
        return on != v;
    }
    DEVICE bool joins(u32 v, i64& edges) const {
        u32 part[room] = {v}, root = load(links.parent + v);
        int n = 1;
        i64 seen = 0;
        u64 arc = unlinked;
        bool known = true, closed = true;  // no edge leads to others
        for (int k = 0; k < n && known; ++k) {
            u32 x = part[k];
            known = !load(links.hooks + x) && !get_bit(links.stumps, x);
            i64 units = graph.units(x);
            for (i64 unit = 0; unit < units && known; ++unit)
                graph.visit(Tile<1>{}, x, unit, [&](u32 id, i64, bool live) {
                    if (!live || !known) return !known;
                    known = ++seen <= longest;
                    for (int j = 0; j < n; ++j)
                        if (part[j] == id) return !known;
                    u64 by = load(links.of + id);
                    if (by == arc_of(id, x) || by == arc_of(x, id)) {
                        known = known && n < room;
                        if (known) part[n++] = id;
                    } else if (load(links.parent + id) == root) {
                        closed = false;
                        if (arc == unlinked && ends_below(id, v)) arc = arc_of(x, id);
                    }
                    return !known;
                });
        }
        edges += seen;
        if (!known || (arc == unlinked && !closed)) return false;
        if (closed) {
            for (int k = 0; k < n; ++k) store(links.parent + part[k], v);
            links.count(m_parted);
            return true;
        }
        store(links.of + v, arc);
        note_hook(links.of, links.hooks, v);
        return true;
    }
    DEVICE bool ends_below(u32 id, u32 v) const {
        for (i64 step = 0; id >= v && step < longest; ++step) {
            u32 next = down(id);
            if (next == id) return false;
            id = next;
        }
        return id < v;
    }
};

struct NoteHooks {  // one lane a vertex
    static constexpr int lanes = 1;
    const u64* arcs;
    u8* hooks;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) note_hook(arcs, hooks, v);
    }
};

struct JoinArcs {  // one lane a changed arc: joins the trees of the ends of an inserted one
    static constexpr int lanes = 1;
    EdgeDelta changed;
    Links links;
    DEVICE void operator()(Grid grid) const {
        if (links.number(m_loose)) return;  // the forest is made again
        for (i64 i : grid.items(changed.n)) {
            if (changed.was(i) || !changed.is(i)) continue;
            // Of the lanes that link a tree, the first finds the root that it had before.
            u32 a = root_of(links.parent, (u32)changed.src(i)), b = root_of(links.parent, (u32)changed.dst(i));
            if (a == b) continue;
            links.joined[take_place(links.state + m_joins)] = arc_of(a, b);
            u64 arc = changed.keys[i];
            bool linked = false;
            link(links.parent, a, b, links.of, arc, &linked);
            if (linked) links.count(m_linked);
            if (!links.of) continue;
            store(links.hooks + changed.src(i), (u8)1);
            store(links.hooks + changed.dst(i), (u8)1);
        }
    }
};
