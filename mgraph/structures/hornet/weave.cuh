// Merges a row by counting bits. Woven places number the row's edges and the batch's inserts together, edges that the
// batch deletes among them; two sets of bits say which of them come and which go. So each edge's new place is known
// before the first one is read, and what a row needs is read in three steps, which is what most of its time goes to.
#pragma once
#include "structures/hornet/rows.cuh"

template <class Tile, int most> struct Weaver {  // of rows of up to `most` woven places
    static constexpr int words = most / 32, room = 3 * words, together = 8;
    const Batch& batch;
    const Slots& slots;
    const u64* rows;
    const f32* weight;
    Tile tile;
    u32* come;  // [words], as the others
    u32* gone;
    u32* before;  // how many come, and go << 16, in the words before
    DEVICE Weaver(const Batch& its, const Slots& the_slots, const u64* the_rows, const f32* weights, u32* shared)
        : batch(its), slots(the_slots), rows(the_rows), weight(weights), come(shared + tile.index() * room),
          gone(come + words), before(gone + words) {
        clear(words);
    }
    static DEVICE u32 bit(int v) { return 1u << v % 32; }
    DEVICE int below(const u32* set, int v) const { return popcount(set[v / 32] & (bit(v) - 1)); }
    DEVICE int edge(int v) const { return v - (int)(before[v / 32] & 0xffffu) - below(come, v); }
    DEVICE int place(int v) const { return v - (int)(before[v / 32] >> 16) - below(gone, v); }
    DEVICE void clear(int some) const {
        for (int w = tile.rank(); w < some; w += tile.size()) come[w] = gone[w] = 0;
        tile.sync();
    }
    DEVICE void sum_up(int some) const {
        u32 sum = 0;
        tile.sync();
        for (int first = 0; first < some; first += tile.size()) {
            int w = first + tile.rank();
            u32 mine = w < some ? (u32)popcount(come[w]) | (u32)popcount(gone[w]) << 16 : 0, upto = tile.scan(mine);
            if (w < some) before[w] = sum + upto - mine;
            sum += tile.shfl(upto, tile.size() - 1);
        }
        tile.sync();
    }
    // step(k, what becomes of key k, its woven place), all lanes in step; returns the number of inserts. The first loads
    // need not wait for `b`.
    template <class Step> DEVICE int each_key(i64 a, i64 b, Step step) const {
        int inserts = 0;
        i64 first = a;
        do {
            i64 k = lesser(first + tile.rank(), batch.n - 1);
            int is = batch.outcome[k], at = (int)batch.place[k];
            if (first + tile.rank() >= b) is = overridden;
            u32 bits = tile.ballot(is == inserted);
            step(k, is, at + inserts + popcount(bits & (bit(tile.rank()) - 1)));
            inserts += popcount(bits), first += tile.size();
        } while (first < b);
        return inserts;
    }
    // The row whose first key is `a`. If it stays in its block and has more than one step's edges, all of them move on,
    // or all of them back.
    DEVICE void merge(i64 a) const {
        u64 held = batch.held[a], word = rows[batch.row(a)];
        i64 b = batch.end[a];
        int edges = (int)(held >> 32), least = -1, deletes = 0;
        int inserts = each_key(a, b, [&](i64, int is, int v) {
            u32 goes = tile.ballot(is == deleted), acts = goes | tile.ballot(is == inserted);
            if (is == inserted || is == deleted) atomic_or((is == inserted ? come : gone) + v / 32, bit(v));
            deletes += popcount(goes);
            if (acts && least < 0) least = tile.shfl(v, lowest_bit(acts));
        });
        int places = edges + inserts, some = (places + 31) / 32, has = places - deletes;
        sum_up(some);
        bool stays =
            slots.ids == slots.ids_out && edges && has && class_of(edges, slots.unit) == class_of(has, slots.unit);
        int first = stays ? least : 0;
        bool back = stays && inserts;  // none is written over that is still to be read
        i64 from = (i64)(u32)held << slots.unit, to = (i64)(u32)word << slots.unit_out;
        move(slots.ids + from, slots.ids_out + to, first, places, edges, back);
        if (slots.weights) move(slots.weights + from, slots.weights_out + to, first, places, edges, back);
        each_key(a, b, [&](i64 k, int is, int v) {
            if (is != inserted) return;
            slots.ids_out[to + place(v)] = (u32)batch.keys[k];
            if (slots.weights_out) slots.weights_out[to + place(v)] = weight ? weight[k] : 1.0f;
        });
        tile.sync();
        clear(some);
    }
    // The edges at the places [first, places), from a row of `edges` to their new places; `back`: the last ones first.
    template <class T> DEVICE void move(const T* from, T* to, int first, int places, int edges, bool back) const {
        constexpr int lanes = Tile::size(), step = lanes * together;
        int steps = edges ? (places - first + step - 1) / step : 0;
        for (int s = 0; s < steps; ++s) {
            int own = first + (back ? steps - 1 - s : s) * step + tile.rank();
            T held[together];
#pragma unroll
            for (int j = 0; j < together; ++j)
                held[j] = from[lesser(edge(lesser(own + j * lanes, places - 1)), edges - 1)];
            tile.sync();
#pragma unroll
            for (int j = 0; j < together; ++j) {
                int v = own + j * lanes;
                if (v < places && !((come[v / 32] | gone[v / 32]) & bit(v))) to[place(v)] = held[j];
            }
        }
    }
};

// One row for each tile and turn, from a list of first keys. One lane alone moves what lies between two keys at once.
template <int most, class Tile>
DEVICE void merge_rows(Tile tile, Items turns, const u32* list, const Batch& batch, const Slots& slots, const u64* rows,
                       const f32* weight, u32* shared) {
    if constexpr (alone) {
        for (i64 i : turns) merge_in_steps(Merger<Tile>(tile, batch, slots, rows, weight, list[i]));
        return;
    }
    Weaver<Tile, most> weaver(batch, slots, rows, weight, shared);
    u32 next = turns.first < turns.last ? list[turns.first] : 0;
    for (i64 i : turns) {
        u32 a = next;
        if (i + turns.step < turns.last) next = list[i + turns.step];
        weaver.merge(a);
    }
}
