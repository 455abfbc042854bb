// gpma+ from nothing: a sorted run spread evenly over a new array. Nothing has to be located: of equal keys the last acts,
// what acts is numbered through, and its number gives its slot. Passes over the keys: Mark (prepare) and Place (commit).
#pragma once
#include "gpma_window.cuh"
#include "outcome.cuh"

constexpr i64 word_keys = 32;

struct Mark {  // one tile a word of 32 keys: which of them act, what becomes of each, and how many missed deletes there are
    static constexpr int lanes = 32;
    const u64* keys;
    const i8* op;
    i64 n;
    u8* outcome;
    u32* acts;
    u32* before;  // one longer than acts; to be summed up
    i64* misses;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 missed = 0;
        for (i64 word : grid.items(tile, (n + word_keys - 1) / word_keys)) {
            u32 bits = 0;
            for (int j = tile.rank(); j < word_keys; j += tile.size()) {
                i64 k = word * word_keys + j;
                u8 is = k < n ? fate(k) : (u8)overridden;
                if (k < n) outcome[k] = is;
                missed += is == missing;
                bits |= tile.ballot(is == inserted) << (j - tile.rank());
            }
            if (tile.rank() > 0) continue;
            acts[word] = bits, before[word + 1] = (u32)popcount(bits);
            if (word == 0) before[0] = 0;
        }
        if (missed) atomic_add(misses, missed);
    }
    DEVICE u8 fate(i64 k) const {
        if (k + 1 < n && keys[k + 1] == keys[k]) return overridden;
        return !op || op[k] > 0 ? inserted : missing;
    }
};

struct Numbers {  // of the keys that act
    const u32* acts;
    const u32* before;
    i64 n;      // keys
    i64 total;  // of them that act
    DEVICE bool act(i64 k) const { return acts[k / word_keys] >> (k % word_keys) & 1; }
    DEVICE i64 of(i64 k) const {  // how many before key k act
        if (k >= n) return total;
        return before[k / word_keys] + popcount(acts[k / word_keys] & ((1u << (k % word_keys)) - 1));
    }
};

struct Place {  // one lane a key
    static constexpr int lanes = 1;
    Numbers numbers;
    const u64* keys;
    const f32* weight;
    i64 leaves;
    u32* slots;
    f32* weights;
    DEVICE void operator()(Grid grid) const {
        Spread spread(numbers.total, leaves);
        for (i64 k : grid.items(numbers.n))
            if (numbers.act(k)) {
                i64 slot = spread.place(numbers.of(k), numbers.total);
                spread.cover(slot, (u32)keys[k], slots);
                if (WEIGHTED) weights[slot] = weight ? weight[k] : 1.0f;
            }
    }
};

struct PlaceRows {  // one tile task_rows rows: the starts of rows and, one more, of the end
    static constexpr int lanes = 32;
    Numbers numbers;
    const u64* keys;
    i64 leaves;
    i64 rows;
    i64* start;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Spread spread(numbers.total, leaves);
        for (i64 t : grid.items(tile, rows / task_rows + 1)) {
            i64 first = t * task_rows, last = lesser(first + task_rows, rows + 1);
            i64 low = lower_bound(keys, 0, numbers.n, (u64)first << 32);
            i64 high = lower_bound(keys, low, numbers.n, (u64)last << 32);
            for (i64 r = first + tile.rank(); r < last; r += tile.size()) {
                i64 k = lower_bound(keys, low, high, (u64)r << 32);
                start[r] = spread.place(numbers.of(k), numbers.total);
            }
        }
    }
};

struct CountRows {  // one lane a row: its degree, from the starts in an even array
    static constexpr int lanes = 1;
    const i64* start;
    i64 rows;
    i64 total;
    i64 leaves;
    u32* degrees;
    DEVICE void operator()(Grid grid) const {
        Spread spread(total, leaves);
        for (i64 r : grid.items(rows)) degrees[r] = (u32)(spread.rank(start[r + 1], total) - spread.rank(start[r], total));
    }
};

struct EvenCounts {  // one lane a leaf of an array in which `total` items are spread evenly
    static constexpr int lanes = 1;
    i64 total;
    i64 leaves;
    u8* counts;
    u32* groups;
    DEVICE void operator()(Grid grid) const {
        Spread spread(total, leaves);
        for (i64 leaf : grid.items(leaves)) {
            counts[leaf] = (u8)spread.count(leaf);
            if (leaf % group_leaves) continue;
            i64 end = lesser(leaf + group_leaves, leaves);
            groups[leaf / group_leaves] = (u32)(spread.items_before(end) - spread.items_before(leaf));
        }
    }
};
