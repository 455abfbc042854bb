// Data common to prepare and commit: the run's keys, their places in their rows, and the changes of rows.
#pragma once
#include "structures/hornet/arrays.cuh"
#include "structures/hornet/view.cuh"
#include "structures/shift_sums.cuh"
#include "structures/outcome.cuh"

struct Batch {  // values by row stand at the row's first key, and are undefined at others
    const u64* keys;
    const u8* outcome;
    const u32* place;  // of each key: number of smaller edges in its row
    const u32* before;  // of each key, and at the end: prefix sums of inserts and deletes, as in shift_sums.cuh
    const u64* chunks;
    i64 shift;
    const u32* end;  // of each row: one past its last key; 0 if the row is unchanged
    const u64* held;    // of each row: its word before the batch
    const u32* drawn;  // of each row with a new block: its number within its class
    i64 n;
    DEVICE i64 row(i64 k) const { return (i64)(keys[k] >> 32); }
    DEVICE bool leads(i64 k) const { return k == 0 || keys[k - 1] >> 32 != keys[k] >> 32; }
    DEVICE u64 moves(i64 k) const { return shifts_before(before, chunks, shift, k); }
    DEVICE i64 inserts_in(i64 a, i64 b) const { return (i64)(moves(b) >> 32) - (i64)(moves(a) >> 32); }
    DEVICE i64 deletes_in(i64 a, i64 b) const { return (i64)(u32)moves(b) - (i64)(u32)moves(a); }
};

// The words of a changed row: edges and block classes before and after; class -1 is no block.
struct Change {
    i64 inserts, had, has;
    int from, to;
    DEVICE Change(const Batch& batch, i64 a, i64 b, u64 word, i64 unit) {
        inserts = batch.inserts_in(a, b), had = (i64)(word >> 32), has = had + inserts - batch.deletes_in(a, b);
        from = had ? class_of(had, unit) : -1, to = has ? class_of(has, unit) : -1;
    }
};

#ifndef HUGE_EDGES
#define HUGE_EDGES 65536
#endif
// Maximum edges, old and new, of rows merged by a tile of 8, by a tile of 32, and by a block; longer rows are merged in
// pieces.
constexpr i64 few_edges = 64, some_edges = 4096, huge_edges = HUGE_EDGES, piece_edges = huge_edges / 16;

DEVICE i64 pieces_of(i64 n) { return (n + piece_edges - 1) / piece_edges; }

struct Lists {  // first keys of changed rows, by size; huge ones from the end of `many`
    u32* few;
    u32* some;
    u32* many;
    i64 capacity;
};

struct Words {  // data for the new words of changed rows
    u64* rows;
    const u32* blocks;  // allocated blocks; null if the rows of a new pool have their words already
};

struct Row {  // change of a row
    u64 held, word;
    u32 a, b;  // its keys
    int inserts;
    DEVICE int edges() const { return (int)(held >> 32); }
    DEVICE int has() const { return (int)(word >> 32); }
    DEVICE int deletes() const { return edges() + inserts - has(); }
};

// Sets the word of the row with first key `a`, and frees its old block. No block is allocated before the next batch, so
// its edges can still be read.
DEVICE Row set_row(const Batch& batch, const Words& words, const Arrays& arrays, const i64* at, i64 a) {
    i64 b = batch.end[a];
    u64 held = batch.held[a], *word = words.rows + batch.row(a);
    Change change(batch, a, b, held, arrays.unit);
    Row row = {held, 0, (u32)a, (u32)b, (int)change.inserts};
    if (!words.blocks) return row.word = *word, row;
    bool moves = change.from != change.to;
    u32 block = moves && change.to >= 0 ? words.blocks[at[offset0 + change.to] + batch.drawn[a]] : (u32)held;
    *word = row.word = change.has ? (u64)change.has << 32 | block : 0;
    if (moves && change.from >= 0) give_back(arrays, (i64)(u32)held << arrays.unit, change.from);
    return row;
}
