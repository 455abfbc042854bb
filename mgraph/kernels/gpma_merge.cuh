// gpma+, commit: windows of one leaf and of a few, each merged by a tile: its lanes hold the slots by fours, the first keys
// and the first rows, loaded before anything waits for them.
#pragma once
#include "gpma_window.cuh"

struct Array {
    u32* slots;
    f32* weights;
    u8* counts;
    u32* groups;
    u32* heads;
    DEVICE void recount(i64 leaf, i64 by) const {  // a group's sum follows its leaves
        if (by) atomic_add(groups + leaf / group_leaves, (u32)by);
    }
};

template <int W, int most> struct TileMerge {  // W lanes and a window of up to `most` leaves
    using Lanes = Tile<W>;
    static constexpr int lanes = Lanes::size(), each = (most * LEAF / 4 + lanes - 1) / lanes;  // fours a lane
    static constexpr int held = lanes == 1 ? 8 : 1, keys = held * lanes;                      // keys a lane, and a tile
    static constexpr int stride = most * LEAF + 1;  // of a tile's room: odd, so that the tiles of a warp use other banks
    static constexpr int gone = -(1 << 20);
    const Batch& batch;
    const Array& array;
    const f32* weight;
    i64* start;
    u32* items;         // by new rank
    f32* item_weights;
    i32* before;        // items before each leaf; not for one leaf
    Lanes tile;
    Window w;
    i64 first;          // slot of the window
    i32 net0;           // what the batch moves before the window, of 32 bits
    int slots, n_keys, old, n;

    // What the keys do: window slot << 2 | by + 1. A key that is none does nothing.
    struct Keys {
        int at[held];
        u32 row[held];
    };
    DEVICE i64 key(i64 from, int h) const { return from + h * lanes + tile.rank(); }
    DEVICE Keys load(i64 from) const {
        Keys found;
        for (int h = 0; h < held; ++h) {
            i64 k = key(from, h);
            bool none = k >= w.last_key;
            found.at[h] = slots << 2 | 1, found.row[h] = 0;
            if (none) continue;
            found.at[h] = (int)lesser(batch.slot[k] - first, (i64)slots) << 2 | (batch.net32(k + 1) - batch.net32(k) + 1);
            found.row[h] = (u32)(batch.keys[k] >> 32);
        }
        return found;
    }
    template <class F> DEVICE void each_key(int some, F step) const {  // step(h, lane) for the first `some` of the held keys
        for (int h = 0; h < held; ++h)
            for (int lane = 0; lane < lanes; ++lane)
                if (h * lanes + lane < some) step(h, lane);
    }
    DEVICE int rank(int slot) const {  // of the item at a slot of the window, before the batch
        if (most == 1) return lesser(slot, old);
        return slot >= slots ? old : before[slot / LEAF] + slot % LEAF;
    }
    DEVICE int four_at(int i) const { return 4 * (tile.rank() + i * lanes); }
    DEVICE bool used(int i) const { return most == 1 || 4 * i * lanes < slots; }  // by any lane

    // Merges the window; returns by how many items it grew.
    DEVICE int merge(const Leaves& leaves) {
        Four four[each];
        first = (i64)w.leaf * LEAF, slots = (int)w.leaves * LEAF, n_keys = (int)(w.last_key - w.first_key);
        for (int i = 0; i < each; ++i) {
            four[i] = {nobody, nobody, nobody, nobody};
            if (four_at(i) < slots) four[i] = *(const Four*)(array.slots + first + four_at(i));
        }
        i64 row = w.first_row + tile.rank(), row_start = row < w.last_row ? start[row] : 0;
        Keys found = load(w.first_key);
        net0 = batch.net32(w.first_key);
        old = most == 1 ? leaves.counts[w.leaf] : (int)leaves.small_sum(w.leaf, w.leaf + w.leaves);
        n = old + batch.net32(w.last_key) - net0;
        if (most > 1) {
            for (int j = tile.rank(); j < (int)w.leaves; j += lanes) before[j] = (i32)leaves.small_sum(w.leaf, w.leaf + j);
            tile.sync();
        }
        int change = most == 1 ? rank(tile.shfl(found.at[0], 0) >> 2) : 0;  // no slot before it changes
        place_items(four, found);
        move_rows(row, row_start, found);
        tile.sync();
        write(change);
        for (int j = tile.rank(); j < (int)w.leaves; j += lanes)
            array.counts[w.leaf + j] = (u8)(most == 1 ? n : Spread(n, w.leaves).count(j));
        tile.sync();
        return n - old;
    }
    DEVICE void place_items(const Four* four, const Keys& first_keys) const {
        int to[each][4];
        for (int i = 0; i < each; ++i) {
            int s = four_at(i), at = most == 1 || s >= slots ? s : rank(s);
            to[i][0] = four[i].a == nobody ? gone : at, to[i][1] = four[i].b == nobody ? gone : at + 1;
            to[i][2] = four[i].c == nobody ? gone : at + 2, to[i][3] = four[i].d == nobody ? gone : at + 3;
        }
        for (i64 from = w.first_key; from < w.last_key; from += keys) {
            Keys found = from > w.first_key ? load(from) : first_keys;
            each_key((int)lesser(w.last_key - from, (i64)keys), [&](int h, int lane) {
                int key = tile.shfl(found.at[h], lane), p = key >> 2, by = (key & 3) - 1;
                for (int i = 0; i < each && used(i); ++i)
                    for (int j = 0; j < 4; ++j) {
                        int s = four_at(i) + j;
                        to[i][j] = by < 0 && p == s ? gone : to[i][j] + (s >= p ? by : 0);
                    }
            });
        }
        for (int i = 0; i < each && used(i); ++i) {
            i64 s = first + four_at(i);
            if (to[i][0] >= 0) put(to[i][0], four[i].a, WEIGHTED ? array.weights[s] : 0);
            if (to[i][1] >= 0) put(to[i][1], four[i].b, WEIGHTED ? array.weights[s + 1] : 0);
            if (to[i][2] >= 0) put(to[i][2], four[i].c, WEIGHTED ? array.weights[s + 2] : 0);
            if (to[i][3] >= 0) put(to[i][3], four[i].d, WEIGHTED ? array.weights[s + 3] : 0);
        }
        for (i64 k = w.first_key + tile.rank(); k < w.last_key; k += lanes)
            if (batch.inserts(k)) {
                int p = (int)lesser(batch.slot[k] - first, (i64)slots);
                put(rank(p) + batch.net32(k) - net0, (u32)batch.keys[k], WEIGHTED && weight ? weight[k] : 1.0f);
            }
    }
    DEVICE void put(int place, u32 item, f32 item_weight) const {
        items[place] = item;
        if (WEIGHTED) item_weights[place] = item_weight;
    }
    DEVICE void move_rows(i64 row, i64 row_start, const Keys& found) const {
        for (i64 base = w.first_row; base < w.last_row; base += lanes, row += lanes) {
            bool is = row < w.last_row;
            if (base > w.first_row && is) row_start = start[row];
            int to = is ? rank((int)lesser(row_start - first, (i64)slots)) : 0;
            if (n_keys <= keys)
                each_key(n_keys, [&](int h, int lane) {
                    int by = (tile.shfl(found.at[h], lane) & 3) - 1;
                    if (tile.shfl(found.row[h], lane) < (u32)row) to += by;
                });
            else if (is)
                to += batch.net32(lower_bound(batch.keys, w.first_key, w.last_key, (u64)row << 32)) - net0;
            if (is) start[row] = first + (most == 1 ? (to < n ? to : LEAF) : Spread(n, w.leaves).place(to, n));
        }
    }
    DEVICE void write(int change) const {
        Spread spread(n, most == 1 ? 1 : w.leaves);
        for (int i = 0; i < each; ++i) {
            int s = four_at(i), at = s % LEAF, count = n, from = s;
            if (s + 3 < change || s >= (most == 1 ? greater(n, old) : slots)) continue;
            if (most > 1) count = (int)spread.count(s / LEAF), from = (int)spread.items_before(s / LEAF) + at;
            const u32* item = items + from;
            *(Four*)(array.slots + first + s) = {
                at < count ? item[0] : nobody, at + 1 < count ? item[1] : nobody,
                at + 2 < count ? item[2] : nobody, at + 3 < count ? item[3] : nobody,
            };
            if (at == 0) array.heads[w.leaf + s / LEAF] = count ? item[0] : nobody;
            for (int j = 0; WEIGHTED && j < 4 && at + j < count; ++j) array.weights[first + s + j] = item_weights[from + j];
        }
    }
};

struct MergeLeaves {  // one tile a window of one leaf
    static constexpr int lanes = TILE;
    Batch batch;
    const f32* weight;
    const u32* windows;
    i64 n;
    Leaves leaves;
    Array array;
    i64* start;
    DEVICE void operator()(Grid grid) const {
        constexpr int tiles = 256 / TILE;
        using Merger = TileMerge<TILE, 1>;
        SHARED(u32, items, tiles * Merger::stride);
        SHARED(f32, weights, WEIGHTED ? tiles * Merger::stride : 1);
        Tile<TILE> tile;
        Tile<32> warp;
        i64 side = warp.size() / tile.size(), at = tile.index() * Merger::stride;
        i64 last = -1, grown = 0;
        for (i64 t : grid.items(warp, (n + side - 1) / side)) {
            i64 i = t * side + tile.index() % side;
            if (i + 8 * side < n) fetch(window_at(windows, i + 8 * side));
            i64 group = -1, by = 0;
            if (i < n) {
                Window w = window_at(windows, i);
                Merger merger{batch, array, weight, start, items + at, weights + (WEIGHTED ? at : 0), nullptr, tile, w};
                by = tile.size() == 1 && w.last_key - w.first_key <= few ? alone(w) : merger.merge(leaves);
                group = w.leaf / group_leaves;
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
    DEVICE void recount(const Tile<32>& warp, i64 group, i64 by) const {
        i64 common = warp.shfl(group, 0);
        if (!warp.any(by && group != common)) {
            by = warp.sum(by);
            if (by && warp.rank() == 0) atomic_add(array.groups + common, (u32)by);
        } else if (by) atomic_add(array.groups + group, (u32)by);
    }
    DEVICE void fetch(const Window& w) const {
        for (int s = 0; s < LEAF; s += 16) prefetch_to_write(array.slots + (i64)w.leaf * LEAF + s);
        prefetch_to_write(start + w.first_row);
    }
    static constexpr int few = 8;  // keys
    // One lane alone, as on a CPU.
    DEVICE i64 alone(const Window& w) const {
        i64 first = (i64)w.leaf * LEAF, count = array.counts[w.leaf];
        Merge merge(batch, leaves, w, count);
        for (i64 r = w.first_row; r < w.last_row; ++r) {
            i64 k = lower_bound(batch.keys, merge.first_key, merge.last_key, (u64)r << 32);
            i64 to = lesser(start[r] - first, count) + batch.net(k) - merge.net0;
            start[r] = first + (to < merge.n ? to : LEAF);
        }
        edit(merge, first, (int)count);
        array.counts[w.leaf] = (u8)merge.n;
        if (lesser(batch.slot[merge.first_key] - first, count) == 0) array.heads[w.leaf] = array.slots[first];
        return merge.n - count;
    }
    // Key by key from the last on, so that places stay what they were, each by vectors and without a branch.
    DEVICE void edit(const Merge& merge, i64 first, int count) const {
        edit_column(merge, first, count, array.slots, nobody, [&](i64 k) { return (u32)batch.keys[k]; });
        if (WEIGHTED) edit_column(merge, first, count, array.weights, 0.0f, [&](i64 k) { return weight ? weight[k] : 1.0f; });
    }
    template <class T, class Of> DEVICE void edit_column(const Merge& merge, i64 first, int count, T* column, T none, Of of) const {
        constexpr int size = LEAF + few;
        T some[2][size + 2];  // one more on each side
        int now = 0;
        for (int j = 0; j < LEAF; ++j) some[0][j + 1] = column[first + j];  // whole lines: the one before is far away
        for (int j = LEAF; j <= size; ++j) some[0][j + 1] = none;
        some[0][0] = some[1][0] = some[1][size + 1] = none;
        for (i64 k = merge.last_key; k-- > merge.first_key;) {
            int p = (int)lesser(batch.slot[k] - first, (i64)count) + 1;
            const T* from = some[now];
            T* to = some[1 - now];
            T item = of(k);
            if (batch.inserts(k)) for (int j = 1; j <= size; ++j) to[j] = j < p ? from[j] : j == p ? item : from[j - 1];
            else if (batch.deletes(k)) for (int j = 1; j <= size; ++j) to[j] = j < p ? from[j] : from[j + 1];
            else continue;
            now = 1 - now;
        }
        for (int j = 0; j < LEAF; ++j) column[first + j] = some[now][j + 1];
    }
};

struct MergeFew {  // one tile a window of up to few_leaves
    static constexpr int lanes = 32;
    Batch batch;
    const f32* weight;
    const u32* windows;
    i64 n;
    Leaves leaves;
    Array array;
    i64* start;
    DEVICE void operator()(Grid grid) const {
        constexpr int tiles = 256 / lanes;
        using Merger = TileMerge<lanes, few_leaves>;
        SHARED(u32, items, tiles * Merger::stride);
        SHARED(f32, weights, WEIGHTED ? tiles * Merger::stride : 1);
        SHARED(i32, before, tiles * few_leaves);
        Tile<lanes> tile;
        i64 at = tile.index() * Merger::stride;
        for (i64 i : grid.items(tile, n)) {
            Merger merger{batch, array, weight, start, items + at, weights + (WEIGHTED ? at : 0),
                          before + tile.index() * few_leaves, tile, window_at(windows, i)};
            i64 by = merger.merge(leaves);
            if (tile.rank() == 0) array.recount(merger.w.leaf, by);
        }
    }
};
