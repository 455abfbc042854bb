// Counts the self-loops among changed arcs.
#pragma once

struct CountLoops {  // one lane per arc, src << 32 | dst
    static constexpr int lanes = 1;
    const u64* keys;
    i64 n;
    i64* loops;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n))
            if (keys[i] >> 32 == (u64)(u32)keys[i]) take_place(loops);
    }
};
