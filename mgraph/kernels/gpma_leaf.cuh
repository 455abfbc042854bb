// gpma+, commit: windows of one leaf, a few lanes each. What goes and what comes are sets of places, so that where an item goes is a
// matter of counting bits, however many keys there are.
#pragma once
#include "gpma_levels.cuh"
#include "gpma_tile.cuh"

struct Places {  // a set of places in a leaf
    static constexpr int words = (LEAF + 31) / 32;
    u32 word[words];
    DEVICE void add(int i) {
        for (int w = 0; w < words; ++w) word[w] |= words == 1 || i / 32 == w ? 1u << i % 32 : 0;
    }
    template <class Tile> DEVICE void join(const Tile& tile) {  // the sets of all lanes, which have no place in common
        for (int w = 0; w < words; ++w) word[w] = tile.sum(word[w]);
    }
    DEVICE int count() const {
        int sum = 0;
        for (int w = 0; w < words; ++w) sum += popcount(word[w]);
        return sum;
    }
    DEVICE u32 four(int i) const {  // whether i .. i + 3 are in the set, i divisible by 4: one bit each
        u32 all = word[0];
        for (int w = 1; w < words; ++w) all = i / 32 == w ? word[w] : all;
        return all >> i % 32 & 15;
    }
    DEVICE int below(int i) const {  // how many are less than i < LEAF
        int sum = 0;
        for (int w = 0; w < words; ++w)
            sum += words == 1 || i / 32 == w ? popcount(word[w] & ((1u << i % 32) - 1)) : i / 32 > w ? popcount(word[w]) : 0;
        return sum;
    }
};

template <int W> struct LeafMerge {  // W lanes, one leaf; all tiles of a warp in step
    using Lanes = Tile<W, true>;
    static constexpr int lanes = Lanes::size(), each = (LEAF / 4 + lanes - 1) / lanes;  // fours a lane
    static constexpr int stride = 2 * LEAF + 4;                                        // of a tile's room
    const Batch& batch;
    const Leaves& leaves;
    const Levels& levels;
    const Array& array;
    const f32* weight;
    u32* items;         // those that stay, side by side; then those that come, by their new place
    f32* item_weights;
    Lanes tile;

    DEVICE int four_at(int i) const { return 4 * (tile.rank() + i * lanes); }
    template <class T> DEVICE void read(const T* column, Fours<T>* four) const {
        for (int i = 0; i < each; ++i)
            if (four_at(i) < LEAF) four[i] = *(const Fours<T>*)(column + four_at(i));
    }
    // Merges a leaf, from its first key on, where it is live and no wider window covers it; returns by how many items it grew.
    DEVICE int merge(u32 first_key, i64 leaf, bool live) const {
        i64 first = leaf * LEAF;
        Fours<u32> four[each];
        read(array.slots + first, four);
        TileKeys<Lanes> keys(batch, tile, first_key, first, LEAF, leaf + 1 == leaves.leaves);
        int old = leaves.counts[leaf], change = lesser(keys.located(first_key) >> 2, old);  // no slot before it changes
        bool covered = levels.covered(tile, 0, leaf);  // asked by all tiles of the warp
        live = live && !covered;
        Places gone{}, come{};
        int net = keys.each([&](u32 k, int at, int by, int upto, u32 item) {
            int rank = lesser(at, old), place = rank + upto - 1;
            if (by < 0) gone.add(rank);
            if (by > 0 && live) {  // a leaf that is covered may not have the room
                come.add(place);
                items[LEAF + place] = item;
                if (WEIGHTED) item_weights[LEAF + place] = weight ? weight[k] : 1.0f;
            }
        });
        gone.join(tile), come.join(tile);
        int from = live ? change : LEAF, until = greater(old, old + net);
        u32 head = move(array.slots + first, items, four, gone, come, from, until, nobody);
        if (WEIGHTED) {
            Fours<f32> weights[each];
            read(array.weights + first, weights);
            move(array.weights + first, item_weights, weights, gone, come, from, until, 0.0f);
        }
        if (!live) return 0;
        if (tile.rank() == 0) array.counts[leaf] = (u8)(old + net);
        if (tile.rank() == 0 && change == 0) array.heads[leaf] = head;
        return net;
    }
    // Writes the fours from slot `from` on that are not empty before and after; returns this lane's first item.
    template <class T>
    DEVICE T move(T* column, T* items, const Fours<T>* four, const Places& gone, const Places& come, int from, int until, T none) const {
        stage(items, four, gone, none);
        tile.sync();
        Fours<T> now[each];
        for (int i = 0; i < each; ++i) {
            int s = four_at(i), at = s - come.below(s);
            if (s >= LEAF) break;
            u32 bits = come.four(s);
            for (int j = 0; j < 4; ++j) {
                bool is = bits >> j & 1;
                now[i].at[j] = items[is ? LEAF + s + j : at];
                at += !is;
            }
            if (s + 3 >= from && s < until) *(Fours<T>*)(column + s) = now[i];
        }
        tile.sync();
        return now[0].at[0];
    }
    template <class T> DEVICE void stage(T* items, const Fours<T>* four, const Places& gone, T none) const {
        int less = gone.count();
        bool as_it_is = !Tile<32>{}.any(less > 0);
        for (int i = 0; i < each; ++i) {
            int s = four_at(i), at = s - gone.below(s);
            if (s >= LEAF) break;
            u32 bits = gone.four(s);
            if (as_it_is) *(Fours<T>*)(items + s) = four[i];
            for (int j = 0; !as_it_is && j < 4; ++j) {
                bool is = bits >> j & 1;
                if (!is) items[at] = four[i].at[j];
                at += !is;
            }
        }
        for (int j = LEAF - less + tile.rank(); j < LEAF; j += lanes) items[j] = none;
    }
};

// The rows that begin in one leaf, after it was merged: one lane moves them, key by key.
struct LeafRows {
    static constexpr i64 none = (i64)1 << 62;  // located behind all keys
    const Batch& batch;
    i64* start;
    i64 rows, leaf, first_key, last_key, old, n;
    bool is_last;  // of the array: keys and empty rows may stand behind it
    DEVICE LeafRows(const Batch& b, const Leaves& leaves, i64* start, i64 rows, i64 leaf, i64 first_key)
        : batch(b), start(start), rows(rows), leaf(leaf), first_key(first_key), last_key(first_key), old(0),
          n(leaves.counts[leaf]), is_last(leaf + 1 == leaves.leaves) {
        i64 after = is_last ? none : Batch::at_slot((leaf + 1) * LEAF), net = 0;
        for (; last_key < batch.n && batch.located[last_key] < after; ++last_key) net += batch.by_key(last_key);
        old = n - net;
    }
    DEVICE i64 first() const { return leaf * LEAF; }
    DEVICE bool is(i64 r, i64 at) const { return at < first() + LEAF || (is_last && r <= batch.row(last_key - 1)); }
    DEVICE void put(i64 r, i64 rank) const { store(start + r, first() + (rank < n ? rank : LEAF)); }
    DEVICE void move() const {
        i64 k = first_key, row = batch.row(k), at, by = 0;
        for (i64 r = row + 1; r < rows && is(r, at = glance(start + r)); ++r) {
            for (; k < last_key && batch.row(k) < r; ++k) by += batch.by_key(k);
            put(r, lesser(at - first(), old) + by);
        }
        // Rows up to the first key's own begin before all that changes, unless no item is left where the key was located, or there
        // was none, at the end of the array.
        i64 was = batch.slot(first_key), rank = lesser(was - first(), old);
        if ((rank < n ? first() + rank : first() + LEAF) == was) return;
        for (; row >= 0 && glance(start + row) == was; --row) put(row, rank);
    }
};

struct MergeLeaves {  // one tile a window of one leaf, unless a wider one covers it
    static constexpr int lanes = TILE;
    Batch batch;
    Levels levels;
    const f32* weight;
    const u32* first_keys;
    i64 n;
    Leaves leaves;
    Array array;
    DEVICE void operator()(Grid grid) const {
        constexpr int tiles = 256 / TILE;
        using Merger = LeafMerge<TILE>;
        SHARED(Fours<u32>, items, tiles * Merger::stride / 4);
        SHARED(Fours<f32>, weights, WEIGHTED ? tiles * Merger::stride / 4 : 1);
        typename Merger::Lanes tile;
        Tile<32> warp;
        i64 side = warp.size() / tile.size(), at = tile.index() * Merger::stride;
        Merger merger{batch, leaves, levels, array, weight, (u32*)items + at, (f32*)weights + (WEIGHTED ? at : 0), tile};
        int last = -1, grown = 0;
        for (i64 t : grid.items(warp, (n + side - 1) / side)) {
            i64 i = t * side + tile.index() % side, k = first_keys[lesser(i, n - 1)], leaf = leaves.leaf(batch.slot(k));
            if (i + 8 * side < n) fetch(first_keys[i + 8 * side]);
            int by = tile.size() == 1 ? alone(merger, k, leaf) : merger.merge((u32)k, leaf, i < n);
            int group = (int)(leaf / group_leaves);
            if (warp.size() == 1) {  // an atomic waits until all that was stored before is: one for windows of one group
                if (group != last) recount(warp, last, grown), last = group, grown = 0;
                grown += by;
            } else
                recount(warp, group, tile.rank() == 0 ? by : 0);
        }
        if (warp.size() == 1) recount(warp, last, grown);
    }
    // Neighbouring windows are mostly of one group: one atomic for all of them, else the few addresses in use hold everybody up.
    DEVICE void recount(const Tile<32>& warp, int group, int by) const {
        int common = warp.shfl(group, 0);
        if (!warp.any(by && group != common)) {
            by = warp.sum(by);
            if (by && warp.rank() == 0) atomic_add(array.groups + common, (u32)by);
        } else if (by) atomic_add(array.groups + group, (u32)by);
    }
    DEVICE void fetch(i64 k) const {
        if (in_flight == 1) return;
        for (int s = 0; s < LEAF; s += 16) prefetch_to_write(array.slots + leaves.leaf(batch.slot(k)) * LEAF + s);
    }
    static constexpr int few = 8;  // keys
    // One lane alone, as on a CPU.
    DEVICE int alone(const LeafMerge<TILE>& merger, i64 first_key, i64 leaf) const {
        i64 slot = leaf * LEAF, after = leaf + 1 == leaves.leaves ? LeafRows::none : Batch::at_slot(slot + LEAF), last_key = first_key;
        int net = 0, count = array.counts[leaf];
        for (; last_key < batch.n && batch.located[last_key] < after; ++last_key) net += batch.by_key(last_key);
        if (last_key - first_key > few) return merger.merge((u32)first_key, leaf, true);
        if (levels.covered(Tile<1>{}, 0, leaf)) return 0;
        edit(first_key, last_key, slot, count, array.slots, nobody, [&](i64 k) { return (u32)batch.keys[k]; });
        if (WEIGHTED) edit(first_key, last_key, slot, count, array.weights, 0.0f, [&](i64 k) { return weight ? weight[k] : 1.0f; });
        array.counts[leaf] = (u8)(count + net);
        if (batch.slot(first_key) == slot) array.heads[leaf] = array.slots[slot];
        return net;
    }
    // Key by key from the last on, so that places stay what they were, each by vectors and without a branch.
    template <class T, class Of>
    DEVICE void edit(i64 first_key, i64 last_key, i64 slot, i64 count, T* column, T none, Of of) const {
        constexpr int size = LEAF + few;
        T some[2][size + 2];  // one more on each side
        int now = 0;
        for (int j = 0; j < LEAF; ++j) some[0][j + 1] = column[slot + j];  // whole lines: the one before is far away
        for (int j = LEAF; j <= size; ++j) some[0][j + 1] = none;
        some[0][0] = some[1][0] = some[1][size + 1] = none;
        for (i64 k = last_key; k-- > first_key;) {
            int p = (int)lesser(batch.slot(k) - slot, count) + 1;
            const T* from = some[now];
            T* to = some[1 - now];
            T item = of(k);
            if (batch.inserts(k)) for (int j = 1; j <= size; ++j) to[j] = j < p ? from[j] : j == p ? item : from[j - 1];
            else if (batch.deletes(k)) for (int j = 1; j <= size; ++j) to[j] = j < p ? from[j] : from[j + 1];
            else continue;
            now = 1 - now;
        }
        for (int j = 0; j < LEAF; ++j) column[slot + j] = some[now][j + 1];
    }
};

struct UpdateRows {  // one lane a key: its row's degree, by the row's first key; and the rows of one leaf that was merged
    static constexpr int lanes = 1;
    Batch batch;
    Levels levels;
    const u32* first_keys;
    i64 windows;
    Leaves leaves;
    i64* start;
    u32* degrees;
    i64 rows;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (k + 16 < batch.n) prefetch_to_write(degrees + batch.row(k + 16));
            if (k + 8 < windows) prefetch_to_write(start + batch.row(first_keys[k + 8]) + 1);
            i64 row = batch.row(k);
            if (k == 0 || batch.row(k - 1) != row) {
                i64 end = lower_bound_near(batch.keys, batch.n, k, (u64)(row + 1) << 32);
                degrees[row] += (u32)(batch.net(end) - batch.net(k));
            }
            if (k < windows) move_starts(first_keys[k]);
        }
    }
    DEVICE void move_starts(i64 first_key) const {
        i64 leaf = leaves.leaf(batch.slot(first_key));
        if (!levels.covered(Tile<1>{}, 0, leaf)) LeafRows(batch, leaves, start, rows, leaf, first_key).move();
    }
};
