// gpma+, prepare: locate the keys, count, and choose the windows. Nothing of the structure is written.
// status: counts for the host, one read-back.
#pragma once
#include "gpma_levels.cuh"
#include "outcome.cuh"
#include "scan.cuh"

enum Status {
    updates, misses, resize, leaf_windows, block_windows, wide_parts, row_tasks, scratch_leaves, all_moves, few_windows, unknown,
    climbed_windows
};

struct Locate {  // one block a chunk: each key's slot, what becomes of it, and what the keys before it move; of equal keys the last acts
    static constexpr int lanes = 256;
    const u64* keys;
    const i8* op;
    i64 n;
    GpmaView graph;
    i64 rows;
    i64 vertices;
    i64* located;
    u8* outcome;
    u32* before;
    u64* chunks;
    i64 shift;
    u64* arrived;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        Block block;
        i64 found[3] = {}, many = (n >> shift) + 1;  // the last one has the end of the keys
        for (i64 c : grid.items(block, many)) {
            i64 last = lesser((c + 1) << shift, n + 1);
            u32 moved = 0;  // inserts << 16 | deletes: a chunk has no more keys
            for (i64 first = c << shift; first < last; first += block.size() * in_flight) {
                i64 k = first + block.rank() * in_flight;
                u32 move[in_flight] = {}, mine = 0, all;
                look_up(k, (int)greater((i64)0, lesser(n - k, (i64)in_flight)), move, found);
                for (int j = 0; j < in_flight; ++j) mine += move[j];
                u32 upto = moved + scan(block, mine, all) - mine;
                for (int j = 0; j < in_flight && k + j < last; upto += move[j++]) before[k + j] = upto;
                moved += all;
            }
            close(block, c, many, (u64)(moved >> 16) << 32 | (moved & 0xffffu));
        }
        report(updates, found[0]);
        report(misses, found[1]);
        report(unknown, found[2]);
    }
    // Some neighbouring keys, their searches in step: on a CPU the next loads of all are under way at once.
    DEVICE void look_up(i64 k, int some, u32* move, i64* found) const {
        GpmaView::Search search[in_flight];
        for (int j = 0; j < some; ++j) {
            if (k + j + 2 * in_flight < n) prefetch(graph.start + (keys[k + j + 2 * in_flight] >> 32));
            search[j] = graph.begin(lesser((i64)(keys[k + j] >> 32), rows - 1));
            prefetch(graph.heads + search[j].middle());
        }
        i64 most = 1;
        for (int j = 0; j < some; ++j) most = greater(most, search[j].leaves);
        for (; most > 1; most -= most >> 1)
            for (int j = 0; j < some; ++j) {
                graph.narrow(search[j], (u32)keys[k + j]);
                prefetch(graph.heads + search[j].middle());
            }
        if (in_flight > 1)
            for (int j = 0; j < some; ++j)
                for (int s = 0; s < LEAF; s += 16) prefetch(graph.slots + search[j].leaf * LEAF + s);
        for (int j = 0; j < some; ++j) move[j] = settle(k + j, search[j], found);
    }
    DEVICE u32 settle(i64 k, const GpmaView::Search& search, i64* found) const {
        i64 row = (i64)(keys[k] >> 32);
        bool there, known = row < rows && (i64)(u32)keys[k] < vertices;
        i64 at = graph.end(search, (u32)keys[k], there);
        bool acts = k + 1 == n || keys[k + 1] != keys[k], inserts = !op || op[k] > 0;
        u8 is = !acts ? overridden : inserts ? (there ? updated : inserted) : there ? deleted : missing;
        outcome[k] = is;
        found[0] += is == updated;
        found[1] += is == missing;
        found[2] += !known;
        located[k] = Batch::at_slot(row < rows ? at : graph.start[rows]) + (is == inserted ? 2 : is == deleted ? 0 : 1);
        return is == inserted ? 1u << 16 : (u32)(is == deleted);
    }
    // The block that comes last sums up the chunks.
    DEVICE void close(Block block, i64 chunk, i64 many, u64 moved) const {
        SHARED(bool, is_last, 1);
        if (block.rank() == 0) {
            store(chunks + chunk, moved);
            *is_last = arrive(arrived) == (u64)many - 1;
        }
        block.sync();
        u64 sum = 0;
        for (i64 first = 0; *is_last && first < many; first += block.size()) {
            i64 c = first + block.rank();
            u64 all, mine = c < many ? load(chunks + c) : 0, upto = scan(block, mine, all);
            if (c < many) chunks[c] = sum + upto - mine;
            sum += all;
        }
        if (*is_last && block.rank() == 0) status[all_moves] = (i64)sum;
        block.sync();
    }
    DEVICE void report(Status word, i64 mine) const {
        Tile<32> tile;
        i64 sum = tile.sum(mine);
        if (sum && tile.rank() == 0) atomic_add(status + word, sum);
    }
};

struct Climb {  // one lane a key, those that are their leaf's first act, a block in step: the smallest window within bounds
    static constexpr int lanes = 1;
    Batch batch;
    Leaves leaves;
    Levels levels;
    const i64* start;
    i64 rows;
    u32* leaf_list;  // first keys of windows of one leaf, also of those that a wider window covers
    u64* climbed;    // key << 8 | level of the others: wider ones, or with many keys or rows
    i64* status;
    static constexpr int none = -2, own = -1;  // beside levels: no window, and one for leaf_list
    DEVICE void operator()(Grid grid) const {
        Block block;
        i64 step = block.size() * in_flight;
        for (i64 b : grid.items(block, (batch.n + step - 1) / step)) {
            u64 found[in_flight];
            u32 mine = 0;
            int many = 0;
            for (int j = 0; j < in_flight; ++j) {
                i64 k = b * step + block.rank() * in_flight + j;
                int at = k < batch.n ? window(k) : none;
                if (at == none) continue;
                found[many++] = (u64)k << 8 | (u8)at;
                mine += at == own ? 1 : 1 << 16;
            }
            i64 to[2];
            if (!take(block, mine, {status + leaf_windows, status + climbed_windows}, to)) continue;
            for (int j = 0; j < many; ++j)
                if ((u8)found[j] == (u8)own) leaf_list[to[0]++] = (u32)(found[j] >> 8);
                else climbed[to[1]++] = found[j];
        }
    }
    DEVICE int window(i64 k) const {
        i64 leaf = leaves.leaf(batch.slot(k));
        if (k > 0 && leaves.leaf(batch.slot(k - 1)) == leaf) return none;
        i64 slot_after = leaf + 1 == leaves.leaves ? no_slot : (leaf + 1) * LEAF, last = k;
        int by = 0;
        bool acts = false;
        for (; last < lesser(k + 4, batch.n) && batch.located[last] < Batch::at_slot(slot_after); ++last)
            by += batch.by_key(last), acts = acts || batch.by_key(last);
        if (last == k + 4) {
            last = batch.first_at(slot_after, last);
            u64 moved = batch.moves(last) - batch.moves(k);
            by = (int)Batch::sum(moved), acts = moved;
        }
        if (!acts) return none;
        i64 held = leaves.counts[leaf];
        if (levels.holds(0, 1, held + by)) return last - k > leaf_keys || has_many_rows(k, last, slot_after) ? 0 : own;
        return climb(k, last, leaf, held);
    }
    static constexpr i64 no_slot = (i64)1 << 40;
    // Whether more rows may begin in a leaf with the keys [first, last), before or behind their own ones, than a few lanes should move.
    // The rows of the keys around are at its sides: mostly they tell.
    DEVICE bool has_many_rows(i64 first, i64 last, i64 slot_after) const {
        if (in_flight > 1) return false;  // one lane may as well move them all
        i64 row = lesser(batch.row(first), rows), low = row - inline_rows, high = row + inline_rows;
        if (batch.row(last - 1) >= high) return true;
        if (high < (last < batch.n ? lesser(batch.row(last), rows) : rows) && start[high] < slot_after) return true;
        return low > (first > 0 ? batch.row(first - 1) : -1) && start[low] == batch.slot(first);
    }
    DEVICE int climb(i64 k, i64 last, i64 leaf, i64 held) const {
        i64 first = k;
        for (i64 at = 1; at <= levels.height; ++at) {
            i64 from = leaf >> at << at, to = lesser(from + ((i64)1 << at), leaves.leaves);
            first = batch.first_at(from * LEAF, first);
            last = to == leaves.leaves ? batch.n : batch.first_at(to * LEAF, last);
            held += other_half(at - 1, leaf);
            i64 n = held + Batch::sum(batch.moves(last) - batch.moves(first));
            if (levels.holds(at, to - from, n)) return levels.mark(at, leaf) ? (int)at : none;
            if (at > group_level && load(status + resize)) return none;  // the windows do not matter any more
        }
        store(status + resize, (i64)1);
        return none;
    }
    // The items of the window of `level` beside that of `leaf`. Sums of many groups are kept for others: where the array is
    // full, many leaves climb to the top, and each of them read all groups.
    DEVICE i64 other_half(i64 level, i64 leaf) const {
        i64 from = ((leaf >> level) ^ 1) << level, to = lesser(from + ((i64)1 << level), leaves.leaves);
        if (from >= to) return 0;
        if (level <= group_level) return leaves.sum(from, to);
        i64 seen = load(levels.sums + levels.node(level, from));
        if (seen == 0) store(levels.sums + levels.node(level, from), seen = leaves.sum(from, to) + 1);
        return seen - 1;
    }
};

struct Select {  // one lane a window that Climb left, a block in step: those under no other window, into the list of their width
    static constexpr int lanes = 1;
    Batch batch;
    Leaves leaves;
    Levels levels;
    const u64* climbed;
    const i64* start;
    i64 rows;
    u32* few_list;
    u32* block_list;
    u32* wide_list;
    u32* row_list;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        Block block;
        i64 all = status[resize] ? 0 : status[climbed_windows], step = block.size() * in_flight;
        for (i64 b : grid.items(block, (all + step - 1) / step)) {
            Window found[in_flight];
            int many = 0;
            u32 mine = 0;
            for (int j = 0; j < in_flight; ++j) {
                i64 i = b * step + block.rank() * in_flight + j;
                if (i >= all) continue;
                i64 k = (i64)(climbed[i] >> 8), at = climbed[i] & 255, leaf = leaves.leaf(batch.slot(k));
                if (levels.covered(Tile<1>{}, at, leaf)) continue;
                Window w = window(k, at, leaf);
                if (w.leaves > block_leaves || w.last_row - w.first_row > inline_rows) w.last_row = emit_rows(w);
                if (w.leaves > block_leaves) emit_parts(w);
                else found[many++] = w, mine += is_small(w) ? 1 : 1 << 16;
            }
            i64 to[2];
            if (!take(block, mine, {status + few_windows, status + block_windows}, to)) continue;
            for (int j = 0; j < many; ++j) {
                bool small = is_small(found[j]);
                window_at(small ? few_list : block_list, to[!small]++) = found[j];
            }
        }
    }
    DEVICE static bool is_small(const Window& w) { return w.leaves <= few_leaves && w.last_key - w.first_key <= few_keys; }
    DEVICE Window window(i64 k, i64 at, i64 leaf) const {
        i64 from = leaf >> at << at, to = lesser(from + ((i64)1 << at), leaves.leaves), end = leaves.leaves * LEAF;
        i64 first = batch.first_at(from * LEAF, k), last = to == leaves.leaves ? batch.n : batch.first_at(to * LEAF, k);
        i64 row = lesser(batch.row(k), rows);  // which it may not have: the batch is refused, but nobody knows yet
        i64 first_row = lower_bound_near(start, rows, row, from * LEAF);
        i64 last_row = lower_bound_near(start, rows, row, lesser(to * LEAF, end));
        // Empty rows at the end of the array stay there, but those up to the last key may get an item after them.
        if (to == leaves.leaves) last_row = greater(last_row, lesser(batch.row(last - 1) + 1, rows));
        return {(u32)from, (u32)(to - from), (u32)first, (u32)last, (u32)first_row, (u32)last_row, 0, 0};
    }
    DEVICE void emit_parts(Window w) const {
        w.scratch = (u32)atomic_add(status + scratch_leaves, (i64)w.leaves);
        i64 to = atomic_add(status + wide_parts, parts(w));
        for (i64 p = 0; p < parts(w); ++p) w.part = (u32)p, window_at(wide_list, to + p) = w;
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

struct Report {  // one lane a word: the status, to where the host reads it
    static constexpr int lanes = 1;
    const i64* status;
    i64 n;
    i64* mailbox;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) mailbox[i] = status[i];
    }
};
