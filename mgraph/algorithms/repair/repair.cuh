// What changed edges mean for known lengths of shortest paths. A vertex is supported by an in-neighbour of smaller
// length from which an edge leads to exactly its length. A suspect may have lost its support; without one it is cut, and
// so its out-neighbours are suspects. In the end, those that are cut get lengths from neighbours that are not. Every
// rank knows the lengths of all vertices, and who is cut. It owns the n vertices from `first` on.
#pragma once
#include "algorithms/near_far/lengths.cuh"
#include "algorithms/repair/changed.cuh"
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"

enum Repair { r_suspects, r_cut, r_seeds, r_edges, r_refused, r_turns };  // the words of `state`, and six of CutOff

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
    i64* state;
    DEVICE bool owns(i64 v) const { return v >= first && v < first + n; }
    DEVICE bool rooted(i64 v) const { return forest() ? (u64)length[v] >> 32 == 0 : v == source; }
    DEVICE bool forest() const { return source < 0; }
    DEVICE bool reached(i64 v) const { return (u64)length[v] != none; }
    // Whether an edge of this weight from u leads to the length of v.
    DEVICE bool leads(i64 u, i64 v, f32 weight) const {
        return reached(u) && reached(v) && longer(length[u], weight) == length[v];
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
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            i64 u = changed.src(i), v = changed.dst(i);
            if (!hops && changed.is(i) && !(changed.after(i) >= 0)) take_place(known.state + r_refused);
            if (!known.owns(v) || known.rooted(v) || !changed.was(i) || !known.leads(u, v, changed.before(i))) continue;
            if (!changed.is(i) || !known.leads(u, v, changed.after(i))) known.suspect((u32)v);
        }
    }
};

constexpr u32 settled = ~(u32)0;

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

template <class View, class Tile32>
DEVICE bool supported(const View& graph, const Known& known, Tile32 tile, i64 v, i64& edges) {
    return visit_edges(graph, known, tile, v, edges, [&](u32 u, i64 slot, bool live) {
        return tile.any(live && !get_bit(known.cut, u) && known.length[u] < known.length[v] &&
                        known.leads(u, v, graph.weight(slot)));
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

// A suspect that is an own vertex is cut if no edge of these supports it, and no `last` says that there are more edges.
template <class View, class Tile32>
DEVICE void check_suspect(const View& graph, const Known& known, Tile32 tile, i64 at, bool last, i64& edges) {
    u32 suspect = load(known.suspects + at);
    if (suspect == settled) return;
    bool held = supported(graph, known, tile, suspect, edges);
    tile.sync();
    if (tile.rank() > 0 || (!held && !last)) return;
    known.unlist(suspect);
    store(known.suspects + at, settled);
    if (held) return;
    set_bit(known.cut, suspect);
    store(known.gone + take_place(known.state + r_cut), suspect);
}

template <class View>
struct Check {  // a tile a suspect
    static constexpr int lanes = 32;
    View graph;  // the in-edges of own vertices
    Known known;
    i64 count;
    i64 last;  // 0 if there are more in another structure, in which to look for support
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, count)) check_suspect(graph, known, tile, i, last, edges);
        count_visited(known, tile, edges);
    }
};

template <class View>
struct Children {  // a tile an own vertex that was cut
    static constexpr int lanes = 32;
    View graph;
    Known known;
    i64 begin;
    i64 end;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, end - begin))
            visit_children(graph, known, tile, known.gone[begin + i], edges, [&](u32 v) { known.suspect(v); });
        count_visited(known, tile, edges);
    }
};

// Checks suspects and their children without the host, on a rank that is alone: roads have long chains of few suspects. A
// tile follows what it cuts for some steps before the grid meets. A vertex that was found supported while its support was
// cut is a suspect again: it is unlisted before its support is looked at, and its support is cut before it is listed. It
// leaves when none are left, when they are more than `few`, when more than `most` edges were visited, and after `turns`.
template <class View>
struct CutOff {
    static constexpr int lanes = 32;
    static constexpr int stays = 1;
    static constexpr int steps = 8;
    View graph;  // the in-edges
    View onward;  // the out-edges
    Known known;
    u32* other;  // a second list, as long
    i64 few;
    i64 most;
    i64 turns;
    u64* arrived;
    DEVICE u32* list(i64 turn) const { return turn & 1 ? other : known.suspects; }
    // Of three turns in rotation: the suspects that it begins with, and the edges visited before.
    DEVICE i64* counts(i64 turn) const { return known.state + r_turns + turn % 3 * 2; }
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        u64 goal = 0;
        i64 turn = 0, count = load(known.state + r_suspects), visited = load(known.state + r_edges);
        for (; count > 0 && count <= few && visited <= most && turn < turns; ++turn) {
            i64 edges = 0, share = rows_at_once(grid, tile, count);
            for (i64 one : grid.items(2)) store(counts(turn + 2) + one, (i64)0);
            for (i64 i : grid.items(tile, (count + share - 1) / share)) {
                i64 at = i * share + tile.rank(), end = lesser(count, (i + 1) * share);
                cut_ahead(tile, at < end ? (i64)load(list(turn) + at) : -1, turn + 1, edges);
            }
            edges = tile.sum(edges);
            if (tile.rank() == 0 && edges) atomic_add(counts(turn + 1) + 1, edges);
            grid.meet(arrived, goal);
            count = load(counts(turn + 1)), visited += load(counts(turn + 1) + 1);
        }
        if (turn & 1)
            for (i64 i : grid.items(count)) store(known.suspects + i, load(other + i));
        grid.meet(arrived, goal);  // all have read the counts
        for (i64 one : grid.items(6)) store(known.state + r_turns + one, (i64)0);
        for (i64 one : grid.items(1)) {
            store(known.state + r_suspects + one, count);
            store(known.state + r_edges + one, visited);
        }
    }
    // Each lane brings a suspect, or -1; those that are left after some steps are listed for the next turn.
    template <class Tile32> DEVICE void cut_ahead(Tile32 tile, i64 suspect, i64 next, i64& edges) const {
        auto keep = [&](u32 v) { store(list(next) + take_place(counts(next)), v); };
        for (int step = 0; step < steps; ++step) {
            u32 waiting = tile.ballot(suspect >= 0);
            if (waiting == 0) return;
            i64 v = tile.shfl(suspect, lowest_bit(waiting));
            if (tile.rank() == lowest_bit(waiting)) suspect = -1;
            if (!cuts(tile, v, edges)) continue;
            visit_children(onward, known, tile, v, edges, [&](u32 child) {
                if (!known.lists(child)) return;
                if (suspect < 0) suspect = child;
                else keep(child);
            });
        }
        if (suspect >= 0) keep((u32)suspect);
    }
    template <class Tile32> DEVICE bool cuts(Tile32 tile, i64 v, i64& edges) const {
        if (tile.rank() == 0) {
            known.unlist((u32)v);
            fence();
        }
        tile.sync();
        if (supported(graph, known, tile, v, edges)) return false;
        bool mine = false;
        tile.sync();
        if (tile.rank() == 0) {
            mine = !(atomic_or(known.cut + v / word_bits, bit_of(v)) & bit_of(v));
            if (mine) store(known.gone + take_place(known.state + r_cut), (u32)v);
            fence();
        }
        tile.sync();
        return tile.any(mine);
    }
};

struct TakeSuspects {  // one lane a vertex of another rank's list: an own one is a suspect here
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n))
            if (known.owns(list[i]) && !get_bit(known.cut, list[i])) known.suspect(list[i]);
    }
};

struct Unlist {  // one lane a suspect: it is one no longer
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) known.unlist(list[i]);
    }
};

struct MarkCut {  // one lane a vertex that its owner has cut
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) set_bit(known.cut, list[i]);
    }
};

struct Forget {  // one lane a vertex that was cut: its length is not known, and it is no longer marked
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            known.length[list[i]] = (Word)known.none;
            atomic_and(known.cut + list[i] / word_bits, ~bit_of(list[i]));
        }
    }
};

template <class View>
struct Refill {  // a tile an own vertex that was cut: the least length that an in-neighbour gives it, if any
    static constexpr int lanes = 32;
    View graph;  // the in-edges of own vertices
    Known known;
    i64 count;
    u32* seeds;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, count)) {
            u64 least = known.none;
            visit_edges(graph, known, tile, known.gone[i], edges, [&](u32 u, i64 slot, bool live) {
                if (live && known.reached(u)) least = lesser(least, (u64)longer(known.length[u], graph.weight(slot)));
                return false;
            });
            least = ~tile.most(~least);
            if (tile.rank() > 0 || least == known.none) continue;
            i64 to = take_place(known.state + r_seeds);
            seeds[to] = known.gone[i], words[to] = least;
        }
        count_visited(known, tile, edges);
    }
};

struct Seed {  // one lane a changed arc that is there: its end, if it gives that a smaller length
    static constexpr int lanes = 1;
    Known known;
    Changed changed;
    u32* seeds;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            i64 u = changed.src(i), v = changed.dst(i);
            if (!changed.is(i) || !known.reached(u)) continue;
            Word word = longer(known.length[u], changed.after(i));
            if (!(word < known.length[v]) || (known.forest() && known.reached(v))) continue;
            i64 to = take_place(known.state + r_seeds);
            seeds[to] = (u32)v, words[to] = word;
        }
    }
};

struct Lengths {  // one lane an own vertex: its length for a result
    static constexpr int lanes = 1;
    Known known;
    Shown* out;  // hops, or -1
    i64* found;  // how many are reached, the most hops
    DEVICE void operator()(Grid grid) const {
        i64 reached = 0, most = 0;
        for (i64 i : grid.items(known.n)) {
            Word word = known.length[known.first + i];
            bool there = known.reached(known.first + i);
            out[i] = hops ? (there ? (Shown)((u64)word >> 32) : (Shown)-1) : (Shown)word;
            reached += there;
            if (hops && there) most = greater(most, (i64)((u64)word >> 32) + 1);
        }
        Tile<32> tile;
        reached = tile.sum(reached), most = (i64)tile.most((u64)most);
        if (tile.rank() > 0 || reached == 0) return;
        atomic_add(found, reached);
        if (most > load(found + 1)) atomic_max((u64*)found + 1, (u64)most);
    }
};

// ---- predecessors: of the vertices that support v, the one of the smallest id ----------------------------------------

struct Ends {  // one lane a changed arc: an own end is listed
    static constexpr int lanes = 1;
    Known known;
    Changed changed;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n))
            if (known.owns(changed.dst(i))) known.suspect((u32)changed.dst(i));
    }
};

template <class View>
struct Neighbours {  // a tile an own vertex: it and its out-neighbours are listed
    static constexpr int lanes = 32;
    View graph;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, n)) {
            if (tile.rank() == 0) known.suspect(list[i]);
            visit_edges(graph, known, tile, list[i], edges, [&](u32 v, i64, bool live) {
                if (live) known.suspect(v);
                return false;
            });
        }
        count_visited(known, tile, edges);
    }
};

template <class View>
struct Parents {  // a tile a listed own vertex: its predecessor, or -1; it is listed no longer
    static constexpr int lanes = 32;
    View graph;  // the in-edges of own vertices
    Known known;
    i64 count;
    i64* parents;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, count)) {
            i64 v = known.suspects[i];
            u64 least = ~(u64)0;
            if (!known.rooted(v))
                visit_edges(graph, known, tile, v, edges, [&](u32 u, i64 slot, bool live) {
                    if (live && known.length[u] < known.length[v] && known.leads(u, v, graph.weight(slot)))
                        least = lesser(least, (u64)u);
                    return false;
                });
            least = ~tile.most(~least);
            if (tile.rank() > 0) continue;
            parents[v - known.first] = (i64)least;
            known.unlist((u32)v);
        }
        count_visited(known, tile, edges);
    }
};
