// Samples weights before a search for shortest paths, and finds predecessors after it. The predecessor of v is a vertex
// u with length[u] + weight == length[v], as the lengths' dtype adds. If length[u] is less than length[v], no cycle is
// possible; the note has level 0. If they are equal (the weight is 0, or rounded away), u must have a predecessor of a
// lower level, or be the source.
#pragma once
#include "algorithms/primitives/predecessors.cuh"
#include "algorithms/paths/near_far/lengths.cuh"
#include "kernels/rows.cuh"
#include "kernels/search.cuh"

constexpr i64 sampled_edges = 4;  // of each sampled row

template <class View>
struct SampleWeights {  // one lane per sample: the weights of the first edges of a row; -1 where it has fewer
    static constexpr int lanes = 1;
    View graph;
    i64 rows;
    i64 samples;
    f32* weights;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(samples)) {
            i64 row = i * rows / samples, left = lesser((i64)graph.degree(row), sampled_edges),
                units = graph.units(row);
            f32* to = weights + i * sampled_edges;
            for (i64 k = left; k < sampled_edges; ++k) to[k] = -1;
            for (i64 unit = 0; unit < units && left > 0; ++unit)
                graph.visit(Tile<1>{}, row, unit, [&](u32, i64 slot, bool live) {
                    if (live && left > 0) to[--left] = graph.weight(slot);
                    return left <= 0;
                });
        }
    }
};

struct Tree {
    const Word* length;  // per vertex of the graph
    u64 none;  // the length of an unreached vertex
    i64 first;
    i64 n;
    i64 source;
    u64* notes;  // of every vertex of the graph
    u64 level;
    u32* list;  // out: own rows that got their first note, if the level is not 0
    i64* count;
    const i64* starts;
    const i64* places;  // as in Search
    i64 owners;
    u32* out;
    i64* sent;
    DEVICE bool reached(i64 row) const { return length[first + row] != none; }
    DEVICE bool rooted(i64 row) const { return first + row == source || load(notes + first + row) >> 32 < level; }
    DEVICE void see(i64 row, u32 id, f32 weight) const {
        Word from = length[first + row], to = length[id];
        if (to == none || longer(from, weight) != to || (level ? from != to || id == source : from >= to)) return;
        u64 note = level << 32 | (u64)(first + row);
        if (note < load(notes + id)) put(id, note);
    }
    DEVICE void put(u32 id, u64 note) const {
        u64 before = atomic_min(notes + id, note);
        if (level == 0 || before != ~(u64)0) return;
        i64 row = (i64)id - first;
        if (row >= 0 && row < n) return store(list + take_place(count), (u32)row);
        i64 owner = upper_bound(starts, 0, owners + 1, (i64)id) - 1;
        store(out + places[owner] + take_place(sent + owner), id);
    }
};

template <class View, class Tile>
DEVICE void note_edges(const View& graph, Tile tile, i64 row, i64 unit, const Tree& tree) {
    graph.visit(tile, row, unit, [&](u32 id, i64 slot, bool live) {
        if (live) tree.see(row, id, graph.weight(slot));
        return false;
    });
}

// Above level 0, rows without a note wait.
template <class View>
struct NoteEdges {  // one tile per 32 rows, all or those of a list; hubs become tasks
    static constexpr int lanes = 32;
    View graph;
    Tree tree;
    const u32* listed;  // null for all rows
    i64 rows;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        auto row_at = [&](i64 at) {
            i64 row = listed ? (i64)listed[at] : at;
            return tree.reached(row) && (tree.level == 0 || tree.rooted(row)) ? row : (i64)-1;
        };
        visit_all(grid, graph, rows, row_at, tasks, n_tasks,
                  [&](auto group, i64 row, i64 unit) { note_edges(graph, group, row, unit, tree); });
    }
};

template <class View>
struct NoteHubs {  // one tile per task of a hub's row
    static constexpr int lanes = 32;
    View graph;
    Tree tree;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks,
                   [&](auto tile, i64 row, i64 unit) { note_edges(graph, tile, row, unit, tree); });
    }
};

struct PackNotes {  // one lane per vertex of the list for an owner: its id and its note
    static constexpr int lanes = 1;
    const u32* list;
    i64 n;
    const u64* notes;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) words[2 * i] = list[i], words[2 * i + 1] = notes[list[i]];
    }
};

struct TakeNotes {  // one lane per note that another rank has sent
    static constexpr int lanes = 1;
    Tree tree;
    const u64* words;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) tree.put((u32)words[2 * i], words[2 * i + 1]);
    }
};

struct CountOpen {  // one lane per own vertex: counts those reached without a note
    static constexpr int lanes = 1;
    Tree tree;
    i64* count;
    DEVICE void operator()(Grid grid) const {
        i64 open = 0;
        for (i64 row : grid.items(tree.n)) {
            i64 v = tree.first + row;
            open += tree.reached(row) && v != tree.source && tree.notes[v] == ~(u64)0;
        }
        Tile<32> tile;
        open = tile.sum(open);
        if (tile.rank() == 0 && open) atomic_add(count, open);
    }
};
