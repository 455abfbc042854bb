// Connected components that follow the graph. link.cuh says how trees are joined.
#pragma once
#include "algorithms/communities/components/link.cuh"
#include "algorithms/primitives/edge_delta.cuh"

struct Compress {  // one lane a vertex: the root becomes its parent
    static constexpr int lanes = 1;
    u32* parent;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) compress(parent, v);
    }
};

struct LeastIds {  // one lane a user's id: least[root] becomes the smallest user's id of the tree; counts the roots
    static constexpr int lanes = 1;
    const u32* order;  // null if users' ids are the internal ids
    i64 n;
    const u32* parent;
    u32* least;
    i64* roots;
    DEVICE void operator()(Grid grid) const {
        i64 found = 0;
        for (i64 id : grid.items(n)) {
            u32 vertex = order ? order[id] : (u32)id, root = parent[vertex];
            note_name(least, root, (u32)id);
            found += root == vertex;
        }
        Tile<32> tile;
        found = tile.sum(found);
        if (tile.rank() == 0 && found) atomic_add(roots, found);
    }
};

struct Label {  // one lane an own vertex: its component's smallest user's id
    static constexpr int lanes = 1;
    i64 first;
    i64 rows;
    const u32* parent;
    const u32* least;
    i64* labels;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(rows)) labels[row] = least[parent[first + row]];
    }
};

struct JoinArcs {  // one lane a changed arc: joins the trees of the ends of an inserted one; parent[v] is a root before
    static constexpr int lanes = 1;
    EdgeDelta changed;
    u32* parent;
    i64* joins;  // arcs that were between two trees
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            if (changed.was(i) || !changed.is(i)) continue;
            u32 a = stale_load(parent + changed.src(i)), b = stale_load(parent + changed.dst(i));
            if (a == b) continue;
            take_place(joins);
            link(parent, a, b);
        }
    }
};

enum Parting { a_joins, a_failed, a_split, a_edges };  // the words of `state`

// A tile up to 32 changed arcs: whether the source of a deleted one still has a way to its tree's root, the smallest
// vertex of the tree. It goes from vertex to vertex, to the smallest neighbour of each: where ids go by degree, that way
// is short. If all have, whatever was connected is. Else the tile looks for a way from the vertices around. A few that
// have no other neighbours are a tree now.
template <class View>
struct Apart {
    static constexpr int lanes = 32;
    static constexpr int room = 16, steps = 64;
    View graph;  // the edges of all vertices, in both directions
    EdgeDelta changed;
    u32* parent;  // a root for each vertex
    i64* state;
    i64 most;  // edges to visit
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 few = rows_at_once(grid, tile, changed.n);
        for (i64 i : grid.items(tile, (changed.n + few - 1) / few)) {
            if (tile.any(load(state + a_failed) || load(state + a_edges) > most)) return;
            i64 at = i * few + tile.rank(), edges = 0;
            bool open = at < lesser(changed.n, (i + 1) * few) && !changed.is(at);
            u32 v = open ? (u32)changed.src(at) : 0;
            if (View::sorted && open) open = !reaches(Tile<1>{}, v, load(parent + v), edges);  // an edge a step
            tile.sync();
            for (u32 rest = tile.ballot(open); rest; rest &= rest - 1)
                if (!look(tile, tile.shfl(v, lowest_bit(rest)), edges) && tile.rank() == 0)
                    store(state + a_failed, (i64)1);
            edges = tile.sum(edges);
            if (tile.rank() == 0 && edges) atomic_add(state + a_edges, edges);
        }
    }
    // False if nobody knows.
    template <class Tile32> DEVICE bool look(Tile32 tile, u32 v, i64& edges) const {
        u32 found[room] = {v}, root = tile.shfl(load(parent + v), 0);
        int n = 1;
        bool all = true;
        for (int k = 0; k < n; ++k) {
            if (reaches(tile, found[k], root, edges)) return true;
            all = all && take_neighbours(tile, found[k], found, n, edges);
        }
        if (!all) return false;
        u32 least = v;
        for (int k = 0; k < n; ++k) least = lesser(least, found[k]);
        if (tile.rank() > 0) return true;
        for (int k = 0; k < n; ++k) store(parent + found[k], least);
        atomic_add(state + a_split, (i64)1);
        return true;
    }
    template <class Group> DEVICE bool reaches(Group group, u32 v, u32 root, i64& edges) const {
        for (int step = 0; step < steps && v > root; ++step) {
            u32 least = v;
            bool done = false;
            i64 units = graph.units(v);
            for (i64 unit = 0; unit < units && !done; ++unit)
                graph.visit(group, v, unit, [&](u32 id, i64, bool live) {
                    edges += live;
                    if (live) least = lesser(least, id);
                    return done = View::sorted && group.any(live);
                });
            least = ~(u32)group.most(~least);
            if (least == v) return false;
            v = least;
        }
        return v == root;
    }
    // Adds the neighbours of v that are not among the n found; false if there is no room for all.
    template <class Tile32> DEVICE bool take_neighbours(Tile32 tile, u32 v, u32* found, int& n, i64& edges) const {
        i64 units = graph.units(v);
        bool fits = true;
        for (i64 unit = 0; unit < units && fits; ++unit)
            graph.visit(tile, v, unit, [&](u32 id, i64, bool live) {
                edges += live;
                for (u32 rest = tile.ballot(live); rest && fits; rest &= rest - 1) {
                    u32 next = tile.shfl(id, lowest_bit(rest));
                    bool known = false;
                    for (int k = 0; k < n; ++k) known |= found[k] == next;
                    if (!known && n == room) fits = false;
                    else if (!known) found[n++] = next;
                }
                return !fits;
            });
        return fits;
    }
};

// ---- trees of hops << 32 | root, a word for each vertex of the graph -------------------------------------------------

struct Roots {  // one lane a vertex: its tree's root
    static constexpr int lanes = 1;
    const u64* words;
    i64 n;
    u32* parent;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) parent[v] = (u32)words[v];
    }
};

struct TreeSizes {  // one lane a vertex; most are of one tree, whose count is added up before it is written
    static constexpr int lanes = 1;
    const u64* words;
    i64 n;
    u32* sizes;  // by root
    DEVICE void operator()(Grid grid) const {
        u32 last = 0, found = 0;
        for (i64 v : grid.items(n)) {
            u32 root = (u32)words[v];
            if (root == (u32)v) {
                reduce_add(sizes + root, 1u);
                continue;
            }
            if (root != last) {
                if (found) reduce_add(sizes + last, found);
                last = root, found = 0;
            }
            ++found;
        }
        Tile<32> tile;
        u32 common = tile.shfl(last, 0);
        i64 alike = tile.sum(last == common ? (i64)found : (i64)0);
        if (tile.rank() == 0 && alike) reduce_add(sizes + common, (u32)alike);
        if (last != common && found) reduce_add(sizes + last, found);
    }
};

struct LargestTrees {  // one lane a vertex: a root notes the size of its tree among those that it is joined with
    static constexpr int lanes = 1;
    const u64* words;
    i64 n;
    const u32* sizes;
    const u32* parent;  // the same for all vertices of joined trees
    u64* largest;  // by parent: size << 32 | root
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n))
            if (words[v] >> 32 == 0) atomic_max(largest + parent[v], (u64)sizes[v] << 32 | (u64)v);
    }
};

struct LeaveTrees {  // one lane a vertex: not in the largest of the joined trees, it leaves its own
    static constexpr int lanes = 1;
    u64* words;
    i64 n;
    const u32* parent;
    const u64* largest;
    i64* left;
    DEVICE void operator()(Grid grid) const {
        i64 found = 0;
        for (i64 v : grid.items(n)) {
            if ((u32)words[v] == (u32)largest[parent[v]]) continue;
            words[v] = ~(u64)0;
            ++found;
        }
        Tile<32> tile;
        found = tile.sum(found);
        if (tile.rank() == 0 && found) atomic_add(left, found);
    }
};

struct ListUnreached {  // one lane a vertex
    static constexpr int lanes = 1;
    const u64* words;
    i64 n;
    u32* list;
    i64* found;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n))
            if (words[v] == ~(u64)0) list[take_place(found)] = (u32)v;
    }
};
