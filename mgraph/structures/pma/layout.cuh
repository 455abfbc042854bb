// Layout of all packed memory arrays: leaves of LEAF slots, with live ones packed to the left and `nobody` in the
// others. Slots are numbered in reading order; the structure's view.cuh maps them to memory. That file comes first in
// every program, and defines PmaView, Array and Starts.
#pragma once
#include "kernels/search.cuh"

constexpr u32 nobody = 0xffffffffu;  // above every id, so that a leaf is sorted to its end
constexpr i64 unit_slots = 256;

DEVICE i64 leaf_of(i64 slot) { return (i64)((u64)slot / LEAF); }
DEVICE i64 unit_of(i64 slot) { return (i64)((u64)slot / unit_slots); }

// Counts the items of a leaf, at places [from, end), below dst; for CPUs, vectorized and without a branch.
DEVICE i64 below(const u32* leaf, i64 from, i64 end, u32 dst) {
    u32 first = (u32)from, span = (u32)(end - from), sum = 0;
    for (u32 i = 0; i < LEAF; ++i) sum += (leaf[i] < dst) & (i - first < span);
    return sum;
}
