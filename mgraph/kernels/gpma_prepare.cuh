// gpma+, prepare: locate the keys, count, and choose the windows. Nothing of the structure is written.
// status: counts for the host, one read-back. A level is a power of two of leaves; node (level, leaf >> level).
#pragma once
#include "gpma_window.cuh"
#include "outcome.cuh"
#include "scan.cuh"

enum Status {
    updates, misses, resize, leaf_windows, block_windows, wide_parts, row_tasks, scratch_leaves, all_moves, few_windows, unknown
};
constexpr u8 no_window = 255;

struct Moves {  // inserts << 32 | deletes: those before each key in its chunk of 1 << shift keys, and before each chunk
    u64* before;
    u64* chunks;
    i64 shift;
    DEVICE u64 at(i64 k) const { return before[k] + chunks[k >> shift]; }
};

struct Locate {  // one block a chunk: each key's slot, what becomes of it, and what the keys before it move; of equal keys the last acts
    static constexpr int lanes = 256;
    const u64* keys;
    const i8* op;
    i64 n;
    GpmaView graph;
    i64 rows;
    i64 vertices;
    i64* slot;
    u8* outcome;
    Moves moves;
    u64* arrived;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        Block block;
        i64 found[3] = {}, chunks = (n >> moves.shift) + 1;  // the last one has the end of the keys
        for (i64 c : grid.items(block, chunks)) {
            i64 last = lesser((c + 1) << moves.shift, n + 1);
            u64 before = 0;
            for (i64 first = c << moves.shift; first < last; first += block.size() * in_flight) {
                i64 k = first + block.rank() * in_flight;
                u64 move[in_flight] = {}, mine = 0, all;
                look_up(k, (int)greater((i64)0, lesser(n - k, (i64)in_flight)), move, found);
                for (int j = 0; j < in_flight; ++j) mine += move[j];
                u64 upto = before + scan(block, mine, all) - mine;
                for (int j = 0; j < in_flight && k + j < last; upto += move[j++]) moves.before[k + j] = upto;
                before += all;
            }
            close(block, c, chunks, before);
        }
        report(updates, found[0]);
        report(misses, found[1]);
        report(unknown, found[2]);
    }
    // Some neighbouring keys, their searches in step: on a CPU the next loads of all are under way at once.
    DEVICE void look_up(i64 k, int some, u64* move, i64* found) const {
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
    DEVICE u64 settle(i64 k, const GpmaView::Search& search, i64* found) const {
        i64 row = (i64)(keys[k] >> 32);
        bool there, known = row < rows && (i64)(u32)keys[k] < vertices;
        i64 at = graph.end(search, (u32)keys[k], there);
        slot[k] = row < rows ? at : graph.start[rows];
        bool acts = k + 1 == n || keys[k + 1] != keys[k], inserts = !op || op[k] > 0;
        u8 is = !acts ? overridden : inserts ? (there ? updated : inserted) : there ? deleted : missing;
        outcome[k] = is;
        found[0] += is == updated;
        found[1] += is == missing;
        found[2] += !known;
        return is == inserted ? (u64)1 << 32 : (u64)(is == deleted);
    }
    // The block that comes last sums up the chunks.
    DEVICE void close(Block block, i64 chunk, i64 chunks, u64 moved) const {
        SHARED(bool, is_last, 1);
        if (block.rank() == 0) {
            store(moves.chunks + chunk, moved);
            *is_last = arrive(arrived) == (u64)chunks - 1;
        }
        block.sync();
        u64 before = 0;
        for (i64 first = 0; *is_last && first < chunks; first += block.size()) {
            i64 c = first + block.rank();
            u64 all, mine = c < chunks ? load(moves.chunks + c) : 0, upto = scan(block, mine, all);
            if (c < chunks) moves.chunks[c] = before + upto - mine;
            before += all;
        }
        if (*is_last && block.rank() == 0) status[all_moves] = (i64)before;
        block.sync();
    }
    DEVICE void report(Status word, i64 mine) const {
        Tile<32> tile;
        i64 sum = tile.sum(mine);
        if (sum && tile.rank() == 0) atomic_add(status + word, sum);
    }
};

struct Levels {  // the bounds of each level's full window, and which nodes are windows
    const i64* least;
    const i64* most;
    i64 height;
    u32* marked;
    u32* claimed;
    u64* used;
    i64* sums;  // of items, and 1, by node, of levels above group_level; 0 where nobody asked yet
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
    Moves moves;
    u64* summed;  // batch.moves, made here
    u8* level;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            i64 leaf = leaves.leaf(batch.slot[k]);
            level[k] = k > 0 && leaves.leaf(batch.slot[k - 1]) == leaf ? no_window : climb(k, leaf);
            summed[k] = moves.at(k);
            if (k + 1 == batch.n) summed[k + 1] = moves.at(k + 1);
        }
    }
    DEVICE u8 climb(i64 k, i64 leaf) const {
        i64 first = k, last = k, held = leaves.counts[leaf];
        for (i64 at = 0; at <= levels.height; ++at) {
            i64 from = leaf >> at << at, to = lesser(from + ((i64)1 << at), leaves.leaves);
            first = lower_bound_near(batch.slot, batch.n, first, from * LEAF);
            last = to == leaves.leaves ? batch.n : lower_bound_near(batch.slot, batch.n, last, to * LEAF);
            u64 moved = moves.at(last) - moves.at(first);
            if (at == 0 && moved == 0) return no_window;
            if (at > 0) held += other_half(at - 1, leaf);
            i64 n = held + (i64)(moved >> 32) - (i64)(moved & 0xffffffffu);
            if (!levels.holds(at, to - from, n)) {
                if (at > group_level && load(status + resize)) return no_window;  // the windows do not matter any more
                continue;
            }
            if (at > 0) levels.mark(at, leaf);
            return (u8)at;
        }
        store(status + resize, (i64)1);
        return no_window;
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

struct Select {  // one lane a key, a block in step: windows under no other window, each once, into the list of its width
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
        SHARED(i64, place, lists);
        Block block;
        i64 step = block.size() * in_flight;
        for (i64 b : grid.items(block, (batch.n + step - 1) / step)) {
            Window found[in_flight];
            int many = 0;
            u64 mine = 0, all;  // how many for each list, 16 bits each
            for (int j = 0; j < in_flight; ++j) {
                i64 k = b * step + block.rank() * in_flight + j;
                if (k + 16 * block.size() < batch.n) prefetch(start + (batch.keys[k + 16 * block.size()] >> 32));
                if (k >= batch.n || !is_window(k)) continue;
                Window w = window(k, level[k], leaves.leaf(batch.slot[k]));
                if (w.leaves > block_leaves || w.last_row - w.first_row > inline_rows) w.last_row = emit_rows(w);
                if (w.leaves > block_leaves) emit_parts(w);
                else found[many++] = w, mine += one(w);
            }
            u64 before = scan(block, mine, all) - mine;
            if (all == 0) continue;
            for (int l = block.rank(); l < lists; l += block.size()) {  // one atomic a block and list: they share a cache line
                i64 wanted = all >> 16 * l & 0xffff;
                i64* length = status + (l == 0 ? leaf_windows : l == 1 ? few_windows : block_windows);
                place[l] = wanted ? atomic_add(length, wanted) : 0;
            }
            block.sync();
            for (int j = 0; j < many; before += one(found[j++])) {
                int l = list(found[j]);
                u32* windows = l == 0 ? leaf_list : l == 1 ? few_list : block_list;
                window_at(windows, place[l] + (i64)(before >> 16 * l & 0xffff)) = found[j];
            }
        }
    }
    static constexpr int lists = 3;  // of windows of one leaf, of a few, of more
    DEVICE static int list(const Window& w) { return w.leaves == 1 ? 0 : w.leaves <= few_leaves ? 1 : 2; }
    DEVICE static u64 one(const Window& w) { return (u64)1 << 16 * list(w); }
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
        i64 first_row = lower_bound_near(start, rows, row, from * LEAF);
        i64 last_row = lower_bound_near(start, rows, row, lesser(to * LEAF, end));
        // Empty rows at the end of the array stay there, but those up to the last key may get an item after them.
        if (to == leaves.leaves) last_row = greater(last_row, lesser((i64)(batch.keys[last - 1] >> 32) + 1, rows));
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
