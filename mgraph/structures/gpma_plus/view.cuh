// View of gpma+: leaf after leaf in one array. A row is the live slots of [start[v], start[v + 1]); a unit is its part
// in one stretch of unit_slots slots. A slot itself shows whether it is live, so loads need not wait for a count.
#pragma once
#include "structures/pma/layout.cuh"

struct Array {  // arrays that a batch writes
    u32* slots;
    f32* weights;
    u8* counts;
    u32* groups;
    u32* heads;
    // Returns the slot's memory, up to the end of its leaf.
    DEVICE u32* slot(i64 slot) const { return slots + slot; }
    DEVICE f32* weight(i64 slot) const { return weights + slot; }
    DEVICE u32* column(i64 slot, u32) const { return slots + slot; }
    DEVICE f32* column(i64 slot, f32) const { return weights + slot; }
};

struct Starts {  // starts of rows
    i64* at;
    DEVICE i64 operator[](i64 row) const { return at[row]; }
    DEVICE void set(i64 row, i64 slot) const { at[row] = slot; }
    // Reads a start that other lanes may write meanwhile.
    DEVICE i64 look(i64 row) const { return stale_load(at + row); }
    DEVICE void put(i64 row, i64 slot) const { store(at + row, slot); }
};

struct PmaView {
    const i64* start;
    const u32* degrees;
    const u32* slots;
    const f32* weights;
    const u32* heads;  // copy of each leaf's first slot, so that searches touch few, cached lines
    static constexpr bool sorted = true;

    DEVICE u32 degree(i64 v) const { return degrees[v]; }
    DEVICE f32 weight(i64 slot) const { return weights ? weights[slot] : 1.0f; }
    DEVICE i64 first(i64 v) const { return start[v]; }
    DEVICE void fetch_start(i64 v) const { prefetch(degrees + v), prefetch(start + v); }
    DEVICE void fetch(i64 v) const {
        i64 slot = start[v];
        prefetch(slots + slot), prefetch(slots + slot + 16);  // two lines
        if (weights) prefetch(weights + slot), prefetch(weights + slot + 16);
    }
    DEVICE const u32* leaf(i64 leaf) const { return slots + leaf * LEAF; }
    DEVICE i64 units(i64 v) const {
        i64 a = start[v], b = start[v + 1];
        return a == b ? 0 : unit_of(b - 1) - unit_of(a) + 1;
    }
    DEVICE i64 begins(i64 v) const { return start[v]; }
    DEVICE i64 ends(i64 v) const { return start[v + 1]; }
    DEVICE u32 id_at(i64 slot) const { return stale_load(slots + slot); }
    DEVICE void fetch_from(i64 slot) const {
        fetch_line(slots + slot);
        if (weights) fetch_line(weights + slot);
    }
    template <class T, class F> DEVICE void visit(T tile, i64 v, i64 unit, F f) const {
        Range its = range(v, unit);
        if constexpr (Tile<32>::size() == 1) {  // a CPU leaves a leaf at its first dead slot
            for (i64 next; its.first < its.end; its.first = next) {
                next = (leaf_of(its.first) + 1) * LEAF;
                for (i64 s = its.first, last = lesser(next, its.end); s < last; ++s) {
                    u32 id = slots[s];
                    if (id == nobody) break;
                    if (f(id, s, true)) return;
                }
            }
            return;
        }
        for (i64 s = its.first; s < its.end; s += ahead * tile.size()) {
            u32 ids[ahead];
            load_ids(tile, slots + s, (u32)(its.end - s), ids);
            for (int j = 0; j < ahead && s + j * tile.size() < its.end; ++j)
                if (f(ids[j], s + j * tile.size() + tile.rank(), ids[j] != nobody)) return;
        }
    }
    template <class T, class F> DEVICE void read_ids(T tile, i64 v, i64 unit, F f) const {
        Range its = range(v, unit);
        const u32* from = slots + its.first;
        u32 n = (u32)(its.end - its.first);  // 32 bits, for want of registers
        for (u32 at = 0; at < n; at += ahead * tile.size()) {
            u32 ids[ahead];
            load_ids(tile, from + at, n - at, ids);
            f(ids, its.first + at + tile.rank());
        }
    }
    struct Range {
        i64 first, end;
    };
    DEVICE Range range(i64 v, i64 unit) const {  // slots of a unit
        i64 a = start[v], stretch = unit_of(a) + unit;
        return {greater(a, stretch * unit_slots), lesser(start[v + 1], (stretch + 1) * unit_slots)};
    }
    template <class T> static DEVICE void load_ids(T tile, const u32* from, u32 n, u32 (&ids)[4]) {
        for (int j = 0; j < ahead; ++j) {
            u32 at = j * tile.size() + tile.rank();
            ids[j] = at < n ? load_once(from + at) : nobody;
        }
    }
    static constexpr int ahead = 4;  // loads in flight per lane

    // Searches dst in row v by steps, so that a lane can interleave several searches: begin, narrow while open, end.
    struct RowSearch {
        // the row's slots; the candidates for the last leaf whose first item is not above dst
        i64 first, end, leaf, leaves;
        DEVICE bool open() const { return leaves > 1; }
        DEVICE i64 middle() const { return leaf + (leaves >> 1); }
    };
    DEVICE RowSearch begin(i64 v) const {
        i64 a = start[v], b = start[v + 1];
        return {a, b, leaf_of(a), a == b ? 0 : leaf_of(b - 1) - leaf_of(a) + 1};
    }
    DEVICE void narrow(RowSearch& s, u32 dst) const {  // does nothing for a closed search
        i64 half = s.leaves >> 1;
        s.leaf += half & -(i64)(heads[s.leaf + half] <= dst);
        s.leaves -= half;
    }
    // Returns the slot of the row's first live item not below dst, or of what follows the row; hit: it is dst.
    DEVICE i64 end(const RowSearch& s, u32 dst, bool& hit) const {
        hit = false;
        if (s.first == s.end) return s.end;
        i64 next = (s.leaf + 1) * LEAF, from = greater(s.first, s.leaf * LEAF), end = lesser(s.end, next);
        i64 slot = in_flight == 1 ? lower_bound(slots, from, end, dst)
                                  : from + below(leaf(s.leaf), from - s.leaf * LEAF, end - s.leaf * LEAF, dst);
        if (slot == end || slots[slot] == nobody) return s.end <= next ? s.end : next;
        hit = slots[slot] == dst;
        return slot;
    }
    DEVICE i64 seek(i64 v, u32 dst, bool& hit) const {
        RowSearch s = begin(v);
        while (s.open()) narrow(s, dst);
        return end(s, dst, hit);
    }
    DEVICE i64 find(i64 v, u32 dst) const {
        bool hit;
        i64 slot = seek(v, dst, hit);
        return hit ? slot : -1;
    }
};
