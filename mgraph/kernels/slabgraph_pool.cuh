// SlabGraph's pool of slabs: copied into a larger one, compacted into a smaller one, and looked over.
// What is free is all ones, in the free list's slabs and from the tail on.
#pragma once
#include "slabgraph_table.cuh"

struct Grow {  // one lane a quad: the first `used` slabs are copied, the rest cleared; and the list of free slabs
    static constexpr int lanes = 1;
    const u32* words;
    const f32* weights;
    const u32* free;
    i64 used;
    i64 n_free;
    u32* words_out;
    f32* weights_out;
    u32* free_out;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 q : grid.items(n * quads_of_slab)) {
            bool copies = q < used * quads_of_slab;
            ((Quad*)words_out)[q] = copies ? ((const Quad*)words)[q] : Quad{~0u, ~0u, ~0u, ~0u};
            if (WEIGHTED && copies) ((Quad*)weights_out)[q] = ((const Quad*)weights)[q];
        }
        for (i64 i : grid.items(n_free)) free_out[i] = free[i];
    }
};

struct MoveTables {  // one lane a row, a block in step: its table's place in the new pool, and its buckets in pieces
    static constexpr int lanes = 256;
    const u64* table;
    i64 n;
    u64* table_out;
    u64* pieces;
    i64* state_out;  // free slabs, tail, pieces
    DEVICE void operator()(Grid grid) const {
        Block block;
        for (i64 c : grid.items(block, (n + block.size() - 1) / block.size())) {
            i64 row = c * block.size() + block.rank();
            Table own = row < n ? table_of(table[row]) : Table{0, 0};
            i64 n_pieces = (own.buckets + piece_buckets - 1) / piece_buckets;
            i64 at[2] = {own.buckets, n_pieces};  // tail, pieces
            append_by_block(at, state_out + 1);
            if (row < n) table_out[row] = Table{own.buckets ? (u32)at[0] : 0, own.buckets}.word();
            for (i64 p = 0; p < n_pieces; ++p) pieces[at[1] + p] = (u64)row << 32 | (u64)p;
        }
    }
};

struct MoveSlabs {  // one tile a piece: its chains are copied, slabs after the first to behind all tables
    static constexpr int lanes = TILE;
    const u64* table;
    const u64* table_out;
    const u32* words;
    const f32* weights;
    u32* words_out;
    f32* weights_out;
    const u64* pieces;
    i64* state_out;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, state_out[2])) {
            i64 row = (i64)(pieces[i] >> 32), from = (i64)(u32)pieces[i] * piece_buckets;
            Table own = table_of(table[row]), to = table_of(table_out[row]);
            for (i64 b = from; b < lesser(from + piece_buckets, (i64)own.buckets); ++b)
                copy_chain(tile, own.first + (u32)b, to.first + (u32)b);
        }
    }
    template <class T> DEVICE void copy_chain(T tile, u32 slab, u32 to) const {
        while (slab != no_slab) {
            const u32* from = words + (i64)slab * SLAB;
            u32 next = from[0], after = no_slab;
            if (next != no_slab && tile.rank() == 0) after = (u32)atomic_add(state_out + 1, (i64)1);
            after = tile.shfl(after, 0);
            for (int s = tile.rank(); s < SLAB; s += tile.size()) {
                words_out[(i64)to * SLAB + s] = s ? from[s] : after;
                if (WEIGHTED && s >= header) weights_out[(i64)to * SLAB + s] = weights[(i64)slab * SLAB + s];
            }
            slab = next, to = after;
        }
    }
};

struct Retarget {  // one lane a task: where its old table is now
    static constexpr int lanes = 1;
    const u64* table;
    u32* tasks;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) task_at(tasks, i).first = table_of(table[task_at(tasks, i).row]).first;
    }
};

struct CountChains {  // one tile a row: how many buckets are chains of 1, 2 ... slabs; the last counts longer ones too
    static constexpr int lanes = 32;
    SlabView graph;
    i64 n;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 mine[8] = {};
        for (i64 row : grid.items(tile, n)) {
            Table own = table_of(graph.table[row]);
            for (i64 b = tile.rank(); b < own.buckets; b += tile.size()) {
                i64 length = -1;
                for (u32 slab = own.first + (u32)b; slab != no_slab; slab = graph.slabs[(i64)slab * SLAB]) ++length;
                for (int l = 0; l < 8; ++l) mine[l] += l == lesser(length, (i64)7);
            }
        }
        add_by_block(mine, counts);
    }
};
