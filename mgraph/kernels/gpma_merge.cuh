// gpma+, commit: windows of a few leaves, each merged by a tile: its lanes hold the slots by fours, the first keys and the first
// rows, loaded before anything waits for them.
#pragma once
#include "gpma_window.cuh"

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
    i32* before;        // items before each leaf
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
            found.at[h] = none ? slots << 2 | 1 : (int)(batch.located[k] - Batch::at_slot(first));
            found.row[h] = none ? 0 : (u32)(batch.keys[k] >> 32);
        }
        return found;
    }
    template <class F> DEVICE void each_key(int some, F step) const {  // step(h, lane) for the first `some` of the held keys
        for (int h = 0; h < held; ++h)
            for (int lane = 0; lane < lanes; ++lane)
                if (h * lanes + lane < some) step(h, lane);
    }
    DEVICE int rank(int slot) const {  // of the item at a slot of the window, before the batch
        return slot >= slots ? old : before[slot / LEAF] + slot % LEAF;
    }
    DEVICE int four_at(int i) const { return 4 * (tile.rank() + i * lanes); }

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
        old = (int)leaves.small_sum(w.leaf, w.leaf + w.leaves);
        n = old + batch.net32(w.last_key) - net0;
        for (int j = tile.rank(); j < (int)w.leaves; j += lanes) before[j] = (i32)leaves.small_sum(w.leaf, w.leaf + j);
        tile.sync();
        place_items(four, found);
        move_rows(row, row_start, found);
        tile.sync();
        write();
        for (int j = tile.rank(); j < (int)w.leaves; j += lanes)
            array.counts[w.leaf + j] = (u8)Spread(n, w.leaves).count(j);
        tile.sync();
        return n - old;
    }
    DEVICE void place_items(const Four* four, const Keys& first_keys) const {
        for (int i = 0; i < each; ++i) {
            int s = four_at(i), at = s >= slots ? s : rank(s), to[4];
            if (4 * i * lanes >= slots) break;
            to[0] = four[i].a == nobody ? gone : at, to[1] = four[i].b == nobody ? gone : at + 1;
            to[2] = four[i].c == nobody ? gone : at + 2, to[3] = four[i].d == nobody ? gone : at + 3;
            for (i64 from = w.first_key; from < w.last_key; from += keys) {
                Keys found = from > w.first_key ? load(from) : first_keys;
                each_key((int)lesser(w.last_key - from, (i64)keys), [&](int h, int lane) {
                    int key = tile.shfl(found.at[h], lane), p = key >> 2, by = (key & 3) - 1;
                    for (int j = 0; j < 4; ++j) to[j] = by < 0 && p == s + j ? gone : to[j] + (s + j >= p ? by : 0);
                });
            }
            if (to[0] >= 0) put(to[0], four[i].a, WEIGHTED ? array.weights[first + s] : 0);
            if (to[1] >= 0) put(to[1], four[i].b, WEIGHTED ? array.weights[first + s + 1] : 0);
            if (to[2] >= 0) put(to[2], four[i].c, WEIGHTED ? array.weights[first + s + 2] : 0);
            if (to[3] >= 0) put(to[3], four[i].d, WEIGHTED ? array.weights[first + s + 3] : 0);
        }
        for (i64 k = w.first_key + tile.rank(); k < w.last_key; k += lanes)
            if (batch.inserts(k)) {
                put(rank((int)(batch.slot(k) - first)) + batch.net32(k) - net0, (u32)batch.keys[k], WEIGHTED && weight ? weight[k] : 1.0f);
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
            if (is) start[row] = first + Spread(n, w.leaves).place(to, n);
        }
    }
    DEVICE void write() const {
        Spread spread(n, w.leaves);
        for (int i = 0; i < each; ++i) {
            int s = four_at(i), at = s % LEAF;
            if (s >= slots) continue;
            int count = (int)spread.count(s / LEAF), from = (int)spread.items_before(s / LEAF) + at;
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
