// Prefix sums over the lanes of a block, and places in lists for what they hold.
#pragma once

// The sum of what the lanes up to this one hold, and in `all` what all of them do. All lanes of the block call it.
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

// Places in two lists for what the lanes of a block found; `mine` is how many a lane has for the first list, + how many
// for the second << 16. One atomic per block and list, since all blocks want the same cache line. False where no lane
// has any. All lanes of the block call it.
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
