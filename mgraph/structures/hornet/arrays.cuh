// Block arrays: the pool is cut into arrays of 1 << bits slots. An array of class k holds blocks of 1 << k slots; a
// larger block takes several consecutive arrays. Each array has a tree of bits: a leaf bit marks a free block, a node
// bit a word of 32 leaf bits with a 1, and the root counts free blocks. A batch's requests are known before any block
// is taken: prefix sums over the arrays' roots let each array serve its part at once.
#pragma once
#include "kernels/scan.cuh"

constexpr i64 classes = 33;  // of blocks: 1 to 2**32 slots
constexpr u32 bare = 0xfe, rest = 0xff;

// Returns the class of the block of a row with `edges` >= 1: the least power of two, at least a unit.
DEVICE int class_of(i64 edges, i64 unit) { return greater(bit_width((u64)edges - 1), (int)unit); }

constexpr i64 bits_of_word = 32;
// rows in flight per block of Merge: of those for 32 lanes, and of those for 8
constexpr i64 rows_by_warps = 8, rows_by_few_lanes = 32;
DEVICE u32 bit_in_word(i64 i) { return 1u << (u32)((u64)i % bits_of_word); }

// Counters of prepare, initially 0. The first ones are sent to the host. Names that end in 0 are the first of `classes`
// words.
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
    taken,  // blocks
    slots_gained,  // gained by the rows' blocks
    opens,  // arrays to open for blocks of at most an array
    spans,  // arrays to open for larger blocks
    bares,
    array_end,  // one past the last array in use
    told,
    low_bares = told,  // bare arrays before array_end
    next_piece,
    next_saved,
    next_block,  // work drawn by Merge's blocks, and by its warps
    next_some,
    next_few,
    copied,  // copied pieces
    arrived,  // finished blocks of Locate, and of Needs
    looked,
    pop0
};
enum ByClass {
    push0 = pop0 + classes,
    offset0 = push0 + classes,  // requests of lower classes
    free0 = offset0 + classes,
    open0 = free0 + classes,  // arrays opened by lower classes; at the end, all
    all_words = open0 + classes + 1
};

struct Arrays {
    // The class of each array; or bare, without a class; or rest, for an array within a block of several arrays.
    u32* kinds;
    u32* frees;  // number of free blocks of each array
    u32* leaves;
    u32* nodes;
    i64 count;
    i64 bits;
    i64 unit;
    DEVICE i64 leaf_words() const { return (i64)1 << (bits - unit - 5); }
    DEVICE i64 node_words() const { return (leaf_words() + bits_of_word - 1) / bits_of_word; }
    DEVICE i64 blocks(i64 k) const { return k > bits ? 1 : (i64)1 << (bits - k); }
    DEVICE i64 span(i64 k) const { return k > bits ? (i64)1 << (k - bits) : 1; }  // arrays per block, at least one
    DEVICE u32 address(i64 array, i64 block, i64 k) const { return (u32)(((array << bits) + (block << k)) >> unit); }
};

// Sums over all arrays, by one block: free blocks by class, bare arrays, the end of those in use, and prefix sums.
struct ArraySums {
    static constexpr i64 kinds = classes + 1, most_tiles = 8;  // bare is the last kind
    const Arrays& arrays;
    // of each array with free blocks: free blocks of its class before it; of bare ones: bare arrays before it
    u32* ranks;
    i64* at;
    DEVICE i64 kind_of(i64 a) const {  // class, bare, or -1
        u32 kind = arrays.kinds[a];
        return kind < classes ? (i64)kind : kind == bare ? classes : -1;
    }
    DEVICE u32 free_of(i64 a, i64 kind) const { return kind < 0 ? 0 : kind < classes ? arrays.frees[a] : 1; }
    DEVICE void operator()(Block block) const {
        SHARED(u32, sums, most_tiles * kinds);  // of each tile; a GPU has no 64-bit atomics in shared memory
        SHARED(u32, end, 1);
        Tile<32> tile;
        i64 tiles = block.size() / tile.size(), part = (arrays.count + tiles - 1) / tiles, first = tile.index() * part;
        for (i64 i = block.rank(); i < tiles * kinds; i += block.size()) sums[i] = 0;
        if (block.rank() == 0) *end = 0;
        block.sync();
        i64 last = lesser(first + part, arrays.count);
        u32 *own = sums + tile.index() * kinds, used = 0;
        if (tiles > 1) add_up_before(block, tiles, own, sums, first, last);
        for (i64 base = first; base < last; base += tile.size()) {
            i64 a = base + tile.rank(), kind = a < last ? kind_of(a) : -1;
            if (a < last && kind != classes) used = (u32)a + 1;
            rank(tile, a, kind, free_of(a, kind), own);
        }
        atomic_max(end, used);
        block.sync();
        own = sums + (tiles - 1) * kinds;  // the last tile's sums are the totals
        for (i64 k = block.rank(); k < classes; k += block.size()) at[free0 + k] = own[k];
        if (block.rank() == 0)
            at[array_end] = *end, at[bares] = own[classes], at[low_bares] = own[classes] - (arrays.count - *end);
    }
    // Adds the sums of the tiles before each tile.
    DEVICE void add_up_before(Block block, i64 tiles, u32* own, u32* sums, i64 first, i64 last) const {
        Tile<32> tile;
        for (i64 a = first + tile.rank(); a < last; a += tile.size())
            if (u32 free = free_of(a, kind_of(a))) atomic_add(own + kind_of(a), free);
        block.sync();
        for (i64 kind = block.rank(); kind < kinds; kind += block.size())
            for (u32 t = 0, sum = 0, its; t < tiles; ++t, sum += its)
                its = sums[t * kinds + kind], sums[t * kinds + kind] = sum;
        block.sync();
    }
    template <class T> DEVICE void rank(T tile, i64 a, i64 kind, u32 free, u32* sums) const {
        for (u32 left = tile.ballot(free > 0); left;) {
            i64 one = tile.shfl(kind, lowest_bit(left));
            u32 mine = kind == one ? free : 0, upto = tile.scan(mine);
            if (mine) ranks[a] = sums[one] + upto - mine;
            left &= ~tile.ballot(kind == one);
            tile.sync();
            if (tile.rank() == tile.size() - 1) sums[one] += upto;
            tile.sync();
        }
    }
};

// Plans the allocation, by one block after all counting: where each class begins in the list of blocks and among the
// arrays to open. Then reports to the host.
DEVICE void plan_blocks(Block block, const Arrays& arrays, i64* at, i64* mailbox) {
    SHARED(i64, pops, classes);
    SHARED(i64, opened, classes);
    SHARED(i64, slots, classes);
    for (i64 k = block.rank(); k < classes; k += block.size()) {
        i64 lack = (pops[k] = load(at + pop0 + k)) - at[free0 + k], blocks = arrays.blocks(k);
        opened[k] = k <= arrays.bits && lack > 0 ? (lack + blocks - 1) / blocks : 0;
        slots[k] = (pops[k] - load(at + push0 + k)) * ((i64)1 << k);
    }
    block.sync();
    for (i64 k = block.rank(); k <= classes; k += block.size()) {
        i64 before = 0, open = 0, span = 0, gained = 0;
        for (i64 j = 0; j < k; ++j) {
            before += pops[j], open += opened[j];
            if (j > arrays.bits) span += pops[j] * arrays.span(j);
            gained += slots[j];
        }
        at[open0 + k] = open;
        if (k < classes) at[offset0 + k] = before;
        else at[taken] = before, at[opens] = open, at[spans] = span, at[slots_gained] = gained;
    }
    block.sync();
    for (i64 i = block.rank(); i < told; i += block.size()) mailbox[i] = load(at + i);
}

// Frees a block of class k; the array becomes bare with its last block.
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
