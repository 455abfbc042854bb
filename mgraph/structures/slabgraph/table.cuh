// Data common to prepare and commit: sizes of tables, rows with new tables, their pieces, and counters.
#pragma once
#include "kernels/count.cuh"
#include "structures/slabgraph/view.cuh"

// status: counts of prepare for the host, continued by commit. The host reads it by these names.
enum Status {
    // inserts << 32 | deletes; updates << 32 | misses; in 1 / chain_unit; keys
    all_moves,
    others,
    chain_slabs,
    unknown,
    // slabs for new tables of one bucket, of several at the tail, of several in holes; slabs of old tables of one
    n_tasks,
    n_pieces,
    singles,
    runs,
    reused,
    ones,
    task_slabs,
    task_edges,
    task_inserts,
    left,  // sums over the tasks of Choose; slabs of old tables of several buckets
    free_slabs,
    tail_slab,
    hole_slabs,  // copied from the supply's state
    freed,
    unlisted,
    n_late,  // of commit: slabs freed one by one, and those of them that were holes
    status_words
};
// behind the status: by class, the holes taken by tasks, and those listed by commit
constexpr int hole_classes = 32;
constexpr i64 taken = status_words, given = taken + hole_classes, all_words = given + hole_classes;
// the supply's state: free slabs, tail, slabs in holes, and the holes of each class
constexpr i64 hole_lengths = 3, state_words = hole_lengths + hole_classes;
constexpr i64 chain_unit = 1 << 20;
constexpr i64 piece_buckets = 2, piece_keys = 256;
// A key's place: its slot; of an insert a free slot of its chain, reserved (sure) or possibly taken by others first
// (loose), or `full` if the chain has none; or `absent`; and `filled` once a new table has it.
constexpr i64 filled = -1, absent = -2, full = -3, sure = (i64)1 << 62, loose = (i64)1 << 61;

DEVICE i64 slot_of(i64 place) { return place & (loose - 1); }

DEVICE i64 warps(i64 n) { return (n + Tile<32>::size() - 1) / Tile<32>::size(); }
// Returns the lanes of the warp with keys of the same row, as bits; they are neighbours.
DEVICE u32 lanes_of_row(Tile<32> warp, u64 row) {
    int rank = warp.rank();
    u64 before = warp.shfl(row, greater(rank - 1, 0));
    u32 leaders = warp.ballot(rank == 0 || before != row), upto = (2u << rank) - 1, above = leaders & ~upto;
    return (above ? (above & -above) - 1 : ~0u) & ~0u << (bit_width(leaders & upto) - 1);
}

// Marks of keys, a word per warp of keys. The lanes of a warp read some words, and distribute the marks, one per lane
// and round.
struct Marks {
    static constexpr int words = (Tile<32>::size() + 1) / 2;  // usually with about 25 marks together
    i64 turn;
    u32 own;        // this lane's word
    i32 upto, all;  // marks up to it, and all
    DEVICE static i64 turns(i64 n) { return (warps(n) + words - 1) / words; }
    DEVICE Marks(Tile<32> warp, const u32* marks, i64 n, i64 turn) : turn(turn) {
        own = warp.rank() < words && turn * words + warp.rank() < warps(n) ? marks[turn * words + warp.rank()] : 0;
        upto = warp.scan(popcount(own)), all = warp.shfl(upto, warp.size() - 1);
    }
    DEVICE i32 steps() const { return (all + Tile<32>::size() - 1) / Tile<32>::size(); }
    DEVICE i64 key(Tile<32> warp, i32 number) const {  // key of the mark of this number; all lanes call it
        int lane = 0;
        for (int step = warp.size() / 2; step; step /= 2)
            if (warp.shfl(upto, lane + step - 1) <= number) lane += step;
        u32 bits = warp.shfl(own, lane);
        for (int skip = number - (warp.shfl(upto, lane) - popcount(bits)); skip > 0; --skip) bits &= bits - 1;
        return (turn * words + lane) * warp.size() + lowest_bit(bits);
    }
};

DEVICE i64 buckets_for(i64 degree) {  // one bucket only if it needs no chain
    if (degree <= slots_of_slab) return degree > 0;
    return greater((i64)2, (degree * 100 + slots_of_slab * LOAD - 1) / (slots_of_slab * LOAD));
}
// Returns true if a row keeps its table. The threshold varies slightly by row, so that rows built together do not all
// outgrow their tables in one batch.
DEVICE bool keeps(i64 row, i64 degree, i64 buckets) {
    if (buckets <= 1) return buckets == 0 ? degree == 0 : degree > 0 && degree <= slots_of_slab;
    i64 slots = buckets * slots_of_slab;
    bool enough = degree * 300 >= slots * LOAD || (buckets == 2 && degree > slots_of_slab);
    return enough && degree * 100 <= slots * (LIMIT - 8 + (i64)(mix((u32)row) & 15));
}

// A row that gets another table: its old table, its new buckets, the `place` of their slabs among those of their kind,
// its keys, `freed`, the list place of the slab of an old table of one bucket, and the `hole` for the new table, or
// no_slab, with the number of slabs of its remainder.
struct OVERLAY Task {
    u32 row, first, buckets, new_buckets, place, first_key, last_key, freed, hole, rest;
    DEVICE i64 bucket_pieces() const { return (buckets + piece_buckets - 1) / piece_buckets; }
    DEVICE i64 key_pieces() const { return ((i64)last_key - first_key + piece_keys - 1) / piece_keys; }
};
DEVICE Task& task_at(u32* tasks, i64 i) { return ((Task*)tasks)[i]; }
DEVICE const Task& task_at(const u32* tasks, i64 i) { return ((const Task*)tasks)[i]; }

struct Tasks {  // a piece is task << 32 | number: first those of the old buckets, then those of the keys
    const u32* tasks;
    const u64* pieces;
    DEVICE const Task& task(i64 i) const { return task_at(tasks, (i64)(pieces[i] >> 32)); }
    DEVICE i64 number(i64 i) const { return (i64)(u32)pieces[i]; }
};

struct Keys {  // a run and the results of prepare
    const u64* keys;
    const f32* weight;
    i64 n;
    const u8* outcome;
    i64* place;
    DEVICE i64 row(i64 k) const { return (i64)(keys[k] >> 32); }
    DEVICE f32 weight_of(i64 k) const { return weight ? weight[k] : 1.0f; }
};
