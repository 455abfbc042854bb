// First batch of an empty structure: of equal keys the last acts, deletes miss, and acting keys are numbered.
#pragma once
#include "structures/outcome.cuh"
#include "kernels/search.cuh"

constexpr i64 word_keys = 32;

// One tile per word of 32 keys: marks acting keys, writes outcomes, and counts missed deletes.
struct MarkInserts {
    static constexpr int lanes = 32;
    const u64* keys;
    const i8* op;
    i64 n;
    u8* outcome;
    u32* acts;
    u32* before;  // one longer than acts; turned into prefix sums later
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

struct FirstBatch {  // the numbers of the keys that act
    const u32* acts;
    const u32* before;
    i64 n;  // keys
    i64 total;  // number of acting keys
    DEVICE bool act(i64 k) const { return acts[k / word_keys] >> (k % word_keys) & 1; }
    DEVICE i64 of(i64 k) const {  // number of acting keys before key k
        if (k >= n) return total;
        return before[k / word_keys] + popcount(acts[k / word_keys] & ((1u << (k % word_keys)) - 1));
    }
    // Calls step(r, number of acting keys before row r) for the rows [first, last), by a whole tile.
    template <class Tile, class Step> DEVICE void rows(Tile tile, const u64* keys, i64 first, i64 last,
                                                       Step step) const {
        i64 low = lower_bound(keys, 0, n, first_key_of(first)), high = lower_bound(keys, low, n, first_key_of(last));
        for (i64 r = first + tile.rank(); r < last; r += tile.size())
            step(r, of(lower_bound(keys, low, high, (u64)r << 32)));
    }
};
