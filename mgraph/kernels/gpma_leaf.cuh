// gpma+, commit: windows of one leaf, a few lanes each. What leaves and what arrives are sets of places, so that where an item goes is
// a matter of counting bits, however many keys there are.
#pragma once
#include "gpma_levels.cuh"

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

template <class T> struct alignas(16) Fours {  // slots that are loaded and stored at once
    T at[4];
};

struct LeafRows {  // moves the starts of rows around one leaf, whose keys are [first_key, last_key), from old to n items
    const Batch& batch;
    i64* start;
    i64 rows, leaf, first_key, last_key, last_row;  // last_row: up to which rows are moved wherever they begin, for the last leaf
    int old, n;
    DEVICE i64 end() const { return (leaf + 1) * LEAF; }
    DEVICE bool is(i64 r, i64 at) const { return r < rows && (at < end() || r <= last_row); }
    DEVICE i64 get(i64 r) const { return r < rows ? glance(start + r) : 0; }
    DEVICE void move(i64 r, i64 at, int by) const {
        int to = (int)lesser(at - leaf * LEAF, (i64)old) + by;
        store(start + r, leaf * LEAF + (to < n ? to : LEAF));
    }
    // Rows up to the first key's own begin before all that changes, unless no item is left where the key was located, or there was
    // none, at the end of the array.
    template <class Tile> DEVICE void move_first(const Tile& tile) const {
        i64 was = batch.slot(first_key), at = lesser(was - leaf * LEAF, (i64)old), to = leaf * LEAF + (at < n ? at : LEAF);
        if (to == was) return;
        for (i64 r = batch.row(first_key) - tile.rank(); r >= 0 && glance(start + r) == was; r -= tile.size()) store(start + r, to);
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

    // Merges the leaf of a key; returns by how many items it grew.
    DEVICE int merge(i64 first_key) const {
        i64 k = first_key + tile.rank(), here = batch.located[first_key], row = batch.row(first_key) + 1 + tile.rank();
        i64 located = k < batch.n ? batch.located[k] : none;
        u64 key = k < batch.n ? batch.keys[k] : 0;
        i64 leaf = leaves.leaf(here >> 2), first = leaf * LEAF;
        i64 after = leaf + 1 == leaves.leaves ? none : Batch::at_slot(first + LEAF);
        Fours<u32> four[each];
        read(array.slots + first, four);
        int old = leaves.counts[leaf];
        i64 row_start = row < rows ? glance(start + row) : 0;
        if (levels.covered(tile, 0, leaf)) return 0;

        Places gone{}, come{};
        int net = 0, many = 0, by = located < after ? Batch::by(located) : 0;
        u32 key_row = (u32)(key >> 32);
        for (int its = by;;) {
            int at = (int)lesser((located >> 2) - first, (i64)old), upto = net + tile.scan(its);
            if (its < 0) gone.add(at);
            if (its > 0) arrive_at(at + upto - 1, k, key, come);
            int some = popcount(tile.ballot(located < after));
            many += some, net = tile.shfl(upto, lanes - 1);
            if (some < lanes) break;
            k += lanes;
            located = k < batch.n ? batch.located[k] : none, key = k < batch.n ? batch.keys[k] : 0;
            its = located < after ? Batch::by(located) : 0;
        }
        gone.join(tile), come.join(tile);
        int n = old + net, change = (int)lesser((here >> 2) - first, (i64)old);  // no slot before it changes
        stage(four, gone, items);
        if (WEIGHTED) {
            Fours<f32> weights[each];
            read(array.weights + first, weights), stage(weights, gone, item_weights);
        }
        i64 last_row = after == none ? batch.row(first_key + many - 1) : 0;
        move_rows({batch, start, rows, leaf, first_key, first_key + many, last_row, old, n}, row, row_start, by, key_row);
        tile.sync();
        write(array.slots + first, items, come, change, old, n, nobody);
        if (WEIGHTED) write(array.weights + first, item_weights, come, change, old, n, 0.0f);
        if (tile.rank() == 0) {
            array.counts[leaf] = (u8)n;
            if (change == 0) array.heads[leaf] = n == 0 ? nobody : items[come.four(0) & 1 ? LEAF : 0];
        }
        tile.sync();
        return net;
    }
    static constexpr i64 none = (i64)1 << 62;  // located behind all
    DEVICE void arrive_at(int place, i64 k, u64 key, Places& come) const {
        come.add(place);
        items[LEAF + place] = (u32)key;
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
    DEVICE void write(T* column, const T* items, const Places& come, int change, int old, int n, T none) const {
        for (int i = 0; i < each; ++i) {
            int s = four_at(i), from = s;
            if (s + 3 < change || s >= greater(n, old)) continue;
            Fours<T> four;
            u32 bits = come.four(s);
            from -= come.below(s);
            for (int j = 0; j < 4; ++j) {
                bool is = bits >> j & 1;
                four.at[j] = s + j < n ? items[is ? LEAF + s + j : from] : none;
                from += !is;
            }
            *(Fours<T>*)(column + s) = four;
        }
    }
    // The lanes hold the first rows and their starts, and what the first keys do in which rows.
    DEVICE void move_rows(const LeafRows& leaf, i64 row, i64 at, int by, u32 key_row) const {
        int many = (int)(leaf.last_key - leaf.first_key);
        for (bool more = true; more; row += lanes, at = more ? leaf.get(row) : 0) {
            bool is = leaf.is(row, at);
            if (!tile.any(is)) break;
            int sum = 0;
            if (many <= lanes)
                for (int j = 0; j < many; ++j) {
                    int its = tile.shfl(by, j);
                    if (tile.shfl(key_row, j) < (u32)row) sum += its;
                }
            else if (is)
                sum = batch.net32(lower_bound(batch.keys, leaf.first_key, leaf.last_key, (u64)row << 32)) - batch.net32(leaf.first_key);
            if (is) leaf.move(row, at, sum);
            more = tile.shfl(is, lanes - 1);
        }
        leaf.move_first(tile);
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
                by = tile.size() == 1 ? alone(merger, k, leaf) : merger.merge(k);
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
        i64 after = leaf + 1 == leaves.leaves ? merger.none : Batch::at_slot((leaf + 1) * LEAF), last_key = first_key;
        int net = 0, count = array.counts[leaf], at = (int)lesser(batch.slot(first_key) - leaf * LEAF, (i64)count);
        for (; last_key < batch.n && batch.located[last_key] < after; ++last_key) net += batch.by_key(last_key);
        if (last_key - first_key > few) return merger.merge(first_key);
        if (levels.covered(Tile<1>{}, 0, leaf)) return 0;
        i64 last_row = after == merger.none ? batch.row(last_key - 1) : 0, k = first_key, row_start;
        LeafRows moved{batch, start, rows, leaf, first_key, last_key, last_row, count, count + net};
        int by = 0;
        for (i64 r = batch.row(first_key) + 1; moved.is(r, row_start = moved.get(r)); ++r) {
            for (; k < last_key && batch.row(k) < r; ++k) by += batch.by_key(k);
            moved.move(r, row_start, by);
        }
        moved.move_first(Tile<1>{});
        edit_column(moved, array.slots, nobody, [&](i64 k) { return (u32)batch.keys[k]; });
        if (WEIGHTED) edit_column(moved, array.weights, 0.0f, [&](i64 k) { return weight ? weight[k] : 1.0f; });
        array.counts[leaf] = (u8)moved.n;
        if (at == 0) array.heads[leaf] = array.slots[leaf * LEAF];
        return net;
    }
    // Key by key from the last on, so that places stay what they were, each by vectors and without a branch.
    template <class T, class Of> DEVICE void edit_column(const LeafRows& leaf, T* column, T none, Of of) const {
        constexpr int size = LEAF + few;
        T some[2][size + 2];  // one more on each side
        int now = 0;
        column += leaf.leaf * LEAF;
        for (int j = 0; j < LEAF; ++j) some[0][j + 1] = column[j];  // whole lines: the one before is far away
        for (int j = LEAF; j <= size; ++j) some[0][j + 1] = none;
        some[0][0] = some[1][0] = some[1][size + 1] = none;
        for (i64 k = leaf.last_key; k-- > leaf.first_key;) {
            int p = (int)lesser(batch.slot(k) - leaf.leaf * LEAF, (i64)leaf.old) + 1;
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
