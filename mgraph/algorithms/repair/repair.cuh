// What changed edges mean for known lengths of shortest paths. A vertex is supported by an in-neighbour of smaller
// length from which an edge leads to exactly its length. A suspect may have lost its support; without one it is cut, and
// so its out-neighbours are suspects. In the end, those that are cut get lengths from neighbours that are not. Every
// rank knows the lengths of all vertices, and who is cut. It owns the n vertices from `first` on.
#pragma once
#include "algorithms/near_far/lengths.cuh"
#include "algorithms/repair/changed.cuh"
#include "kernels/bits.cuh"

enum Repair { r_suspects, r_cut, r_seeds, r_edges };  // the words of `state`

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
    DEVICE void suspect(u32 v) const {
        if (get_bit(listed, v) || atomic_or(listed + v / word_bits, bit_of(v)) & bit_of(v)) return;
        suspects[take_place(state + r_suspects)] = v;
    }
};

struct Suspect {  // one lane a changed arc: an own end whose length it gave, and gives no longer
    static constexpr int lanes = 1;
    Known known;
    Changed changed;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            i64 u = changed.src(i), v = changed.dst(i);
            if (!known.owns(v) || known.rooted(v) || !changed.was(i) || !known.leads(u, v, changed.before(i))) continue;
            if (!changed.is(i) || !known.leads(u, v, changed.after(i))) known.suspect((u32)v);
        }
    }
};

constexpr u32 settled = ~(u32)0;

// A suspect that is an own vertex is cut if no edge of these supports it, and no `last` says that there are more edges.
// Returns how many edges the lane has visited.
template <class View, class Tile32>
DEVICE i64 check_suspect(const View& graph, const Known& known, Tile32 tile, i64 at, bool last) {
    u32 suspect = load(known.suspects + at);
    if (suspect == settled) return 0;
    i64 v = suspect, row = v - known.first, units = graph.units(row), edges = 0;
    bool held = false;
    for (i64 unit = 0; unit < units && !held; ++unit)
        graph.visit(tile, row, unit, [&](u32 u, i64 slot, bool live) {
            edges += live;
            return held = tile.any(live && !get_bit(known.cut, u) && known.length[u] < known.length[v] &&
                                   known.leads(u, v, graph.weight(slot)));
        });
    tile.sync();
    if (tile.rank() > 0 || (!held && !last)) return edges;
    atomic_and(known.listed + v / word_bits, ~bit_of(v));
    store(known.suspects + at, settled);
    if (held) return edges;
    set_bit(known.cut, v);
    store(known.gone + take_place(known.state + r_cut), (u32)v);
    return edges;
}

// The vertices whose length an own one gave, which was cut, are suspects. Returns how many edges the lane has visited.
template <class View, class Tile32>
DEVICE i64 suspect_children(const View& graph, const Known& known, Tile32 tile, i64 at) {
    i64 u = load(known.gone + at), row = u - known.first, units = graph.units(row), edges = 0;
    for (i64 unit = 0; unit < units; ++unit)
        graph.visit(tile, row, unit, [&](u32 v, i64 slot, bool live) {
            edges += live;
            if (live && !get_bit(known.cut, v) && !known.rooted(v) && known.leads(u, v, graph.weight(slot)))
                known.suspect(v);
            return false;
        });
    return edges;
}
template <class Tile32> DEVICE void count_visited(const Known& known, Tile32 tile, i64 edges) {
    edges = tile.sum(edges);
    if (tile.rank() == 0 && edges) atomic_add(known.state + r_edges, edges);
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
        for (i64 i : grid.items(tile, count)) edges += check_suspect(graph, known, tile, i, last);
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
        for (i64 i : grid.items(tile, end - begin)) edges += suspect_children(graph, known, tile, begin + i);
        count_visited(known, tile, edges);
    }
};

// Check and Children in turn, without the host, on a rank that is alone: roads have long chains of few suspects. It
// leaves when none are left, when they are more than `few`, when more than `most` edges were visited, and after `turns`.
template <class View>
struct CutOff {
    static constexpr int lanes = 32;
    static constexpr int stays = 1;
    View graph;  // the in-edges
    View onward;  // the out-edges
    Known known;
    i64 few;
    i64 most;
    i64 turns;
    u64* arrived;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        u64 goal = 0;
        for (i64 turn = 0; turn < turns; ++turn) {
            i64 count = load(known.state + r_suspects), begin = load(known.state + r_cut), edges = 0;
            bool over = load(known.state + r_edges) > most;
            grid.meet(arrived, goal);  // all have read them
            if (count == 0 || count > few || over) break;
            for (i64 one : grid.items(1)) store(known.state + r_suspects + one, (i64)0);
            for (i64 i : grid.items(tile, count)) edges += check_suspect(graph, known, tile, i, true);
            grid.meet(arrived, goal);
            i64 end = load(known.state + r_cut);
            for (i64 i : grid.items(tile, end - begin)) edges += suspect_children(onward, known, tile, begin + i);
            count_visited(known, tile, edges);
            grid.meet(arrived, goal);
        }
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
        for (i64 i : grid.items(n)) atomic_and(known.listed + list[i] / word_bits, ~bit_of(list[i]));
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
struct Refill {  // a tile an own vertex without a length: the least that an in-neighbour gives it
    static constexpr int lanes = 32;
    View graph;  // the in-edges of own vertices
    Known known;
    i64 count;
    u64* words;  // out: where it is less than what is there
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, count)) {
            i64 row = (i64)known.gone[i] - known.first, units = graph.units(row);
            u64 least = known.none;
            for (i64 unit = 0; unit < units; ++unit)
                graph.visit(tile, row, unit, [&](u32 u, i64 slot, bool live) {
                    edges += live;
                    if (live && known.reached(u))
                        least = lesser(least, (u64)longer(known.length[u], graph.weight(slot)));
                    return false;
                });
            least = ~tile.most(~least);
            if (tile.rank() == 0) words[i] = lesser(words[i], least);
        }
        edges = tile.sum(edges);
        if (tile.rank() == 0 && edges) atomic_add(known.state + r_edges, edges);
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
            i64 row = (i64)list[i] - known.first, units = graph.units(row);
            if (tile.rank() == 0) known.suspect(list[i]);
            for (i64 unit = 0; unit < units; ++unit)
                graph.visit(tile, row, unit, [&](u32 v, i64, bool live) {
                    edges += live;
                    if (live) known.suspect(v);
                    return false;
                });
        }
        edges = tile.sum(edges);
        if (tile.rank() == 0 && edges) atomic_add(known.state + r_edges, edges);
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
            i64 v = known.suspects[i], row = v - known.first, units = known.rooted(v) ? 0 : (i64)graph.units(row);
            u64 least = ~(u64)0;
            for (i64 unit = 0; unit < units; ++unit)
                graph.visit(tile, row, unit, [&](u32 u, i64 slot, bool live) {
                    edges += live;
                    if (live && known.length[u] < known.length[v] && known.leads(u, v, graph.weight(slot)))
                        least = lesser(least, (u64)u);
                    return false;
                });
            least = ~tile.most(~least);
            if (tile.rank() > 0) continue;
            parents[row] = (i64)least;
            atomic_and(known.listed + v / word_bits, ~bit_of(v));
        }
        edges = tile.sum(edges);
        if (tile.rank() == 0 && edges) atomic_add(known.state + r_edges, edges);
    }
};
