// What every packed memory array has: leaves of LEAF slots, the live ones packed to the left, the others `nobody`. A
// slot is numbered by its place in reading order; the structure's view.cuh says where in memory it is. That file comes
// first in every program, and has PmaView, Array and Starts.
#pragma once
#include "kernels/search.cuh"

constexpr u32 nobody = 0xffffffffu;  // above every id, so that a leaf is sorted to its end
constexpr i64 unit_slots = 256;

DEVICE i64 leaf_of(i64 slot) { return (i64)((u64)slot / LEAF); }
DEVICE i64 unit_of(i64 slot) { return (i64)((u64)slot / unit_slots); }

// How many items of a leaf, at its places [from, end), are below dst; for CPUs, vectorised and without a branch.
DEVICE i64 below(const u32* leaf, i64 from, i64 end, u32 dst) {
    u32 first = (u32)from, span = (u32)(end - from), sum = 0;
    for (u32 i = 0; i < LEAF; ++i) sum += (leaf[i] < dst) & (i - first < span);
    return sum;
}
