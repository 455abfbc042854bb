// pma, commit: starts of rows in merged leaves, and degrees.
#pragma once
#include "structures/pma/window_tree.cuh"

// The rows that begin in a leaf after the row of its first key; few numbers, since lanes exchange them.
struct LeafRows {
    u32 leaf, first_key, many;  // many keys
    u32 counts;  // items before the batch | after it << 8 | move of the first key + 1 << 16
    DEVICE i64 first() const { return (i64)leaf * LEAF; }
    DEVICE int old() const { return counts & 255; }
    DEVICE int moved() const { return (int)(counts >> 16) - 1; }  // shift by the first key, for all of these rows
    DEVICE i64 place(int rank) const { return first() + (rank < (int)(counts >> 8 & 255) ? rank : LEAF); }
};

// One warp per 32 merged leaves writes the starts of their rows; one per 32 keys the degrees, by each row's first key.
struct UpdateRows {
    static constexpr int lanes = 1;
    static constexpr int resident = 8;
    Batch batch;
    WindowTree levels;
    const u32* first_keys;  // of leaves, as for MergeLeaves
    i64 windows;
    Leaves leaves;
    Starts start;
    u32* degrees;
    i64 rows;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        i64 side = warp.size(), of_leaves = (windows + side - 1) / side, of_keys = (batch.n + side - 1) / side;
        for (i64 t : grid.items(warp, of_leaves + of_keys)) {
            i64 i = (t < of_leaves ? t : t - of_leaves) * side + warp.rank();
            if (t < of_leaves) move_starts(warp, i);
            else if (side > 1) move_degrees(warp, i);
            else move_degree(i);
        }
    }
    // Updates degrees, neighbouring keys at once: rows are stretches of lanes, and may continue in other warps.
    DEVICE void move_degrees(const Tile<32>& warp, i64 k) const {
        bool is = k < batch.n;
        u32 row = (u32)batch.row(is ? k : batch.n - 1), before = warp.shfl(row, (warp.rank() + 31) & 31);
        int by = is ? batch.by_key(k) : 0;
        u32 come = warp.ballot(by > 0), gone = warp.ballot(by < 0);
        u32 its = stretch(warp.ballot(warp.rank() == 0 || before != row), warp.rank());
        int net = popcount(come & its) - popcount(gone & its);
        if (net) atomic_add(degrees + row, (u32)net);
    }
    DEVICE void move_degree(i64 k) const {
        if (k + 16 < batch.n) prefetch_to_write(degrees + batch.row(k + 16));
        i64 row = batch.row(k);
        if (k > 0 && batch.row(k - 1) == row) return;
        i64 end = lower_bound_near(batch.keys, batch.n, k, (u64)(row + 1) << 32);
        degrees[row] += (u32)(batch.net(end) - batch.net(k));
    }
    // Moves row starts, one lane per leaf. The rows of all leaves are balanced over all lanes, at first only some of
    // each, since most leaves have few.
    DEVICE void move_starts(const Tile<32>& warp, i64 i) const {
        if (i + 8 < windows) prefetch_to_write(start.at + batch.row(first_keys[i + 8]) + 1);
        i64 k = first_keys[lesser(i, windows - 1)], leaf = leaves.leaf(batch.slot(k)), last = k;
        int net = 0, after = leaves.counts[leaf];
        for (i64 behind = batch.behind_leaf(leaf, leaves.leaves); last < batch.n && batch.located[last] < behind;
             ++last)
            net += batch.by_key(last);
        LeafRows mine{(u32)leaf, (u32)k, (u32)(last - k),
                      (u32)(after - net) | (u32)after << 8 | (u32)(batch.by_key(k) + 1) << 16};
        bool more = i < windows && !levels.covered(Tile<1>{}, 0, leaf);
        if (more) move_first(mine);
        // the rows that may begin in the leaf
        i64 row = batch.row(k) + 1, end = last < batch.n ? batch.row(last) + 1 : rows;
        for (int most = 8;; most = lesser(2 * most, 1 << 20)) {
            more = more && row < end && is_row_of(mine, row, start.look(row));
            int some = more ? (int)lesser(end - row, (i64)most) : 0, upto = warp.scan(some);
            if (!warp.any(some > 0)) return;
            deal(warp, mine, (u32)row - (u32)(upto - some), upto);
            row += some;
        }
    }
    DEVICE void deal(const Tile<32>& warp, const LeafRows& mine, u32 base, int upto) const {
        int all = warp.shfl(upto, warp.size() - 1);
        for (int t = warp.rank(); t - warp.rank() < all; t += warp.size()) {
            int owner = 0;  // number of lanes whose rows all precede this one
            for (int step = warp.size() / 2; step; step /= 2)
                if (warp.shfl(upto, owner + step - 1) <= t) owner += step;
            i64 row = (u32)(warp.shfl(base, owner) + (u32)t);
            LeafRows its{warp.shfl(mine.leaf, owner), warp.shfl(mine.first_key, owner), warp.shfl(mine.many, owner),
                         warp.shfl(mine.counts, owner)};
            i64 was = t < all ? start.look(row) : 0;
            if (t < all && is_row_of(its, row, was)) move(its, row, was);
        }
    }
    // Empty rows at the end of the array stay, but those up to the last key may get an item after them.
    DEVICE bool is_row_of(const LeafRows& leaf, i64 row, i64 at) const {
        return at < leaf.first() + LEAF ||
               ((i64)leaf.leaf + 1 == leaves.leaves && row <= batch.row((i64)leaf.first_key + leaf.many - 1));
    }
    DEVICE void move(const LeafRows& leaf, i64 row, i64 was) const {
        int rank = (int)lesser(was - leaf.first(), (i64)leaf.old()) + leaf.moved();
        for (i64 k = leaf.first_key + 1; k < (i64)leaf.first_key + leaf.many && batch.row(k) < row; ++k)
            rank += batch.by_key(k);
        start.put(row, leaf.place(rank));
    }
    // Moves rows up to the first key's own. They begin before all changes, unless no item is left where the key was
    // located, or none was there, at the end of the array.
    DEVICE void move_first(const LeafRows& leaf) const {
        i64 was = batch.slot(leaf.first_key), to = leaf.place((int)lesser(was - leaf.first(), (i64)leaf.old()));
        if (to == was) return;
        for (i64 row = batch.row(leaf.first_key); row >= 0 && start.look(row) == was; --row) start.put(row, to);
    }
};
