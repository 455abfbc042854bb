// Rows of a graph of communities: row v is dst[offsets[v]] .. dst[offsets[v + 1] - 1], ascending, without itself. The
// weight of a slot is a whole number of the units of `fixed`.
#pragma once

struct CoarseView {
    const i64* offsets;
    const u32* dst;
    const u64* weights;
    static constexpr bool sorted = true;
    static constexpr i64 grain = 256;  // slots per unit
    DEVICE i64 degree(i64 v) const { return offsets[v + 1] - offsets[v]; }
    DEVICE i64 units(i64 v) const { return (degree(v) + grain - 1) / grain; }
    DEVICE f32 weight(i64 slot) const { return (f32)weights[slot]; }
    template <class Tile, class F> DEVICE void visit(Tile tile, i64 v, i64 unit, F f) const {
        i64 first = offsets[v] + unit * grain, last = lesser(first + grain, offsets[v + 1]);
        for (i64 base = first; base < last; base += tile.size()) {
            i64 slot = base + tile.rank();
            if (f(slot < last ? load_once(dst + slot) : 0u, slot, slot < last)) return;
        }
    }
};

DEVICE u64 fixed(const CoarseView& graph, i64 slot, f64) { return load_once(graph.weights + slot); }
