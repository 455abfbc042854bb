// Data common to prepare and commit: the located batch, ranks, and windows.
#pragma once
#include "structures/shift_sums.cuh"

struct Batch {  // n located keys; moves are inserts << 32 | deletes
    const u64* keys;
    const i64* located;  // each key's slot << 2 | its move + 1, ascending
    const u32* before;  // inserts << 16 | deletes before each key, and before the end, in its chunk of 1 << shift keys
    const u64* chunks;  // moves before each chunk
    i64 shift;
    i64 n;
    // Lower bound of `located` for keys at this slot and behind it.
    static DEVICE i64 at_slot(i64 slot) { return slot << 2; }
    static DEVICE int by(i64 located) { return (int)(located & 3) - 1; }
    DEVICE i64 slot(i64 k) const { return located[k] >> 2; }
    DEVICE int by_key(i64 k) const { return by(located[k]); }
    DEVICE bool inserts(i64 k) const { return by_key(k) > 0; }
    DEVICE bool deletes(i64 k) const { return by_key(k) < 0; }
    DEVICE i64 row(i64 k) const { return (i64)(keys[k] >> 32); }
    DEVICE u64 moves(i64 k) const { return shifts_before(before, chunks, shift, k); }
    DEVICE i64 net(i64 k) const { return sum(moves(k)); }
    DEVICE i32 net32(i64 k) const { return (i32)net(k); }
    static DEVICE i64 sum(u64 moves) { return (i64)(moves >> 32) - (i64)(moves & 0xffffffffu); }
    // Lower bound of `located` for keys behind the leaf; no key is behind the last leaf.
    static DEVICE i64 behind_leaf(i64 leaf, i64 leaves) {
        return leaf + 1 == leaves ? (i64)1 << 62 : at_slot((leaf + 1) * LEAF);
    }
    // Returns the first key at this slot or behind it, by galloping from `hint`.
    DEVICE i64 first_at(i64 slot, i64 hint) const { return lower_bound_near(located, n, hint, at_slot(slot)); }
};

constexpr i64 group_level = 10, group_leaves = 1 << group_level;  // leaves per group, whose items have a common count

// Of wide windows: leaves per task of sums, slots and keys per part, and rows per task.
constexpr i64 task_slots = 1024, task_leaves = task_slots / LEAF, part_slots = 4096, part_leaves = part_slots / LEAF,
              task_rows = 512;

template <class T> struct OVERLAY alignas(16) Fours {  // loaded and stored at once
    T at[4];
};

// Live items by leaf and by group; if given, also prefix sums over tasks, and over leaves within their task.
struct Leaves {
    const u8* counts;
    const u32* groups;
    const i64* before;
    const u32* within;
    i64 leaves;
    DEVICE i64 leaf(i64 slot) const { return lesser(leaf_of(slot), leaves - 1); }
    static DEVICE i64 sum_bytes(u64 eight) {
        constexpr u64 low = 0x00ff00ff00ff00ffull;
        return (i64)(((eight & low) + (eight >> 8 & low)) * 0x0001000100010001ull >> 48);
    }
    DEVICE i64 small_sum(i64 from, i64 to) const {  // bytes eight at a time where possible
        i64 sum = 0;
        for (; from < to && (from & 7); ++from) sum += counts[from];
        for (; from + 8 <= to; from += 8) sum += sum_bytes(*(const u64*)(counts + from));
        for (; from < to; ++from) sum += counts[from];
        return sum;
    }
    DEVICE i64 up_to(i64 leaf) const {  // items before a leaf; needs `before`
        i64 task = (i64)((u64)(leaf + task_leaves - 1) / task_leaves);
        return leaf == leaves ? before[task] : before[(u64)leaf / task_leaves] + within[leaf];
    }
    DEVICE i64 sum(i64 from, i64 to) const {  // a window lies in one group, or begins and ends with groups
        if (before) return up_to(to) - up_to(from);
        if (to - from < group_leaves) return small_sum(from, to);
        i64 sum = 0, g = from / group_leaves, end = (to + group_leaves - 1) / group_leaves;
        for (; g < end && (g & 3); ++g) sum += groups[g];
        for (; g + 4 <= end; g += 4) {
            Fours<u32> four = *(const Fours<u32>*)(groups + g);
            for (int j = 0; j < 4; ++j) sum += four.at[j];
        }
        for (; g < end; ++g) sum += groups[g];
        return sum;
    }
    // Returns the rank of the item at `slot`, or of what follows the last item, from leaf `first` on.
    DEVICE i64 rank(i64 slot, i64 first) const {
        i64 leaf = leaf_of(slot), at = slot - leaf * LEAF;
        if (leaf >= leaves) leaf = leaves, at = 0;
        return at + (before ? up_to(leaf) - up_to(first) : small_sum(first, leaf));
    }
};

struct Flat {  // copy of a window, or a new array: leaf after leaf
    u32* slots;
    f32* weights;
};

DEVICE void recount(const Array& array, i64 leaf, i64 by) {  // updates the group's sum with its leaf
    if (by) atomic_add(array.groups + leaf / group_leaves, (u32)by);
}

// Leaves [leaf, leaf + leaves), their keys, the rows that start in them; for a wide window, its copy and a part.
struct OVERLAY alignas(16) Window {
    u32 leaf, leaves, first_key, last_key, first_row, last_row, scratch, part;
};
DEVICE Window& window_at(u32* windows, i64 i) { return ((Window*)windows)[i]; }
DEVICE const Window& window_at(const u32* windows, i64 i) { return ((const Window*)windows)[i]; }
// Returns a part. A replaced array has a single window, in many parts.
DEVICE Window part_at(const u32* windows, i64 i, bool whole) {
    Window w = window_at(windows, whole ? 0 : i);
    if (whole) w.part = (u32)i;
    return w;
}

// Slots, in leaves, merged by a tile and by a block in shared memory; rows that a window keeps.
constexpr i64 few_slots = 256, few_leaves = few_slots / LEAF, block_slots = 4096, block_leaves = block_slots / LEAF;
constexpr i64 inline_rows = 64;
// Maximum keys and rows of windows of one leaf, and keys of few: their lanes examine them all.
constexpr i64 leaf_keys = 64, leaf_rows = 512, few_keys = 1024;
DEVICE i64 parts(const Window& w) {
    return ((i64)w.leaves * LEAF + (w.last_key - w.first_key) + part_slots - 1) / part_slots;
}

struct EvenLayout {  // n items spread evenly over leaves: the first `extra` leaves hold one more
    u64 base, extra, end;
    DEVICE EvenLayout(i64 n, i64 leaves)
        : base(((u64)n | (u64)leaves) >> 32 ? (u64)n / (u64)leaves : (u32)n / (u32)leaves),
          extra((u64)n - base * (u64)leaves), end((u64)leaves * LEAF) {}
    DEVICE i64 count(i64 leaf) const { return (i64)(base + ((u64)leaf < extra)); }
    DEVICE i64 place(i64 i, i64 n) const {  // slot of item i, or the end of the leaves if it does not exist
        if (i >= n) return (i64)end;
        u64 longer = extra * (base + 1), at = (u64)i;
        if (at < longer) return (i64)(divide(at, base + 1, 0));
        return (i64)divide(at - longer, base, extra);
    }
    static DEVICE u64 divide(u64 at, u64 by, u64 first) {
        if ((at | by) >> 32) return (first + at / by) * LEAF + at % by;
        u32 leaf = (u32)at / (u32)by;  // the usual case, several times cheaper
        return (first + leaf) * LEAF + ((u32)at - leaf * (u32)by);
    }
    DEVICE i64 items_before(i64 leaf) const { return leaf * (i64)base + lesser(leaf, (i64)extra); }
    DEVICE i64 rank(i64 slot, i64 n) const {
        return slot >= (i64)end ? n : items_before(leaf_of(slot)) + (slot & (LEAF - 1));
    }
    // Writes an item into its slot, and `nobody` into its part of the leaf's empty slots, so that a new array needs no
    // fill.
    DEVICE void cover(i64 slot, u32 item, u32* slots) const {
        i64 count = this->count(leaf_of(slot));
        slots[slot] = item;
        for (i64 at = (slot & (LEAF - 1)) + count; at < LEAF; at += count)
            slots[slot - (slot & (LEAF - 1)) + at] = nobody;
    }
};

struct Merge {  // a window's merge by ranks: places of its survivors, its new items and its rows
    Batch batch;
    Leaves leaves;
    i64 leaf, first_key, last_key, net0, n;
    DEVICE Merge(const Batch& b, const Leaves& l, const Window& w)
        : Merge(b, l, w, l.sum(w.leaf, (i64)w.leaf + w.leaves)) {}
    DEVICE Merge(const Batch& b, const Leaves& l, const Window& w, i64 count)  // `count` items before the batch
        : batch(b), leaves(l), leaf(w.leaf), first_key(w.first_key), last_key(w.last_key) {
        net0 = b.net(first_key);
        n = count + b.net(last_key) - net0;
    }
    // Returns the new rank of the survivor at `slot`, given its old rank in the window; -1 if the batch deletes it. Of
    // the window's keys, those below `low` are at or before it and those from `high` on behind it.
    DEVICE i64 survivor(i64 slot, i64 rank, i64 low, i64 high) const {
        i64 k = lower_bound(batch.located, low, high, Batch::at_slot(slot + 1));
        if (k > first_key && batch.slot(k - 1) == slot && batch.deletes(k - 1)) return -1;
        return rank + batch.net(k) - net0;
    }
    DEVICE i64 arrival(i64 k) const { return leaves.rank(batch.slot(k), leaf) + batch.net(k) - net0; }
    DEVICE i64 row(i64 r, i64 old_start, i64 low, i64 high) const {
        i64 k = lower_bound(batch.keys, low, high, (u64)r << 32);
        return leaves.rank(old_start, leaf) + batch.net(k) - net0;
    }
};
