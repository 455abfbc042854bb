// gpma+, commit: windows of one leaf, a few lanes each. What leaves and what arrives are sets of places, so that where an item goes is
// a matter of counting bits, however many keys there are.
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

// What a batch makes of one leaf, whose keys are [first_key, last_key), from `old` to n items; and the rows that begin there.
struct Leaf {
    const Batch& batch;
    i64* start;
    i64 rows, leaf;
    u32 first_key, last_key;
    int old, n;
    bool is_last;  // of the array: keys and empty rows may stand behind it
    DEVICE i64 first() const { return leaf * LEAF; }
    DEVICE bool is(i64 r, int at) const { return r < rows && (at < LEAF || (is_last && r <= batch.row(last_key - 1))); }
    DEVICE int get(i64 r) const { return r < rows ? (int)lesser(glance(start + r) - first(), (i64)LEAF) : LEAF; }
    DEVICE void put(i64 r, int rank) const { store(start + r, first() + (rank < n ? rank : LEAF)); }
    // Rows up to the first key's own begin before all that changes, unless no item is left where the key was located, or there was
    // none, at the end of the array.
    template <class Tile> DEVICE void move_first(const Tile& tile) const {
        int at = (int)(batch.slot(first_key) - first()), rank = lesser(at, old);
        if ((rank < n ? rank : LEAF) == at) return;
        for (i64 r = batch.row(first_key) - tile.rank(); r >= 0 && glance(start + r) == first() + at; r -= tile.size()) put(r, rank);
    }
};

template <int W> struct LeafMerge {  // W lanes, one leaf
    using Lanes = Tile<W>;
    static constexpr int lanes = Lanes::size(), each = (LEAF / 4 + lanes - 1) / lanes;  // fours a lane
    static constexpr int stride = 2 * LEAF + 1;  // of a tile's room: odd, so that the tiles of a warp use other banks
    const Batch& batch;
    const Leaves& leaves;
    const Levels& levels;
    const Array& array;
    const f32* weight;
    i64* start;
    i64 rows;
    u32* items;         // those that stay side by side; then those that arrive, by their new place
    f32* item_weights;
    Lanes tile;

    DEVICE int four_at(int i) const { return 4 * (tile.rank() + i * lanes); }
    template <class T> DEVICE void read(const T* column, Fours<T>* four) const {
        for (int i = 0; i < each; ++i)
            if (four_at(i) < LEAF) four[i] = *(const Fours<T>*)(column + four_at(i));
    }

    // Merges a leaf, from its first key on; returns by how many items it grew.
    DEVICE int merge(u32 first_key, i64 leaf) const {
        i64 row = batch.row(first_key) + 1 + tile.rank();
        Leaf all{batch, start, rows, leaf, first_key, first_key, leaves.counts[leaf], 0, leaf + 1 == leaves.leaves};
        Fours<u32> four[each];
        read(array.slots + all.first(), four);
        TileKeys<Lanes> keys(batch, tile, first_key, all.first(), LEAF, all.is_last);
        int row_at = all.get(row), change = lesser(keys.located(first_key) >> 2, all.old);  // no slot before it changes
        if (levels.covered(tile, 0, leaf)) return 0;

        Places gone{}, come{};
        all.n = all.old + keys.each([&](u32 k, int at, int by, int upto, u32 item) {
            int rank = lesser(at, all.old);
            if (by < 0) gone.add(rank);
            if (by > 0) arrive_at(rank + upto - 1, k, item, come);
        });
        all.last_key = keys.last;
        gone.join(tile), come.join(tile);
        stage(four, gone, items);
        if (WEIGHTED) {
            Fours<f32> weights[each];
            read(array.weights + all.first(), weights), stage(weights, gone, item_weights);
        }
        for (bool more = true; more; row += lanes, row_at = more ? all.get(row) : 0) {
            bool is = all.is(row, row_at);
            if (!tile.any(is)) break;
            int by = keys.moved_before(row);
            if (is) all.put(row, lesser(row_at, all.old) + by);
            more = tile.shfl(is, lanes - 1);
        }
        all.move_first(tile);
        tile.sync();
        write(array.slots + all.first(), items, come, change, all, nobody);
        if (WEIGHTED) write(array.weights + all.first(), item_weights, come, change, all, 0.0f);
        if (tile.rank() == 0) {
            array.counts[leaf] = (u8)all.n;
            if (change == 0) array.heads[leaf] = all.n == 0 ? nobody : items[come.four(0) & 1 ? LEAF : 0];
        }
        tile.sync();
        return all.n - all.old;
    }
    DEVICE void arrive_at(int place, u32 k, u32 item, Places& come) const {
        come.add(place);
        items[LEAF + place] = item;
        if (WEIGHTED) item_weights[LEAF + place] = weight ? weight[k] : 1.0f;
    }
    template <class T> DEVICE void stage(const Fours<T>* four, const Places& gone, T* items) const {
        for (int i = 0; i < each; ++i) {
            int s = four_at(i);
            if (s >= LEAF) break;
            u32 bits = gone.four(s);
            for (int j = 0, at = s - gone.below(s); j < 4; ++j)
                if (!(bits >> j & 1)) items[at++] = four[i].at[j];
        }
    }
    template <class T>
    DEVICE void write(T* column, const T* items, const Places& come, int change, const Leaf& leaf, T none) const {
        for (int i = 0; i < each; ++i) {
            int s = four_at(i), from = s;
            if (s + 3 < change || s >= greater(leaf.n, leaf.old)) continue;
            Fours<T> four;
            u32 bits = come.four(s);
            from -= come.below(s);
            for (int j = 0; j < 4; ++j) {
                bool is = bits >> j & 1;
                four.at[j] = s + j < leaf.n ? items[is ? LEAF + s + j : from] : none;
                from += !is;
            }
            *(Fours<T>*)(column + s) = four;
        }
    }
};

struct MergeLeaves {  // one tile a window of one leaf, unless a wider one covers it
    static constexpr int lanes = TILE;
    static constexpr int blocks = 5;  // 48 registers
    Batch batch;
    Levels levels;
    const f32* weight;
    const u32* first_keys;
    i64 n;
    Leaves leaves;
    Array array;
    i64* start;
    i64 rows;
    DEVICE void operator()(Grid grid) const {
        constexpr int tiles = 256 / TILE;
        using Merger = LeafMerge<TILE>;
        SHARED(u32, items, tiles * Merger::stride);
        SHARED(f32, weights, WEIGHTED ? tiles * Merger::stride : 1);
        Tile<TILE> tile;
        Tile<32> warp;
        i64 side = warp.size() / tile.size(), at = tile.index() * Merger::stride;
        Merger merger{batch, leaves, levels, array, weight, start, rows, items + at, weights + (WEIGHTED ? at : 0), tile};
        int last = -1, grown = 0;
        for (i64 t : grid.items(warp, (n + side - 1) / side)) {
            i64 i = t * side + tile.index() % side;
            if (i + 8 * side < n) fetch(first_keys[i + 8 * side]);
            int group = -1, by = 0;
            if (i < n) {
                i64 k = first_keys[i], leaf = leaves.leaf(batch.slot(k));
                by = tile.size() == 1 ? alone(merger, k, leaf) : merger.merge((u32)k, leaf);
                group = (int)(leaf / group_leaves);
            }
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
        prefetch_to_write(start + batch.row(k));
    }
    static constexpr int few = 8;  // keys
    // One lane alone, as on a CPU.
    DEVICE int alone(const LeafMerge<TILE>& merger, i64 first_key, i64 leaf) const {
        bool is_last = leaf + 1 == leaves.leaves;
        i64 after = Batch::at_slot((leaf + 1) * LEAF + is_last), last_key = first_key;
        int net = 0, count = array.counts[leaf];
        for (; last_key < batch.n && batch.located[last_key] < after; ++last_key) net += batch.by_key(last_key);
        if (last_key - first_key > few) return merger.merge((u32)first_key, leaf);
        if (levels.covered(Tile<1>{}, 0, leaf)) return 0;
        Leaf all{batch, start, rows, leaf, (u32)first_key, (u32)last_key, count, count + net, is_last};
        int by = 0, at;
        i64 k = first_key;
        for (i64 r = batch.row(first_key) + 1; all.is(r, at = all.get(r)); ++r) {
            for (; k < last_key && batch.row(k) < r; ++k) by += batch.by_key(k);
            all.put(r, lesser(at, count) + by);
        }
        all.move_first(Tile<1>{});
        edit_column(all, array.slots, nobody, [&](i64 k) { return (u32)batch.keys[k]; });
        if (WEIGHTED) edit_column(all, array.weights, 0.0f, [&](i64 k) { return weight ? weight[k] : 1.0f; });
        array.counts[leaf] = (u8)all.n;
        if (batch.slot(first_key) == all.first()) array.heads[leaf] = array.slots[all.first()];
        return net;
    }
    // Key by key from the last on, so that places stay what they were, each by vectors and without a branch.
    template <class T, class Of> DEVICE void edit_column(const Leaf& leaf, T* column, T none, Of of) const {
        constexpr int size = LEAF + few;
        T some[2][size + 2];  // one more on each side
        int now = 0;
        column += leaf.first();
        for (int j = 0; j < LEAF; ++j) some[0][j + 1] = column[j];  // whole lines: the one before is far away
        for (int j = LEAF; j <= size; ++j) some[0][j + 1] = none;
        some[0][0] = some[1][0] = some[1][size + 1] = none;
        for (i64 k = leaf.last_key; k-- > leaf.first_key;) {
            int p = (int)lesser(batch.slot(k) - leaf.first(), (i64)leaf.old) + 1;
            const T* from = some[now];
            T* to = some[1 - now];
            T item = of(k);
            if (batch.inserts(k)) for (int j = 1; j <= size; ++j) to[j] = j < p ? from[j] : j == p ? item : from[j - 1];
            else if (batch.deletes(k)) for (int j = 1; j <= size; ++j) to[j] = j < p ? from[j] : from[j + 1];
            else continue;
            now = 1 - now;
        }
        for (int j = 0; j < LEAF; ++j) column[j] = some[now][j + 1];
    }
};
