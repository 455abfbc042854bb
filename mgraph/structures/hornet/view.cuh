// View of Hornet: row v is a block of slots that begins with its edges, ascending. rows[v] is degree << 32 | the
// block's address, in units of 1 << unit slots; a row without edges has 0.
#pragma once
#include "kernels/search.cuh"

struct HornetView {
    const u64* rows;
    const u32* slots;
    const f32* weights;
    i64 unit;
    static constexpr bool sorted = true;
    static constexpr i64 grain = 256;  // slots per unit of a row; fewer in the last one
    DEVICE u32 degree(i64 v) const { return (u32)(rows[v] >> 32); }
    DEVICE i64 units(i64 v) const { return ((i64)degree(v) + grain - 1) / grain; }
    DEVICE i64 slot_of(u64 word) const { return (i64)(u32)word << unit; }
    template <class Tile, class F> DEVICE void visit(Tile tile, i64 v, i64 piece, F f) const {
        u64 word = rows[v];
        i64 begin = slot_of(word), first = begin + piece * grain;
        i64 last = lesser(first + grain, begin + (i64)(word >> 32));
        for (i64 base = first; base < last; base += tile.size()) {
            i64 slot = base + tile.rank();
            bool live = slot < last;
            if (f(live ? load_once(slots + slot) : 0u, slot, live)) return;
        }
    }
    DEVICE f32 weight(i64 slot) const { return weights ? load_once(weights + slot) : 1.0f; }
    DEVICE i64 find(i64 v, u32 id) const {
        u64 word = rows[v];
        i64 first = slot_of(word), last = first + (i64)(word >> 32), slot = lower_bound(slots, first, last, id);
        return slot < last && slots[slot] == id ? slot : -1;
    }
};
