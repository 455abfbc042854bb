// gpma+ as algorithms see it. A row is the live slots of [start[v], start[v + 1]); a unit is the part of it in one
// stretch of unit_slots slots. LEAF slots per leaf, the live ones packed to its left, counts[leaf] of them, the others
// `nobody`: a reader sees from the slot itself whether it is live, so that its loads need not wait for a count.
#pragma once
#include "kernels/search.cuh"

constexpr u32 nobody = 0xffffffffu;  // above every id, so that a leaf is sorted to its end
constexpr i64 unit_slots = 256;

DEVICE i64 leaf_of(i64 slot) { return (i64)((u64)slot / LEAF); }

struct GpmaView {
    const i64* start;
    const u32* degrees;
    const u32* slots;
    const f32* weights;
    const u32* heads;  // a copy of each leaf's first slot: searches touch few cache lines, which stay cached
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

    // The search for dst in row v by steps, so that one lane can have several under way: begin, narrow while it is
    // open, end.
    struct Search {
        // the row's slots; the leaves that may be the last whose first item is not above dst
        i64 first, end, leaf, leaves;
        DEVICE bool open() const { return leaves > 1; }
        DEVICE i64 middle() const { return leaf + (leaves >> 1); }
    };
    DEVICE Search begin(i64 v) const {
        i64 a = start[v], b = start[v + 1];
        return {a, b, leaf_of(a), a == b ? 0 : leaf_of(b - 1) - leaf_of(a) + 1};
    }
    DEVICE void narrow(Search& s, u32 dst) const {  // does nothing where the search is not open
        i64 half = s.leaves >> 1;
        s.leaf += half & -(i64)(heads[s.leaf + half] <= dst);
        s.leaves -= half;
    }
    // How many items there are below dst; for CPUs, vectorised and without a branch.
    DEVICE i64 below(i64 leaf, i64 from, i64 end, u32 dst) const {
        u32 first = (u32)(from - leaf * LEAF), span = (u32)(end - from), sum = 0;
        for (u32 i = 0; i < LEAF; ++i) sum += (slots[leaf * LEAF + i] < dst) & (i - first < span);
        return sum;
    }
    // The slot of the first live item of the row that is not below dst, or of what follows the row; hit: it is dst
    // itself.
    DEVICE i64 end(const Search& s, u32 dst, bool& hit) const {
        hit = false;
        if (s.first == s.end) return s.end;
        i64 next = (s.leaf + 1) * LEAF, from = greater(s.first, s.leaf * LEAF), end = lesser(s.end, next);
        i64 slot = in_flight == 1 ? lower_bound(slots, from, end, dst) : from + below(s.leaf, from, end, dst);
        if (slot == end || slots[slot] == nobody) return s.end <= next ? s.end : next;
        hit = slots[slot] == dst;
        return slot;
    }
    DEVICE i64 seek(i64 v, u32 dst, bool& hit) const {
        Search s = begin(v);
        while (s.open()) narrow(s, dst);
        return end(s, dst, hit);
    }
    DEVICE i64 find(i64 v, u32 dst) const {
        bool hit;
        i64 slot = seek(v, dst, hit);
        return hit ? slot : -1;
    }
};
