// The arcs that have changed since a result was computed: `EdgeDelta` in algorithm.py.
#pragma once
#include "structures/outcome.cuh"

struct EdgeDelta {  // arcs between vertices of any rank, equal on all
    const u64* keys;
    const u8* kinds;
    const f32* old;  // weights before and now; null in a graph without weights
    const f32* now;
    i64 n;
    DEVICE i64 src(i64 i) const { return (i64)(keys[i] >> 32); }
    DEVICE i64 dst(i64 i) const { return (i64)(u32)keys[i]; }
    DEVICE bool was(i64 i) const { return kinds[i] != inserted; }
    DEVICE bool is(i64 i) const { return kinds[i] != deleted; }
    DEVICE f32 before(i64 i) const { return old ? old[i] : 1; }
    DEVICE f32 after(i64 i) const { return now ? now[i] : 1; }
};
