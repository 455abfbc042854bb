// Merges a row at once, by a group whose lanes hold all its edges in registers, so that none is written before all are
// read. Woven places number the row's edges and the batch's inserts together, edges that the batch deletes among them.
// Two sets of bits say which of them come and which go; counting bits says from where to where an edge moves.
#pragma once
#include "structures/hornet/rows.cuh"

template <class T> DEVICE T scan_of(Block block, T mine) {
    T all;
    return scan(block, mine, all);
}
template <class T, int W> DEVICE T scan_of(Tile<W> tile, T mine) { return tile.scan(mine); }

template <class Group, int lanes, int each> struct Weaver {  // of up to each woven places a lane
    static constexpr int words = 3 * (lanes * each / 32) + 1;  // of its room
    static constexpr int together = 8;  // loads without a branch between them
    Group group;
    u32* come;    // [places / 32]
    u32* gone;
    u32* before;  // how many come, and go << 16, in the words before
    u32* least;   // the first place that comes or goes
    DEVICE Weaver(Group its, u32* room)
        : group(its), come(room), gone(come + its.size() * each / 32), before(gone + its.size() * each / 32),
          least(before + its.size() * each / 32) {}

    // Not rows that are too long, nor those of more than a step where they lie, if some edges move back and others on.
    DEVICE bool takes(const Merger<Group>& row) const {
        bool both = row.stays() && row.inserts_to(row.b) && row.deletes_to(row.b);
        return each == together || row.places() <= (i64)group.size() * (both ? +together : each);
    }
    static DEVICE u32 bit(int v) { return 1u << v % 32; }
    DEVICE int below(const u32* set, int v) const { return popcount(set[v / 32] & (bit(v) - 1)); }
    DEVICE int edge(int v) const { return v - (int)(before[v / 32] & 0xffffu) - below(come, v); }
    DEVICE int place(int v) const { return v - (int)(before[v / 32] >> 16) - below(gone, v); }

    DEVICE void merge(const Merger<Group>& row) const {
        int places = (int)row.places(), w = group.rank(), some = (places + 31) / 32;
        if (w < some) come[w] = gone[w] = 0;
        if (w == 0) *least = (u32)places;
        group.sync();
        for (i64 k = row.a + w; k < row.b; k += group.size()) {
            u8 is = row.batch.outcome[k];
            if (is != inserted && is != deleted) continue;
            int v = row.woven(k);
            atomic_or((is == inserted ? come : gone) + v / 32, bit(v));
            atomic_min(least, (u32)v);
        }
        group.sync();
        u32 mine = w < some ? (u32)popcount(come[w]) | (u32)popcount(gone[w]) << 16 : 0, upto = scan_of(group, mine);
        if (w < some) before[w] = upto - mine;
        group.sync();
        int first = row.stays() ? (int)*least : 0;
        const Slots& slots = row.slots;
        bool back = row.stays() && row.inserts_to(row.b) > 0;  // none is written over that is still to be read
        move(slots.ids + row.from, slots.ids_out + row.to, first, places, (int)row.edges, back);
        if (slots.weights)
            move(slots.weights + row.from, slots.weights_out + row.to, first, places, (int)row.edges, back);
        for (i64 k = row.a + w; k < row.b; k += group.size())
            if (row.batch.outcome[k] == inserted) row.set(k, place(row.woven(k)));
        group.sync();
    }
    // The edges at the places [first, places), from a row of `edges` to their new places; `back`: the last ones first.
    template <class T> DEVICE void move(const T* from, T* to, int first, int places, int edges, bool back) const {
        int size = group.size(), step = size * together, steps = edges ? (places - first + step - 1) / step : 0;
        for (int s = 0; s < steps; ++s) {
            int own = first + (back ? steps - 1 - s : s) * step + group.rank();
            T held[together];
#pragma unroll
            for (int j = 0; j < together; ++j)
                held[j] = from[lesser(edge(lesser(own + j * size, places - 1)), edges - 1)];
            group.sync();
#pragma unroll
            for (int j = 0; j < together; ++j) {
                int v = own + j * size;
                if (v < places && !((come[v / 32] | gone[v / 32]) & bit(v))) to[place(v)] = held[j];
            }
        }
    }
};

// One lane alone moves what lies between two keys at once instead.
template <class Weaver, class Merger> DEVICE void merge_row(const Weaver& weaver, const Merger& row) {
    if constexpr (alone) merge_in_steps(row);
    else if (weaver.takes(row)) weaver.merge(row);
    else merge_in_steps(row);
}
