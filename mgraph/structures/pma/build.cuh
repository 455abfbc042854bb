// First batch: spreads a sorted run evenly over a new array. No search is needed: the number of a key among those that
// act determines its slot.
#pragma once
#include "structures/pma/window.cuh"
#include "structures/first_batch.cuh"

struct Place {  // one lane per key
    static constexpr int lanes = 1;
    FirstBatch numbers;
    const u64* keys;
    const f32* weight;
    i64 leaves;
    u32* slots;
    f32* weights;
    DEVICE void operator()(Grid grid) const {
        EvenLayout spread(numbers.total, leaves);
        for (i64 k : grid.items(numbers.n))
            if (numbers.act(k)) {
                i64 slot = spread.place(numbers.of(k), numbers.total);
                spread.cover(slot, (u32)keys[k], slots);
                if (WEIGHTED) weights[slot] = weight ? weight[k] : 1.0f;
            }
    }
};

struct PlaceRows {  // one tile per task_rows rows: writes their starts, and an entry for the end of the last one
    static constexpr int lanes = 32;
    FirstBatch numbers;
    const u64* keys;
    i64 leaves;
    i64 rows;
    Starts start;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        EvenLayout spread(numbers.total, leaves);
        for (i64 t : grid.items(tile, rows / task_rows + 1)) {
            i64 first = t * task_rows, last = lesser(first + task_rows, rows + 1);
            numbers.rows(tile, keys, first, last,
                         [&](i64 r, i64 before) { start.set(r, spread.place(before, numbers.total)); });
        }
    }
};

struct CountRows {  // one lane per row: its degree, from the starts in an even array
    static constexpr int lanes = 1;
    Starts start;
    i64 rows;
    i64 total;
    i64 leaves;
    u32* degrees;
    DEVICE void operator()(Grid grid) const {
        EvenLayout spread(total, leaves);
        for (i64 r : grid.items(rows))
            degrees[r] = (u32)(spread.rank(start[r + 1], total) - spread.rank(start[r], total));
    }
};

// one lane per leaf of `total` evenly spread items: writes its count and head, and the groups' sums
struct EvenCounts {
    static constexpr int lanes = 1;
    i64 total;
    i64 leaves;
    const u32* slots;
    u8* counts;
    u32* groups;
    u32* heads;
    DEVICE void operator()(Grid grid) const {
        EvenLayout spread(total, leaves);
        for (i64 leaf : grid.items(leaves)) {
            heads[leaf] = slots[leaf * LEAF];
            counts[leaf] = (u8)spread.count(leaf);
            if (leaf % group_leaves) continue;
            i64 end = lesser(leaf + group_leaves, leaves);
            groups[leaf / group_leaves] = (u32)(spread.items_before(end) - spread.items_before(leaf));
        }
    }
};
