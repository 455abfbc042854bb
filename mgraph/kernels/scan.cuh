// Prefix sums over the lanes of a block, and places in lists.
#pragma once

// Returns the inclusive prefix sum of `mine` over the block, and the total in `all`. All lanes of the block call it.
template <class T> DEVICE T scan(Block block, T mine, T& all) {
    Tile<32> tile;
    SHARED(T, sums, 32);
    T upto = tile.scan(mine);
    if (tile.rank() == tile.size() - 1) sums[tile.index()] = upto;
    block.sync();
    all = 0;
    for (int t = 0; t * tile.size() < block.size(); all += sums[t++])
        if (t == tile.index()) upto += all;
    block.sync();
    return upto;
}

// Reserves places in two lists; `mine` is a lane's number of items for the first list, + that for the second << 16. One
// atomic per block and list, since all blocks contend for the same cache line. False if the block has no item. All lanes
// of the block call it.
struct Lengths {
    i64 *one, *other;
};
DEVICE bool take(Block block, u32 mine, Lengths lengths, i64* to) {
    SHARED(i64, place, 2);
    u32 all, before = scan(block, mine, all) - mine;
    if (all == 0) return false;
    for (int l = block.rank(); l < 2; l += block.size()) {
        i64 wanted = all >> 16 * l & 0xffff;
        place[l] = wanted ? atomic_add(l ? lengths.other : lengths.one, wanted) : 0;
    }
    block.sync();
    for (int l = 0; l < 2; ++l) to[l] = place[l] + (i64)(before >> 16 * l & 0xffff);
    return true;
}
