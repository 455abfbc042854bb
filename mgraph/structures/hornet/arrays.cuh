// Block arrays: the pool is cut into arrays of 1 << bits slots. An array of class k holds blocks of 1 << k slots; a
// larger block takes several arrays in a row. Of each array there is a tree of bits: a leaf bit says that a block is
// free, a node bit that a word of 32 leaf bits has one, and the root counts free blocks. What a batch asks for is known
// before any block is taken: the arrays' roots are summed up in order, and each array gives out its share at once.
#pragma once
#include "kernels/scan.cuh"

constexpr i64 classes = 33;  // of blocks: 1 to 2**32 slots
constexpr u32 bare = 0xfe, rest = 0xff, opened = 0x100;

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
    free0 = offset0 + classes,
    bares = free0 + classes,
    array_end,  // one past the last array in use
    all_words
};

struct Arrays {
    // Of each array: its class | opened, where its bits are not yet set; or bare, where it has none; or rest, where it
    // belongs to a block that begins in an array before it.
    u32* kinds;
    u32* frees;  // of each array: how many of its blocks are free
    u32* before;  // of each array, while blocks are taken: free blocks of its class in arrays before it
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
    // How many arrays of class k have to be opened.
    DEVICE i64 missing(const i64* at, i64 k) const {
        i64 lack = at[pop0 + k] - (k > bits ? 0 : at[free0 + k]);
        return lack > 0 ? (lack + blocks(k) - 1) / blocks(k) * span(k) : 0;
    }
};

struct SumArrays {  // one block: free blocks by class, bare arrays, the end of those in use; then all words to the host
    static constexpr int lanes = 512;
    Arrays arrays;
    i64* at;
    i64* mailbox;
    DEVICE void operator()(Grid grid) const {
        Block block;
        for ([[maybe_unused]] i64 only : grid.items(block, 1)) sum_up(block);
    }
    DEVICE void sum_up(Block block) const {
        constexpr i64 n = all_words - free0;
        SHARED(u32, sums, n);  // blocks are numbered with 32 bits, and a GPU has no 64-bit atomics in shared memory
        for (i64 i = block.rank(); i < n; i += block.size()) sums[i] = 0;
        block.sync();
        for (i64 a = block.rank(); a < arrays.count; a += block.size()) {
            u32 kind = arrays.kinds[a], free = arrays.frees[a];
            if (kind == bare) atomic_add(sums + (bares - free0), 1u);
            else atomic_max(sums + (array_end - free0), (u32)a + 1);
            if (kind < classes && free) atomic_add(sums + kind, free);
        }
        block.sync();
        for (i64 i = block.rank(); i < n; i += block.size()) at[free0 + i] = sums[i];
        block.sync();
        for (i64 i = block.rank(); i < all_words; i += block.size()) mailbox[i] = at[i];
    }
};

// one block: arrays for what the classes lack. Blocks of several arrays lie behind all that is in use, other arrays are
// the first bare ones.
struct OpenArrays {
    static constexpr int lanes = 512;
    Arrays arrays;
    const i64* at;
    u32* list;
    DEVICE void operator()(Grid grid) const {
        Block block;
        for ([[maybe_unused]] i64 only : grid.items(block, 1)) open_all(block);
    }
    DEVICE void open_all(Block block) const {
        i64 first = at[array_end], last = open_spans(block, first), ranked = 0, found;
        for (i64 base = 0; base < arrays.count; base += block.size()) {
            i64 a = base + block.rank();
            bool is_bare = a < arrays.count && (a < first || a >= last) && arrays.kinds[a] == bare;
            i64 rank = ranked + scan(block, (i64)is_bare, found) - is_bare;
            ranked += found;
            if (is_bare) open(a, rank);
        }
    }
    // The requests for blocks of class k have the places [offset, offset + pops) of the list.
    DEVICE i64 open_spans(Block block, i64 end) const {
        for (i64 k = classes - 1; k > arrays.bits; --k) {
            i64 span = arrays.span(k), n = at[pop0 + k] * span;
            for (i64 i = block.rank(); i < n; i += block.size()) {
                arrays.kinds[end + i] = i % span ? rest : (u32)k, arrays.frees[end + i] = 0;
                if (i % span == 0) list[offset(k) + i / span] = arrays.address(end + i, 0, k);
            }
            end += n;
        }
        return end;
    }
    DEVICE i64 offset(i64 k) const {
        i64 sum = 0;
        for (i64 j = 0; j < k; ++j) sum += at[pop0 + j];
        return sum;
    }
    DEVICE void open(i64 a, i64 rank) const {
        for (i64 k = arrays.unit; k <= arrays.bits; ++k) {
            i64 wanted = arrays.missing(at, k);
            if (rank < wanted) {
                arrays.kinds[a] = (u32)k | opened, arrays.frees[a] = (u32)arrays.blocks(k);
                return;
            }
            rank -= wanted;
        }
    }
};

struct RankArrays {  // one block per class: free blocks before each array, opened ones being last
    static constexpr int lanes = 256;
    Arrays arrays;
    i64* at;
    DEVICE void operator()(Grid grid) const {
        Block block;
        for (i64 k : grid.items(block, classes)) {
            i64 offset = 0, sum = 0;
            for (i64 j = 0; j < k; ++j) offset += at[pop0 + j];
            if (block.rank() == 0) at[offset0 + k] = offset;
            if (!at[pop0 + k] || k > arrays.bits) continue;
            sum = rank_kind(block, (u32)k, 0);
            if (arrays.missing(at, k)) rank_kind(block, (u32)k | opened, sum);
        }
    }
    DEVICE i64 rank_kind(Block block, u32 kind, i64 before) const {
        i64 sum = 0, all;
        for (i64 base = 0; base < arrays.count; base += block.size()) {
            i64 a = base + block.rank();
            bool is = a < arrays.count && arrays.kinds[a] == kind;
            i64 mine = is ? (i64)arrays.frees[a] : 0, upto = scan(block, mine, all);
            if (is) arrays.before[a] = (u32)(before + sum + upto - mine);
            sum += all;
        }
        return sum;
    }
};

struct TakeBlocks {  // one tile per array: its share of the free blocks that are asked for goes into the list
    static constexpr int lanes = 32;
    Arrays arrays;
    const i64* at;
    u32* list;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 a : grid.items(tile, arrays.count)) {
            u32 kind = arrays.kinds[a], k = kind & ~opened;
            if (k >= classes || !at[pop0 + k] || k > arrays.bits) continue;
            i64 frees = arrays.frees[a], before = arrays.before[a], want = lesser(frees, at[pop0 + k] - before);
            tile.sync();
            u32* to = list + at[offset0 + k] + before;
            if (kind & opened) take_first(tile, a, k, greater(want, (i64)0), to);
            else if (want > 0) take(tile, a, want, k, to);
            if (tile.rank() == 0) arrays.kinds[a] = k, arrays.frees[a] = (u32)(frees - greater(want, (i64)0));
        }
    }
    // The bits of a word that are in [from, end) of all.
    static DEVICE u32 mask(i64 word, i64 from, i64 end) {
        i64 low = greater(from - word * bits_of_word, (i64)0), high = lesser(end - word * bits_of_word, bits_of_word);
        return high > low ? ~0u >> (bits_of_word - (high - low)) << low : 0;
    }
    // Of an array that was opened the first blocks; the others are free.
    template <class T> DEVICE void take_first(T tile, i64 a, i64 k, i64 want, u32* to) const {
        i64 blocks = arrays.blocks(k), leaves = arrays.leaf_words(), nodes = arrays.node_words();
        i64 from = want / bits_of_word, end = want < blocks ? (blocks + bits_of_word - 1) / bits_of_word : 0;
        for (i64 i = tile.rank(); i < want; i += tile.size()) to[i] = arrays.address(a, i, k);
        for (i64 w = tile.rank(); w < leaves; w += tile.size()) arrays.leaves[a * leaves + w] = mask(w, want, blocks);
        for (i64 w = tile.rank(); w < nodes; w += tile.size()) arrays.nodes[a * nodes + w] = mask(w, from, end);
    }
    // A lane has a node, whose leaf words it reads at once: a tile that took one node after another would wait for each.
    template <class T> DEVICE void take(T tile, i64 a, i64 want, i64 k, u32* to) const {
        i64 nodes = arrays.node_words(), taken = 0;
        for (i64 base = 0; base < nodes && taken < want; base += tile.size()) {
            i64 n = base + tile.rank(), first = n * bits_of_word, mine = 0;
            u32 hot = n < nodes ? arrays.nodes[a * nodes + n] : 0;
            u32* leaves = arrays.leaves + a * arrays.leaf_words() + first;
            int words = hot ? (int)lesser(bits_of_word, arrays.leaf_words() - first) : 0;
#pragma unroll 8
            for (int j = 0; j < words; ++j) mine += popcount(leaves[j]);
            i64 upto = tile.scan(mine), next = taken + upto - mine;
            u32 left = hot;
            for (; hot && next < want; hot &= hot - 1) {
                int j = lowest_bit(hot);
                u32 word = leaves[j];
                for (; word && next < want; word &= word - 1)
                    to[next++] = arrays.address(a, (first + j) * bits_of_word + lowest_bit(word), k);
                leaves[j] = word;
                if (!word) left &= ~(1u << j);
            }
            if (n < nodes) arrays.nodes[a * nodes + n] = left;
            taken += tile.shfl(upto, tile.size() - 1);
        }
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
