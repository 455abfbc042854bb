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
    DEVICE Merger(Group the_group, const Batch& the_batch, const Slots& the_slots, const u64* rows, const f32* its,
                  i64 k)
        : group(the_group), batch(the_batch), slots(the_slots), weight(its), a(k), b(batch.end[k]) {
        u64 held = batch.held[a], word = rows[batch.row(a)];
        from = (i64)(u32)held << slots.unit, to = (i64)(u32)word << slots.unit_out, edges = (i64)(held >> 32);
    }
    DEVICE bool stays() const { return from == to && slots.ids == slots.ids_out; }
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
    // The edges [first, end) of the row, which lie in `ids` from slot `base` on, go to another block.
    DEVICE void merge_into_another(const u32* ids, const f32* weights, i64 base, i64 first, i64 end) const {
        i64 low = lower_bound(batch.place, a, b, (u32)first);
        for (i64 p = first; p < end; p += step()) {
            i64 last = lesser(p + step(), end);
            i64 high = lower_bound(batch.place, low, b, (u32)last), by = inserts_to(low) - deletes_to(low);
            if (low == high) move(ids, weights, base, p, last, false, [=](i64 q) { return q + by; });
            else
                move(ids, weights, base, p, last, false, [&](i64 q) {
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
    DEVICE void insert(i64 first, i64 last) const {
        for (i64 k = first + group.rank(); k < last; k += group.size()) {
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
    Merger<Group> row(group, batch, slots, rows, weight, a);
    bool deletes = row.deletes_to(row.b) > 0, inserts = row.inserts_to(row.b) > 0;
    bool empty = row.edges + row.inserts_to(row.b) == row.deletes_to(row.b);
    if (!row.stays() && !empty) row.merge_into_another(slots.ids, slots.weights, row.from, 0, row.edges);
    if (row.stays() && deletes && !empty) row.close_up();
    if (row.stays() && inserts) row.make_room();
    if (inserts) row.insert(a, row.b);
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

// Huge rows are merged in pieces, of their edges and of their keys. What stays in its block is copied to `ids` first.
struct Saved {
    const u32* list;  // first keys, downwards from here
    i64* spots;  // of each huge row: where its copy begins; -1: it goes to another block
    u64* tasks;  // row of the list << 32 | piece
    u32* ids;
    f32* weights;
};

struct ListPieces {  // one lane per huge row
    static constexpr int lanes = 1;
    Batch batch;
    i64 n;
    Saved saved_rows;
    Slots slots;
    const u64* rows;
    i64* at;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            Merger<Tile<1>> row({}, batch, slots, rows, nullptr, saved_rows.list[-i]);
            saved_rows.spots[i] = row.stays() ? atomic_add(at + next_saved, row.edges) : -1;
            i64 all = pieces_of(row.edges) + pieces_of(row.b - row.a), to = atomic_add(at + next_piece, all);
            for (i64 p = 0; p < all; ++p) saved_rows.tasks[to + p] = (u64)i << 32 | (u64)p;
        }
    }
};

struct SavePieces {  // one block per piece
    static constexpr int lanes = 256;
    Batch batch;
    i64 n;
    Saved saved_rows;
    Slots slots;
    const u64* rows;
    DEVICE void operator()(Grid grid) const {
        Block block;
        for (i64 t : grid.items(block, n)) {
            i64 i = (i64)(saved_rows.tasks[t] >> 32), first = (i64)(u32)saved_rows.tasks[t] * piece_edges;
            i64 spot = saved_rows.spots[i];
            if (spot < 0) continue;
            Merger<Block> row(block, batch, slots, rows, nullptr, saved_rows.list[-i]);
            i64 last = lesser(first + piece_edges, row.edges);
            for (i64 p = first + block.rank(); p < last; p += block.size()) {
                saved_rows.ids[spot + p] = slots.ids[row.from + p];
                if (slots.weights) saved_rows.weights[spot + p] = slots.weights[row.from + p];
            }
        }
    }
};

struct MergePieces {  // one block per piece
    static constexpr int lanes = 256;
    Batch batch;
    i64 n;
    Saved saved_rows;
    Slots slots;
    const u64* rows;
    const f32* weight;
    DEVICE void operator()(Grid grid) const {
        Block block;
        for (i64 t : grid.items(block, n)) {
            i64 i = (i64)(saved_rows.tasks[t] >> 32), piece = (i64)(u32)saved_rows.tasks[t];
            i64 spot = saved_rows.spots[i];
            Merger<Block> row(block, batch, slots, rows, weight, saved_rows.list[-i]);
            i64 of_edges = pieces_of(row.edges), first = row.a + (piece - of_edges) * piece_edges;
            const u32* ids = spot < 0 ? slots.ids : saved_rows.ids;
            const f32* weights = spot < 0 ? slots.weights : saved_rows.weights;
            i64 base = spot < 0 ? row.from : spot, begin = piece * piece_edges;
            if (piece < of_edges)
                row.merge_into_another(ids, weights, base, begin, lesser(begin + piece_edges, row.edges));
            else row.insert(first, lesser(first + piece_edges, row.b));
        }
    }
};
