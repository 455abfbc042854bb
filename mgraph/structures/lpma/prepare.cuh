// lpma, prepare: that of gpma+, windows from the top down, and the directory of an array with a new level.
#pragma once
#include "structures/pma/small.cuh"

// Chooses windows from the top down: a window is the widest range with a half out of bounds. One lane per changed leaf
// examines the ranges in which its leaf is the first changed one, so each range is examined once.
struct Descend {
    static constexpr int lanes = 1;
    Batch batch;
    const u32* leaf_list;
    Leaves leaves;
    WindowTree levels;
    u64* crowded;  // as for Climb; followed by one entry per leaf of leaf_list
    i64* status;
    DEVICE void operator()(Grid grid) const {
        i64 many = status[crowded_leaves];
        for (i64 i : grid.items(many + status[leaf_windows])) {
            i64 k = i < many ? (i64)(crowded[i] >> 8) : (i64)leaf_list[i - many];
            i64 leaf = leaves.leaf(batch.slot(k)), level = widest(k, leaf);
            bool listed = level == 0 && i >= many;  // a window of one leaf, in leaf_list
            if (listed || (level > 0 && level <= levels.height && !levels.mark(level, leaf))) level = Climb::none;
            crowded[i] = (u64)k << 8 | (u64)level;
        }
    }
    DEVICE i64 widest(i64 k, i64 leaf) const {
        i64 first = k, last = k, held = leaves.counts[leaf], found = 0;
        for (i64 at = 0; at <= levels.height; ++at) {
            i64 from = leaf >> at << at, to = lesser(from + ((i64)1 << at), leaves.leaves);
            first = batch.first_at(from * LEAF, first);
            if (batch.moves(first) != batch.moves(k)) return found;  // another leaf is the first changed one
            last = to == leaves.leaves ? batch.n : batch.first_at(to * LEAF, last);
            if (at > 0) held += sibling(leaves, levels, at - 1, leaf);
            if (levels.holds(at, to - from, held + Batch::sum(batch.moves(last) - batch.moves(first)))) continue;
            found = at + 1;
        }
        if (found <= levels.height) return found;
        store(status + resize, (i64)1);
        return Climb::none;
    }
};

// one lane per leaf: writes counts, heads and groups, in reading order, for an array with a new level
struct Interleave {
    static constexpr int lanes = 1;
    Leaves leaves;  // before
    const u32* old_heads;
    u8* counts;
    u32* groups;
    u32* heads;
    DEVICE void operator()(Grid grid) const {
        for (i64 leaf : grid.items(2 * leaves.leaves)) {
            bool is_new = leaf & 1;
            counts[leaf] = is_new ? (u8)0 : leaves.counts[leaf / 2];
            heads[leaf] = is_new ? nobody : old_heads[leaf / 2];
            if (leaf % group_leaves) continue;
            i64 end = lesser((leaf + group_leaves) / 2, leaves.leaves);
            groups[leaf / group_leaves] = (u32)leaves.small_sum(leaf / 2, end);
        }
    }
};
