// Answers the queries of a stream, each as of its place among the updates, from any structure before the commit. The
// updates are in the order of (row, dst, place): the last update of a key before a query decides, otherwise the
// structure.
#pragma once
#include "structures/outcome.cuh"
#include "structures/sums.cuh"
#include "structures/view.cuh"
#include "kernels/search.cuh"
#include "kernels/operation_kinds.cuh"

constexpr u32 no_number = 0x7fc00000u;  // NaN

struct SortedQueries {  // queries of a sorted run
    const i8* kinds;  // of the run, or of its stream if answers are by place
    const u32* place;    // of the run
    const u32* asked;  // position of each query in the run
    const u32* slots;  // slot of each answer, by the place in the stream, or in the run
    i64 by_place;
    i64 first;           // the first slot
    u32* places;         // of the answers, by slot; may be null
    DEVICE i64 slot(i64 q) const {
        i64 i = asked[q], to = (i64)slots[by_place ? place[i] : i] - first;
        if (places) places[to] = place[i];
        return to;
    }
    DEVICE i8 kind(i64 q) const { return kinds[by_place ? place[asked[q]] : asked[q]]; }
};

// Returns true if the edge of an update of [.., end) existed before the batch, by the outcome of its last update.
DEVICE bool there_before(const Updates& updates, const u8* outcome, i64 update, i64 end) {
    u64 key = updates.keys[update];
    bool repeated = update + 1 < end && updates.keys[update + 1] == key;
    i64 last = repeated ? upper_bound(updates.keys, update + 1, end, key) - 1 : update;
    return outcome[last] == updated || outcome[last] == deleted;
}

// Adds the degree changes of each update to the first query of its row after it.
struct DegreeChanges {
    const u8* outcome;
    const u64* rows;  // queries of rows, row << 32 | place, ascending
    i64 n_rows;
    i64* changes;
    DEVICE void add(const Updates& updates, i64 i) const {
        u64 key = updates.keys[i];
        i64 q = first_after(updates, i, key);
        if (q == n_rows || rows[q] >> 32 != key >> 32) return;
        bool again = i > 0 && updates.keys[i - 1] == key, after = updates.op[i] > 0;
        bool before = again ? updates.op[i - 1] > 0 : there_before(updates, outcome, i, updates.n);
        if (after != before) atomic_add(changes + q, (i64)(after ? 1 : -1));
    }
    // Returns the first query after an update, of another row if its own has none. In the run, the queries of a row
    // come before its updates, except those of an edge to vertex 0, whose keys equal the queries'.
    DEVICE i64 first_after(const Updates& updates, i64 i, u64 key) const {
        i64 end = updates.asked[i];
        if ((u32)key == 0) return end;
        if (end == 0 || rows[end - 1] >> 32 != key >> 32) return n_rows;
        return lower_bound_near(rows, end, end, (key & ~(u64)0xffffffffu | updates.place[i]) + 1);
    }
};

// One lane per query of an edge or of a weight, to answer it; then one per update, if rows are queried.
template <class View>
struct EdgeResults {
    static constexpr int lanes = 1;
    View graph;
    SortedQueries queries;
    Updates updates;
    DegreeChanges degrees;
    i64 first;  // index of these queries among all
    i64 n;
    i64 n_all;  // including the updates
    const u64* keys;  // of the run
    const u32* before;
    const u8* held;  // 1 if the structure has the edge of each of the first `n_found` queries; null to search it here
    u8* found;
    u32* words;  // from the slot `n_found` on
    i64 n_found;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n_all)) {
            if (i < n) answer(i);
            else degrees.add(updates, i - n);
        }
    }
    DEVICE void answer(i64 q) const {
        u64 key = keys[queries.asked[first + q]];
        i64 last = (i64)before[q] - 1, to = queries.slot(first + q);
        bool in_batch = last >= 0 && updates.keys[last] == key;
        if (q < n_found)
            found[to] = in_batch ? updates.op[last] > 0
                        : held   ? held[q] != 0
                                 : graph.find((i64)(key >> 32), (u32)key) >= 0;
        else words[to - n_found] = in_batch ? weight(last) : weight_of((i64)(key >> 32), (u32)key);
    }
    DEVICE u32 weight(i64 update) const {
        if (updates.op[update] < 0) return no_number;
        return bits_of(updates.weight ? updates.weight[update] : 1.0f);
    }
    DEVICE u32 weight_of(i64 row, u32 id) const {
        i64 slot = graph.find(row, id);
        return slot < 0 ? no_number : bits_of(graph.weight(slot));
    }
};

template <class View>
struct DegreeResults {  // one lane per query of a row
    static constexpr int lanes = 1;
    View graph;
    SortedQueries queries;
    const u64* rows;
    i64 n;
    Sums changes;
    u32* words;  // from the slot `n_found` on
    i64 n_found;
    DEVICE void operator()(Grid grid) const {
        for (i64 q : grid.items(n)) {
            i64 row = (i64)(rows[q] >> 32), first = lower_bound_near(rows, q, q, first_key_of(row));
            i64 degree = (i64)graph.degree(row) + (i64)(changes.upto(q) - (first ? changes.upto(first - 1) : 0));
            words[queries.slot(q) - n_found] = (u32)degree;
        }
    }
};

// Answers a row as of a query: the row before the batch without deleted edges, then the edges inserted so far.
template <class View>
struct NeighborResults {  // one tile per query of a row
    static constexpr int lanes = 32;
    View graph;
    SortedQueries queries;
    Updates updates;
    const u8* outcome;
    const u64* rows;
    i64 n;
    const i64* offsets;
    i64 first;  // slot of the first row
    u32* dst;
    f32* weight;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 q : grid.items(tile, n)) {
            i8 kind = queries.kind(q);
            if (kind == ask_neighbors || kind == ask_predecessors) patch(tile, q);
        }
    }
    template <class Tile32> DEVICE void patch(Tile32 tile, i64 q) const {
        i64 row = (i64)(rows[q] >> 32), next = offsets[queries.slot(q) - first], units = graph.units(row);
        u32 place = (u32)rows[q];
        i64 begin = lower_bound(updates.keys, (i64)0, updates.n, first_key_of(row));
        i64 end = lower_bound(updates.keys, begin, updates.n, first_key_of(row + 1)), near = begin;
        for (i64 unit = 0; unit < units; ++unit)
            graph.visit(tile, row, unit, [&](u32 id, i64 slot, bool live) {
                i64 last = live && begin < end ? last_before((u64)row << 32 | id, begin, end, place, near) : -1;
                put(tile, live && (last < 0 || updates.op[last] > 0), id, last, slot, next);
                return false;
            });
        for (i64 i = begin; i < end; i += tile.size()) {
            i64 u = i + tile.rank();
            bool brings = u < end && updates.op[u] > 0 && is_last(u, end, place);
            brings = brings && !there_before(updates, outcome, u, end);
            put(tile, brings, brings ? (u32)updates.keys[u] : 0, u, -1, next);
        }
    }
    // Returns the last update of a key before a place, or -1. `near` is the previous search's result.
    DEVICE i64 last_before(u64 key, i64 begin, i64 end, u32 at, i64& near) const {
        i64 first =
            View::sorted ? lower_bound_near(updates.keys, end, near, key) : lower_bound(updates.keys, begin, end, key);
        i64 to = first + 1;
        near = first;
        if (first == end || updates.keys[first] != key || updates.place[first] >= at) return -1;
        if (to < end && updates.keys[to] == key)
            to = lower_bound(updates.place, to, upper_bound(updates.keys, to, end, key), at);
        return to - 1;
    }
    DEVICE bool is_last(i64 u, i64 end, u32 at) const {
        if (updates.place[u] >= at) return false;
        return u + 1 == end || updates.keys[u + 1] != updates.keys[u] || updates.place[u + 1] >= at;
    }
    template <class Tile32> DEVICE void put(Tile32 tile, bool mine, u32 id, i64 update, i64 slot, i64& next) const {
        u32 all = tile.ballot(mine);
        if (mine) {
            i64 to = next + popcount(all & ((1u << tile.rank()) - 1));
            dst[to] = id;
            if (weight) weight[to] = update < 0 ? graph.weight(slot) : updates.weight ? updates.weight[update] : 1.0f;
        }
        next += popcount(all);
    }
};
