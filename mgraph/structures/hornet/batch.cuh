// What preparing and committing a batch share: the run's keys, where each is in its row, and what becomes of the rows.
#pragma once
#include "structures/hornet/arrays.cuh"
#include "structures/hornet/view.cuh"
#include "structures/moves.cuh"
#include "structures/outcome.cuh"

struct Batch {  // what is kept by row stands at the row's first key, and is undefined at others
    const u64* keys;
    const u8* outcome;
    const u32* place;   // of each key: how many of its row's edges are less
    const u32* before;  // of each key, and at the end: what the keys before it move, as in moves.cuh
    const u64* chunks;
    i64 shift;
    const u32* end;     // of each row: one past its last key; 0 where the batch leaves the row as it is
    const u64* held;    // of each row: its word before the batch
    const u32* drawn;   // of each row that gets another block: its number among those of its class
    i64 n;
    DEVICE i64 row(i64 k) const { return (i64)(keys[k] >> 32); }
    DEVICE bool leads(i64 k) const { return k == 0 || keys[k - 1] >> 32 != keys[k] >> 32; }
    DEVICE u64 moves(i64 k) const { return moves_before(before, chunks, shift, k); }
    DEVICE i64 inserts_in(i64 a, i64 b) const { return (i64)(moves(b) >> 32) - (i64)(moves(a) >> 32); }
    DEVICE i64 deletes_in(i64 a, i64 b) const { return (i64)(u32)moves(b) - (i64)(u32)moves(a); }
};

// The words of a row that changes: edges and block classes before and after; a class of -1 is no block.
struct Change {
    i64 had, has;
    int from, to;
    DEVICE Change(const Batch& batch, i64 a, i64 b, u64 word, i64 unit) {
        had = (i64)(word >> 32), has = had + batch.inserts_in(a, b) - batch.deletes_in(a, b);
        from = had ? class_of(had, unit) : -1, to = has ? class_of(has, unit) : -1;
    }
};
