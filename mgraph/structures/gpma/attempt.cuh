// gpma, commit: Algorithm 1. Each pending key locks its leaf, or aborts until the next attempt. It climbs and locks
// windows until one has room; a lock held by another key aborts it. Then it writes the window. Levels are launches, so
// a window is written after those within it. All locks are released after the attempt.
#pragma once
#include "structures/outcome.cuh"
#include "structures/pma/window.cuh"

struct Locks {  // one bit per window, and the bounds of each level's full window
    u32* words;
    i64 height;
    i64 leaves;
    const i64* least;
    const i64* most;
    DEVICE i64 leaf(i64 slot) const { return lesser(leaf_of(slot), leaves - 1); }
    DEVICE bool lock(i64 level, i64 leaf) const {
        u64 at = ((u64)1 << (height - level)) + (u64)(leaf >> level);
        u32 bit = 1u << (at & 31);
        return !(atomic_or(words + (at >> 5), bit) & bit);
    }
    // always true for the root, which prepare has checked
    DEVICE bool holds(i64 level, i64 width, i64 n, i64 by) const {
        i64 full = (i64)1 << level;
        if (level == height) return true;
        return by > 0 ? n <= most[level] * width / full : n >= (least[level] * width + full - 1) / full;
    }
};

struct ListPending {  // one lane per key: lists the keys to insert, or those to delete
    static constexpr int lanes = 1;
    const u8* outcome;
    i64 n;
    i64 by;
    u32* pending;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(n))
            if (outcome[k] == (by > 0 ? inserted : deleted)) pending[take_place(status)] = (u32)k;
    }
};

struct LockLeaves {  // one lane per pending key: searches it again, and tries to lock its leaf
    static constexpr int lanes = 1;
    const u32* pending;
    i64 n;
    u32* again;  // aborted keys
    const u64* keys;
    i64* slots;
    u32* active;
    PmaView graph;
    Locks locks;
    i64* status;  // number of aborted keys; then, for each level, of keys that reached it
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 k = pending[i];
            bool there;
            i64 slot = slots[k] = graph.seek((i64)(keys[k] >> 32), (u32)keys[k], there);
            if (locks.lock(0, locks.leaf(slot))) active[take_place(status + 1)] = k;
            else again[take_place(status)] = k;
        }
    }
};

struct OneKey {  // leaves [from, to) with one pending key
    i64 k, row, from, to, old, n, by;
};

struct TryLevel {  // one tile per key that reached this level
    static constexpr int lanes = 32;
    i64 level;
    i64 by;
    const f32* weight;
    const u32* active;
    u32* climbing;
    u32* again;
    const u64* keys;
    const i64* slots;
    Locks locks;
    i64* status;
    Array array;
    Starts start;
    i64 rows;
    Flat copy;
    u32* before;  // items before each leaf in its window
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, load(status + 1 + level))) {
            u32 k = active[i];
            i64 leaf = locks.leaf(slots[k]), from = leaf >> level << level;
            i64 to = lesser(from + ((i64)1 << level), locks.leaves);
            bool mine = tile.rank() == 0 && (level == 0 || locks.lock(level, leaf));
            if (!tile.any(mine)) {
                if (tile.rank() == 0) again[take_place(status)] = k;
                continue;
            }
            i64 old = sum_up(tile, from, to);
            if (locks.holds(level, to - from, old + by, by))
                write(tile, {k, (i64)(keys[k] >> 32), from, to, old, old + by, by});
            else if (tile.rank() == 0) climbing[take_place(status + 2 + level)] = k;
        }
    }
    DEVICE i64 sum_up(Tile<lanes> tile, i64 from, i64 to) const {
        u32 sum = 0;
        for (i64 leaf = from + tile.rank(); leaf - tile.rank() < to; leaf += tile.size()) {
            u32 mine = leaf < to ? array.counts[leaf] : 0, upto = tile.scan(mine);
            if (leaf < to) before[leaf] = sum + upto - mine;
            sum += tile.shfl(upto, tile.size() - 1);
        }
        tile.sync();
        return sum;
    }
    DEVICE i64 rank(const OneKey& w, i64 slot) const {
        i64 leaf = leaf_of(slot);
        return leaf >= w.to ? w.old : before[leaf] + lesser(slot & (LEAF - 1), (i64)array.counts[leaf]);
    }
    DEVICE void write(Tile<lanes> tile, const OneKey& w) const {
        EvenLayout spread(w.n, w.to - w.from);
        gather(tile, w, rank(w, slots[w.k]));
        move_rows(tile, w, spread);
        tile.sync();
        dispatch(tile, w, spread);
        tile.sync();
    }
    DEVICE void gather(Tile<lanes> tile, const OneKey& w, i64 at) const {  // copies items without gaps
        i64 base = w.from * LEAF;
        for (i64 s = base + tile.rank(); s < w.to * LEAF; s += tile.size()) {
            u32 item = *array.slot(s);
            i64 r = item == nobody ? 0 : rank(w, s);
            if (item == nobody || (w.by < 0 && r == at)) continue;
            i64 to = base + r + (r >= at ? w.by : 0);
            copy.slots[to] = item;
            if (WEIGHTED) copy.weights[to] = *array.weight(s);
        }
        if (w.by > 0 && tile.rank() == 0) {
            copy.slots[base + at] = (u32)keys[w.k];
            if (WEIGHTED) copy.weights[base + at] = weight ? weight[w.k] : 1.0f;
        }
    }
    struct Looked {  // row starts, some of which other tiles write in their windows
        const Starts& start;
        DEVICE i64 operator[](i64 row) const { return start.look(row); }
    };
    DEVICE void move_rows(Tile<lanes> tile, const OneKey& w, const EvenLayout& spread) const {
        i64 end = locks.leaves * LEAF;
        i64 first = lower_bound_near(Looked{start}, rows, w.row, w.from * LEAF);
        i64 last = lower_bound_near(Looked{start}, rows, w.row, lesser(w.to * LEAF, end));
        if (w.to == locks.leaves) last = greater(last, w.row + 1);  // empty rows at the end stay
        first = tile.shfl(first, 0), last = tile.shfl(last, 0);  // lanes may have seen different starts of empty rows
        for (i64 r = first + tile.rank(); r < last; r += tile.size()) {
            i64 at = start.look(r);
            // an empty row that the previous window moves to its end, where this one begins
            if (at < w.from * LEAF) continue;
            start.put(r, w.from * LEAF + spread.place(rank(w, at) + (r > w.row ? w.by : 0), w.n));
        }
    }
    DEVICE void dispatch(Tile<lanes> tile, const OneKey& w, const EvenLayout& spread) const {
        i64 base = w.from * LEAF;
        for (i64 s = tile.rank(); s < (w.to - w.from) * LEAF; s += tile.size()) {
            i64 leaf = leaf_of(s), from = base + spread.items_before(leaf) + (s & (LEAF - 1));
            bool live = (s & (LEAF - 1)) < spread.count(leaf);
            u32 item = *array.slot(base + s) = live ? copy.slots[from] : nobody;
            if ((s & (LEAF - 1)) == 0) array.heads[w.from + leaf] = item;
            if (WEIGHTED && live) *array.weight(base + s) = copy.weights[from];
        }
        for (i64 leaf = w.from + tile.rank(); leaf < w.to; leaf += tile.size()) {
            i64 count = spread.count(leaf - w.from);
            recount(array, leaf, count - array.counts[leaf]);
            array.counts[leaf] = (u8)count;
        }
    }
};

struct AddDegrees {  // one lane per key
    static constexpr int lanes = 1;
    const u64* keys;
    const u8* outcome;
    i64 n;
    u32* degrees;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(n)) {
            u32 by = outcome[k] == inserted ? 1 : outcome[k] == deleted ? ~0u : 0;
            if (by) atomic_add(degrees + (keys[k] >> 32), by);
        }
    }
};
