// Merges each changed row with its keys by a group of lanes. A row that moves to another block is merged in one pass.
// In its own block deletes are closed up first, from the front; then inserts are made, from the back: a group reads all
// edges of a step before it writes any, and overwrites none that is still unread.
#pragma once
#include "structures/hornet/batch.cuh"

constexpr i64 each = in_flight > 8 ? in_flight : 8;  // edges in flight per lane
constexpr bool alone = in_flight > 1;  // a group of one lane moves all edges between two keys at once

struct Slots {
    const u32* ids;
    const f32* weights;
    i64 unit;
    u32* ids_out;  // the same array, unless all rows go to a new pool
    f32* weights_out;
    i64 unit_out;
};

// Returns the first of [low, high) for which the monotone predicate `is` holds; the others search from an end.
template <class Is> DEVICE i64 first_where(i64 low, i64 high, Is is) {
    while (low < high) {
        i64 middle = low + ((high - low) >> 1);
        if (is(middle)) high = middle;
        else low = middle + 1;
    }
    return low;
}
template <class Is> DEVICE i64 first_from_front(i64 low, i64 high, Is is) {
    for (i64 step = 1; low < high; step *= 2) {
        i64 probe = lesser(low + step, high) - 1;
        if (is(probe)) return first_where(low, probe, is);
        low = probe + 1;
    }
    return high;
}
enum Pass { merging, closing, opening };  // to another block; the deletes in its own block; then its inserts

// Computes the new places of a row's edges, in ascending order; `k` is the first key behind an edge.
template <Pass pass> struct Cursor {
    const Batch& batch;
    i64 a, k, end;
    // the place of key k, the edge deleted by the previous key, the shift of the edges between them
    i64 next, gone, by;
    DEVICE Cursor(const Batch& its, i64 first, i64 low, i64 high) : batch(its), a(first), k(low), end(high) {
        settle();
    }
    DEVICE i64 place(i64 key) const {  // after the deletes, if inserts follow
        return (i64)batch.place[key] - (pass == opening ? batch.deletes_in(a, key) : 0);
    }
    DEVICE void settle() {
        next = k < end ? place(k) : (i64)1 << 32;
        gone = pass != opening && k > a && batch.outcome[k - 1] == deleted ? place(k - 1) : -1;
        by = (pass != closing ? batch.inserts_in(a, k) : 0) - (pass != opening ? batch.deletes_in(a, k) : 0);
    }
    DEVICE i64 operator()(i64 edge) {
        if (next <= edge) {
            k = first_from_front(k + 1, end, [&](i64 key) { return place(key) > edge; });
            settle();
        }
        return edge == gone ? -1 : edge + by;
    }
};

template <class Group> struct Merger {
    Group group;
    const Batch& batch;
    const Slots& slots;
    const f32* weight;
    i64 a, b;  // the row's keys
    i64 from, to, edges;  // its first slot before and after; its number of edges before
    DEVICE Merger(Group the_group, const Batch& the_batch, const Slots& the_slots, const u64* rows, const f32* its,
                  i64 k)
        : group(the_group), batch(the_batch), slots(the_slots), weight(its), a(k), b(batch.end[k]) {
        u64 held = batch.held[a], word = rows[batch.row(a)];
        from = (i64)(u32)held << slots.unit, to = (i64)(u32)word << slots.unit_out, edges = (i64)(held >> 32);
    }
    DEVICE bool stays() const { return from == to && slots.ids == slots.ids_out; }
    DEVICE i64 width() const { return each * group.size(); }
    DEVICE i64 inserts_to(i64 k) const { return batch.inserts_in(a, k); }
    DEVICE i64 deletes_to(i64 k) const { return batch.deletes_in(a, k); }

    // Moves edges [first, last) of the row, in `ids` from slot `base` on, at most `width()`, to where(edge), or nowhere
    // for -1. The sync is for moves within a block.
    template <Pass pass, class Where>
    DEVICE void move(const u32* ids, const f32* weights, i64 base, i64 first, i64 last, Where where) const {
        u32 id[each];
        f32 its[each];
        i64 own = first + group.rank(), lanes = group.size();
        for (int j = 0; j < each && own + j * lanes < last; ++j) {
            id[j] = ids[base + own + j * lanes];
            if (weights) its[j] = weights[base + own + j * lanes];
        }
        if (pass != merging) group.sync();
        for (int j = 0; j < each && own + j * lanes < last; ++j) {
            i64 place = where(own + j * lanes);
            if (place < 0) continue;
            slots.ids_out[to + place] = id[j];
            if (weights) slots.weights_out[to + place] = its[j];
        }
    }
    // Moves any number of edges by `by`, from front to back or from back to front; for groups of one lane.
    template <Pass pass>
    DEVICE void shift(const u32* ids, const f32* weights, i64 base, i64 first, i64 last, i64 by) const {
        for (i64 left = last - first; left > 0; left -= each) {
            i64 p = pass == opening ? first + greater(left - each, (i64)0) : last - left;
            move<pass>(ids, weights, base, p, lesser(p + lesser(left, each), last),
                       [=](i64 edge) { return edge + by; });
        }
    }
    // Moves the edges [first, end) of the row, in `ids` from slot `base` on, from front to back.
    template <Pass pass>
    DEVICE void move_all(const u32* ids, const f32* weights, i64 base, i64 first, i64 end, i64 low) const {
        Cursor<pass> one(batch, a, low, b);
        for (i64 p = first; alone && p < end;) {
            if (one(p) < 0) ++p;
            i64 last = lesser(one.next, end);
            if (p < last) shift<pass>(ids, weights, base, p, last, one.by);
            p = greater(p, last);
        }
        for (i64 p = first; !alone && p < end; p += width()) {
            i64 last = lesser(p + width(), end);
            i64 high = first_from_front(low, b, [&](i64 k) { return batch.place[k] >= last; });
            Cursor<pass> cursor(batch, a, low, high);
            i64 by = cursor.by;
            if (low == high) move<pass>(ids, weights, base, p, last, [=](i64 edge) { return edge + by; });
            else move<pass>(ids, weights, base, p, last, cursor);
            low = high;
        }
    }
    DEVICE void merge_into_another(const u32* ids, const f32* weights, i64 base, i64 first, i64 end) const {
        move_all<merging>(ids, weights, base, first, end, lower_bound(batch.place, a, b, (u32)first));
    }
    DEVICE void close_up() const {
        i64 low = first_where(a, b, [&](i64 k) { return deletes_to(k + 1) > 0; });
        move_all<closing>(slots.ids_out, slots.weights_out, to, batch.place[low], edges, low);
        group.sync();
    }
    DEVICE i64 closed(i64 k) const { return (i64)batch.place[k] - deletes_to(k); }  // a key's place after the deletes
    DEVICE void make_room() const {
        i64 start = closed(first_where(a, b, [&](i64 k) { return inserts_to(k + 1) > 0; })), high = b;
        const u32* ids = slots.ids_out;
        const f32* weights = slots.weights_out;
        for (i64 last = edges - deletes_to(b); last > start;) {
            while (high > a && closed(high - 1) >= last) --high;
            i64 p = high > a ? greater(start, closed(high - 1)) : start;
            shift<opening>(ids, weights, to, p, last, inserts_to(high));
            last = p;
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

// Merges a row in as many steps as needed.
template <class Group> DEVICE void merge_in_steps(const Merger<Group>& row) {
    bool deletes = row.deletes_to(row.b) > 0, inserts = row.inserts_to(row.b) > 0;
    bool empty = row.edges + row.inserts_to(row.b) == row.deletes_to(row.b);
    if (!row.stays() && !empty) row.merge_into_another(row.slots.ids, row.slots.weights, row.from, 0, row.edges);
    if (row.stays() && deletes && !empty) row.close_up();
    if (row.stays() && inserts) row.make_room();
    if (inserts) row.insert(row.a, row.b);
    row.group.sync();
}
