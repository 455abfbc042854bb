// pma, prepare: locates the keys, counts, and chooses the windows. Does not write the structure.
#pragma once
#include "structures/pma/window_tree.cuh"
#include "structures/pma/locate.cuh"

struct PickLeaves {  // one lane per key, or per four, blocks converged: lists changed leaves by their first keys
    static constexpr int lanes = 1;
    Batch batch;
    Leaves leaves;
    WindowTree levels;
    Starts start;
    i64 rows;
    u32* leaf_list;  // windows of one leaf, including those covered by a wider one
    u64* crowded;  // the other leaves, << 8: out of bounds, or with many keys or rows
    i64* status;
    enum Kind { none, own, other };
    DEVICE void operator()(Grid grid) const {
        Block block;
        i64 each = in_flight > 1 ? in_flight : batch.n >> 20 ? 4 : 1, step = block.size() * each;
        for (i64 b : grid.items(block, (batch.n + step - 1) / step)) {
            i64 first = b * step + block.rank() * each;
            u64 kinds = 0;
            u32 mine = 0;
            for (i64 j = 0; j < each; ++j) {
                Kind kind = first + j < batch.n ? look(first + j) : none;
                kinds |= (u64)kind << 2 * j;
                mine += kind == none ? 0 : kind == own ? 1 : 1 << 16;
            }
            i64 to[2];
            if (!take(block, mine, {status + leaf_windows, status + crowded_leaves}, to)) continue;
            for (u64 k = (u64)first; kinds; ++k, kinds >>= 2) {
                if ((kinds & 3) == own) leaf_list[to[0]++] = (u32)k;
                if ((kinds & 3) == other) crowded[to[1]++] = k << 8;
            }
        }
    }
    DEVICE Kind look(i64 k) const {
        i64 here = batch.located[k], leaf = leaves.leaf(here >> 2), behind = batch.behind_leaf(leaf, leaves.leaves),
            last = k + 1;
        if (k > 0 && batch.located[k - 1] >= Batch::at_slot(leaf * LEAF)) return none;
        int by = Batch::by(here);
        bool acts = by;
        for (; last < k + few && last < batch.n && batch.located[last] < behind; ++last)
            by += batch.by_key(last), acts = acts || batch.by_key(last);
        if (last == k + few) {
            last = lower_bound_near(batch.located, batch.n, last, behind);
            u64 moved = batch.moves(last) - batch.moves(k);
            by = (int)Batch::sum(moved), acts = moved;
        }
        if (!acts) return none;
        bool is = levels.holds(0, 1, leaves.counts[leaf] + by);
        return is && last - k <= leaf_keys && !has_many_rows(k, last, behind) ? own : other;
    }
    static constexpr i64 few = 4;  // keys examined one by one
    // Returns true if more rows than one warp should move may begin in the leaf of the keys [first, last), before or
    // after the keys' own rows. The rows of the keys around bound their number, which mostly suffices.
    DEVICE bool has_many_rows(i64 first, i64 last, i64 behind) const {
        if (in_flight > 1) return false;  // a lane of a CPU moves them all anyway
        i64 before = first > 0 ? batch.row(first - 1) : -1,
            after = last < batch.n ? lesser(batch.row(last), rows) : rows;
        if (after - before <= leaf_rows) return false;
        i64 row = lesser(batch.row(first), rows), low = row - leaf_rows, high = row + leaf_rows;
        if (batch.row(last - 1) >= high) return true;
        if (high < after && Batch::at_slot(start[high]) < behind) return true;
        return low > before && start[low] == batch.slot(first);
    }
};

// Counts the items of the sibling of `leaf`'s window at `level`. Sums of many groups are cached for other lanes: in a
// full array many leaves climb to the top, and each would read all groups.
DEVICE i64 sibling(const Leaves& leaves, const WindowTree& levels, i64 level, i64 leaf) {
    i64 from = ((leaf >> level) ^ 1) << level, to = lesser(from + ((i64)1 << level), leaves.leaves);
    if (from >= to) return 0;
    if (level <= group_level) return leaves.sum(from, to);
    i64 seen = load(levels.sums + levels.node(level, from));
    if (seen == 0) store(levels.sums + levels.node(level, from), seen = leaves.sum(from, to) + 1);
    return seen - 1;
}

struct Climb {  // one lane per crowded leaf: finds its smallest window within bounds
    static constexpr int lanes = 1;
    Batch batch;
    Leaves leaves;
    WindowTree levels;
    // first key << 8 | the window's level, set by Climb: `none` if another leaf has the same window
    u64* crowded;
    i64* status;
    static constexpr i64 none = 255;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(status[crowded_leaves])) {
            i64 k = (i64)(crowded[i] >> 8);
            crowded[i] |= (u64)climb(k, leaves.leaf(batch.slot(k)));
        }
    }
    DEVICE i64 climb(i64 k, i64 leaf) const {
        i64 first = k, last = k, held = leaves.counts[leaf];
        for (i64 at = 0; at <= levels.height; ++at) {
            i64 from = leaf >> at << at, to = lesser(from + ((i64)1 << at), leaves.leaves);
            first = batch.first_at(from * LEAF, first);
            last = to == leaves.leaves ? batch.n : batch.first_at(to * LEAF, last);
            if (at > 0) held += sibling(leaves, levels, at - 1, leaf);
            i64 n = held + Batch::sum(batch.moves(last) - batch.moves(first));
            if (levels.holds(at, to - from, n)) return at == 0 || levels.mark(at, leaf) ? at : none;
            if (at > group_level && load(status + resize)) return none;  // the whole array is rewritten: no windows
        }
        store(status + resize, (i64)1);
        return none;
    }
};

// Lists the requested windows by width, except those under another window.
struct Select {  // one lane per window, blocks converged
    static constexpr int lanes = 1;
    Batch batch;
    i64 all_leaves;  // 1 if all changed leaves have requested a window, and not only the crowded ones
    Leaves leaves;
    WindowTree levels;
    const u64* crowded;
    Starts start;
    i64 rows;
    u32* few_list;
    u32* block_list;
    u32* wide_list;
    u32* row_list;
    i64* status;
    u64* arrived;
    i64* mailbox;  // copy of the status for the host
    DEVICE void operator()(Grid grid) const {
        Block block;
        choose(grid, [&](i64 turns) { report(block, turns); });
    }
    template <class F> DEVICE void choose(Grid grid, F chosen) const {
        Block block;
        i64 all = load(status + crowded_leaves) + (all_leaves ? load(status + leaf_windows) : 0);
        i64 step = block.size() * in_flight;
        if (load(status + resize)) all = 0;
        i64 turns = greater((i64)1, (all + step - 1) / step);
        for (i64 b : grid.items(block, turns)) {
            Window found[in_flight];
            int many = 0;
            u32 mine = 0;
            for (int j = 0; j < in_flight; ++j) {
                i64 i = b * step + block.rank() * in_flight + j;
                if (i >= all || !is_window(crowded[i])) continue;
                Window w = window((i64)(crowded[i] >> 8), crowded[i] & 255);
                if (w.leaves > block_leaves || w.last_row - w.first_row > inline_rows) w.last_row = emit_rows(w);
                if (w.leaves > block_leaves) emit_parts(w);
                else found[many++] = w, mine += is_small(w) ? 1 : 1 << 16;
            }
            i64 to[2];
            if (take(block, mine, {status + few_windows, status + block_windows}, to))
                for (int j = 0; j < many; ++j) {
                    bool small = is_small(found[j]);
                    window_at(small ? few_list : block_list, to[!small]++) = found[j];
                }
            chosen(turns);
        }
    }
    DEVICE void report(Block block, i64 turns) const {  // by the last block to finish
        SHARED(bool, is_last, 1);
        block.sync();
        if (block.rank() == 0) *is_last = arrive(arrived) == (u64)turns - 1;
        block.sync();
        for (i64 i = block.rank(); *is_last && i < status_words; i += block.size()) mailbox[i] = load(status + i);
    }
    DEVICE bool is_window(u64 found) const {
        i64 at = found & 255;
        return at != Climb::none && !levels.covered(Tile<1>{}, at, leaves.leaf(batch.slot((i64)(found >> 8))));
    }
    DEVICE static bool is_small(const Window& w) {
        return w.leaves <= few_leaves && w.last_key - w.first_key <= few_keys;
    }
    DEVICE Window window(i64 k, i64 at) const {
        i64 leaf = leaves.leaf(batch.slot(k)), end = leaves.leaves * LEAF;
        i64 from = leaf >> at << at, to = lesser(from + ((i64)1 << at), leaves.leaves);
        i64 first = batch.first_at(from * LEAF, k), last = to == leaves.leaves ? batch.n : batch.first_at(to * LEAF, k);
        i64 row = lesser(batch.row(k), rows);  // the row may not exist: the batch is refused, but later
        i64 first_row = lower_bound_near(start, rows, row, from * LEAF);
        i64 last_row = lower_bound_near(start, rows, row, lesser(to * LEAF, end));
        // Empty rows at the end of the array stay, but those up to the last key may get an item after them.
        if (to == leaves.leaves) last_row = greater(last_row, lesser(batch.row(last - 1) + 1, rows));
        return {(u32)from, (u32)(to - from), (u32)first, (u32)last, (u32)first_row, (u32)last_row, 0, 0};
    }
    DEVICE void emit_parts(Window w) const {
        w.scratch = (u32)atomic_add(status + scratch_leaves, (i64)w.leaves);
        i64 to = atomic_add(status + wide_parts, parts(w));
        for (i64 p = 0; p < parts(w); ++p) w.part = (u32)p, window_at(wide_list, to + p) = w;
    }
    DEVICE u32 emit_rows(Window w) const {  // makes tasks of all its rows; the window keeps none
        u32 end = w.last_row;
        i64 tasks = (end - w.first_row + task_rows - 1) / task_rows;
        i64 to = atomic_add(status + row_tasks, tasks);
        u32 begin = w.first_row;
        for (i64 t = 0; t < tasks; ++t) {
            w.first_row = begin + (u32)(t * task_rows);
            w.last_row = (u32)lesser((i64)end, w.first_row + task_rows);
            window_at(row_list, to + t) = w;
        }
        return begin;
    }
};
