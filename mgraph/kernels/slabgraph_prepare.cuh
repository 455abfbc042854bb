// SlabGraph, prepare: find the keys, choose the rows that get another table, and count what all of it may need.
// Nothing of the structure is written.
#pragma once
#include "outcome.cuh"
#include "search.cuh"
#include "slabgraph_table.cuh"

struct Found {
    i64 slot;  // or -1
    i64 free;  // a free slot of the chain, or -1
    i32 room;  // free slots of the chain
    // Adds one slab of the chain; `empty`: its free words, the word r-th among them to be proposed.
    DEVICE void add(u32 slab, int at, u32 empty, int r) {
        if (at >= 0) slot = (i64)slab * SLAB + at;
        if (free < 0 && empty) {
            room = popcount(empty);
            for (; r > 0 && (empty & (empty - 1)); --r) empty &= empty - 1;
            free = (i64)slab * SLAB + lowest_bit(empty);
        } else room += popcount(empty);
    }
};

// Lanes of a tile look for an id each, in the chain that begins at `slab`. Warp-cooperative work sharing: all lanes
// load a slab together, 32 bytes each of one of 128. (8 lanes of 16 bytes, or several of the tile's slabs at once, take 4 to
// 25% longer: registers that other warps could use.)
template <class T> DEVICE Found look_up(T tile, const SlabView& graph, u32 slab, u32 id) {
    constexpr int each = quads_of_slab / T::size();
    const int rank = tile.rank();
    Found found = {-1, -1, 0};
    u32 before = tile.shfl(slab, greater(rank - 1, 0));
    u32 firsts = tile.ballot(rank == 0 || before != slab) & ((2u << rank) - 1);
    int r = rank + 1 - bit_width(firsts);  // lanes before this one that may want a slot of the same slab
    while (tile.any(slab != no_slab)) {
        u32 next = no_slab;
        for (int j = 0; j < T::size(); ++j) {
            u32 theirs = tile.shfl(slab, j), wanted = tile.shfl(id, j), free = 0, after = no_slab;
            int at = -1;
            for (int q = 0; q < each; ++q) {
                Quad held = {no_slab, 0, 0, 0};
                if (theirs != no_slab) held = quads(graph.slabs, theirs)[rank * each + q];
                bool head = rank == 0 && q == 0;
                int word = 4 * (rank * each + q), here = held.find(wanted, head);
                at = here >= 0 ? word + here : at;
                free |= held.empty(head) << word;
                after = head ? held.a : after;
            }
            u32 hits = tile.ballot(at >= 0);
            free = tile.sum(free), at = tile.shfl(at, hits ? lowest_bit(hits) : 0), after = tile.shfl(after, 0);
            if (j != rank || slab == no_slab) continue;
            found.add(slab, at, free, r);
            if (!hits) next = after;
        }
        slab = next;
    }
    return found;
}
DEVICE Found look_up_alone(const SlabView& graph, u32 slab, u32 id) {
    Found found = {-1, -1, 0};
    for (; slab != no_slab && found.slot < 0; slab = graph.slabs[(i64)slab * SLAB])
        found.add(slab, graph.find_in(slab, id), graph.empty_in(slab), 0);
    return found;
}

struct Locate {  // one lane a key, a warp in step: its place, what becomes of it, and its row's moves, which come as zeros
    static constexpr int lanes = 1;
    SlabView graph;
    const u64* keys;
    const i8* op;
    i64 n;
    i64 rows;
    i64 vertices;
    i64* place;
    u8* outcome;
    u64* moves;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        Tile<LOOK> tile;
        Tile<32> warp;
        i64 sums[4] = {}, unknowns[1] = {}, head = 0;  // all_moves, updated, missing, chain_slabs
        for (i64 t : grid.items(warp, (n + warp.size() - 1) / warp.size())) {
            i64 k = t * warp.size() + warp.rank();
            fetch_ahead(k);
            Table own = {no_slab, 0};
            u64 key = k < n ? keys[k] : 0;
            bool known = k < n && (i64)(key >> 32) < rows && (i64)(u32)key < vertices;
            bool last = known && (k + 1 == n || keys[k + 1] != key);  // of equal keys the last acts
            unknowns[0] += k < n && !known;
            if (last) own = table_of(graph.table[key >> 32]);
            u32 slab = own.buckets ? own.slab((u32)key) : no_slab;
            Found found;
            if constexpr (warp.size() == 1) found = look_up_alone(graph, slab, (u32)key);
            else found = look_up(tile, graph, slab, (u32)key);
            u8 is = k < n ? note(k, last, found, own.buckets > 1, sums) : overridden;
            count(warp, k, key >> 32, is, head);
        }
        add_by_block(sums, status + all_moves);
        add_by_block(unknowns, status + unknown);
    }
    DEVICE void fetch_ahead(i64 k) const {
        if (k + 24 < n) prefetch(graph.table + (keys[k + 24] >> 32));
        i64 row = k + 12 < n ? (i64)(keys[k + 12] >> 32) : rows;
        if (row < rows) graph.prefetch_row(row, (u32)keys[k + 12]);
    }
    // c inserts into a bucket with f free slots, or more, chain at most c / (f + 1) slabs to it, f being less than a
    // slab's. A row of one bucket chains none: it has room, or gets a larger table.
    DEVICE u8 note(i64 k, bool last, Found found, bool chains, i64 (&sums)[4]) const {
        bool there = found.slot >= 0, insert = !op || op[k] > 0;
        u8 is = !last ? overridden : insert ? (there ? updated : inserted) : (there ? deleted : missing);
        place[k] = there ? found.slot : found.free >= 0 ? free_place(found.free) : absent;
        outcome[k] = is;
        sums[0] += is == inserted ? (i64)1 << 32 : is == deleted;
        sums[1] += is == updated;
        sums[2] += is == missing;
        if (is == inserted && chains) {
            i32 parts = lesser(found.room, slots_of_slab - 1) + 1;
            sums[3] += (u32)(chain_unit + parts - 1) / (u32)parts;
        }
        return is;
    }
    // The first of the warp's lanes with keys of one row adds up what they move; `head`: some row's first key.
    DEVICE void count(Tile<32> warp, i64 k, u64 row, u8 is, i64& head) const {
        int rank = warp.rank();
        u64 before = warp.shfl(row, greater(rank - 1, 0));
        bool leads = k < n && (rank == 0 || before != row);
        u32 leaders = warp.ballot(leads), above = leaders >> rank >> 1;
        u32 own = above ? ((2u << lowest_bit(above)) - 1) << rank : ~0u << rank;
        u64 inserts = warp.ballot(is == inserted) & own, deletes = warp.ballot(is == deleted) & own;
        if (!leads || !(inserts | deletes)) return;
        if (k == 0 || keys[k - 1] >> 32 != row) head = k;
        else if (keys[head] >> 32 != row) head = lower_bound_near(keys, n, k, row << 32);
        atomic_add(moves + head, (u64)popcount((u32)inserts) << 32 | (u64)popcount((u32)deletes));
    }
};

struct Choose {  // one lane a key, a block in step: the first key of a row decides whether the row gets another table
    static constexpr int lanes = 256;
    SlabView graph;
    const u64* keys;
    const u64* moves;
    i64 n;
    i64 rows;
    const i64* state;
    u32* tasks;
    u64* pieces;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        Block block;
        i64 sums[4] = {};
        for (i64 c : grid.items(block, (n + block.size() - 1) / block.size())) {
            i64 k = c * block.size() + block.rank();
            Task task = {};
            i64 at[4] = {};  // tasks, pieces, singles, runs
            if (k < n && is_task(k, task, sums)) {
                at[0] = 1, at[1] = task.bucket_pieces() + task.key_pieces();
                at[2] = task.new_buckets == 1, at[3] = task.new_buckets > 1 ? task.new_buckets : 0;
            }
            bool chosen = at[0], single = at[2];
            append_by_block(at, status + n_tasks);
            if (chosen) emit(task, at[0], at[1], single ? at[2] : at[3]);
        }
        add_by_block(sums, status + task_slabs);
        for (i64 i : grid.items((i64)2)) status[free_slabs + i] = state[i];
    }
    DEVICE bool is_task(i64 k, Task& task, i64 (&sums)[4]) const {
        u64 row = keys[k] >> 32;
        if ((i64)row >= rows || (k > 0 && keys[k - 1] >> 32 == row)) return false;
        i64 inserts = (i64)(moves[k] >> 32), degree = (i64)graph.degrees[row] + inserts - (i64)(u32)moves[k];
        Table own = table_of(graph.table[row]);
        i64 buckets = next_buckets((i64)row, degree, own.buckets);
        if (buckets == own.buckets) return false;
        i64 last = inserts ? lower_bound_near(keys, n, k + 1, (row + 1) << 32) : k;
        task = {(u32)row, own.first, own.buckets, (u32)buckets, 0, (u32)k, (u32)last, 0};
        if (buckets > 1) sums[0] += degree / slots_of_slab, sums[1] += degree;  // slabs to chain, edges to go there
        sums[2] += inserts, sums[3] += own.buckets;
        return true;
    }
    DEVICE void emit(Task task, i64 at, i64 piece, i64 place) const {
        task.place = (u32)place;
        task_at(tasks, at) = task;
        i64 n_pieces = task.bucket_pieces() + task.key_pieces();
        for (i64 p = 0; p < n_pieces; ++p) pieces[piece + p] = (u64)at << 32 | (u64)p;
    }
};

struct CountBuckets {  // one tile a piece: how many edges each bucket of a new table gets, those to be deleted included
    static constexpr int lanes = TILE;
    SlabView graph;
    Tasks tasks;
    Keys keys;
    u32* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, tasks.n)) {
            const Task& task = tasks.task(i);
            if (task.new_buckets < 2) continue;
            Table to = {task.place, task.new_buckets};
            i64 number = tasks.number(i), of_keys = number - task.bucket_pieces();
            if (of_keys < 0) count_buckets(tile, task, to, number * piece_buckets);
            else count_keys(tile, to, task.first_key + of_keys * piece_keys, task.last_key);
        }
    }
    template <class T> DEVICE void count_buckets(T tile, const Task& task, Table to, i64 from) const {
        for (i64 b = from; b < lesser(from + piece_buckets, (i64)task.buckets); ++b)
            graph.visit(tile, task.row, b, [&](u32 id, i64, bool live) {
                if (live) atomic_add(counts + to.slab(id), 1u);
                return false;
            });
    }
    template <class T> DEVICE void count_keys(T tile, Table to, i64 from, i64 end) const {
        for (i64 k = from + tile.rank(); k < lesser(from + piece_keys, end); k += tile.size())
            if (keys.outcome[k] == inserted) atomic_add(counts + to.slab((u32)keys.keys[k]), 1u);
    }
};

struct SumChains {  // one lane a bucket of a new table: sums[0], slabs to be chained; sums[1], edges to go there
    static constexpr int lanes = 1;
    const u32* counts;
    i64 n;
    i64* sums;
    DEVICE void operator()(Grid grid) const {
        i64 mine[2] = {};
        for (i64 b : grid.items(n)) {
            i64 over = greater((i64)counts[b] - slots_of_slab, (i64)0);
            mine[0] += (over + slots_of_slab - 1) / slots_of_slab, mine[1] += over;
        }
        add_by_block(mine, sums);
    }
};
