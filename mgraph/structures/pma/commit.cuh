// pma, commit: every window is written once, with its items spread evenly. Windows are disjoint; so are their rows. A
// few lanes merge a window of one leaf, a tile a window of up to few_leaves, a block one of up to block_leaves. Wider
// windows are merged into a copy and copied back.
#pragma once
#include "structures/pma/merge.cuh"
#include "structures/pma/merge_parts.cuh"
#include "structures/outcome.cuh"

struct SetWeights {  // one lane per key: new weights of edges that exist, before anything moves
    static constexpr int lanes = 1;
    Batch batch;
    const u8* outcome;
    const f32* weight;
    Array array;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n))
            if (outcome[k] == updated) *array.weight(batch.slot(k)) = weight ? weight[k] : 1.0f;
    }
};

// Writes the starts of rows [first, last) of a window whose items go to the slots from `base` on.
template <class Group>
DEVICE void move_rows(Group group, const Merge& merge, const EvenLayout& spread, i64 base, Starts start, Starts moved,
                      i64 first, i64 last) {
    if (first >= last) return;
    i64 low = lower_bound(merge.batch.keys, merge.first_key, merge.last_key, first_key_of(first));
    i64 high = lower_bound(merge.batch.keys, low, merge.last_key, first_key_of(last));
    for (i64 r = first + group.rank(); r < last; r += group.size())
        moved.set(r, base + spread.place(merge.row(r, start[r], low, high), merge.n));
}

struct MergeBlocks {  // one block per window of up to block_leaves
    static constexpr int lanes = 256;
    Batch batch;
    const f32* weight;
    const u32* windows;
    i64 n;
    Leaves leaves;
    Array array;
    Starts start;
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, items, block_leaves * LEAF);  // by new rank
        SHARED(f32, weights, WEIGHTED ? block_leaves * LEAF : 1);
        SHARED(i32, before, block_leaves);        // items before each leaf
        Block block;
        for (i64 i : grid.items(block, n)) {
            Window w = window_at(windows, i);
            Merge merge(batch, leaves, w);
            EvenLayout spread(merge.n, w.leaves);
            i64 old = leaves.small_sum(w.leaf, w.leaf + w.leaves);
            for (i64 j = block.rank(); j < w.leaves; j += block.size())
                before[j] = (i32)leaves.small_sum(w.leaf, w.leaf + j);
            block.sync();
            place_items(block, w, merge, before, items, weights);
            move_rows(block, merge, spread, (i64)w.leaf * LEAF, start, start, w.first_row, w.last_row);
            block.sync();
            write(block, w, spread, items, weights);
            if (block.rank() == 0) recount(array, w.leaf, merge.n - old);
            block.sync();
        }
    }
    DEVICE void place_items(Block block, const Window& w, const Merge& merge, const i32* before, u32* items,
                            f32* weights) const {
        i64 first = (i64)w.leaf * LEAF;
        for (i64 s = block.rank(); s < (i64)w.leaves * LEAF; s += block.size()) {
            u32 item = *array.slot(first + s);
            if (item == nobody) continue;
            i64 to = merge.survivor(first + s, before[leaf_of(s)] + (s & (LEAF - 1)), merge.first_key, merge.last_key);
            if (to >= 0) items[to] = item;
            if (WEIGHTED && to >= 0) weights[to] = *array.weight(first + s);
        }
        for (i64 k = merge.first_key + block.rank(); k < merge.last_key; k += block.size())
            if (batch.inserts(k)) {
                i64 to = merge.arrival(k);
                items[to] = (u32)batch.keys[k];
                if (WEIGHTED) weights[to] = weight ? weight[k] : 1.0f;
            }
    }
    DEVICE void write(Block block, const Window& w, const EvenLayout& spread, const u32* items,
                      const f32* weights) const {
        i64 first = (i64)w.leaf * LEAF;
        for (i64 s = block.rank(); s < (i64)w.leaves * LEAF; s += block.size()) {
            i64 leaf = leaf_of(s), from = spread.items_before(leaf) + (s & (LEAF - 1));
            bool live = (s & (LEAF - 1)) < spread.count(leaf);
            u32 item = *array.slot(first + s) = live ? items[from] : nobody;
            if ((s & (LEAF - 1)) == 0) array.heads[w.leaf + leaf] = item;
            if (WEIGHTED && live) *array.weight(first + s) = weights[from];
        }
        for (i64 j = block.rank(); j < w.leaves; j += block.size()) array.counts[w.leaf + j] = (u8)spread.count(j);
    }
};

struct MoveRows {  // one tile per task: writes the starts of up to task_rows rows of a window
    static constexpr int lanes = 32;
    Batch batch;
    Leaves leaves;
    const u32* windows;
    i64 n;
    i64 out_leaves;
    i64 rows;  // of the whole array, + 1 for its end
    Starts start;
    Starts moved;  // the same words, in the array to write
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            Window w = part_at(windows, i, out_leaves);
            Merge merge(batch, leaves, w);
            EvenLayout spread(merge.n, out_leaves ? out_leaves : (i64)w.leaves);
            i64 first = out_leaves ? i * task_rows : (i64)w.first_row;
            i64 last = out_leaves ? lesser(first + task_rows, rows) : (i64)w.last_row;
            move_rows(tile, merge, spread, out_leaves ? 0 : (i64)w.leaf * LEAF, start, moved, first, last);
        }
    }
};
