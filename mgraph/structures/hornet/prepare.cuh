// Hornet, prepare: what a batch does, without doing it. No two lanes write one place; counts are added up.
#pragma once
#include "structures/hornet/batch.cuh"

struct Locate {  // one lane per key: its place in its row, what becomes of it, and the counts
    static constexpr int lanes = 1;
    const u64* keys;
    const i8* op;
    i64 n;
    HornetView graph;
    i64 rows;
    i64 vertices;
    u32* place;
    u8* outcome;
    u64* before;  // at k + 1, what key k is; to be summed up
    i64* at;
    DEVICE void operator()(Grid grid) const {
        i64 found[5] = {}, strange = 0;
        for (i64 k : grid.items(n)) {
            bool known = (i64)(keys[k] >> 32) < rows && (i64)(u32)keys[k] < vertices;
            u8 is = known ? look_up(k) : (u8)missing;
            if (!known) place[k] = 0, ++strange;
            outcome[k] = is, ++found[is];
            before[k + 1] = (u64)(is == inserted) << 32 | (u64)(is == deleted);
            if (k == 0) before[0] = 0;
        }
        Tile<32> tile;
        for (int c = 0; c < 5; ++c) {
            i64 sum = tile.sum(c ? found[c] : strange);
            if (tile.rank() == 0 && sum) atomic_add(at + unknown + c, sum);
        }
    }
    DEVICE u8 look_up(i64 k) const {
        u64 word = graph.rows[keys[k] >> 32];
        u32 id = (u32)keys[k];
        i64 first = graph.slot_of(word), last = first + (i64)(word >> 32);
        i64 slot = lower_bound(graph.slots, first, last, id);
        place[k] = (u32)(slot - first);
        if (k + 1 < n && keys[k + 1] == keys[k]) return overridden;  // of equal keys the last acts
        bool there = slot < last && graph.slots[slot] == id;
        return !op || op[k] > 0 ? (there ? updated : inserted) : (there ? deleted : missing);
    }
};

#ifndef HUGE_EDGES
#define HUGE_EDGES 65536
#endif
// Rows of at most so many edges, old and new, are merged by a tile of 8, by a tile of 32, and by a block; longer ones in
// pieces.
constexpr i64 few_edges = 64, some_edges = 1024, huge_edges = HUGE_EDGES, piece_edges = huge_edges / 16;

DEVICE i64 pieces_of(i64 n) { return (n + piece_edges - 1) / piece_edges; }

struct Lists {  // first keys of the rows that change, by what merges them; huge ones from the end of `many`
    u32* few;
    u32* some;
    u32* many;
    i64 capacity;
};

struct Needs {  // one lane per key, a warp in step: rows that change are listed; what classes lose and gain is counted
    static constexpr int lanes = 1;
    const u64* keys;
    i64 n;
    HornetView graph;
    i64 rows;
    const u64* before;
    u32* end;
    u64* held;
    Lists lists;
    i64* at;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        Batch batch = {keys, nullptr, nullptr, before, end, held, n};
        for (i64 t : grid.items(warp, (n + warp.size() - 1) / warp.size())) {
            i64 k = t * warp.size() + warp.rank(), last = k;
            if (k < n && batch.leads(k)) last = end_of(batch, k);
            bool changes = last > k;
            u64 word = changes ? graph.rows[batch.row(k)] : 0;
            Change change(batch, changes ? k : 0, changes ? last : 0, word, graph.unit);
            if (changes) held[k] = word;
            bool moves = changes && change.from != change.to;
            draw(warp, moves && change.to >= 0, change.to, at + pop0);
            draw(warp, moves && change.from >= 0, change.from, at + push0);
            i64 size = change.had + (changes ? batch.inserts_in(k, last) : 0);
            int list = size > huge_edges ? 3 : size > some_edges ? 2 : size > few_edges;
            i64 to = draw(warp, changes, list, at + few_rows);
            if (changes && list < 3) (list == 0 ? lists.few : list == 1 ? lists.some : lists.many)[to] = (u32)k;
            if (changes && list == 3) {
                lists.many[lists.capacity - 1 - to] = (u32)k;
                atomic_add(at + pieces, pieces_of(change.had) + pieces_of(last - k));
                if (!moves) atomic_add(at + saved, change.had);
            }
        }
    }
    DEVICE i64 end_of(const Batch& batch, i64 k) const {  // `k` itself where the row stays as it is
        i64 row = batch.row(k);
        if (row >= rows) return end[k] = 0, k;
        i64 last = lower_bound_near(keys, n, k + 1, first_key_of(row + 1));
        bool stays = before[last] == before[k];
        end[k] = stays ? 0 : (u32)last;
        return stays ? k : last;
    }
};
