// SlabGraph's holes: contiguous slabs of an outgrown table, or the remainder of such a hole. They are listed by class:
// class c has the holes of 2^c to 2^(c + 1) - 1 slabs, as a stack. Prepare pops and counts; commit pushes, and Finish
// writes the lists' lengths.
#pragma once
#include "structures/slabgraph/table.cuh"

constexpr int trials = 2;  // classes in which a table searches a hole: more save no memory

DEVICE int class_of(u32 slabs) { return bit_width((u64)slabs) - 1; }
// Returns the entry of a class's i-th hole, and the number of a class's entries: class 1 has every second entry, class
// 2 every fourth. So each class has room for holes of equally many slabs together, and keeps its entries when the list
// grows.
DEVICE i64 hole_entry(int c, i64 i) { return ((2 * i + 1) << (c - 1)) - 1; }
DEVICE i64 hole_room(int c, i64 entries) { return (entries + ((i64)1 << (c - 1))) >> c; }

struct Hole {
    u32 first, slabs;
};
DEVICE Hole hole_of(u64 entry) { return {(u32)(entry >> 32), (u32)entry}; }
DEVICE u64 entry_of(Hole hole) { return (u64)hole.first << 32 | hole.slabs; }

// Reserves list places of a class for the lanes that want one: an atomic per class and tile. Class 0 is none.
template <class T> DEVICE i64 take_entries(T tile, int c, i64* counters) {
    u32 same = tile.match(c);
    int leader = lowest_bit(same);
    i64 first = 0;
    if (c > 0 && leader == tile.rank()) first = atomic_add(counters + c, (i64)popcount(same));
    return tile.shfl(first, leader) + popcount(same & ((1u << tile.rank()) - 1));
}

// Returns this lane's part of the bitmap of classes with holes.
DEVICE u32 some_holes(Tile<32> warp, const i64* lengths, const i64* status) {
    u32 some = 0;
    for (int c = warp.rank(); c < hole_classes; c += warp.size())
        some |= (u32)(lengths[c] > load(status + taken + c)) << c;
    return some;
}
// Takes a hole for each lane that wants more than one slab, if possible: of the smallest class with only large enough
// holes, or of the next one. All lanes call it, with their parts of the bitmap.
DEVICE Hole take_hole(Tile<32> warp, u32 wants, u32 some, const u64* holes, const i64* lengths, i64* status) {
    Hole hole = {no_slab, 0};
    bool looks = wants > 1 && wants <= 1u << (hole_classes - 1);
    if (!warp.any(looks)) return hole;
    some = warp.sum(some);
    some = looks ? some & ~0u << bit_width((u64)wants - 1) : 0;
    for (int t = 0; t < trials && warp.any(some != 0); ++t) {
        int c = some ? lowest_bit(some) : 0;
        i64 at = lengths[c] - 1 - take_entries(warp, c, status + taken);
        bool found = c > 0 && at >= 0;
        if (found) hole = hole_of(holes[hole_entry(c, at)]);
        some = found ? 0 : some & (some - 1);
    }
    return hole;
}
