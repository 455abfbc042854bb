// pma, commit: windows too wide for a block's shared memory, and the whole array if it is replaced. They are cut into
// parts of equal length; a block moves a part's items to their places in a copy, and CopyBack copies them back.
#pragma once
#include "structures/pma/merge.cuh"

struct SumTasks {  // one tile per task of leaves: counts their live items, and those before each of its leaves
    static constexpr int lanes = 32;
    Leaves leaves;
    i64* before;
    u32* within;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 t : grid.items(tile, (leaves.leaves + task_leaves - 1) / task_leaves)) {
            u32 sum = 0;
            for (i64 j = tile.rank(); j - tile.rank() < task_leaves; j += tile.size()) {
                i64 leaf = t * task_leaves + j;
                bool is = j < task_leaves && leaf < leaves.leaves;
                u32 mine = is ? leaves.counts[leaf] : 0, upto = tile.scan(mine);
                if (is) within[leaf] = sum + upto - mine;
                sum += tile.shfl(upto, tile.size() - 1);
            }
            if (tile.rank() == 0) before[t + 1] = sum;
            if (tile.rank() == 0 && t == 0) before[0] = 0;
        }
    }
};

// Cuts a wide window's slots and keys, merged with a key before the item at its slot, into equal parts (merge path).
struct CutParts {  // one lane per part: counts the window's keys before it
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
                if (batch.slot(w.first_key + k) - (i64)w.leaf * LEAF + k < d) low = k + 1;
                else high = k;
            }
            cuts[i] = (u32)low;
        }
    }
};

struct Part {  // slots of the array and keys of the batch
    i64 first_slot, last_slot, first_key, last_key;
    DEVICE Part(const Window& w, const u32* cuts, i64 i) {
        i64 from = (i64)w.part * part_slots, slots = (i64)w.leaves * LEAF, keys = (i64)w.last_key - w.first_key;
        i64 k = cuts[i], to = lesser(from + part_slots, slots + keys),
            end = w.part + 1 < parts(w) ? (i64)cuts[i + 1] : keys;
        first_key = w.first_key + k, last_key = w.first_key + end;
        first_slot = (i64)w.leaf * LEAF + from - k, last_slot = (i64)w.leaf * LEAF + to - end;
    }
};

// Computes the slots of a part's items from their distance to its first rank: 32 bits, and no division.
struct Landing {
    i64 rank, slot = 0;  // of the first item; its leaf begins there
    u32 at = 0, count = 0;  // in its leaf; items per leaf, 0 if that varies within the part
    u32 times = 0;  // 2**32 / count, rounded up: exact below 2**32 / 128
    DEVICE Landing(const EvenLayout& spread, i64 first, i64 most) : rank(first) {
        i64 longer = (i64)(spread.extra * (spread.base + 1));
        bool all = first + most < longer;
        if (!all && first < longer) return;
        if (spread.base < 2) return;  // `times` would overflow
        count = (u32)(spread.base + all);
        i64 after = all ? first : first - longer, leaf = after / count;
        slot = (leaf + (all ? 0 : (i64)spread.extra)) * LEAF, at = (u32)(after - leaf * count);
        times = (u32)((((u64)1 << 32) + count - 1) / count);
    }
    DEVICE void put(i64 distance, u32 item, u32* slots) const {  // like EvenLayout::cover
        u32 x = at + (u32)distance, leaf = (u32)((u64)x * times >> 32);
        u32* to = slots + slot + leaf * LEAF;
        u32 p = x - leaf * count;
        to[p] = item;
        while ((p += count) < LEAF) to[p] = nobody;
    }
};

struct Gather {  // one block per part: moves items to their places in `out`, the window's copy or the new array
    static constexpr int lanes = 256;
    Batch batch;
    Leaves leaves;
    Array array;
    const f32* weight;
    const u32* windows;
    const u32* cuts;
    i64 n;
    Flat out;
    i64 out_leaves;
    DEVICE void operator()(Grid grid) const {
        SHARED(i32, rank_at, part_leaves + 2);  // ranks of leaves' first slots, from the part's first item on
        SHARED(i32, key_of, part_leaves + 2);  // the last key before each leaf
        // its slot relative to the part's first << 1 | 1 for a delete; one further key ahead
        SHARED(i32, key_at, part_slots + 2);
        SHARED(i32, moved, part_slots + 1);  // shift by the part's keys up to this one
        Block block;
        for (i64 i : grid.items(block, n)) {
            Window w = part_at(windows, i, out_leaves);
            Part part(w, cuts, i);
            i32 slots = (i32)(part.last_slot - part.first_slot), keys = (i32)(part.last_key - part.first_key) + 1;
            u32 item[ahead];
            load(item, part, slots, block.rank(), block.size());  // before the first wait
            i64 from = leaf_of(part.first_slot), items = leaves.up_to(from);
            i32 skew = (i32)(part.first_slot - from * LEAF), net = batch.net32(part.first_key);
            // items of the first leaf that belong to another part
            i32 skip = skew ? lesser(skew, (i32)leaves.counts[from]) : 0;
            for (i32 j = block.rank(); (from + j) * LEAF <= part.last_slot; j += block.size())
                rank_at[j] = (i32)(leaves.up_to(from + j) - items) - skip;
            for (i32 j = block.rank(); j <= keys; j += block.size()) {
                i64 k = part.first_key + j - 1;
                bool is = j < keys && k >= w.first_key;
                key_at[j] = j == keys ? 0x7fffffff : -2;
                if (is) key_at[j] = (i32)(greater(batch.slot(k) - part.first_slot, (i64)-1) * 2 + batch.deletes(k));
                if (j < keys) moved[j] = is ? batch.net32(k + 1) - net : 0;
            }
            block.sync();
            for (i32 j = block.rank(); (from + j) * LEAF < part.last_slot; j += block.size())
                key_of[j] = (i32)upper_bound(key_at, 1, keys, (i32)(j * LEAF - skew) * 2 - 1) - 1;
            Merge merge(batch, leaves, w);
            EvenLayout spread(merge.n, out_leaves ? out_leaves : (i64)w.leaves);
            Landing landing(spread, items - leaves.up_to(w.leaf) + skip + batch.net(part.first_key) - merge.net0,
                            2 * part_slots);
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
                    put(w, merge, spread, landing, distance, now[j],
                        WEIGHTED ? *array.weight(part.first_slot + slot) : 0);
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
    static constexpr int ahead = 4;  // loads in flight per lane
    DEVICE void load(u32* item, const Part& part, i32 slots, i32 s, i32 step) const {
        for (int j = 0; j < ahead; ++j)
            item[j] = s + j * step < slots ? load_once(array.slot(part.first_slot + s + j * step)) : nobody;
    }
    DEVICE void put(const Window& w, const Merge& merge, const EvenLayout& spread, const Landing& landing, i64 distance,
                    u32 item, f32 item_weight) const {
        i64 base = (i64)w.scratch * LEAF;
        if (landing.count && !WEIGHTED) return landing.put(distance, item, out.slots + base);
        i64 slot = spread.place(landing.rank + distance, merge.n);
        spread.cover(slot, item, out.slots + base);
        if (WEIGHTED) out.weights[base + slot] = item_weight;
    }
};

struct CopyBack {  // one block per part of a wide window: copies it into place, and writes the counts of its leaves
    static constexpr int lanes = 256;
    Batch batch;
    Leaves leaves;
    Array array;
    const u32* windows;
    i64 n;
    Flat copy;
    DEVICE void operator()(Grid grid) const {
        Block block;
        for (i64 i : grid.items(block, n)) {
            Window w = window_at(windows, i);
            i64 from = (i64)w.part * part_leaves, to = lesser(from + part_leaves, (i64)w.leaves);
            if (from >= to) continue;
            EvenLayout spread(Merge(batch, leaves, w).n, w.leaves);
            for (i64 s = from * LEAF + block.rank(); s < to * LEAF; s += block.size()) {
                bool live = (s & (LEAF - 1)) < spread.count(leaf_of(s));
                u32 item = *array.slot((i64)w.leaf * LEAF + s) = copy.slots[(i64)w.scratch * LEAF + s];
                if ((s & (LEAF - 1)) == 0) array.heads[w.leaf + leaf_of(s)] = item;
                if (WEIGHTED && live) *array.weight((i64)w.leaf * LEAF + s) = copy.weights[(i64)w.scratch * LEAF + s];
            }
            for (i64 j = from + block.rank(); j < to; j += block.size()) {
                i64 old = array.counts[w.leaf + j];
                array.counts[w.leaf + j] = (u8)spread.count(j);
                recount(array, w.leaf + j, spread.count(j) - old);
            }
        }
    }
};
