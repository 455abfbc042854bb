// Splits the words of a search, hops << 32 | source; all ones if unreached.
#pragma once

struct SplitHops {  // one lane per own vertex; found: the number of reached vertices, and the most hops plus one
    static constexpr int lanes = 1;
    const u64* words;
    i64 n;
    i32* distance;
    i64* nearest;  // null if nobody asks
    i64* found;
    DEVICE void operator()(Grid grid) const {
        u64 levels = 0;
        i64 reached = 0;
        for (i64 row : grid.items(n)) {
            u64 word = words[row];
            bool here = word != ~(u64)0;
            distance[row] = here ? (i32)(word >> 32) : -1;
            if (nearest) nearest[row] = here ? (i64)(word & 0xffffffffu) : -1;
            reached += here;
            if (here) levels = greater(levels, (word >> 32) + 1);
        }
        Tile<32> tile;
        reached = tile.sum(reached), levels = tile.most(levels);
        if (tile.rank() > 0 || reached == 0) return;
        atomic_add(found, reached);
        atomic_max((u64*)found + 1, levels);
    }
};
