// Block arrays: the pool is cut into arrays of 1 << bits slots. An array of class k holds blocks of 1 << k slots; a
// larger block takes several arrays in a row. Of each array there is a tree of bits: a leaf bit says that a block is
// free, a node bit that a word of 32 leaf bits has one, and the root counts free blocks. What a batch asks for is known
// before any block is taken: the arrays' roots are summed up in order, and each array gives out its share at once.
#pragma once
#include "kernels/scan.cuh"

constexpr i64 classes = 33;  // of blocks: 1 to 2**32 slots
constexpr u32 bare = 0xfe, rest = 0xff;

// The class of the block that a row of so many edges has, 1 or more: the least power of two, of at least a unit.
DEVICE int class_of(i64 edges, i64 unit) { return greater(bit_width((u64)edges - 1), (int)unit); }

constexpr i64 bits_of_word = 32;
DEVICE u32 bit_in_word(i64 i) { return 1u << (u32)((u64)i % bits_of_word); }

// What prepare counts, in words that are 0 before. Names that end in 0 are the first of `classes` words.
enum Count {
    unknown,
    inserts,
    updates,
    deletes,
    misses,
    few_rows,
    some_rows,
    many_rows,
    huge_rows,
    pieces,
    saved,
    next_piece,
    next_saved,
    next_block,  // work that Merge's blocks draw, and its warps
    next_some,
    next_few,
    copied,  // pieces
    arrived,  // blocks of Locate
    pop0
};
enum ByClass {
    push0 = pop0 + classes,
    offset0 = push0 + classes,  // requests of lower classes
    open0 = offset0 + classes,  // arrays that lower classes open
    opens = open0 + classes,  // and all classes
    free0,
    bares = free0 + classes,
    low_bares,  // of them those before the end
    array_end,  // one past the last array in use
    span_end,  // one past the last array of the blocks of several arrays that are taken
    all_words
};

struct Arrays {
    // Of each array: its class; or bare, where it has none; or rest, where it belongs to a block that begins in an array
    // before it.
    u32* kinds;
    u32* frees;  // of each array: how many of its blocks are free
    u32* leaves;
    u32* nodes;
    i64 count;
    i64 bits;
    i64 unit;
    DEVICE i64 leaf_words() const { return (i64)1 << (bits - unit - 5); }
    DEVICE i64 node_words() const { return (leaf_words() + bits_of_word - 1) / bits_of_word; }
    DEVICE i64 blocks(i64 k) const { return k > bits ? 1 : (i64)1 << (bits - k); }
    DEVICE i64 span(i64 k) const { return k > bits ? (i64)1 << (k - bits) : 1; }  // arrays that one block or more take
    DEVICE u32 address(i64 array, i64 block, i64 k) const { return (u32)(((array << bits) + (block << k)) >> unit); }
};

// one block: free blocks by class, bare arrays, the end of those in use, and what each array has before it. Then what
// the batch takes: where each class begins in the list and among the arrays to be opened. All words go to the host.
struct SumArrays {
    static constexpr int lanes = 512;
    static constexpr i64 kinds = classes + 1;  // bare is the last
    Arrays arrays;
    u32* ranks;  // of each array with free blocks: how many its class has before it; of bare ones: how many arrays are
    i64* at;
    i64* mailbox;
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, sums, 16 * kinds);  // of each tile; 32 bits: a GPU has no 64-bit atomics in shared memory
        SHARED(u32, end, 1);
        Block block;
        for ([[maybe_unused]] i64 only : grid.items(block, 1)) {
            sum_up(block, sums, end);
            plan(block, sums, *end);
        }
    }
    DEVICE i64 kind_of(i64 a) const {  // or -1
        u32 kind = arrays.kinds[a];
        return kind < classes ? (i64)kind : kind == bare ? classes : -1;
    }
    // Each tile has a part of the arrays: it sums them up, and then adds what the tiles before it have.
    DEVICE void sum_up(Block block, u32* sums, u32* end) const {
        Tile<32> tile;
        i64 tiles = block.size() / tile.size(), part = (arrays.count + tiles - 1) / tiles, t = tile.index();
        i64 first = t * part, last = lesser(first + part, arrays.count);
        for (i64 i = block.rank(); i < tiles * kinds; i += block.size()) sums[i] = 0;
        if (block.rank() == 0) *end = 0;
        block.sync();
        for (i64 a = first + tile.rank(); tiles > 1 && a < last; a += tile.size())
            if (i64 kind = kind_of(a), free = kind < classes ? arrays.frees[a] : 1; kind >= 0 && free)
                atomic_add(sums + t * kinds + kind, (u32)free);
        block.sync();
        for (i64 kind = block.rank(); tiles > 1 && kind < kinds; kind += block.size()) {
            u32 sum = 0;
            for (i64 i = 0; i < tiles; ++i) {
                u32 own = sums[i * kinds + kind];
                sums[i * kinds + kind] = sum, sum += own;
            }
        }
        block.sync();
        u32 used = 0;
        for (i64 base = first; base < last; base += tile.size()) {
            i64 a = base + tile.rank(), kind = a < last ? kind_of(a) : -1, free = 0;
            if (kind >= 0) free = kind < classes ? arrays.frees[a] : 1;
            if (a < last && kind != classes) used = (u32)a + 1;
            for (u32 left = tile.ballot(free > 0); left;) {
                i64 one = tile.shfl(kind, lowest_bit(left));
                u32 own = kind == one ? (u32)free : 0, upto = tile.scan(own), *sum = sums + t * kinds + one;
                if (own) ranks[a] = *sum + upto - own;
                left &= ~tile.ballot(kind == one);
                tile.sync();
                if (tile.rank() == tile.size() - 1) *sum += upto;
                tile.sync();
            }
        }
        atomic_max(end, used);
        block.sync();
    }
    DEVICE void plan(Block block, const u32* sums, u32 end) const {
        SHARED(i64, pops, classes);
        SHARED(i64, opened, classes);
        i64 last = (block.size() / Tile<32>::size() - 1) * kinds;  // the last tile's sums are all arrays'
        for (i64 k = block.rank(); k < classes; k += block.size()) {
            i64 lack = (pops[k] = at[pop0 + k]) - (i64)sums[last + k], blocks = arrays.blocks(k);
            opened[k] = k <= arrays.bits && lack > 0 ? (lack + blocks - 1) / blocks : 0;
            at[free0 + k] = sums[last + k];
        }
        block.sync();
        for (i64 k = block.rank(); k <= classes; k += block.size()) {
            i64 before = 0, opens_before = 0, spans = end;
            for (i64 j = 0; j < k; ++j) {
                before += pops[j], opens_before += opened[j];
                if (j > arrays.bits) spans += pops[j] * arrays.span(j);
            }
            at[open0 + k] = opens_before;
            if (k < classes) at[offset0 + k] = before;
            else at[bares] = sums[last + classes], at[array_end] = end, at[span_end] = spans;
            if (k == classes) at[low_bares] = at[bares] - (arrays.count - end);
        }
        block.sync();
        for (i64 i = block.rank(); i < all_words; i += block.size()) mailbox[i] = at[i];
    }
};

// One block per array: its share of the blocks that are asked for goes into the list. Bare arrays are opened where a
// class has too few: the first ones, but for blocks of several arrays, which lie behind all that is in use.
struct TakeBlocks {
    static constexpr int lanes = 256;
    static constexpr int words = in_flight > 1 ? bits_of_word : 4;  // leaf words that a lane takes from at once
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
        i64 end = at[array_end], behind = at[span_end], k = 0;
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
    // The bits of a word that are in [from, end) of all.
    static DEVICE u32 mask(i64 word, i64 from, i64 end) {
        i64 low = greater(from - word * bits_of_word, (i64)0), high = lesser(end - word * bits_of_word, bits_of_word);
        return high > low ? ~0u >> (bits_of_word - (high - low)) << low : 0;
    }
    // Of an array that is opened the first blocks; the others are free.
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
            u32 *node = arrays.nodes + a * arrays.node_words() + first / bits_of_word, word[words], mine = 0, emptied = 0;
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

// Gives a block of class k back; who frees the last one of an array makes the array bare.
DEVICE void give_back(const Arrays& arrays, i64 slot, i64 k) {
    i64 a = slot >> arrays.bits;
    if (k > arrays.bits) {
        for (i64 i = 0; i < arrays.span(k); ++i) arrays.kinds[a + i] = bare, arrays.frees[a + i] = 0;
        return;
    }
    i64 block = (slot - (a << arrays.bits)) >> k, word = block / bits_of_word;
    if (atomic_or(arrays.leaves + a * arrays.leaf_words() + word, bit_in_word(block)) == 0)
        atomic_or(arrays.nodes + a * arrays.node_words() + word / bits_of_word, bit_in_word(word));
    if ((i64)atomic_add(arrays.frees + a, 1u) + 1 == arrays.blocks(k))
        store(arrays.frees + a, 0u), arrays.kinds[a] = bare;
}
