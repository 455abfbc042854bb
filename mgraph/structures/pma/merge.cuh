// pma, commit: windows of a few leaves, each merged by a tile. Its lanes hold the slots by fours, the first keys and
// the first rows, all loaded before any use. As in a leaf, bits are counted: deleted old and inserted new ranks.
#pragma once
#include "structures/pma/merge_tile.cuh"

struct Ranks {  // bitmap of ranks in a window, in the tile's shared memory
    static constexpr int words = few_leaves * LEAF / 32 + 1;
    u32* word;
    i32* before;  // bits in the words before
    DEVICE void add(int i) const { atomic_or(word + i / 32, 1u << i % 32); }
    DEVICE u32 four(int i) const {  // one bit each for i .. i + 3
        return (u32)(((u64)word[i / 32 + 1] << 32 | word[i / 32]) >> i % 32) & 15;
    }
    DEVICE int below(int i) const { return before[i / 32] + popcount(word[i / 32] & ((1u << i % 32) - 1)); }
    template <class Tile> DEVICE void clear(const Tile& tile) const {
        for (int w = tile.rank(); w < words; w += tile.size()) word[w] = 0;
    }
    template <class Tile> DEVICE void sum_up(const Tile& tile) const {
        for (int w = tile.rank(); w < words; w += tile.size()) {
            before[w] = 0;
            for (int v = 0; v < w; ++v) before[w] += popcount(word[v]);
        }
    }
};

// one tile's memory: the window's surviving items, without gaps, then the inserted ones by their new rank
struct FewRoom {
    static constexpr int most = few_leaves * LEAF, stride = 2 * most;
    u32* items;
    f32* weights;
    i32* before;  // items before each leaf
    Ranks gone, come;
};

struct FewMerge {
    using Lanes = Tile<32>;
    static constexpr int lanes = Lanes::size(), each = (FewRoom::most / 4 + lanes - 1) / lanes;  // fours per lane
    const Batch& batch;
    const Leaves& leaves;
    const Array& array;
    const f32* weight;
    Starts start;
    const FewRoom& room;
    Lanes tile;
    Window w;
    int old = 0, n = 0;

    DEVICE i64 first() const { return (i64)w.leaf * LEAF; }
    DEVICE int slots() const { return (int)w.leaves * LEAF; }
    DEVICE int four_at(int i) const { return 4 * (tile.rank() + i * lanes); }
    DEVICE int rank(int slot) const {  // rank before the batch of the item at a slot of the window
        return slot >= slots() ? old : room.before[slot / LEAF] + slot % LEAF;
    }
    template <class T> DEVICE void read(Fours<T>* four, T none) const {
        for (int i = 0; i < each; ++i) {
            four[i] = {none, none, none, none};
            if (four_at(i) < slots()) four[i] = *(const Fours<T>*)array.column(first() + four_at(i), none);
        }
    }
    DEVICE int begin(i64 row) const { return row < w.last_row ? (int)(start[row] - first()) : slots(); }
    DEVICE void sum_leaves() {
        for (int j = tile.rank(); j - tile.rank() < (int)w.leaves; j += lanes) {
            int mine = j < (int)w.leaves ? leaves.counts[w.leaf + j] : 0, upto = tile.scan(mine);
            if (j < (int)w.leaves) room.before[j] = old + upto - mine;
            old += tile.shfl(upto, lanes - 1);
        }
    }

    // Merges the window; returns its growth in items.
    DEVICE int merge() {
        Fours<u32> four[each];
        read(four, nobody);
        i64 row = w.first_row + tile.rank();
        int row_at = begin(row);
        TileKeys<Lanes> keys(batch, tile, w.first_key, first(), slots(), w.leaf + w.leaves == leaves.leaves);
        room.gone.clear(tile), room.come.clear(tile);
        sum_leaves();
        tile.sync();
        n = old + keys.each([&](u32 k, int at, int by, int upto, u32 item) {
            if (by < 0) room.gone.add(rank(at));
            if (by > 0) arrive_at(rank(at) + upto - 1, k, item);
        });
        tile.sync();
        room.gone.sum_up(tile), room.come.sum_up(tile);
        tile.sync();
        stage(four, four, room.items);
        if (WEIGHTED) {
            Fours<f32> weights[each];
            read(weights, 0.0f), stage(four, weights, room.weights);
        }
        EvenLayout spread(n, w.leaves);
        for (; row - tile.rank() < w.last_row; row += lanes, row_at = begin(row)) {
            i64 to = rank(row_at) + keys.moved_before(row, w.last_key);
            if (row < w.last_row) start.set(row, first() + spread.place(to, n));
        }
        tile.sync();
        write(spread, room.items, nobody);
        if (WEIGHTED) write(spread, room.weights, 0.0f);
        for (int j = tile.rank(); j < (int)w.leaves; j += lanes) array.counts[w.leaf + j] = (u8)spread.count(j);
        tile.sync();
        return n - old;
    }
    DEVICE void arrive_at(int rank, u32 k, u32 item) const {
        room.come.add(rank);
        room.items[FewRoom::most + rank] = item;
        if (WEIGHTED) room.weights[FewRoom::most + rank] = weight ? weight[k] : 1.0f;
    }
    template <class T> DEVICE void stage(const Fours<u32>* four, const Fours<T>* column, T* items) const {
        for (int i = 0; i < each; ++i) {
            if (four[i].at[0] == nobody) continue;
            int from = rank(four_at(i)), at = from - room.gone.below(from);
            u32 bits = room.gone.four(from);
            for (int j = 0; j < 4; ++j)
                if (four[i].at[j] != nobody && !(bits >> j & 1)) items[at++] = column[i].at[j];
        }
    }
    template <class T> DEVICE void write(const EvenLayout& spread, const T* items, T none) const {
        for (int i = 0; i < each; ++i) {
            int s = four_at(i), some = s < slots() ? (int)spread.count(s / LEAF) - s % LEAF : 0;
            if (s >= slots()) break;
            Fours<T> four = {none, none, none, none};
            if (some > 0) {
                int to = (int)spread.items_before(s / LEAF) + s % LEAF, from = to - room.come.below(to);
                u32 bits = room.come.four(to);
                for (int j = 0; j < lesser(some, 4); ++j) {
                    bool is = bits >> j & 1;
                    four.at[j] = items[is ? FewRoom::most + to + j : from];
                    from += !is;
                }
            }
            *(Fours<T>*)array.column(first() + s, none) = four;
            if (s % LEAF == 0) head(four, w.leaf + s / LEAF);
        }
    }
    DEVICE void head(const Fours<u32>& four, i64 leaf) const { array.heads[leaf] = four.at[0]; }
    DEVICE void head(const Fours<f32>&, i64) const {}
};

struct MergeFew {  // one tile per window of up to few_leaves
    static constexpr int lanes = 32;
    Batch batch;
    const f32* weight;
    const u32* windows;
    i64 n;
    Leaves leaves;
    Array array;
    Starts start;
    DEVICE void operator()(Grid grid) const {
        constexpr int tiles = 256 / lanes, room = FewRoom::stride, words = Ranks::words;
        SHARED(u32, items, tiles * room);
        SHARED(f32, weights, WEIGHTED ? tiles * room : 1);
        SHARED(i32, before, tiles * few_leaves);
        SHARED(u32, ranks, tiles * 2 * words);
        SHARED(i32, ranks_before, tiles * 2 * words);
        Tile<lanes> tile;
        i64 at = tile.index();
        Ranks gone{ranks + 2 * at * words, ranks_before + 2 * at * words}, come{gone.word + words, gone.before + words};
        FewRoom mine{items + at * room, weights + (WEIGHTED ? at * room : 0), before + at * few_leaves, gone, come};
        for (i64 i : grid.items(tile, n)) {
            FewMerge merger{batch, leaves, array, weight, start, mine, tile, window_at(windows, i)};
            i64 by = merger.merge();
            if (tile.rank() == 0) recount(array, merger.w.leaf, by);
        }
    }
};
