// Makes a step of random walks.
#pragma once
#include "kernels/random_draws.cuh"

template <class View>
struct Step {  // goes to a random neighbour, or stays without any, a walk per tile
    static constexpr int lanes = 32;
    View graph;
    const u64* walks;  // number << 32 | vertex
    i64 n;
    i64 first;
    const u32* names;  // user's id of each vertex; null if it is the internal id
    u64 seed;
    i64 step;
    u64* next;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            u64 number = walks[i] >> 32, stream = stream_of(seed, number, (u64)step), least = ~(u64)0;
            i64 row = (i64)(u32)walks[i] - first, units = graph.units(row);
            u32 drawn = (u32)walks[i];
            bool any = false;
            // Each lane takes the smallest draw of its neighbours, then the tile that of its lanes.
            for (i64 unit = 0; unit < units; ++unit)
                graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                    u64 draw = live ? scramble(stream ^ (names ? names[id] : id)) : ~(u64)0;
                    if (live && (!any || draw < least)) least = draw, drawn = id, any = true;
                    return false;
                });
            u64 winner = ~tile.most(any ? ~least : (u64)0);
            u32 best = tile.ballot(any && least == winner);
            if (best) drawn = tile.shfl(drawn, lowest_bit(best));
            if (tile.rank() == 0) next[i] = number << 32 | drawn;
        }
    }
};
