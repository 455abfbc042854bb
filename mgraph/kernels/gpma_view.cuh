// gpma+ as algorithms see it. A row is the live slots of [start[v], start[v + 1]); a unit is the part of it in one stretch of
// unit_slots slots. LEAF slots a leaf, the live ones packed to its left, counts[leaf] of them, the others `nobody`: a reader
// sees from the slot itself whether it is live, so that its loads need not wait for a count.
#pragma once
#include "search.cuh"

constexpr u32 nobody = 0xffffffffu;  // above every id, so that a leaf is sorted to its end
constexpr i64 unit_slots = 256;

DEVICE i64 leaf_of(i64 slot) { return (i64)((u64)slot / LEAF); }

struct GpmaView {
    const i64* start;
    const u32* degrees;
    const u32* slots;
    const f32* weights;
    static constexpr bool sorted = true;

    DEVICE u32 degree(i64 v) const { return degrees[v]; }
    DEVICE f32 weight(i64 slot) const { return weights ? weights[slot] : 1.0f; }
    DEVICE i64 units(i64 v) const {
        i64 a = start[v], b = start[v + 1];
        return a == b ? 0 : (i64)((u64)(b - 1) / unit_slots - (u64)a / unit_slots) + 1;
    }
    template <class T, class F> DEVICE void visit(T tile, i64 v, i64 unit, F f) const {
        i64 a = start[v], stretch = (i64)((u64)a / unit_slots) + unit;
        i64 first = greater(a, stretch * unit_slots), end = lesser(start[v + 1], (stretch + 1) * unit_slots);
        for (i64 s = first; s < end; s += ahead * tile.size()) {
            u32 ids[ahead];
            for (int j = 0; j < ahead; ++j) {
                i64 slot = s + j * tile.size() + tile.rank();
                ids[j] = slot < end ? load_once(slots + slot) : nobody;
            }
            for (int j = 0; j < ahead && s + j * tile.size() < end; ++j)
                if (f(ids[j], s + j * tile.size() + tile.rank(), ids[j] != nobody)) return;
        }
    }
    static constexpr int ahead = 4;  // loads that a lane has under way

    DEVICE void prefetch_row(i64 v) const {  // what seek reads of a row in one leaf, its first steps in a longer one
        i64 low = leaf_of(start[v]), last = leaf_of(greater(start[v + 1] - 1, start[v]));
        if (low == last) {
            for (int s = 0; s < LEAF; s += 16) prefetch(slots + low * LEAF + s);
            return;
        }
        i64 middle = (low + last + 1) >> 1;
        prefetch(slots + middle * LEAF);
        prefetch(slots + ((low + middle) >> 1) * LEAF);
        prefetch(slots + ((middle + last + 1) >> 1) * LEAF);
    }
    // The slot of the first live item of row v that is not below dst, or of what follows the row; hit: it is dst itself.
    DEVICE i64 seek(i64 v, u32 dst, bool& hit) const {
        i64 a = start[v], b = start[v + 1];
        hit = false;
        if (a == b) return b;
        i64 low = leaf_of(a), last = leaf_of(b - 1), high = last;
        while (low < high) {  // the last leaf whose first item is not above dst
            i64 middle = (low + high + 1) >> 1;
            if (slots[middle * LEAF] <= dst) low = middle; else high = middle - 1;
        }
        i64 end = lesser(b, (low + 1) * LEAF);
        i64 slot = lower_bound(slots, greater(a, low * LEAF), end, dst);
        if (slot == end || slots[slot] == nobody) return low == last ? b : (low + 1) * LEAF;
        hit = slots[slot] == dst;
        return slot;
    }
    DEVICE i64 find(i64 v, u32 dst) const {
        bool hit;
        i64 slot = seek(v, dst, hit);
        return hit ? slot : -1;
    }
};
