// What preparing and committing share: the sizes of tables, rows that get a new one, their pieces, and counting.
#pragma once
#include "count.cuh"
#include "slabgraph_view.cuh"

// status: what prepare counts for the host, and where commit counts on; slabgraph.py has the same order.
enum Status {
    all_moves, updates, misses, chain_slabs,         // chain_slabs: in 1 / chain_unit, see Locate
    n_tasks, n_pieces, singles, runs,                // singles, runs: slabs for new tables of one, of several buckets
    task_slabs, task_edges, task_inserts, released,  // sums over the tasks: see Choose
    free_slabs, tail_slab,                           // copied from the supply's state
    unknown,                                         // keys with an id that is not there
    freed, n_late                                    // commit's
};
constexpr i64 chain_unit = 1 << 20;
constexpr i64 piece_buckets = 4, piece_keys = 256;
// A key's place: its slot; of an edge that is not there a free slot of its chain, as its number below `absent`, or
// `absent` itself where there is none; and once a new table has it, `filled`.
constexpr i64 filled = -1, absent = -2;
DEVICE i64 free_place(i64 slot) { return absent - 1 - slot; }  // and back

DEVICE i64 buckets_for(i64 degree) {
    return degree <= slots_of_slab ? degree > 0 : (degree * 100 + slots_of_slab * LOAD - 1) / (slots_of_slab * LOAD);
}
// Rows differ a little, so that rows which were built together do not all outgrow their tables in one batch.
DEVICE i64 most_edges(i64 row, i64 buckets) {
    return buckets == 1 ? slots_of_slab : buckets * slots_of_slab * (LIMIT - 8 + (mix((u32)row) & 15)) / 100;
}
DEVICE i64 next_buckets(i64 row, i64 degree, i64 buckets) {
    bool few = buckets > 1 && degree * 300 < buckets * slots_of_slab * LOAD;
    return degree == 0 || degree > most_edges(row, buckets) || few ? buckets_for(degree) : buckets;
}

struct Task {  // a row that gets another table: the old one, the buckets, which slab of their kind, the batch's keys
    u32 row, first, buckets, new_buckets, place, first_key, last_key, unused;
    DEVICE i64 bucket_pieces() const { return (buckets + piece_buckets - 1) / piece_buckets; }
    DEVICE i64 key_pieces() const { return ((i64)last_key - first_key + piece_keys - 1) / piece_keys; }
};
DEVICE Task& task_at(u32* tasks, i64 i) { return ((Task*)tasks)[i]; }
DEVICE const Task& task_at(const u32* tasks, i64 i) { return ((const Task*)tasks)[i]; }

struct Tasks {  // a piece is task << 32 | number: first those of the old buckets, then those of the keys
    const u32* tasks;
    const u64* pieces;
    i64 n;
    DEVICE const Task& task(i64 i) const { return task_at(tasks, (i64)(pieces[i] >> 32)); }
    DEVICE i64 number(i64 i) const { return (i64)(u32)pieces[i]; }
};

struct Keys {  // a run and what prepare found; moves[k] of a row's first key = its inserts << 32 | its deletes
    const u64* keys;
    const f32* weight;
    const u8* outcome;
    const u64* moves;
    i64* place;
    i64 n;
    DEVICE i64 row(i64 k) const { return (i64)(keys[k] >> 32); }
    DEVICE bool first_of_row(i64 k) const { return k == 0 || row(k - 1) != row(k); }
    DEVICE f32 weight_of(i64 k) const { return weight ? weight[k] : 1.0f; }
};
