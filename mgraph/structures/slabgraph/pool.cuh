// SlabGraph's pool of slabs: copied into a larger one, compacted into another one, and measured. Free slabs, and those
// from the tail on, are all ones.
#pragma once
#include "structures/slabgraph/table.cuh"

// One lane per quad: copies the first `used` slabs and the free lists, and clears slabs from `first` on.
struct Grow {
    static constexpr int lanes = 1;
    const u32* words;
    const f32* weights;
    const u32* free;
    const u64* holes;
    i64 used;
    i64 first;
    i64 n_free;
    i64 n_holes;
    u32* words_out;
    f32* weights_out;
    u32* free_out;
    u64* holes_out;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 q : grid.items(used * quads_of_slab)) {
            ((Quad*)words_out)[q] = ((const Quad*)words)[q];
            if (WEIGHTED) ((Quad*)weights_out)[q] = ((const Quad*)weights)[q];
        }
        for (i64 q : grid.items((n - first) * quads_of_slab))
            ((Quad*)words_out)[first * quads_of_slab + q] = clear_quad();
        for (i64 i : grid.items(n_free)) free_out[i] = free[i];
        for (i64 i : grid.items(n_holes)) holes_out[i] = holes[i];
    }
};

// one lane per row, blocks converged: places its table in the new pool, and lists its buckets in pieces
struct MoveTables {
    static constexpr int lanes = 256;
    const u32* rows;
    i64 n;
    u32* rows_out;
    u64* pieces;
    i64* state_out;  // free slabs, tail, pieces
    DEVICE void operator()(Grid grid) const {
        Block block;
        for (i64 c : grid.items(block, (n + block.size() - 1) / block.size())) {
            i64 row = c * block.size() + block.rank();
            Row own = row < n ? row_of(rows, row) : Row{{0, 0}, 0};
            u32 buckets = own.table.buckets;
            i64 n_pieces = (buckets + piece_buckets - 1) / piece_buckets;
            i64 at[2] = {buckets, n_pieces};  // tail, pieces
            append_by_block(at, state_out + 1);
            if (row < n) row_of(rows_out, row) = {{buckets ? (u32)at[0] : 0, buckets}, own.degree};
            for (i64 p = 0; p < n_pieces; ++p) pieces[at[1] + p] = (u64)row << 32 | (u64)p;
        }
    }
};

// One tile per piece: copies its chains without gaps, and places slabs after the first behind all tables.
struct MoveSlabs {
    static constexpr int lanes = TILE;
    const u32* rows;
    const u32* rows_out;
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
            Table own = row_of(rows, row).table, to = row_of(rows_out, row).table;
            for (i64 b = from; b < lesser(from + piece_buckets, (i64)own.buckets); ++b) {
                u32 slab = own.first + (u32)b, place = to.first + (u32)b;
                bool alone = words[(i64)slab * SLAB] == no_slab;
                for (int q = tile.rank(); q < quads_of_slab; q += tile.size()) copy_quad(slab, place, q, alone);
                tile.sync();  // all of the new slab is clear
                if (!alone) pack(tile, slab, place);
            }
        }
    }
    DEVICE void copy_quad(u32 slab, u32 place, int q, bool alone) const {
        i64 from = (i64)slab * quads_of_slab + q, to = (i64)place * quads_of_slab + q;
        ((Quad*)words_out)[to] = alone ? ((const Quad*)words)[from] : clear_quad();
        if (WEIGHTED && alone) ((Quad*)weights_out)[to] = ((const Quad*)weights)[from];
    }
    template <class T> DEVICE void pack(T tile, u32 slab, u32 to) const {
        int laid = 0;  // edges in the present slab
        for (; slab != no_slab; slab = words[(i64)slab * SLAB])
            for (int s = tile.rank(); s < SLAB; s += tile.size()) {
                i64 from = (i64)slab * SLAB + s;
                u32 id = s < header ? no_edge : words[from], all = tile.ballot(id != no_edge), after = no_slab;
                int own = laid + popcount(all & ((1u << tile.rank()) - 1)) - slots_of_slab;
                laid += popcount(all);
                if (laid > slots_of_slab) after = link(tile, to);
                if (id != no_edge) put(own < 0 ? to : after, own < 0 ? SLAB + own : header + own, id, from);
                if (after != no_slab) to = after, laid -= slots_of_slab;
            }
    }
    template <class T> DEVICE u32 link(T tile, u32 to) const {  // takes another slab, which is clear
        u32 after = no_slab;
        if (tile.rank() == 0) words_out[(i64)to * SLAB] = after = (u32)atomic_add(state_out + 1, (i64)1);
        return tile.shfl(after, 0);
    }
    DEVICE void put(u32 slab, int word, u32 id, i64 from) const {
        words_out[(i64)slab * SLAB + word] = id;
        if (WEIGHTED) weights_out[(i64)slab * SLAB + word] = weights[from];
    }
};

struct CountPacked {  // one lane per row, warps converged: counts the slabs after the first of chains without gaps
    static constexpr int lanes = 1;
    SlabView graph;
    i64 n;
    i64* sum;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        i64 mine[1] = {};
        for (i64 w : grid.items(warp, warps(n))) {
            i64 row = w * warp.size() + warp.rank();
            Table own = row < n ? row_of(graph.rows, row).table : Table{0, 0};
            // all lanes examine one row's buckets
            for (u32 some = warp.ballot(own.buckets > 1); some; some &= some - 1) {
                u32 first = warp.shfl(own.first, lowest_bit(some)), buckets = warp.shfl(own.buckets, lowest_bit(some));
                for (u32 b = (u32)warp.rank(); b < buckets; b += (u32)warp.size()) mine[0] += chained(first + b);
            }
        }
        add_by_block(mine, sum);
    }
    DEVICE i64 chained(u32 slab) const {
        if (graph.slabs[(i64)slab * SLAB] == no_slab) return 0;
        i64 live = 0;
        for (; slab != no_slab; slab = graph.slabs[(i64)slab * SLAB])
            live += slots_of_slab - popcount(graph.empty_in(slab));
        return greater((live - 1) / slots_of_slab, (i64)0);
    }
};

// one lane per task: updates the place of its old table; a new one goes to the tail, as no hole is left
struct Retarget {
    static constexpr int lanes = 1;
    const u32* rows;
    u32* tasks;
    i64 n;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            Task& task = task_at(tasks, i);
            task.first = row_of(rows, task.row).table.first;
            if (task.hole != no_slab) task.place = (u32)atomic_add(status + runs, (i64)task.new_buckets);
            task.hole = no_slab, task.rest = 0;
            if (i == 0) status[reused] = 0;
        }
    }
};

// One tile per row: counts the buckets with chains of 1, 2 ... slabs; the last count includes longer ones.
struct CountChains {
    static constexpr int lanes = 32;
    SlabView graph;
    i64 n;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 mine[8] = {};
        for (i64 row : grid.items(tile, n)) {
            Table own = row_of(graph.rows, row).table;
            for (i64 b = tile.rank(); b < own.buckets; b += tile.size()) {
                i64 length = -1;
                for (u32 slab = own.first + (u32)b; slab != no_slab; slab = graph.slabs[(i64)slab * SLAB]) ++length;
                for (int l = 0; l < 8; ++l) mine[l] += l == lesser(length, (i64)7);
            }
        }
        add_by_block(mine, counts);
    }
};
