// View of lpma: the leaves lie in levels, each after level 0 as large as all before it. In reading order a leaf has a
// place; its level and number there never change. A new level moves place i to place 2 i, and its leaves are in
// between.
#pragma once
#include "structures/pma/layout.cuh"

constexpr i64 level_shift = 40;  // an address is level << level_shift | slot in the level
constexpr i64 array_end = (i64)64 << level_shift;  // address behind the last slot, for any number of levels

struct Segments {  // converts places to addresses, and back
    const u64* levels;  // addresses of each level's slots and weights
    i64 leaves;
    i64 height;  // levels after level 0
    DEVICE i64 address(i64 slot) const {
        i64 leaf = leaf_of(slot);
        if (leaf >= leaves) return array_end;
        int zeros = lowest_bit((u32)leaf | (u32)1 << height);
        i64 level = height - zeros;
        return level << level_shift | (leaf >> (zeros + (level > 0))) * LEAF | (slot & (LEAF - 1));
    }
    DEVICE i64 place(i64 address) const {
        i64 level = address >> level_shift, slot = within(address), leaf = leaf_of(slot);
        if (level > height) return leaves * LEAF;
        leaf = level ? (2 * leaf + 1) << (height - level) : leaf << height;
        return leaf * LEAF + (slot & (LEAF - 1));
    }
    static DEVICE i64 within(i64 address) { return address & (((i64)1 << level_shift) - 1); }
    DEVICE u32* slot_at(i64 address) const { return (u32*)levels[2 * (address >> level_shift)] + within(address); }
    DEVICE f32* weight_at(i64 address) const {
        return (f32*)levels[2 * (address >> level_shift) + 1] + within(address);
    }
};

struct Array {  // arrays that a batch writes; counts, groups and heads lie in reading order
    const u64* levels;
    i64 leaves;
    i64 height;
    u8* counts;
    u32* groups;
    u32* heads;
    DEVICE Segments segments() const { return {levels, leaves, height}; }
    // Returns the slot's memory, up to the end of its leaf.
    DEVICE u32* slot(i64 slot) const { return segments().slot_at(segments().address(slot)); }
    DEVICE f32* weight(i64 slot) const { return segments().weight_at(segments().address(slot)); }
    DEVICE u32* column(i64 slot, u32) const { return this->slot(slot); }
    DEVICE f32* column(i64 slot, f32) const { return weight(slot); }
};

struct Starts {  // starts of rows, as addresses, which stay valid when levels are appended
    i64* at;
    i64 leaves;
    i64 height;
    DEVICE Segments segments() const { return {nullptr, leaves, height}; }
    DEVICE i64 operator[](i64 row) const { return segments().place(at[row]); }
    DEVICE void set(i64 row, i64 slot) const { at[row] = segments().address(slot); }
    // Reads a start that other lanes may write meanwhile.
    DEVICE i64 look(i64 row) const { return segments().place(stale_load(at + row)); }
    DEVICE void put(i64 row, i64 slot) const { store(at + row, segments().address(slot)); }
};

// Slots are addresses. A row is the live slots from the place of start[v] to that of start[v + 1]; a unit is its part
// in one stretch of unit_slots places.
struct PmaView {
    const i64* start;
    const u32* degrees;
    const u64* levels;
    const u32* heads;  // each leaf's first slot, in reading order: `nobody` for an empty leaf
    i64 leaves;
    i64 height;
    i64 weighted;
    static constexpr bool sorted = true;
    static constexpr int ahead = 4;  // loads in flight per lane

    DEVICE Segments segments() const { return {levels, leaves, height}; }
    DEVICE u32 degree(i64 v) const { return degrees[v]; }
    DEVICE f32 weight(i64 slot) const { return weighted ? *segments().weight_at(slot) : 1.0f; }
    DEVICE i64 first(i64 v) const { return segments().place(start[v]); }
    DEVICE const u32* leaf(i64 leaf) const {
        return segments().slot_at(segments().address(lesser(leaf, leaves - 1) * LEAF));
    }
    DEVICE i64 units(i64 v) const {
        if (!degrees[v]) return 0;
        return unit_of(first(v + 1) - 1) - unit_of(first(v)) + 1;
    }
    template <class T, class F> DEVICE void visit(T tile, i64 v, i64 unit, F f) const {
        constexpr int step = ahead * T::size();  // slots per step of the tile, in the same leaf if they fit
        i64 a = first(v), stretch = unit_of(a) + unit;
        i64 begin = greater(a, stretch * unit_slots), end = lesser(first(v + 1), (stretch + 1) * unit_slots);
        for (i64 s = step <= LEAF ? begin & ~(i64)(step - 1) : begin; s < end; s += step) {
            u32 ids[ahead];
            i64 at[ahead];
            for (int j = 0; j < ahead; ++j) {
                i64 slot = s + j * tile.size() + tile.rank();
                at[j] = step <= LEAF && j ? at[0] + j * tile.size() : segments().address(slot);
                ids[j] = slot >= begin && slot < end ? load_once(segments().slot_at(at[j])) : nobody;
            }
            for (int j = 0; j < ahead && s + j * tile.size() < end; ++j)
                if (f(ids[j], at[j], ids[j] != nobody)) return;
        }
    }

    // Searches dst in row v by steps, as in gpma+. Empty leaves are skipped to the left.
    struct RowSearch {
        // the row's slots; the last leaf whose first item is known not to be above dst; the candidates from `low` on
        i64 first, end, leaf, leaves, low;
        DEVICE bool open() const { return leaves > 1; }
        DEVICE i64 middle() const { return low + (leaves >> 1); }
    };
    DEVICE RowSearch begin(i64 v) const {
        i64 a = first(v), b = first(v + 1);
        return {a, b, leaf_of(a), a == b ? 0 : leaf_of(b - 1) - leaf_of(a) + 1, leaf_of(a)};
    }
    DEVICE void narrow(RowSearch& s, u32 dst) const {  // does nothing for a closed search
        i64 half = s.leaves >> 1, full = s.low + half;
        u32 head = heads[full];
        while (head == nobody && full > s.low) head = heads[--full];
        // without a branch, of which half would be mispredicted
        bool below = full > s.low, right = !below | (head <= dst);
        s.leaf += (full - s.leaf) & -(i64)(below & right);
        s.low += half & -(i64)right;
        s.leaves -= half;
    }
    // Returns the slot of the row's first live item not below dst, or of what follows the leaf before it; hit: it is
    // dst.
    DEVICE i64 end(const RowSearch& s, u32 dst, bool& hit) const {
        hit = false;
        if (s.first == s.end) return s.end;
        i64 base = s.leaf * LEAF, from = greater(s.first, base) - base, end = lesser(s.end - base, (i64)LEAF);
        const u32* slots = leaf(s.leaf);
        i64 at = in_flight == 1 ? lower_bound(slots, from, end, dst) : from + below(slots, from, end, dst);
        if (at == end || slots[at] == nobody) return base + (s.end - base <= LEAF ? s.end - base : LEAF);
        hit = slots[at] == dst;
        return base + at;
    }
    DEVICE i64 find(i64 v, u32 dst) const {
        bool hit;
        RowSearch s = begin(v);
        while (s.open()) narrow(s, dst);
        i64 slot = end(s, dst, hit);
        return hit ? segments().address(slot) : -1;
    }
};
