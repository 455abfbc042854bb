// Hornet, commit: allocates all blocks of a batch at once.
#pragma once
#include "structures/hornet/arrays.cuh"

// One block per array: writes its part of the requested blocks to the list. Opens bare arrays for classes with too few
// free blocks: the first ones, except for blocks of several arrays, which lie behind all arrays in use.
struct AllocateBlocks {
    static constexpr int lanes = 256;
    static constexpr int words = in_flight > 1 ? bits_of_word : 4;  // leaf words per lane and step
    Arrays arrays;
    const u32* ranks;
    const i64* at;
    u32* list;
    DEVICE void operator()(Grid grid) const {
        Block block;
        for (i64 a : grid.items(block, arrays.count)) {
            u32 kind = arrays.kinds[a];
            if (kind == bare) open(block, a);
            else if (kind <= arrays.bits && at[pop0 + kind])
                if (i64 want = share(kind, ranks[a], arrays.frees[a]); want > 0) take(block, a, want, kind);
        }
    }
    DEVICE i64 share(i64 k, i64 before, i64 frees) const {
        return lesser(frees, greater(at[pop0 + k] - before, (i64)0));
    }
    DEVICE u32* place(i64 k, i64 before) const { return list + at[offset0 + k] + before; }
    DEVICE void open(Block block, i64 a) const {
        i64 end = at[array_end], behind = end + at[spans], k = 0;
        if (a >= end && a < behind) return open_span(block, a, a - end);
        i64 rank = a < end ? (i64)ranks[a] : at[low_bares] + a - behind;
        if (rank >= at[opens]) return;
        while (at[open0 + k + 1] <= rank) ++k;
        i64 blocks = arrays.blocks(k), before = at[free0 + k] + (rank - at[open0 + k]) * blocks;
        i64 want = share(k, before, blocks);
        block.sync();
        take_first(block, a, k, want, place(k, before));
        if (block.rank() == 0) arrays.kinds[a] = (u32)k, arrays.frees[a] = (u32)(blocks - want);
    }
    DEVICE void open_span(Block block, i64 a, i64 i) const {
        i64 k = arrays.bits + 1;
        for (; i >= at[pop0 + k] * arrays.span(k); ++k) i -= at[pop0 + k] * arrays.span(k);
        block.sync();
        if (block.rank()) return;
        arrays.kinds[a] = i % arrays.span(k) ? rest : (u32)k, arrays.frees[a] = 0;
        if (i % arrays.span(k) == 0) *place(k, i / arrays.span(k)) = arrays.address(a, 0, k);
    }
    // Returns the bits of a word within [from, end) of all.
    static DEVICE u32 mask(i64 word, i64 from, i64 end) {
        i64 low = greater(from - word * bits_of_word, (i64)0), high = lesser(end - word * bits_of_word, bits_of_word);
        return high > low ? ~0u >> (bits_of_word - (high - low)) << low : 0;
    }
    // Takes the first blocks of a newly opened array; the others are free.
    DEVICE void take_first(Block block, i64 a, i64 k, i64 want, u32* to) const {
        i64 blocks = arrays.blocks(k), leaves = arrays.leaf_words(), nodes = arrays.node_words();
        i64 from = want / bits_of_word, end = want < blocks ? (blocks + bits_of_word - 1) / bits_of_word : 0;
        for (i64 i = block.rank(); i < want; i += block.size()) to[i] = arrays.address(a, i, k);
        for (i64 w = block.rank(); w < leaves; w += block.size()) arrays.leaves[a * leaves + w] = mask(w, want, blocks);
        for (i64 w = block.rank(); w < nodes; w += block.size()) arrays.nodes[a * nodes + w] = mask(w, from, end);
    }
    DEVICE void take(Block block, i64 a, i64 want, i64 k) const {
        u32* to = place(k, ranks[a]);
        i64 used = (arrays.blocks(k) + bits_of_word - 1) / bits_of_word, taken = 0;
        for (i64 base = 0; base < used && taken < want; base += words * block.size()) {
            i64 first = base + words * block.rank(), bit = first % bits_of_word, next = taken, all;
            u32 *node = arrays.nodes + a * arrays.node_words() + first / bits_of_word, word[words], mine = 0,
                emptied = 0;
            u32* leaves = arrays.leaves + a * arrays.leaf_words() + first;
            u32 hot = first < used ? *node >> bit : 0;
#pragma unroll
            for (int j = 0; j < words; ++j) word[j] = hot >> j & 1 ? leaves[j] : 0, mine += (u32)popcount(word[j]);
            next += scan(block, (i64)mine, all) - mine;
            for (int j = 0; j < words && next < want; ++j) {
                if (!word[j]) continue;
                u32 left = word[j];
                for (; left && next < want; left &= left - 1)
                    to[next++] = arrays.address(a, (first + j) * bits_of_word + lowest_bit(left), k);
                leaves[j] = left;
                emptied |= (u32)!left << j;
            }
            if (emptied) atomic_and(node, ~(emptied << bit));
            taken += all;
        }
        if (block.rank() == 0) arrays.frees[a] -= (u32)want;
    }
};
