// The kernels that merge rows: short ones at once, huge ones in pieces.
#pragma once
#include "structures/hornet/weave.cuh"

struct MergeFew {  // 8 lanes per row
    static constexpr int lanes = 8;
    Batch batch;
    const f32* weight;
    const u32* list;
    i64 n;
    Slots slots;
    const u64* rows;
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, shared, 256 / lanes * (3 * few_places / 32));
        Tile<lanes> tile;
        merge_rows<few_places>(tile, grid.items(tile, n), list, batch, slots, rows, weight, shared);
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
        SHARED(u32, shared, 256 / lanes * (3 * some_places / 32));
        Tile<lanes> tile;
        merge_rows<some_places>(tile, grid.items(tile, n), list, batch, slots, rows, weight, shared);
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
        for (i64 i : grid.items(block, n)) merge_in_steps(Merger<Block>(block, batch, slots, rows, weight, list[i]));
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
