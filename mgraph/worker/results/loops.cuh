// Counts the self-loops among changed arcs.
#pragma once

struct CountLoops {  // one lane per arc, src << 32 | dst
    static constexpr int lanes = 1;
    const u64* keys;
    i64 n;
    i64* loops;
    DEVICE void operator()(Grid grid) const {
        i64 found = 0;
        for (i64 i : grid.items(n)) found += keys[i] >> 32 == (u64)(u32)keys[i];
        Tile<32> tile;
        found = tile.sum(found);
        if (tile.rank() == 0 && found) atomic_add(loops, found);
    }
};
