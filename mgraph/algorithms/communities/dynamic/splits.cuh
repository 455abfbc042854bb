// Divides communities that lost an edge or a member into their connected components, by a concurrent union-find over the
// edges inside of them.
//
// Most such communities are still connected, and a CPU's thread sees that from a few rows (`FindDoubts`). It holds that
// the members that stay are connected but for the edges and members that were lost: each lost path ran between two
// *witnesses*, which are ends of lost edges and neighbours of lost members. So the members that stay are connected if
// all witnesses are, which a search from all of them at once finds out. A member that came must have a neighbour among
// those that stayed.
#pragma once
#include "algorithms/communities/components/link.cuh"
#include "algorithms/primitives/edge_delta.cuh"
#include "algorithms/primitives/fixed_point.cuh"

struct TouchMoved {  // marks the communities that a vertex left or joined, one lane per moved vertex
    static constexpr int lanes = 1;
    const u32* moved;
    i64 n;
    const u32* before;
    const u32* labels;
    u8* touched;  // per label
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) store(touched + before[moved[i]], (u8)1), store(touched + labels[moved[i]], (u8)1);
    }
};

struct TouchCut {  // marks the communities of ends of lost edges, one lane per vertex
    static constexpr int lanes = 1;
    const u8* cut;
    i64 n;
    const u32* labels;
    u8* touched;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n))
            if (cut[v]) store(touched + labels[v], (u8)1);
    }
};

// Leaves of the touched communities those that may be disconnected. For the only rank, by one thread of a CPU.
template <class View>
struct FindDoubts {
    static constexpr int lanes = 32;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    f64 unit;
    EdgeDelta changes;
    const u32* moved;
    i64 n_moved;
    const u32* before;
    const u32* labels;
    u8* touched;  // in: communities to look at; out: those in doubt
    u32* set;  // per vertex: the set that reached it, from 1; 0 for none, and before and after the search
    u32* queue;
    u32* parent;  // of sets
    u32* open;  // per label: sets that are not yet one; 0 before and after
    i64* visited;  // out: number of edges
    DEVICE void operator()(Grid grid) const {
        if constexpr (Tile<lanes>::size() == 1)
            if (grid.alone()) look();
    }
    DEVICE bool stays(u32 v) const { return before[v] == labels[v]; }
    template <class Visit> DEVICE void edges(u32 v, Visit visit) const {  // until visit(id) returns true
        bool done = false;
        auto read = [&](const View& side) {
            i64 units = side.degree(v) ? (i64)side.units(v) : 0;
            for (i64 unit = 0; unit < units && !done; ++unit)
                side.visit(Tile<1>{}, v, unit, [&](u32 id, i64 slot, bool live) {
                    if (live) ++*visited;
                    if (live && !done && id != v && fixed(side, slot, unit) > 0) done = visit(id);
                    return done;
                });
        };
        read(graph);
        if (both && !done) read(back);
    }
    DEVICE void witness(u32 v, i64& n, u32& sets) const {
        if (set[v] || !stays(v)) return;
        set[v] = ++sets, parent[sets] = sets, queue[n++] = v, ++open[labels[v]];
    }
    DEVICE void look() const {
        // Witnesses: ends of lost edges, and neighbours of lost members, also by edges that were lost with them.
        i64 n = 0;
        u32 sets = 0;
        for (i64 i = 0; i < changes.n; ++i) {
            u32 src = (u32)changes.src(i), dst = (u32)changes.dst(i);
            bool lost = changes.was(i) && (!changes.is(i) || fixed(changes.after(i), unit) == 0);
            if (lost && before[src] == before[dst]) witness(src, n, sets), witness(dst, n, sets);
        }
        for (i64 i = 0; i < n_moved; ++i) {
            u32 v = moved[i], left = before[v], joined = labels[v];
            bool near = false;
            edges(v, [&](u32 id) {
                if (labels[id] == left) witness(id, n, sets);
                near |= labels[id] == joined && stays(id);
                return false;
            });
            if (!near) open[joined] = ~0u >> 1;  // it stays in doubt
        }
        // Search from all witnesses, until those of a community have met.
        for (i64 at = 0; at < n; ++at) {
            u32 v = queue[at], own = labels[v];
            if (open[own] > 1 && open[own] < ~0u >> 2)
                edges(v, [&](u32 id) {
                    if (labels[id] != own) return false;
                    if (!set[id]) {
                        set[id] = set[v], queue[n++] = id;
                        return false;
                    }
                    u32 a = root(set[v]), b = root(set[id]);
                    if (a == b) return false;
                    parent[greater(a, b)] = lesser(a, b);
                    return --open[own] == 1;
                });
        }
        // In doubt are those with several sets.
        for (i64 i = 0; i < n_moved; ++i) settle(before[moved[i]]), settle(labels[moved[i]]);
        for (i64 i = 0; i < changes.n; ++i) settle(labels[changes.src(i)]), settle(labels[changes.dst(i)]);
        for (i64 i = 0; i < n_moved; ++i) clear(before[moved[i]]), clear(labels[moved[i]]);
        for (i64 i = 0; i < changes.n; ++i) clear(labels[changes.src(i)]), clear(labels[changes.dst(i)]);
        for (i64 at = 0; at < n; ++at) set[queue[at]] = 0;
    }
    DEVICE void settle(u32 label) const {
        if (open[label] <= 1) touched[label] = 0;
    }
    DEVICE void clear(u32 label) const { open[label] = 0; }
    DEVICE u32 root(u32 a) const {
        while (parent[a] != a) a = parent[a] = parent[parent[a]];
        return a;
    }
};

// The own rows in touched communities.
struct TouchedRows {
    const u32* labels;
    const u8* touched;
    i64 first;
    DEVICE i64 operator()(i64 at) const { return touched[labels[first + at]] ? at : -1; }
};

template <class View, class Group>
DEVICE void join_members(const View& graph, Group group, i64 row, i64 unit_of_row, const TouchedRows& rows, f64 unit,
                         u32* parent) {
    u32 v = (u32)(rows.first + row), own = rows.labels[v], near = v;
    graph.visit(group, row, unit_of_row, [&](u32 id, i64 slot, bool live) {
        if (live && rows.labels[id] == own && fixed(graph, slot, unit) > 0) near = link(parent, near, id);
        return false;
    });
}

template <class View>
struct JoinMembers {  // joins the neighbours in a touched community, a row per lane; leaves hubs to JoinHubMembers
    static constexpr int lanes = 32;
    View graph;
    i64 n;
    TouchedRows rows;
    f64 unit;
    u32* parent;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_all(grid, graph, n, rows, tasks, n_tasks, [&](auto group, i64 row, i64 unit_of_row) {
            join_members(graph, group, row, unit_of_row, rows, unit, parent);
        });
    }
};

template <class View>
struct JoinHubMembers {  // joins a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    TouchedRows rows;
    f64 unit;
    u32* parent;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks, [&](auto tile, i64 row, i64 unit_of_row) {
            join_members(graph, tile, row, unit_of_row, rows, unit, parent);
        });
    }
};

struct LinkPairs {  // joins the pairs that another rank has joined, one lane per pair
    static constexpr int lanes = 1;
    const u64* pairs;
    i64 n;
    u32* parent;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) link(parent, (u32)(pairs[i] >> 32), (u32)pairs[i]);
    }
};

struct Compress {  // the root becomes each vertex's parent, one lane per vertex
    static constexpr int lanes = 1;
    i64 n;
    u32* parent;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) compress(parent, v);
    }
};

// The groups of vertices that become communities: those of equal labels, in touched communities the components.
struct Groups {
    const u32* labels;
    const u8* touched;
    const u32* parent;  // null where none is touched
    const u32* names;  // null for ids
    i64 n;
    DEVICE u32 name(i64 v) const { return names ? names[v] : (u32)v; }
    DEVICE i64 of(i64 v) const { return parent && touched[labels[v]] ? 2 * n + (i64)parent[v] : (i64)labels[v]; }
};

struct LeastMembers {  // computes the least name of each group, one lane per vertex
    static constexpr int lanes = 1;
    Groups groups;
    i64 n;
    u32* least;  // [3 n]: by label, and by 2 n + root
    u32* whole;  // [2 n]: by label, also of a divided community; null where none is touched
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) {
            note_name(least + groups.of(v), 0, groups.name(v));
            if (whole) note_name(whole, groups.labels[v], groups.name(v));
        }
    }
};

struct NameByLeast {  // labels each vertex by the least name of its group, one lane per vertex
    static constexpr int lanes = 1;
    Groups groups;
    i64 n;
    const u32* least;
    const u32* whole;
    u32* named;  // out
    u8* apart;  // out: 1 for vertices that are not in the component of their community's least member
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) {
            u32 name = least[groups.of(v)];
            named[v] = name;
            if (whole) apart[v] = name != whole[groups.labels[v]];
        }
    }
};
