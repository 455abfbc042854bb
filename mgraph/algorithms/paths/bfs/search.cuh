// The two kinds of breadth-first supersteps, with separate kernels for hubs. Top-down follows the edges of the
// frontier. Bottom-up searches the in-edges of each unvisited vertex for a visited one. Both only set bits of `found`;
// lanes may race to set the same bit, which is benign. With NOTES they also record for each vertex the minimum of
// level << 32 | predecessor, which does not depend on the order of the finds. NOTES is a macro because, as a flag of
// the kernels, it spilled registers: searches for distances over 1.05G arcs took 2.64 ms instead of 2.13.
#pragma once
#include "algorithms/primitives/frontier.cuh"
#include "algorithms/primitives/predecessors.cuh"
#include "kernels/rows.cuh"

#ifndef NOTES
#define NOTES 1
#endif

constexpr u32 no_vertex = ~0u;

// What a search records about the vertices that it finds, for all vertices of the graph.
struct Marks {
    u32* found;
    const u32* seen;  // vertices settled or sent before this superstep; not written during it
    u64* notes;
    u64 base;         // the note in which the predecessor is the first own vertex
    DEVICE void mark(u32 id, i64 row) const {
        if (NOTES && saw_bit(seen, id)) return;
        set_bit(found, id);
        if (NOTES) note(id, base + row);
    }
    DEVICE void note(i64 id, u64 value) const {
        if (value < glance(notes + id)) atomic_min(notes + id, value);
    }
};

template <class View, class Tile> DEVICE void mark_all(const View& graph, Tile tile, i64 row, i64 unit,
                                                       const Marks& marks) {
    graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
        if (live) marks.mark(id, row);
        return false;
    });
}

template <class View>
struct Expand {  // top-down: a tile marks the neighbours of 32 vertices of the frontier; hubs become tasks
    static constexpr int lanes = 32;
    View graph;
    const u32* frontier;
    const i64* count;
    Marks marks;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 n = *count;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 at = i * tile.size() + tile.rank();
            fetch_row(graph, at, n, [&](i64 next) { return (i64)frontier[next]; });
            visit_rows(graph, tile, at < n ? (i64)frontier[at] : -1, tasks, n_tasks,
                       [&](auto group, i64 row, i64 unit) { mark_all(graph, group, row, unit, marks); });
        }
    }
};

template <class View>
struct ExpandHubs {  // top-down: a tile a task of a hub's row
    static constexpr int lanes = 32;
    View graph;
    const u64* tasks;
    const i64* n_tasks;
    Marks marks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks))
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                mark_all(graph, tile, row, unit, marks);
                return false;
            });
    }
};

// Top-down supersteps one after another, without the host, while the frontier is short. Each reads one list and writes
// the other. It ends when no vertex is found, when a list overflows, at a hub, and after `most` supersteps. What the last
// superstep found is then in `found` and not in `seen`: Absorb makes the frontier of it.
template <class View>
struct Walk {
    static constexpr int lanes = 32;
    static constexpr int stays = 1;
    View graph;
    const u32* frontier;  // without hubs
    const i64* count;
    u32* found;
    u32* seen;
    u64* notes;
    i32* distance;
    i64 level;  // of the first superstep
    i64 most;
    u32* lists;  // two
    i64 room;  // vertices in each
    i64* state;  // zeros; arrived blocks, supersteps done, and three pairs: vertices found, whether there is a hub
    i64* totals;  // the vertices and the edges of all levels but the last
    i64* spent;  // the counters of all supersteps, cleared here
    i64 counters;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        u64 goal = 0;
        i64 n = *count, steps = 0, reached = 0, edges = 0;
        for (const u32* from = frontier;; from = lists + (steps - 1) % 2 * room) {
            i64* now = state + 2 + (steps + 1) % 3 * 2;
            i64* next = state + 2 + (steps + 2) % 3 * 2;
            for (i64 c : grid.items(2)) next[c] = 0;
            i64 few = rows_at_once(grid, tile, n);
            for (i64 i : grid.items(tile, (n + few - 1) / few)) {
                i64 at = i * few + tile.rank(), row = tile.rank() < few && at < n ? (i64)load(from + at) : -1;
                if (row >= 0 && steps) {
                    atomic_or(seen + row / word_bits, bit_of(row));
                    edges += graph.degree(row);
                }
                visit_rows(graph, tile, row, nullptr, nullptr, [&](auto group, i64 row, i64 unit) {
                    graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
                        if (live && finds(id, row, level + steps)) append(id, lists + steps % 2 * room, now);
                        return false;
                    });
                });
            }
            grid.meet((u64*)state, goal);
            reached += steps ? n : 0;
            ++steps;
            n = load(now);
            if (n == 0 || n > room || load(now + 1) || steps == most) break;
        }
        edges = tile.sum(edges);
        if (tile.rank() == 0 && edges) atomic_add(totals + 1, edges);
        for (i64 c : grid.items(2 * counters)) spent[c] = 0;
        for (i64 i : grid.items(1)) {
            totals[i] += reached;
            state[1 + i] = steps;
        }
    }
    DEVICE bool finds(u32 id, i64 row, i64 level) const {
        if (NOTES) {
            if (saw_bit(seen, id)) return false;
            u64 value = (u64)level << 32 | (u64)row;
            if (value < glance(notes + id)) atomic_min(notes + id, value);
        }
        if (saw_bit(found, id) || atomic_or(found + id / word_bits, bit_of(id)) & bit_of(id)) return false;
        distance[id] = (i32)level;
        return true;
    }
    DEVICE void append(u32 id, u32* list, i64* now) const {
        i64 place = take_place(now);
        if (place < room) store(list + place, id);
        if (graph.degree(id) > HUB_DEGREE) store(now + 1, (i64)1);
    }
};

// A visited vertex among the neighbours in this unit of the row, or no_vertex: the first one in the row's order, or
// with `least` the smallest one. A tile of one lane stops after `most` edges. A wider tile must get a `most` that is
// larger than the number of edges, because its lanes must stop together.
template <bool least, class View, class Tile>
DEVICE u32 parent_in(const View& graph, Tile tile, i64 row, i64 unit, const u32* seen, i64& most) {
    u32 parent = no_vertex;
    graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
        bool hit = live && saw_bit(seen, id);
        if (least) {
            if (hit) parent = lesser(parent, id);
            return false;
        }
        u32 hits = tile.ballot(hit);
        if (hits) parent = tile.shfl(id, lowest_bit(hits));
        return hits != 0 || (most -= live) <= 0;
    });
    return least ? ~tile.most(~parent) : parent;
}

template <class View>
struct Pull {  // bottom-up: a tile a word of the own range; a lane reads its vertex's first edges, the tile the others
    static constexpr int lanes = 32;
    static constexpr bool least = NOTES && !View::sorted;  // then the whole row has to be read
    View graph;  // in-edges
    i64 first;
    i64 n;
    Marks marks;  // base: the level
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 words = words_of(n);
        if constexpr (tile.size() == 1) {
            for (i64 part : grid.items((words + listed_words - 1) / listed_words))
                pull_listed(part * listed_words, lesser((part + 1) * listed_words, words));
        } else {
            for (i64 w : grid.items(tile, words)) pull_word(tile, w);
        }
    }
    template <class Tile32> DEVICE void pull_word(Tile32 tile, i64 w) const {  // a lane a bit
        u32 open = open_word(w);
        if (open == 0) return;
        i64 row = open & bit_of(tile.rank()) ? w * word_bits + tile.rank() : -1;
        u32 parent = search(tile, row);
        if (NOTES && parent != no_vertex) marks.notes[first + row] = marks.base | parent;
        u32 hits = tile.ballot(parent != no_vertex);
        if (tile.rank() == 0 && hits) set_word(marks.found, first + w * word_bits, hits);
    }
    DEVICE u32 open_word(i64 w) const { return ~get_word(marks.seen, first + w * word_bits) & word_mask(n, w); }
    // A CPU lists the open rows that have edges, and so knows early enough whose memory to ask for.
    static constexpr i64 listed_words = 16;
    DEVICE void pull_listed(i64 from, i64 to) const {
        u32 rows[listed_words * word_bits], hits[listed_words] = {};
        i64 listed = 0;
        for (i64 w = from; w < to; ++w)
            for (u32 open = open_word(w); open; open &= open - 1) {
                rows[listed] = (u32)(w * word_bits + lowest_bit(open));
                listed += graph.degree(rows[listed]) > 0;
            }
        for (i64 i = 0; i < listed; ++i) {
            fetch_row(graph, i, listed, [&](i64 next) { return (i64)rows[next]; });
            i64 row = rows[i];
            if (graph.degree(row) > HUB_DEGREE) {
                add_tasks(graph, row, tasks, n_tasks);
                continue;
            }
            u32 parent = whole_row(Tile<lanes>{}, row);
            if (parent == no_vertex) continue;
            if (NOTES) marks.notes[first + row] = marks.base | parent;
            hits[row / word_bits - from] |= bit_of(row);
        }
        for (i64 w = from; w < to; ++w)
            if (hits[w - from]) set_word(marks.found, first + w * word_bits, hits[w - from]);
    }
    template <class Tile32> DEVICE u32 search(Tile32 tile, i64 row) const {
        i64 degree = row < 0 ? 0 : (i64)graph.degree(row), tries = short_degree;
        u32 parent = no_vertex;
        if (degree > 0 && (degree <= short_degree || !least)) {
            i64 units = graph.units(row);
            for (i64 unit = 0; unit < units && (least || parent == no_vertex) && tries > 0; ++unit)
                parent = lesser(parent, parent_in<least>(graph, Tile<1>{}, row, unit, marks.seen, tries));
        }
        bool open = parent == no_vertex;
        if (open && degree > HUB_DEGREE) add_tasks(graph, row, tasks, n_tasks);
        for (u32 rest = tile.ballot(open && degree > short_degree && degree <= HUB_DEGREE); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            u32 there = whole_row(tile, tile.shfl(row, lane));
            if (tile.rank() == lane) parent = there;
        }
        return parent;
    }
    template <class Tile32> DEVICE u32 whole_row(Tile32 tile, i64 row) const {
        i64 units = graph.units(row), all = HUB_DEGREE + 1;
        u32 parent = no_vertex;
        for (i64 unit = 0; unit < units && (least || parent == no_vertex); ++unit)
            parent = lesser(parent, parent_in<least>(graph, tile, row, unit, marks.seen, all));
        return parent;
    }
};

template <class View>
struct PullHubs {  // bottom-up: a tile a task of a hub's row; without NOTES skipped if another tile found the vertex
    static constexpr int lanes = 32;
    View graph;  // in-edges
    i64 first;
    Marks marks;  // base: the level
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        constexpr bool least = NOTES && !View::sorted;
        for (i64 i : grid.items(tile, *n_tasks))
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                i64 all = (i64)graph.degree(row) + 1;
                if (!NOTES && tile.any(get_bit(marks.found, first + row))) return true;
                u32 parent = parent_in<least>(graph, tile, row, unit, marks.seen, all);
                if (parent == no_vertex) return false;
                if (tile.rank() == 0) {
                    set_bit(marks.found, first + row);
                    if (NOTES) marks.note(first + row, marks.base | parent);
                }
                return !least;
            });
    }
};
