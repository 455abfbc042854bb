// The largest time in each row, for weights that halve with the distance to it.
#pragma once

template <class View>
struct LatestTimes {  // a row per tile
    static constexpr int lanes = 32;
    View graph;
    i64 n;
    const i64* times;  // of each slot
    i64* latest;       // out: the least number for a row without edges
    DEVICE void operator()(Grid grid) const {
        constexpr u64 sign = (u64)1 << 63;  // flips the order of signed numbers into that of unsigned ones
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            u64 most = 0;
            i64 units = graph.units(i);
            for (i64 unit = 0; unit < units; ++unit)
                graph.visit(tile, i, unit, [&](u32, i64 slot, bool live) {
                    if (live) most = greater(most, (u64)times[slot] ^ sign);
                    return false;
                });
            most = tile.most(most);
            if (tile.rank() == 0) latest[i] = (i64)(most ^ sign);
        }
    }
};
