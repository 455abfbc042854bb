// The vertices of a core.
#pragma once
#include "kernels/bits.cuh"

struct MarkInside {  // one lane an own vertex: 1 if it was removed at this level; counts them
    static constexpr int lanes = 1;
    const i64* core;
    i64 level;  // -1 for those that were never removed
    i64 n;
    u8* inside;
    i64* count;
    DEVICE void operator()(Grid grid) const {
        i64 found = 0;
        for (i64 v : grid.items(n)) {
            inside[v] = core[v] == level;
            found += inside[v];
        }
        Tile<32> tile;
        found = tile.sum(found);
        if (tile.rank() == 0 && found) atomic_add(count, found);
    }
};
