// Lengths of paths of edges that count 1 each.
#pragma once
#include "algorithms/paths/near_far/lengths.cuh"

struct LengthsOfHops {  // one lane per own vertex
    static constexpr int lanes = 1;
    const i32* hops;  // negative for none
    i64 n;
    u64 none;
    Word* lengths;
    DEVICE void operator()(Grid grid) const {
        // In float32 a sum of ones ends at the first number to which 1 cannot be added.
        constexpr i32 most = LENGTHS == 32 ? 1 << 24 : 0x7fffffff;
        for (i64 row : grid.items(n)) {
            f64 length = lesser(hops[row], most);
            lengths[row] = hops[row] < 0 ? (Word)none : longer(0, length);
        }
    }
};
