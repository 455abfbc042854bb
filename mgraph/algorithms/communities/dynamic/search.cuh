// Shows of most communities that lost an edge or a member what became of them, from a few rows.
//
// The members that stay are connected but for the edges and members that were lost: each lost path ran between two
// *witnesses*, which are ends of lost edges and neighbours of lost members. So each component of a community has a
// witness. A search from all witnesses at once, in rounds, joins the sets of vertices that meet. A community is decided
// as soon as all of its sets but one are exhausted, which are whole components then, or have joined others: the rest is
// connected. A member that came must have a neighbour among those that stayed, else the community stays in doubt.
#pragma once
#include "algorithms/primitives/edge_delta.cuh"
#include "algorithms/primitives/fixed_point.cuh"
#include "kernels/rows.cuh"

enum Fate { connected, in_doubt, divided };  // of a community

struct Search {
    static constexpr u32 doubtful = 1u << 31;  // a bit, which more sets than there are have
    static constexpr i64 passes = 3;  // over the moved vertices, for those that came together
    f64 unit;
    const u32* moved;  // different vertices; some may have moved back
    i64 n_moved;
    const u32* before;
    const u32* labels;
    u8* touched;  // in: 1 for communities to look at; out: their fate
    u32* set;  // per vertex: the witness whose set it is in, + 1; 0 for none
    u32* queue;  // the vertices in sets, witnesses first
    i64* count;  // of them; the edges of rows that were read; and 1 where communities are undecided, step by step
    u32* parent;  // per witness, of joined sets
    u32* pending;  // per witness: the last round for which its set has vertices; `no_id` for an exhausted set
    u32* open;  // per label: sets that are neither joined nor exhausted; 0 before and after

    DEVICE bool stays(u32 v) const { return before[v] == labels[v]; }
    DEVICE bool undecided(u32 label) const {
        u32 sets = load(open + label);
        return sets > 1 && sets < doubtful;
    }
    DEVICE u32 root(u32 a) const {
        for (u32 up; (up = stale_load(parent + a)) != a;) a = up;
        return a;
    }
    DEVICE bool join(u32 a, u32 b) const {  // returns true if the sets were different
        while (a != b) {
            u32 high = greater(a, b), low = lesser(a, b), up = stale_load(parent + high);
            if (up == high && (up = atomic_cas(parent + high, high, low)) == high) return true;
            a = up, b = low;
        }
        return false;
    }
    DEVICE bool exhausted(u32 v) const { return set[v] && pending[root(set[v] - 1)] == no_id; }

    // ---- witnesses ---------------------------------------------------------------------------------------------------

    DEVICE void witness(u32 v) const {
        if (!stays(v) || atomic_cas(set + v, 0u, v + 1) != 0) return;
        parent[v] = v, pending[v] = 1;
        queue[atomic_add(count, (i64)1)] = v;
        atomic_add(open + labels[v], 1u);
    }
    DEVICE void lost_edge(const EdgeDelta& changes, i64 i) const {
        if (loses(changes, i)) witness((u32)changes.src(i)), witness((u32)changes.dst(i));
    }
    // Returns true if a changed arc was inside of a community, and has no weight any more.
    DEVICE bool loses(const EdgeDelta& changes, i64 i) const {
        i64 src = changes.src(i), dst = changes.dst(i);
        bool lost = changes.was(i) && (!changes.is(i) || fixed(changes.after(i), unit) == 0);
        return lost && src != dst && before[src] == before[dst];
    }
    // The neighbours of a moved vertex. Notes in `pending`, which is 0 before, if it has one where it went: one that
    // stayed there, or has come and has such a neighbour itself.
    template <class View, class Group>
    DEVICE void leave(const View& graph, Group group, u32 v, i64 row, i64 unit_of_row) const {
        u32 left = before[v], joined = labels[v];
        graph.visit(group, row, unit_of_row, [&](u32 id, i64 slot, bool live) {
            if (!live || id == v || fixed(graph, slot, unit) == 0) return false;
            u32 label = labels[id];
            if (label == left) witness(id);
            if (label == joined && (stays(id) || load(pending + id))) store(pending + v, 1u);
            return false;
        });
    }
    DEVICE void arrive(i64 i) const {
        if (!stays(moved[i]) && pending[moved[i]] == 0)
            atomic_or(open + labels[moved[i]], doubtful);  // several may come
    }

    // ---- rounds ------------------------------------------------------------------------------------------------------

    template <class View, class Group>
    DEVICE void spread(const View& graph, Group group, u32 v, i64 row, i64 unit_of_row, u32 round) const {
        u32 own = labels[v], mine = set[v];
        graph.visit(group, row, unit_of_row, [&](u32 id, i64 slot, bool live) {
            if (!live || id == v || labels[id] != own || fixed(graph, slot, unit) == 0) return false;
            u32 other = load(set + id);
            if (other == 0 && (other = atomic_cas(set + id, 0u, mine)) == 0) {
                store(pending + (mine - 1), round + 1);
                queue[atomic_add(count, (i64)1)] = id;
            } else if (other != mine && join(mine - 1, other - 1)) {
                atomic_add(open + own, ~0u);
                if constexpr (Group::size() == 1) return !undecided(own);
            }
            return false;
        });
    }
    // After a round: a set has vertices for the next one if a joined set has, and is exhausted otherwise.
    DEVICE void carry(i64 i, u32 round) const {
        u32 w = queue[i];
        if (load(pending + w) == round + 1) store(pending + root(w), round + 1);
    }
    DEVICE void exhaust(i64 i, u32 round) const {
        u32 w = queue[i];
        if (parent[w] != w || !undecided(labels[w])) return;
        store(count + 2, (i64)1);
        if (pending[w] > round) return;
        pending[w] = no_id;
        atomic_add(open + labels[w], ~0u);
    }

    // ---- fates -------------------------------------------------------------------------------------------------------

    DEVICE void decide(u32 label) const {
        if (load(open + label) <= 1 && load(touched + label) == in_doubt) store(touched + label, (u8)connected);
    }
    DEVICE void decide_witness(i64 i) const {
        u32 w = queue[i], label = labels[w];
        if (pending[w] == no_id && load(open + label) <= 1) store(touched + label, (u8)divided);
    }
    DEVICE void close(u32 v) const { store(open + before[v], 0u), store(open + labels[v], 0u); }
    DEVICE void decide_moved(i64 i) const { decide(before[moved[i]]), decide(labels[moved[i]]); }
    DEVICE void decide_changed(const EdgeDelta& changes, i64 i) const {
        decide(labels[changes.src(i)]), decide(labels[changes.dst(i)]);
    }
};

// The whole search by a thread of a CPU, which is the only rank.
template <class View>
struct SearchByThread {
    static constexpr int lanes = 32;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    Search search;
    EdgeDelta changes;
    DEVICE void operator()(Grid grid) const {
        if constexpr (Tile<lanes>::size() == 1)
            if (grid.alone()) look();
    }
    template <class Visit> DEVICE void units(u32 v, Visit visit) const {
        auto read = [&](const View& side) {
            i64 n = side.degree(v) ? (i64)side.units(v) : 0;
            search.count[1] += side.degree(v);
            for (i64 unit = 0; unit < n; ++unit) visit(side, unit);
        };
        read(graph);
        if (both) read(back);
    }
    DEVICE void look() const {
        const Search& s = search;
        for (i64 i = 0; i < s.n_moved; ++i) s.pending[s.moved[i]] = 0;
        for (i64 i = 0; i < changes.n; ++i) s.lost_edge(changes, i);
        for (i64 pass = 0; pass < Search::passes; ++pass)
            for (i64 i = 0; i < s.n_moved; ++i)
                if (u32 v = s.moved[i]; !s.stays(v) && s.pending[v] == 0)
                    units(v, [&](const View& side, i64 unit) { s.leave(side, Tile<1>{}, v, v, unit); });
        for (i64 i = 0; i < s.n_moved; ++i) s.arrive(i);
        i64 witnesses = *s.count, from = 0;
        for (u32 round = 1; from < *s.count; ++round) {
            i64 to = *s.count;
            for (; from < to; ++from) {
                u32 v = s.queue[from];
                if (s.undecided(s.labels[v]))
                    units(v, [&](const View& side, i64 unit) { s.spread(side, Tile<1>{}, v, v, unit, round); });
            }
            for (i64 i = 0; i < witnesses; ++i) s.carry(i, round);
            for (i64 i = 0; i < witnesses; ++i) s.exhaust(i, round);
        }
        for (i64 i = 0; i < s.n_moved; ++i) s.decide_moved(i);
        for (i64 i = 0; i < changes.n; ++i) s.decide_changed(changes, i);
        for (i64 i = 0; i < witnesses; ++i) s.decide_witness(i);
        for (i64 i = 0; i < witnesses; ++i) s.close(s.queue[i]);
        for (i64 i = 0; i < s.n_moved; ++i) s.close(s.moved[i]);
    }
};

// The same step by step.
struct FindWitnesses {  // one lane per change and moved vertex
    static constexpr int lanes = 1;
    Search search;
    EdgeDelta changes;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(search.n_moved))
            if (!search.stays(search.moved[i])) search.pending[search.moved[i]] = 0;  // others may be witnesses
        for (i64 i : grid.items(changes.n)) search.lost_edge(changes, i);
    }
};

// The rows of a step: of moved vertices, or of a round's.
struct SearchRows {
    const u32* list;
    const u32* labels;
    const u32* open;  // null for moved vertices
    const u32* before;
    DEVICE i64 operator()(i64 at) const {
        if (!open && before[list[at]] == labels[list[at]]) return -1;
        u32 sets = open ? load(open + labels[list[at]]) : 2;
        return sets > 1 && sets < Search::doubtful ? (i64)list[at] : -1;
    }
};

template <class View>
struct CountRows {  // adds up the edges of the rows of a step, one lane per row
    static constexpr int lanes = 1;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    SearchRows rows;
    i64 n;
    i64* sum;
    DEVICE void operator()(Grid grid) const {
        i64 edges = 0;
        for (i64 i : grid.items(n))
            if (i64 row = rows(i); row >= 0) edges += graph.degree(row) + (both ? back.degree(row) : 0);
        if (edges) atomic_add(sum, edges);
    }
};

template <class View>
struct SearchStep {  // reads the rows of moved vertices in round 0, later those of a round; leaves hubs
    static constexpr int lanes = 32;
    View graph;
    Search search;
    SearchRows rows;
    i64 n;
    i64 round;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_all(grid, graph, n, rows, tasks, n_tasks, [&](auto group, i64 row, i64 unit) {
            if (round) search.spread(graph, group, (u32)row, row, unit, (u32)round);
            else search.leave(graph, group, (u32)row, row, unit);
        });
    }
};

template <class View>
struct SearchHubs {  // the same for a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    Search search;
    i64 round;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks, [&](auto tile, i64 row, i64 unit) {
            if (round) search.spread(graph, tile, (u32)row, row, unit, (u32)round);
            else search.leave(graph, tile, (u32)row, row, unit);
        });
    }
};

struct Arrive {  // one lane per moved vertex
    static constexpr int lanes = 1;
    Search search;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(search.n_moved)) search.arrive(i);
    }
};

struct CarrySets {  // one lane per witness
    static constexpr int lanes = 1;
    Search search;
    i64 witnesses;
    i64 round;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(witnesses)) search.carry(i, (u32)round);
    }
};

struct ExhaustSets {  // one lane per witness
    static constexpr int lanes = 1;
    Search search;
    i64 witnesses;
    i64 round;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(witnesses)) search.exhaust(i, (u32)round);
    }
};

struct Decide {  // one lane per change and moved vertex
    static constexpr int lanes = 1;
    Search search;
    EdgeDelta changes;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(search.n_moved)) search.decide_moved(i);
        for (i64 i : grid.items(changes.n)) search.decide_changed(changes, i);
    }
};

struct DecideWitnesses {  // one lane per witness
    static constexpr int lanes = 1;
    Search search;
    i64 witnesses;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(witnesses)) search.decide_witness(i);
    }
};

struct CloseSearch {  // one lane per witness and moved vertex
    static constexpr int lanes = 1;
    Search search;
    i64 witnesses;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(witnesses)) search.close(search.queue[i]);
        for (i64 i : grid.items(search.n_moved)) search.close(search.moved[i]);
    }
};

struct ForgetSets {  // after communities were named, one lane per vertex in a set
    static constexpr int lanes = 1;
    const u32* queue;
    i64 n;
    u32* set;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) set[queue[i]] = 0;
    }
};
