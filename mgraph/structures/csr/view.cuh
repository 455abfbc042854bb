// View of a CSR: row v is dst[offsets[v]] .. dst[offsets[v + 1] - 1], ascending; a slot is an index of dst.
#pragma once
#include "kernels/search.cuh"

struct CsrView {
    const i64* offsets;
    const u32* dst;
    const f32* weights;
    static constexpr bool sorted = true;
    static constexpr i64 grain = 256;  // slots per unit
    DEVICE i64 degree(i64 v) const { return offsets[v + 1] - offsets[v]; }
    DEVICE i64 units(i64 v) const { return (degree(v) + grain - 1) / grain; }
    DEVICE void fetch_start(i64 v) const { prefetch(offsets + v); }
    DEVICE void fetch(i64 v) const {
        i64 slot = offsets[v];
        prefetch(dst + slot);
        if (weights) prefetch(weights + slot);
    }
    DEVICE i64 begins(i64 v) const { return offsets[v]; }
    DEVICE i64 ends(i64 v) const { return offsets[v + 1]; }
    DEVICE u32 id_at(i64 slot) const { return stale_load(dst + slot); }
    DEVICE void fetch_from(i64 slot) const {
        fetch_line(dst + slot);
        if (weights) fetch_line(weights + slot);
    }
    template <class Tile, class F> DEVICE void visit(Tile tile, i64 v, i64 unit, F f) const {
        i64 first = offsets[v] + unit * grain, last = lesser(first + grain, offsets[v + 1]);
        for (i64 base = first; base < last; base += tile.size()) {
            i64 slot = base + tile.rank();
            bool live = slot < last;
            if (f(live ? load_once(dst + slot) : 0u, slot, live)) return;
        }
    }
    template <class T, class F> DEVICE void read_ids(T tile, i64 v, i64 unit, F f) const {
        i64 first = offsets[v] + unit * grain, last = lesser(first + grain, offsets[v + 1]);
        for (i64 base = first; base < last; base += ahead * tile.size()) {
            u32 ids[ahead];
            load_ids(tile, base, last, ids);
            f(ids, base + tile.rank());
        }
    }
    template <class T, int n> DEVICE void load_ids(T tile, i64 first, i64 last, u32 (&ids)[n]) const {
        for (int j = 0; j < n; ++j) {
            i64 slot = first + j * tile.size() + tile.rank();
            ids[j] = slot < last ? load_once(dst + slot) : ~0u;
        }
    }
    static constexpr int ahead = 4;  // loads in flight per lane
    DEVICE f32 weight(i64 slot) const { return weights ? load_once(weights + slot) : 1.0f; }
    DEVICE i64 find(i64 v, u32 id) const {
        i64 last = offsets[v + 1], slot = lower_bound(dst, offsets[v], last, id);
        return slot < last && dst[slot] == id ? slot : -1;
    }
};
