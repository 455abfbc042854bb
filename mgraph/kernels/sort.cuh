// Makes keys of edges, and sorts keys with their places. For the CPU a stable radix sort: a thread moves a chunk in
// order; counts[digit][chunk], so a single scan gives every chunk its offsets. For a GPU a small sort, where the array
// library takes 11 launches: blocks sort tiles, then each key finds its rank in the other tiles.
#pragma once
#include "kernels/search.cuh"
#include "kernels/small_tile.cuh"

struct MakeKeys {  // one lane per edge; also reduces the largest ids
    static constexpr int lanes = 1;
    const u32* src;
    const u32* dst;
    i64 n;
    u64* keys;
    u64* largest;
    DEVICE void operator()(Grid grid) const {
        u64 most_src = 0, most_dst = 0;
        for (i64 i : grid.items(n)) {
            keys[i] = (u64)src[i] << 32 | dst[i];
            most_src = greater(most_src, (u64)src[i]), most_dst = greater(most_dst, (u64)dst[i]);
        }
        if (!largest) return;
        Tile<32> tile;
        most_src = tile.most(most_src), most_dst = tile.most(most_dst);
        if (tile.rank() == 0 && most_src > load(largest)) atomic_max(largest, most_src);
        if (tile.rank() == 0 && most_dst > load(largest + 1)) atomic_max(largest + 1, most_dst);
    }
};

struct Digits {  // histogram of a byte of the keys; one item per chunk
    static constexpr int lanes = 1;
    const u64* keys;
    i64 n;
    i64 shift;
    i64 chunks;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(chunks)) {
            i64 mine[256] = {};
            for (i64 i = n * c / chunks; i < n * (c + 1) / chunks; ++i) ++mine[keys[i] >> shift & 255];
            for (i64 d = 0; d < 256; ++d) counts[d * chunks + c] = mine[d];
        }
    }
};

struct Deal {  // moves keys and places behind those of smaller bytes and of earlier chunks; one item per chunk
    static constexpr int lanes = 1;
    const u64* keys;
    const u32* places;
    i64 n;
    i64 shift;
    i64 chunks;
    const i64* offsets;
    u64* keys_out;
    u32* places_out;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(chunks)) {
            i64 next[256];
            for (i64 d = 0; d < 256; ++d) next[d] = offsets[d * chunks + c];
            for (i64 i = n * c / chunks; i < n * (c + 1) / chunks; ++i) {
                i64 to = next[keys[i] >> shift & 255]++;
                keys_out[to] = keys[i];
                places_out[to] = places ? places[i] : (u32)i;
            }
        }
    }
};

// Sorts tiles of edges or of keys, one block per tile.
struct SortTiles {
    static constexpr int lanes = SmallTile::lanes;
    const u32* src;
    const u32* dst;
    const u64* keys;  // if src is null
    i64 n;
    u64* keys_out;
    u32* places_out;  // original place of each key; may be null
    DEVICE void operator()(Grid grid) const {
        SHARED(u64, room, 2 * SmallTile::room);
        SHARED(u32, places, 2 * SmallTile::room);
        SmallTile tile{Block(), room, places_out ? places : nullptr};
        for (i64 t : grid.items(tile.block, (n + tile_keys - 1) / tile_keys)) {
            i64 first = t * tile_keys;
            int m = (int)lesser(n - first, tile_keys);
            auto get = [=](int i) -> SmallTile::Item {
                i64 at = first + i;
                return {src ? (u64)src[at] << 32 | dst[at] : keys[at], (u32)at};
            };
            tile.sort(m, get, keys_out + first, places_out + first);
        }
    }
};

// Merges every `fan` neighbouring sorted runs: each key finds its rank in the other runs.
struct MergeRuns {  // one lane per key, fewer than 2**31
    static constexpr int lanes = 1;
    static constexpr int together = 4;  // concurrent searches
    const u64* keys;
    const u32* places;
    i64 n;
    i64 width;
    i64 fan;
    u64* keys_out;
    u32* places_out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            int run = (int)(i / width), first = run / (int)fan * (int)fan,
                full = lesser(first + (int)fan, (int)(n / width));
            u64 key = keys[i];
            i64 to = first * width + i - run * width + count<true>(first, run, (int)width, key);
            if (run < full) {  // all runs are full but the last
                to += count<false>(run + 1, full, (int)width, key);
                if (full < first + fan) to += count<false>(full, full + 1, (int)(n - full * width), key);
            }
            keys_out[to] = key;
            if (places) places_out[to] = places[i];
        }
    }
    // Counts the keys before `key`, or up to it with `equal`, in the first `length` keys of the runs [from, to).
    template <bool equal> DEVICE int count(int from, int to, int length, u64 key) const {
        int sum = 0;
        for (int r = from; r < to && length > 0; r += together) {
            int at[together], left = length;
            for (int j = 0; j < together; ++j) at[j] = lesser(r + j, to - 1) * (int)width;
            for (; left > 1; left -= left >> 1)
                for (int j = 0; j < together; ++j) at[j] += before<equal>(at[j] + (left >> 1) - 1, key) ? left >> 1 : 0;
            for (int j = 0; j < together; ++j)
                if (r + j < to) sum += at[j] + before<equal>(at[j], key) - (r + j) * (int)width;
        }
        return sum;
    }
    template <bool equal> DEVICE bool before(int at, u64 key) const { return equal ? keys[at] <= key : keys[at] < key; }
};
