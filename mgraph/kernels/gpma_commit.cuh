// gpma+, commit: every window is written once, its items spread evenly. Windows are disjoint; so are their rows.
// Windows of one leaf: a few lanes each. Up to few_leaves: a tile, up to block_leaves: a block. Wider: out and back.
#pragma once
#include "gpma_merge.cuh"
#include "outcome.cuh"

struct SetWeights {  // one lane a key: the new weight of edges that are there already, before anything moves
    static constexpr int lanes = 1;
    Batch batch;
    const u8* outcome;
    const f32* weight;
    f32* weights;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n))
            if (outcome[k] == updated) weights[batch.slot[k]] = weight ? weight[k] : 1.0f;
    }
};

// The starts of rows [first, last) of a window whose items go to `base` and on.
template <class Group> DEVICE void move_rows(Group group, const Merge& merge, const Spread& spread, i64 base, i64* start, i64 first, i64 last) {
    if (first >= last) return;
    i64 low = lower_bound(merge.batch.keys, merge.first_key, merge.last_key, (u64)first << 32);
    i64 high = lower_bound(merge.batch.keys, low, merge.last_key, (u64)last << 32);
    for (i64 r = first + group.rank(); r < last; r += group.size())
        start[r] = base + spread.place(merge.row(r, start[r], low, high), merge.n);
}

struct Room {  // what one group has for one window: its items by new rank, their weights, and the items before each leaf
    u32* items;
    f32* weights;
    i32* before;
};

struct Windows {  // of several leaves, each merged by one group of lanes
    Batch batch;
    Leaves leaves;
    Array array;
    const f32* weight;
    i64* start;
    template <class Group> DEVICE void merge(const Group& group, const Window& w, const Room& room) const {
        Merge merge(batch, leaves, w);
        Spread spread(merge.n, w.leaves);
        i64 first = (i64)w.leaf * LEAF, slots = (i64)w.leaves * LEAF;
        for (i64 j = group.rank(); j < w.leaves; j += group.size()) room.before[j] = (i32)leaves.small_sum(w.leaf, w.leaf + j);
        i64 old = leaves.small_sum(w.leaf, w.leaf + w.leaves);
        group.sync();
        for (i64 s = group.rank(); s < slots; s += group.size()) {
            u32 item = array.slots[first + s];
            if (item == nobody) continue;
            i64 to = merge.survivor(first + s, room.before[leaf_of(s)] + (s & (LEAF - 1)), merge.first_key, merge.last_key);
            if (to >= 0) room.items[to] = item;
            if (WEIGHTED && to >= 0) room.weights[to] = array.weights[first + s];
        }
        for (i64 k = merge.first_key + group.rank(); k < merge.last_key; k += group.size())
            if (batch.inserts(k)) {
                i64 to = merge.arrival(k);
                room.items[to] = (u32)batch.keys[k];
                if (WEIGHTED) room.weights[to] = weight ? weight[k] : 1.0f;
            }
        move_rows(group, merge, spread, first, start, w.first_row, w.last_row);
        group.sync();
        for (i64 s = group.rank(); s < slots; s += group.size()) {
            i64 leaf = leaf_of(s), from = spread.items_before(leaf) + (s & (LEAF - 1));
            bool live = (s & (LEAF - 1)) < spread.count(leaf);
            array.slots[first + s] = live ? room.items[from] : nobody;
            if ((s & (LEAF - 1)) == 0) array.heads[w.leaf + leaf] = live ? room.items[from] : nobody;
            if (WEIGHTED && live) array.weights[first + s] = room.weights[from];
        }
        for (i64 j = group.rank(); j < w.leaves; j += group.size()) array.counts[w.leaf + j] = (u8)spread.count(j);
        if (group.rank() == 0) array.recount(w.leaf, merge.n - old);
        group.sync();
    }
};

struct MergeBlocks {  // one block a window of up to block_leaves
    static constexpr int lanes = 256;
    Batch batch;
    const f32* weight;
    const u32* windows;
    i64 n;
    Leaves leaves;
    Array array;
    i64* start;
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, items, block_leaves * LEAF);
        SHARED(f32, weights, WEIGHTED ? block_leaves * LEAF : 1);
        SHARED(i32, before, block_leaves);
        Block block;
        for (i64 i : grid.items(block, n))
            Windows{batch, leaves, array, weight, start}.merge(block, window_at(windows, i), {items, weights, before});
    }
};

struct SumTasks {  // one lane a task of leaves: their live items, to be summed up, and those before each leaf of it
    static constexpr int lanes = 1;
    Leaves leaves;
    i64* before;
    u32* within;
    DEVICE void operator()(Grid grid) const {
        for (i64 t : grid.items((leaves.leaves + task_leaves - 1) / task_leaves)) {
            if (t == 0) before[0] = 0;
            u32 sum = 0;
            for (i64 leaf = t * task_leaves; leaf < lesser((t + 1) * task_leaves, leaves.leaves); sum += leaves.counts[leaf++]) within[leaf] = sum;
            before[t + 1] = sum;
        }
    }
};

// A wide window's slots and keys in one order, a key before the item at its slot, cut into parts of equal length (merge path).
struct CutParts {  // one lane a part: how many of the window's keys stand before it
    static constexpr int lanes = 1;
    Batch batch;
    const u32* windows;
    i64 n;
    i64 whole;
    u32* cuts;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            Window w = part_at(windows, i, whole);
            i64 d = (i64)w.part * part_slots, slots = (i64)w.leaves * LEAF;
            i64 low = greater((i64)0, d - slots), high = lesser((i64)w.last_key - w.first_key, d);
            while (low < high) {
                i64 k = low + ((high - low) >> 1);
                if (batch.slot[w.first_key + k] - (i64)w.leaf * LEAF + k < d) low = k + 1; else high = k;
            }
            cuts[i] = (u32)low;
        }
    }
};

struct Part {  // slots of the array and keys of the batch
    i64 first_slot, last_slot, first_key, last_key;
    DEVICE Part(const Window& w, const u32* cuts, i64 i) {
        i64 from = (i64)w.part * part_slots, slots = (i64)w.leaves * LEAF, keys = (i64)w.last_key - w.first_key;
        i64 k = cuts[i], to = lesser(from + part_slots, slots + keys), end = w.part + 1 < parts(w) ? (i64)cuts[i + 1] : keys;
        first_key = w.first_key + k, last_key = w.first_key + end;
        first_slot = (i64)w.leaf * LEAF + from - k, last_slot = (i64)w.leaf * LEAF + to - end;
    }
};

// Where the items of a part go, by their distance from the part's first rank: 32 bits, and no division.
struct Landing {
    i64 rank, slot = 0;     // of the first; its slot's leaf begins there
    u32 at = 0, count = 0;  // in its leaf; items a leaf, 0 where that differs within the part
    u32 times = 0;          // 2**32 / count, rounded up: exact for what is below 2**32 / 128
    DEVICE Landing(const Spread& spread, i64 first, i64 most) : rank(first) {
        i64 longer = (i64)(spread.extra * (spread.base + 1));
        bool all = first + most < longer;
        if (!all && first < longer) return;
        if (spread.base < 2) return;  // `times` would not fit
        count = (u32)(spread.base + all);
        i64 after = all ? first : first - longer, leaf = after / count;
        slot = (leaf + (all ? 0 : (i64)spread.extra)) * LEAF, at = (u32)(after - leaf * count);
        times = (u32)((((u64)1 << 32) + count - 1) / count);
    }
    DEVICE void put(i64 distance, u32 item, u32* slots) const {  // as Spread::cover
        u32 x = at + (u32)distance, leaf = (u32)((u64)x * times >> 32);
        u32* to = slots + slot + leaf * LEAF;
        u32 p = x - leaf * count;
        to[p] = item;
        while ((p += count) < LEAF) to[p] = nobody;
    }
};

struct Gather {  // one block a part: items to their places in `out`, the window's copy or the new array
    static constexpr int lanes = 256;
    Batch batch;
    Leaves leaves;
    Array array;
    const f32* weight;
    const u32* windows;
    const u32* cuts;
    i64 n;
    Array out;
    i64 out_leaves;
    DEVICE void operator()(Grid grid) const {
        SHARED(i32, rank_at, part_leaves + 2);   // of leaves' first slots, from the part's first item on
        SHARED(i32, key_of, part_leaves + 2);    // the last key before each leaf
        SHARED(i32, key_at, part_slots + 2);     // slots past the part's first << 1 | whether the key deletes; from the key before the part on
        SHARED(i32, moved, part_slots + 1);      // by the part's keys up to this one
        Block block;
        for (i64 i : grid.items(block, n)) {
            Window w = part_at(windows, i, out_leaves);
            Part part(w, cuts, i);
            i32 slots = (i32)(part.last_slot - part.first_slot), keys = (i32)(part.last_key - part.first_key) + 1;
            u32 item[ahead];
            load(item, part, slots, block.rank(), block.size());  // before anything waits
            i64 from = leaf_of(part.first_slot), items = leaves.up_to(from);
            i32 skew = (i32)(part.first_slot - from * LEAF), net = batch.net32(part.first_key);
            i32 skip = skew ? lesser(skew, (i32)leaves.counts[from]) : 0;  // items of the first leaf that are another part's
            for (i32 j = block.rank(); (from + j) * LEAF <= part.last_slot; j += block.size()) rank_at[j] = (i32)(leaves.up_to(from + j) - items) - skip;
            for (i32 j = block.rank(); j <= keys; j += block.size()) {
                i64 k = part.first_key + j - 1;
                bool is = j < keys && k >= w.first_key;
                key_at[j] = is ? (i32)(greater(batch.slot[k] - part.first_slot, (i64)-1) * 2 + batch.deletes(k)) : j < keys ? -2 : 0x7fffffff;
                if (j < keys) moved[j] = is ? batch.net32(k + 1) - net : 0;
            }
            block.sync();
            for (i32 j = block.rank(); (from + j) * LEAF < part.last_slot; j += block.size())
                key_of[j] = (i32)upper_bound(key_at, 1, keys, (i32)(j * LEAF - skew) * 2 - 1) - 1;
            Merge merge(batch, leaves, w);
            Spread spread(merge.n, out_leaves ? out_leaves : (i64)w.leaves);
            Landing landing(spread, items - leaves.up_to(w.leaf) + skip + batch.net(part.first_key) - merge.net0, 2 * part_slots);
            block.sync();
            for (i32 s = block.rank(); s < slots; s += ahead * block.size()) {
                u32 now[ahead];
                for (int j = 0; j < ahead; ++j) now[j] = item[j];
                load(item, part, slots, s + ahead * block.size(), block.size());
                for (int j = 0; j < ahead; ++j) {
                    i32 slot = s + j * block.size(), leaf = (slot + skew) / LEAF, k, at = slot * 2 + 1;
                    if (now[j] == nobody) continue;
                    for (k = key_of[leaf]; key_at[k + 1] <= at;) ++k;
                    if (key_at[k] == at) continue;  // deleted
                    i64 distance = rank_at[leaf] + (slot + skew) % LEAF + moved[k];
                    put(w, merge, spread, landing, distance, now[j], WEIGHTED ? array.weights[part.first_slot + slot] : 0);
                }
            }
            for (i32 j = 1 + block.rank(); j < keys; j += block.size()) {
                i64 k = part.first_key + j - 1;
                i32 slot = key_at[j] >> 1;
                if (batch.inserts(k))
                    put(w, merge, spread, landing, rank_at[(slot + skew) / LEAF] + (slot + skew) % LEAF + moved[j] - 1,
                        (u32)batch.keys[k], weight ? weight[k] : 1.0f);
            }
            block.sync();
        }
    }
    static constexpr int ahead = 4;  // loads that a lane has under way
    DEVICE void load(u32* item, const Part& part, i32 slots, i32 s, i32 step) const {
        for (int j = 0; j < ahead; ++j) item[j] = s + j * step < slots ? load_once(array.slots + part.first_slot + s + j * step) : nobody;
    }
    DEVICE void put(const Window& w, const Merge& merge, const Spread& spread, const Landing& landing, i64 distance, u32 item, f32 item_weight) const {
        i64 base = (i64)w.scratch * LEAF;
        if (landing.count && !WEIGHTED) return landing.put(distance, item, out.slots + base);
        i64 slot = spread.place(landing.rank + distance, merge.n);
        spread.cover(slot, item, out.slots + base);
        if (WEIGHTED) out.weights[base + slot] = item_weight;
    }
};

struct CopyBack {  // one block a part of a wide window: from the copy into place, and the counts of its leaves
    static constexpr int lanes = 256;
    Batch batch;
    Leaves leaves;
    Array array;
    const u32* windows;
    i64 n;
    Array copy;
    DEVICE void operator()(Grid grid) const {
        Block block;
        for (i64 i : grid.items(block, n)) {
            Window w = window_at(windows, i);
            i64 from = (i64)w.part * part_leaves, to = lesser(from + part_leaves, (i64)w.leaves);
            if (from >= to) continue;
            Spread spread(Merge(batch, leaves, w).n, w.leaves);
            for (i64 s = from * LEAF + block.rank(); s < to * LEAF; s += block.size()) {
                bool live = (s & (LEAF - 1)) < spread.count(leaf_of(s));
                u32 item = array.slots[(i64)w.leaf * LEAF + s] = copy.slots[(i64)w.scratch * LEAF + s];
                if ((s & (LEAF - 1)) == 0) array.heads[w.leaf + leaf_of(s)] = item;
                if (WEIGHTED && live) array.weights[(i64)w.leaf * LEAF + s] = copy.weights[(i64)w.scratch * LEAF + s];
            }
            for (i64 j = from + block.rank(); j < to; j += block.size()) {
                i64 old = array.counts[w.leaf + j];
                array.counts[w.leaf + j] = (u8)spread.count(j);
                array.recount(w.leaf + j, spread.count(j) - old);
            }
        }
    }
};

struct MoveRows {  // one tile a task: the starts of up to task_rows rows of one window
    static constexpr int lanes = 32;
    Batch batch;
    Leaves leaves;
    const u32* windows;
    i64 n;
    i64 out_leaves;
    i64 rows;  // of the whole array, and one for its end
    i64* start;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            Window w = part_at(windows, i, out_leaves);
            Merge merge(batch, leaves, w);
            Spread spread(merge.n, out_leaves ? out_leaves : (i64)w.leaves);
            i64 first = out_leaves ? i * task_rows : (i64)w.first_row;
            i64 last = out_leaves ? lesser(first + task_rows, rows) : (i64)w.last_row;
            move_rows(tile, merge, spread, out_leaves ? 0 : (i64)w.leaf * LEAF, start, first, last);
        }
    }
};

struct MoveDegrees {  // one lane a key: the first of a row's keys brings its degree up to date, nobody else touches it
    static constexpr int lanes = 1;
    Batch batch;
    u32* degrees;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (k + 16 < batch.n) prefetch_to_write(degrees + (batch.keys[k + 16] >> 32));
            u64 row = batch.keys[k] >> 32;
            if (k > 0 && batch.keys[k - 1] >> 32 == row) continue;
            i64 end = lower_bound_near(batch.keys, batch.n, k, (row + 1) << 32);
            degrees[row] += (u32)(batch.net(end) - batch.net(k));
        }
    }
};
