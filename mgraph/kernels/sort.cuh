// Keys of edges, and a stable radix sort of keys with their places, for the CPU: one thread deals a chunk in order.
// (On a GPU the array library's sort serves.) counts[digit][chunk], so that one scan gives every chunk its offsets.
#pragma once

struct MakeKeys {  // one lane an edge; the largest ids are found on the way
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

struct Digits {  // one item a chunk: how many keys of the chunk have each value of one byte
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

struct Deal {  // one item a chunk: move its keys and places behind those of smaller bytes and of earlier chunks
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
