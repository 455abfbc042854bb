// What changed edges mean for known lengths of shortest paths. A vertex is supported by an in-neighbour of smaller
// length from which an edge leads to exactly its length. A suspect may have lost its support; without one it is cut, and
// so its out-neighbours are suspects. In the end, those that are cut get lengths from neighbours that are not. Every
// rank knows the lengths of all vertices, and who is cut. It owns the n vertices from `first` on.
#pragma once
#include "algorithms/near_far/lengths.cuh"
#include "algorithms/repair/changed.cuh"
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"

enum Repair { r_suspects, r_cut, r_seeds, r_edges, r_refused, r_turns };  // the words of `state`, and nine of CutOff

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

// Checks suspects and their children without the host, on a rank that is alone: roads have long chains of few suspects.
// Every block takes some suspects and goes on to their children by itself, with lists of its own. Where a block has much
// to do while most have nothing, all lists are dealt out again, as after `steps` steps. A vertex that was found supported
// while its support was cut is a suspect again: its support is cut before it is listed, and it is unlisted before its
// support is looked at. It leaves when none are left, when they are more than `few`, when more than `most` edges were
// visited, and after `turns` turns.
template <class View>
struct CutOff {
    static constexpr int lanes = 32;
    static constexpr int stays = 1;
    static constexpr i64 room = 1024;  // of each of a block's lists
    static constexpr i64 much = 128;
    View graph;  // the in-edges
    View onward;  // the out-edges
    Known known;
    u32* other;  // a second list, as long
    i64 few;
    i64 most;
    i64 turns;
    i64 steps;
    i64 same;  // whether in-edges and out-edges are the same
    u64* arrived;
    struct Own {  // a block's lists in memory that its lanes share: those of even and odd steps, and what it has cut
        u32* lists;
        u32* gone;
        u32* counts;  // of three steps in rotation; of what was cut; whether to stop
        i64* place;
        DEVICE u32* count(i64 step) const { return counts + step % 3; }
        DEVICE u32* gone_count() const { return counts + 3; }
        DEVICE u32* stop() const { return counts + 4; }
        DEVICE u32* list(i64 step) const { return lists + (step & 1) * room; }
        DEVICE i64 size(i64 step) const { return lesser((i64)load(count(step)), room); }
    };
    DEVICE u32* list(i64 turn) const { return turn & 1 ? other : known.suspects; }
    // Of three turns in rotation: the suspects that it begins with, the edges visited before, the blocks that are done.
    DEVICE i64* counts(i64 turn) const { return known.state + r_turns + turn % 3 * 3; }
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, lists, 2 * room);
        SHARED(u32, gone, room);
        SHARED(u32, own_counts, 8);
        SHARED(i64, place, 1);
        const Own own{lists, gone, own_counts, place};
        Tile<lanes> tile;
        u64 goal = 0;
        i64 turn = 0, count = load(known.state + r_suspects), visited = load(known.state + r_edges);
        for (; count > 0 && count <= few && visited <= most && turn < turns; ++turn) {
            i64 edges = 0, blocks = grid.items(Block{}, count).step, part = (count + blocks - 1) / blocks;
            part = greater(lesser(part, room / 2), (i64)1);
            for (i64 one : grid.items(3)) store(counts(turn + 2) + one, (i64)0);
            for (i64 i : grid.items(Block{}, (count + part - 1) / part))
                edges += cut_from(own, i * part, lesser(count, (i + 1) * part), turn, blocks);
            if (Block{}.rank() == 0) atomic_add(counts(turn + 1) + 2, (i64)1);
            edges = tile.sum(edges);
            if (tile.rank() == 0 && edges) atomic_add(counts(turn + 1) + 1, edges);
            grid.meet(arrived, goal);
            count = load(counts(turn + 1)), visited += load(counts(turn + 1) + 1);
        }
        if (turn & 1)
            for (i64 i : grid.items(count)) store(known.suspects + i, load(other + i));
        grid.meet(arrived, goal);  // all have read the counts
        for (i64 one : grid.items(9)) store(known.state + r_turns + one, (i64)0);
        for (i64 one : grid.items(1)) {
            store(known.state + r_suspects + one, count);
            store(known.state + r_edges + one, visited);
        }
    }
    // A block goes on from the suspects at the places begin .. end - 1; what is left is listed for the next turn.
    DEVICE i64 cut_from(const Own& own, i64 begin, i64 end, i64 turn, i64 blocks) const {
        Block block;
        i64 edges = 0, step = 0;
        if (block.rank() == 0) {
            for (i64 i = 0; i < 8; ++i) store(own.counts + i, 0u);
            store(own.count(0), (u32)(end - begin));
        }
        for (i64 i = block.rank(); i < end - begin; i += block.size()) {
            u32 v = load(list(turn) + begin + i);
            known.unlist(v);
            store(own.list(0) + i, v);
        }
        fence();
        block.sync();
        for (; step < steps; ++step) {
            i64 n = own.size(step);
            if (n == 0 || load(own.stop())) break;
            i64 all_idle = block.rank() == 0 && n > much ? load(counts(turn + 1) + 2) : 0;
            if (block.rank() == 0) store(own.count(step + 2), 0u);
            const u32* list = own.list(step);
            visit_in_block(
                graph, n, [&](i64 i) { return (i64)load(list + i) - known.first; },
                [&](auto group, i64 i) { check(own, group, load(list + i), step + 1, turn, edges); });
            if (block.rank() == 0 && 2 * all_idle > blocks) store(own.stop(), 1u);
            block.sync();
            if (load(own.gone_count()) > room / 2) put_gone(own);
        }
        for (i64 i = block.rank(), n = own.size(step); i < n; i += block.size())
            keep(load(own.list(step) + i), turn + 1);
        put_gone(own);
        return edges;
    }
    DEVICE void keep(u32 v, i64 turn) const {
        if (known.lists(v)) store(list(turn) + take_place(counts(turn)), v);
    }
    DEVICE void put_gone(const Own& own) const {
        Block block;
        i64 n = lesser((i64)load(own.gone_count()), room);
        if (block.rank() == 0) store(own.place, atomic_add(known.state + r_cut, n));
        block.sync();
        for (i64 i = block.rank(); i < n; i += block.size())
            store(known.gone + load(own.place) + i, load(own.gone + i));
        if (block.rank() == 0) store(own.gone_count(), 0u);
        block.sync();
    }
    DEVICE void add(const Own& own, u32 v, i64 step, i64 turn) const {
        i64 n = atomic_add(own.count(step), 1u);
        if (n < room) return store(own.list(step) + n, v);
        fence();
        keep(v, turn + 1);
    }
    // A group looks for support of a suspect. Without any, it is cut, and those that it supported are suspects.
    template <class Group>
    DEVICE void check(const Own& own, Group group, u32 v, i64 step, i64 turn, i64& edges) const {
        bool once = same && group.size() == narrow, held = false, several = false;
        i64 child = -1, begin = 0, ends[2] = {-1, -1}, slots[2];
        if (once)
            visit_edges(graph, known, group, v, edges, [&](u32 u, i64 slot, bool live) {
                if (!live) return false;
                several |= ends[1] >= 0;
                ends[1] = ends[0], slots[1] = slots[0];
                ends[0] = u, slots[0] = slot;
                return false;
            });
        once = once && !group.any(several);
        if (once) {
            i64 begins[2];
            bool gone[2];
            f32 weights[2];
            Word lengths[2];
            for (int k = 0; k < 2; ++k) {
                if (ends[k] < 0) continue;
                gone[k] = get_bit(known.cut, ends[k]), weights[k] = graph.weight(slots[k]);
                begins[k] = begin_of(graph, ends[k] - known.first), lengths[k] = known.length[ends[k]];
            }
            for (int k = 0; k < 2; ++k) {
                if (ends[k] < 0 || gone[k]) continue;
                if (lengths[k] < known.length[v]) {
                    held |= known.leads(ends[k], v, weights[k]);
                } else if (!known.rooted(ends[k]) && known.leads(v, ends[k], weights[k])) {
                    several |= child >= 0;
                    child = ends[k], begin = begins[k];
                }
            }
        } else {
            held = supported(graph, known, group, v, edges);
        }
        if (group.any(held)) return;
        if (child >= 0) fetch_from(graph, begin);
        bool first = group.rank() == 0 && !(atomic_or(known.cut + v / word_bits, bit_of(v)) & bit_of(v));
        if (first) {
            i64 n = atomic_add(own.gone_count(), 1u);
            if (n < room) store(own.gone + n, v);
            else store(known.gone + take_place(known.state + r_cut), v);
        }
        if (!group.any(first)) return;
        if (once && !group.any(several)) {
            if (child >= 0) add(own, (u32)child, step, turn);
        } else {
            visit_children(onward, known, group, v, edges, [&](u32 id) { add(own, id, step, turn); });
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
