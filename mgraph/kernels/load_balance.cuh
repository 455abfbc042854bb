// Load balancing within a tile: distributes the lanes' unequal numbers of items evenly.
#pragma once

struct LoadBalance {  // items are numbered consecutively, lane by lane; all lanes call together
    Tile<32> tile;
    u32 mine, upto, total;
    DEVICE LoadBalance(u32 items) : mine(items), upto(tile.scan(items)), total(tile.shfl(upto, tile.size() - 1)) {}
    DEVICE int bearer(u32 item) const {  // the lane that owns the item
        int lane = 0;
        for (int step = tile.size() / 2; step; step /= 2) lane += tile.shfl(upto, lane + step - 1) <= item ? step : 0;
        return lane;
    }
    DEVICE u32 number(u32 item, int lane) const { return item - tile.shfl(upto - mine, lane); }  // among that lane's
};
