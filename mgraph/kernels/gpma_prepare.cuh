// gpma+, prepare: locate the keys, count, and choose the windows. Nothing of the structure is written.
// status: counts for the host, one read-back. A level is a power of two of leaves; node (level, leaf >> level).
#pragma once
#include "gpma_window.cuh"
#include "outcome.cuh"

enum Status { updates, misses, resize, leaf_windows, block_windows, wide_parts, row_tasks, scratch_leaves, all_moves, few_windows };
constexpr u8 no_window = 255;

struct Locate {  // one lane a key: its slot, what becomes of it, and what it moves (to be summed up); of equal keys the last acts
    static constexpr int lanes = 1;
    GpmaView graph;
    const u64* keys;
    const i8* op;
    i64 n;
    i64* slot;
    u8* outcome;
    u64* moves;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        i64 update = 0, miss = 0;
        for (i64 k : grid.items(n)) {
            fetch_ahead(k);
            u8 is = look_up(k);
            outcome[k] = is;
            moves[k + 1] = is == inserted ? (u64)1 << 32 : (u64)(is == deleted);
            if (k == 0) moves[0] = 0;
            update += is == updated;
            miss += is == missing;
        }
        Tile<32> tile;
        update = tile.sum(update), miss = tile.sum(miss);
        if (update && tile.rank() == 0) atomic_add(status + updates, update);
        if (miss && tile.rank() == 0) atomic_add(status + misses, miss);
    }
    DEVICE void fetch_ahead(i64 k) const {
        if (k + 24 < n) prefetch(graph.start + (keys[k + 24] >> 32));
        if (k + 12 < n) graph.prefetch_row((i64)(keys[k + 12] >> 32));
    }
    DEVICE u8 look_up(i64 k) const {
        bool there;
        slot[k] = graph.seek((i64)(keys[k] >> 32), (u32)keys[k], there);
        if (k + 1 < n && keys[k + 1] == keys[k]) return overridden;
        return !op || op[k] > 0 ? (there ? updated : inserted) : (there ? deleted : missing);
    }
};

struct Levels {  // the bounds of each level's full window, and which nodes are windows
    const i64* least;
    const i64* most;
    i64 height;
    u32* marked;
    u32* claimed;
    u64* used;
    DEVICE bool holds(i64 level, i64 leaves, i64 n) const {  // whether n items in so many leaves are within bounds
        i64 full = (i64)1 << level;
        return (least[level] * leaves + full - 1) / full <= n && n <= most[level] * leaves / full;
    }
    DEVICE u64 node(i64 level, i64 leaf) const { return ((u64)1 << (height - level)) + (u64)(leaf >> level); }
    static DEVICE bool set(u32* bits, u64 node) {  // whether this call set it
        u32 bit = 1u << (node & 31);
        return !(load(bits + (node >> 5)) & bit) && !(atomic_or(bits + (node >> 5), bit) & bit);
    }
    DEVICE void mark(i64 level, i64 leaf) const {
        set(marked, node(level, leaf));
        if (!(load(used) >> level & 1)) atomic_or(used, (u64)1 << level);
    }
    DEVICE bool covered(i64 level, i64 leaf) const {  // whether an ancestor is a window
        for (u64 above = *used >> (level + 1) << (level + 1); above;) {
            i64 up = bit_width(above) - 1;
            if (marked[node(up, leaf) >> 5] >> (node(up, leaf) & 31) & 1) return true;
            above ^= (u64)1 << up;
        }
        return false;
    }
};

struct Climb {  // one lane a key, those that are their leaf's first act: the smallest window within bounds
    static constexpr int lanes = 1;
    Batch batch;
    Leaves leaves;
    Levels levels;
    u8* level;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            i64 leaf = leaves.leaf(batch.slot[k]);
            level[k] = k > 0 && leaves.leaf(batch.slot[k - 1]) == leaf ? no_window : climb(k, leaf);
        }
    }
    DEVICE u8 climb(i64 k, i64 leaf) const {
        i64 first = k, last = k;
        for (i64 at = 0; at <= levels.height; ++at) {
            i64 from = leaf >> at << at, to = lesser(from + ((i64)1 << at), leaves.leaves);
            first = lower_bound_near(batch.slot, batch.n, first, from * LEAF);
            last = to == leaves.leaves ? batch.n : lower_bound_near(batch.slot, batch.n, last, to * LEAF);
            if (at == 0 && batch.moves[first] == batch.moves[last]) return no_window;
            i64 n = leaves.sum(from, to) + batch.net(last) - batch.net(first);
            if (!levels.holds(at, to - from, n)) continue;
            if (at > 0) levels.mark(at, leaf);
            return (u8)at;
        }
        store(status + resize, (i64)1);
        return no_window;
    }
};

// A place in a list for each lane that wants one: one atomic a tile. All lanes of the tile call it.
template <class T> DEVICE i64 append(T tile, bool wants, i64* length) {
    u32 all = tile.ballot(wants);
    i64 first = 0;
    if (all && tile.rank() == 0) first = atomic_add(length, (i64)popcount(all));
    return tile.shfl(first, 0) + popcount(all & ((1u << tile.rank()) - 1));
}

struct Select {  // one lane a key, a tile in step: windows under no other window, each once, into the list of its width
    static constexpr int lanes = 1;
    Batch batch;
    Leaves leaves;
    Levels levels;
    const u8* level;
    const i64* start;
    i64 rows;
    u32* leaf_list;
    u32* few_list;
    u32* block_list;
    u32* wide_list;
    u32* row_list;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        for (i64 t : grid.items(tile, (batch.n + tile.size() - 1) / tile.size())) {
            i64 k = t * tile.size() + tile.rank();
            if (k + 16 * tile.size() < batch.n) prefetch(start + (batch.keys[k + 16 * tile.size()] >> 32));
            if (k == 0) status[all_moves] = (i64)batch.moves[batch.n];
            bool chosen = k < batch.n && is_window(k);
            Window w = {};
            if (chosen) w = window(k, level[k], leaves.leaf(batch.slot[k]));
            if (chosen && (w.leaves > block_leaves || w.last_row - w.first_row > inline_rows)) w.last_row = emit_rows(w);
            add(tile, w, chosen && w.leaves == 1, status + leaf_windows, leaf_list);
            add(tile, w, chosen && w.leaves > 1 && w.leaves <= few_leaves, status + few_windows, few_list);
            add(tile, w, chosen && w.leaves > few_leaves && w.leaves <= block_leaves, status + block_windows, block_list);
            if (chosen && w.leaves > block_leaves) emit_parts(w);
        }
    }
    template <class T> DEVICE void add(T tile, const Window& w, bool wanted, i64* length, u32* list) const {
        i64 at = append(tile, wanted, length);
        if (wanted) window_at(list, at) = w;
    }
    DEVICE bool is_window(i64 k) const {
        i64 at = level[k];
        if (at == no_window) return false;
        i64 leaf = leaves.leaf(batch.slot[k]);
        return !levels.covered(at, leaf) && (at == 0 || Levels::set(levels.claimed, levels.node(at, leaf)));
    }
    DEVICE Window window(i64 k, i64 at, i64 leaf) const {
        i64 from = leaf >> at << at, to = lesser(from + ((i64)1 << at), leaves.leaves), end = leaves.leaves * LEAF;
        i64 first = lower_bound_near(batch.slot, batch.n, k, from * LEAF);
        i64 last = to == leaves.leaves ? batch.n : lower_bound_near(batch.slot, batch.n, k, to * LEAF);
        i64 row = (i64)(batch.keys[k] >> 32);
        i64 first_row = row_at(row, from * LEAF), last_row = row_at(row, lesser(to * LEAF, end));
        // Empty rows at the end of the array stay there, but those up to the last key may get an item after them.
        if (to == leaves.leaves) last_row = greater(last_row, (i64)(batch.keys[last - 1] >> 32) + 1);
        return {(u32)from, (u32)(to - from), (u32)first, (u32)last, (u32)first_row, (u32)last_row, 0, 0};
    }
    // The first row that starts at `slot` or later: mostly one near `row`, found by loads that do not wait for each other.
    DEVICE i64 row_at(i64 row, i64 slot) const {
        constexpr int reach = 4;
        i64 from = greater((i64)0, row - reach), n = lesser(rows - from, (i64)2 * reach + 1), before = 0;
        for (int j = 0; j < 2 * reach + 1; ++j) before += j < n && start[from + j] < slot;
        return before > 0 && before < n ? from + before : lower_bound_near(start, rows, row, slot);
    }
    DEVICE void emit_parts(Window w) const {
        w.scratch = (u32)atomic_add(status + scratch_leaves, (i64)w.leaves);
        i64 tasks = wide_tasks(w);
        i64 to = atomic_add(status + wide_parts, tasks);
        for (i64 t = 0; t < tasks; ++t) w.task = (u32)t, window_at(wide_list, to + t) = w;
    }
    DEVICE u32 emit_rows(Window w) const {  // hands all the rows over to tasks; the window keeps none
        u32 end = w.last_row;
        i64 tasks = (end - w.first_row + task_rows - 1) / task_rows;
        i64 to = atomic_add(status + row_tasks, tasks);
        u32 begin = w.first_row;
        for (i64 t = 0; t < tasks; ++t) {
            w.first_row = begin + (u32)(t * task_rows);
            w.last_row = lesser(end, w.first_row + (u32)task_rows);
            window_at(row_list, to + t) = w;
        }
        return begin;
    }
};
