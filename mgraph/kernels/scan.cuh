// Sums of what the lanes of a block hold.
#pragma once

// What the lanes up to this one hold, in sum, and what all do. All lanes of the block call it.
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
