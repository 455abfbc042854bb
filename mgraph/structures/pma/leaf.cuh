// pma, commit: windows of one leaf, by a few lanes each. The places of deleted and of inserted items are bitmaps, so
// that an item's new place follows from bit counts, however many keys there are.
#pragma once
#include "structures/pma/window_tree.cuh"
#include "structures/pma/merge_tile.cuh"

struct Places {  // bitmap of places in a leaf
    static constexpr int words = (LEAF + 31) / 32;
    u32 word[words];
    DEVICE void add(int i) {
        for (int w = 0; w < words; ++w) word[w] |= words == 1 || i / 32 == w ? 1u << i % 32 : 0;
    }
    template <class Tile> DEVICE void join(const Tile& tile) {  // joins the disjoint bitmaps of all lanes
        for (int w = 0; w < words; ++w) word[w] = tile.sum(word[w]);
    }
    DEVICE int count() const {
        int sum = 0;
        for (int w = 0; w < words; ++w) sum += popcount(word[w]);
        return sum;
    }
    DEVICE u32 four(int i) const {  // one bit each for i .. i + 3, i divisible by 4
        u32 all = word[0];
        for (int w = 1; w < words; ++w) all = i / 32 == w ? word[w] : all;
        return all >> i % 32 & 15;
    }
    DEVICE int below(int i) const {  // number of places less than i < LEAF
        int sum = 0;
        for (int w = 0; w < words; ++w)
            sum += words == 1 || i / 32 == w ? popcount(word[w] & ((1u << i % 32) - 1))
                   : i / 32 > w              ? popcount(word[w])
                                             : 0;
        return sum;
    }
};

template <int W> struct LeafMerge {  // W lanes per leaf; all tiles of a warp converged
    using Lanes = Tile<W, true>;
    static constexpr int lanes = Lanes::size(), each = (LEAF / 4 + lanes - 1) / lanes;  // fours per lane
    static constexpr int stride = 2 * LEAF + 4;  // of a tile's memory
    const Batch& batch;
    const Leaves& leaves;
    const WindowTree& levels;
    const Array& array;
    const f32* weight;
    u32* items;  // surviving items, without gaps; then inserted ones, by their new place
    f32* item_weights;
    Lanes tile;

    DEVICE int four_at(int i) const { return 4 * (tile.rank() + i * lanes); }
    template <class T> DEVICE void read(const T* column, Fours<T>* four) const {
        for (int i = 0; i < each; ++i)
            if (four_at(i) < LEAF) four[i] = *(const Fours<T>*)(column + four_at(i));
    }
    // Merges a leaf, from its first key on, if it is live and no wider window covers it. Returns its growth in items.
    // Meanwhile the leaf of the key `next` is prefetched.
    DEVICE int merge(u32 first_key, i64 leaf, bool live, u32 next) const {
        i64 first = leaf * LEAF;
        Fours<u32> four[each];
        read(array.slot(first), four);
        TileKeys<Lanes> keys(batch, tile, first_key, first, LEAF, leaf + 1 == leaves.leaves);
        int old = leaves.counts[leaf], change = lesser(keys.located(first_key) >> 2, old);  // no slot before it changes
        bool covered = levels.covered(tile, 0, leaf);  // all tiles of the warp take part
        live = live && !covered;
        Places gone{}, come{};
        int net = keys.each([&](u32 k, int at, int by, int upto, u32 item) {
            int rank = lesser(at, old), place = rank + upto - 1;
            if (by < 0) gone.add(rank);
            if (by > 0 && live) {  // a covered leaf may not have the room
                come.add(place);
                items[LEAF + place] = item;
                if (WEIGHTED) item_weights[LEAF + place] = weight ? weight[k] : 1.0f;
            }
        });
        gone.join(tile), come.join(tile);
        i64 then = leaves.leaf(batch.slot(next));
        int from = live ? change : LEAF, until = greater(old, old + net);
        u32 head = move(array.slot(first), items, four, gone, come, from, until, nobody);
        if (WEIGHTED) {
            Fours<f32> weights[each];
            read(array.weight(first), weights);
            move(array.weight(first), item_weights, weights, gone, come, from, until, 0.0f);
        }
        fetch_line(array.slot(then * LEAF) + four_at(0) * each);
        if (!live) return 0;
        if (tile.rank() == 0) array.counts[leaf] = (u8)(old + net);
        if (tile.rank() == 0 && change == 0) array.heads[leaf] = head;
        return net;
    }
    // Writes the fours from slot `from` on that are not empty before and after. Returns this lane's first item.
    template <class T>
    DEVICE T move(T* column, T* items, const Fours<T>* four, const Places& gone, const Places& come, int from,
                  int until, T none) const {
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

struct MergeLeaves {  // one tile per window of one leaf, unless a wider one covers it
    static constexpr int lanes = TILE;
    Batch batch;
    WindowTree levels;
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
        Merger merger{batch, leaves, levels, array, weight, (u32*)items + at, (f32*)weights + (WEIGHTED ? at : 0),
                      tile};
        int last = -1, grown = 0;
        Items turns = grid.items(warp, (n + side - 1) / side);
        u32 k = 0, next = first_key(turns.first * side + tile.index() % side);
        for (i64 t : turns) {
            i64 i = t * side + tile.index() % side;
            k = next, next = first_key(i + turns.step * side);
            i64 leaf = leaves.leaf(batch.slot(k));
            if (i + 8 * side < n) fetch(first_keys[i + 8 * side]);
            int by = tile.size() == 1 ? alone(merger, k, leaf) : merger.merge(k, leaf, i < n, next);
            int group = (int)(leaf / group_leaves);
            if (warp.size() == 1) {  // an atomic waits for all earlier stores: one for all windows of a group
                if (group != last) recount(warp, last, grown), last = group, grown = 0;
                grown += by;
            } else recount(warp, group, tile.rank() == 0 ? by : 0);
        }
        if (warp.size() == 1) recount(warp, last, grown);
    }
    DEVICE u32 first_key(i64 i) const { return first_keys[lesser(i, n - 1)]; }
    // Adds to the group's count. Neighbouring windows mostly share a group: one atomic for all, since many atomics on
    // few addresses are slow.
    DEVICE void recount(const Tile<32>& warp, int group, int by) const {
        int common = warp.shfl(group, 0);
        if (!warp.any(by && group != common)) {
            by = warp.sum(by);
            if (by && warp.rank() == 0) atomic_add(array.groups + common, (u32)by);
        } else if (by) atomic_add(array.groups + group, (u32)by);
    }
    DEVICE void fetch(i64 k) const {
        if (in_flight == 1) return;
        const u32* slots = array.slot(leaves.leaf(batch.slot(k)) * LEAF);
        for (int s = 0; s < LEAF; s += 16) prefetch_to_write(slots + s);
    }
    static constexpr int few = 8;  // keys
    // Merges by a single lane, as on a CPU.
    DEVICE int alone(const LeafMerge<TILE>& merger, i64 first_key, i64 leaf) const {
        i64 slot = leaf * LEAF, after = batch.behind_leaf(leaf, leaves.leaves), last_key = first_key;
        int net = 0, count = array.counts[leaf];
        for (; last_key < batch.n && batch.located[last_key] < after; ++last_key) net += batch.by_key(last_key);
        if (last_key - first_key > few) return merger.merge((u32)first_key, leaf, true, (u32)first_key);
        if (levels.covered(Tile<1>{}, 0, leaf)) return 0;
        edit(first_key, last_key, slot, count, array.slot(slot), nobody, [&](i64 k) { return (u32)batch.keys[k]; });
        if (WEIGHTED)
            edit(first_key, last_key, slot, count, array.weight(slot), 0.0f,
                 [&](i64 k) { return weight ? weight[k] : 1.0f; });
        array.counts[leaf] = (u8)(count + net);
        if (batch.slot(first_key) == slot || !count) array.heads[leaf] = *array.slot(slot);
        return net;
    }
    // Applies key by key from last to first, so that earlier places stay valid, with a vectorized pass each.
    template <class T, class Of>
    DEVICE void edit(i64 first_key, i64 last_key, i64 slot, i64 count, T* column, T none, Of of) const {
        constexpr int size = LEAF + few;
        T some[2][size + 2];  // one more on each side
        int now = 0;
        for (int j = 0; j < LEAF; ++j) some[0][j + 1] = column[j];  // full cache lines: the previous leaf is far away
        for (int j = LEAF; j <= size; ++j) some[0][j + 1] = none;
        some[0][0] = some[1][0] = some[1][size + 1] = none;
        for (i64 k = last_key; k-- > first_key;) {
            int p = (int)lesser(batch.slot(k) - slot, count) + 1;
            const T* from = some[now];
            T* to = some[1 - now];
            T item = of(k);
            if (batch.inserts(k))
                for (int j = 1; j <= size; ++j) to[j] = j < p ? from[j] : j == p ? item : from[j - 1];
            else if (batch.deletes(k))
                for (int j = 1; j <= size; ++j) to[j] = j < p ? from[j] : from[j + 1];
            else continue;
            now = 1 - now;
        }
        for (int j = 0; j < LEAF; ++j) column[j] = some[now][j + 1];
    }
};
