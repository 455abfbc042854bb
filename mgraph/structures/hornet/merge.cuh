// Merges the rows that a batch changes with their keys, each by one group of lanes. In another block a row is merged in
// one pass. In its own block deleted edges are closed up first, from the front; then inserts are made room for, from the
// back: a group has read all edges of a step before it writes any, and writes over none that it has still to read.
#pragma once
#include "structures/hornet/prepare.cuh"

constexpr i64 each = in_flight > 8 ? in_flight : 8;  // edges that a lane has under way

struct Slots {
    const u32* ids;
    const f32* weights;
    i64 unit;
    u32* ids_out;  // the same, unless all rows go to a new pool
    f32* weights_out;
    i64 unit_out;
};

// The first of [low, high) for which `is` holds, as it does for all after it.
template <class Is> DEVICE i64 first_where(i64 low, i64 high, Is is) {
    while (low < high) {
        i64 middle = low + ((high - low) >> 1);
        if (is(middle)) high = middle;
        else low = middle + 1;
    }
    return low;
}

template <class Group> struct Merger {
    Group group;
    const Batch& batch;
    const Slots& slots;
    const f32* weight;
    i64 a, b;  // the row's keys
    i64 from, to, edges;  // its first slot before and after; how many edges it had
    DEVICE i64 step() const { return each * group.size(); }
    DEVICE i64 inserts_to(i64 k) const { return batch.inserts_in(a, k); }
    DEVICE i64 deletes_to(i64 k) const { return batch.deletes_in(a, k); }
    DEVICE bool goes(i64 k, i64 p) const { return k > a && batch.place[k - 1] == p && batch.outcome[k - 1] == deleted; }

    // Edges [first, last) of the row in `ids` from slot `base` on, each to the place that where(edge) says; -1: none.
    // The sync is for those that move within a block.
    template <class Where>
    DEVICE void move(const u32* ids, const f32* weights, i64 base, i64 first, i64 last, bool syncs, Where where) const {
        u32 id[each];
        f32 its[each];
        i64 own = first + group.rank();
        for (int j = 0; j < each; ++j) {
            i64 p = own + j * group.size();
            id[j] = p < last ? ids[base + p] : 0;
            its[j] = p < last && weights ? weights[base + p] : 0;
        }
        if (syncs) group.sync();
        for (int j = 0; j < each; ++j) {
            i64 p = own + j * group.size(), place = p < last ? where(p) : -1;
            if (place < 0) continue;
            slots.ids_out[to + place] = id[j];
            if (weights) slots.weights_out[to + place] = its[j];
        }
    }
    DEVICE void merge_into_another() const {
        i64 low = a;
        for (i64 p = 0; p < edges; p += step()) {
            i64 last = lesser(p + step(), edges);
            i64 high = lower_bound(batch.place, low, b, (u32)last), by = inserts_to(low) - deletes_to(low);
            if (low == high) move(slots.ids, slots.weights, from, p, last, false, [=](i64 q) { return q + by; });
            else
                move(slots.ids, slots.weights, from, p, last, false, [&](i64 q) {
                    i64 k = upper_bound(batch.place, low, high, (u32)q);
                    return goes(k, q) ? -1 : q + inserts_to(k) - deletes_to(k);
                });
            low = high;
        }
    }
    DEVICE void close_up() const {
        i64 low = first_where(a, b, [&](i64 k) { return deletes_to(k + 1) > 0; });
        for (i64 p = batch.place[low]; p < edges; p += step()) {
            i64 last = lesser(p + step(), edges);
            i64 high = lower_bound(batch.place, low, b, (u32)last), by = deletes_to(low);
            if (low == high) move(slots.ids_out, slots.weights_out, to, p, last, true, [=](i64 q) { return q - by; });
            else
                move(slots.ids_out, slots.weights_out, to, p, last, true, [&](i64 q) {
                    i64 k = upper_bound(batch.place, low, high, (u32)q);
                    return goes(k, q) ? -1 : q - deletes_to(k);
                });
            low = high;
        }
        group.sync();
    }
    DEVICE i64 closed(i64 k) const { return (i64)batch.place[k] - deletes_to(k); }  // a key's place, once closed up
    DEVICE void make_room() const {
        i64 start = closed(first_where(a, b, [&](i64 k) { return inserts_to(k + 1) > 0; })), high = b;
        for (i64 last = edges - deletes_to(b); last > start;) {
            i64 p = greater(start, last - step());
            i64 low = first_where(a, high, [&](i64 k) { return closed(k) >= p; }), by = inserts_to(low);
            if (low == high) move(slots.ids_out, slots.weights_out, to, p, last, true, [=](i64 q) { return q + by; });
            else
                move(slots.ids_out, slots.weights_out, to, p, last, true, [&](i64 q) {
                    return q + inserts_to(first_where(low, high, [&](i64 k) { return closed(k) > q; }));
                });
            last = p, high = low;
        }
        group.sync();
    }
    DEVICE void insert() const {
        for (i64 k = a + group.rank(); k < b; k += group.size()) {
            if (batch.outcome[k] != inserted) continue;
            i64 slot = to + closed(k) + inserts_to(k);
            slots.ids_out[slot] = (u32)batch.keys[k];
            if (slots.weights_out) slots.weights_out[slot] = weight ? weight[k] : 1.0f;
        }
    }
};

// The row whose first key is `a`.
template <class Group>
DEVICE void merge_row(Group group, const Batch& batch, const Slots& slots, const u64* rows, const f32* weight, i64 a) {
    u64 held = batch.held[a], word = rows[batch.row(a)];
    i64 from = (i64)(u32)held << slots.unit, to = (i64)(u32)word << slots.unit_out, b = batch.end[a];
    Merger<Group> row = {group, batch, slots, weight, a, b, from, to, (i64)(held >> 32)};
    bool deletes = row.deletes_to(b) > 0, inserts = row.inserts_to(b) > 0;
    if (from != to || slots.ids != slots.ids_out) {
        if (word) row.merge_into_another();
    } else {
        if (deletes && word) row.close_up();
        if (inserts) row.make_room();
    }
    if (inserts) row.insert();
    group.sync();
}

struct MergeFew {  // 8 lanes per row
    static constexpr int lanes = 8;
    Batch batch;
    const f32* weight;
    const u32* list;
    i64 n;
    Slots slots;
    const u64* rows;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) merge_row(tile, batch, slots, rows, weight, list[i]);
    }
};

struct MergeSome {  // 32 lanes per row
    static constexpr int lanes = 32;
    Batch batch;
    const f32* weight;
    const u32* list;
    i64 n;
    Slots slots;
    const u64* rows;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) merge_row(tile, batch, slots, rows, weight, list[i]);
    }
};

struct MergeMany {  // one block per row
    static constexpr int lanes = 256;
    Batch batch;
    const f32* weight;
    const u32* list;
    i64 n;
    Slots slots;
    const u64* rows;
    DEVICE void operator()(Grid grid) const {
        Block block;
        for (i64 i : grid.items(block, n)) merge_row(block, batch, slots, rows, weight, list[i]);
    }
};
