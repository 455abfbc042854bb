// SlabGraph, prepare: finds the keys, chooses rows for new tables, and bounds their needs. Does not write the
// structure.
#pragma once
#include "structures/outcome.cuh"
#include "kernels/search.cuh"
#include "structures/slabgraph/holes.cuh"

struct BatchInspection {
    i64 slot;   // or -1
    u32 slab;  // first slab of the chain with free words
    u32 empty;  // bitmap of those
    i32 room;   // free slots of the chain
    DEVICE void add(u32 seen, int at, u32 free) {
        if (at >= 0) slot = (i64)seen * SLAB + at;
        if (!empty) slab = seen, empty = free;
        room += popcount(free);
    }
};

// Searches an id in the chain from `slab` on. One lane loads a whole slab at once: 10M keys take 0.49 ms. Four lanes
// that load their slabs together, one after another, like the paper's warps, take 0.70 ms: fewer loads are in flight.
DEVICE BatchInspection look_up(const SlabView& graph, u32 slab, u32 id) {
    BatchInspection found = {-1, 0, 0, 0};
    while (slab != no_slab && found.slot < 0) {
        Quad held[quads_of_slab];
#pragma unroll
        for (int q = 0; q < quads_of_slab; ++q) held[q] = quads(graph.slabs, slab)[q];
        int at = -1;
        u32 free = 0;
#pragma unroll
        for (int q = 0; q < quads_of_slab; ++q) {
            int here = held[q].find(id, q == 0);
            at = here >= 0 ? 4 * q + here : at;
            free |= held[q].empty(q == 0) << 4 * q;
        }
        found.add(slab, at, free);
        slab = held[0].a;
    }
    return found;
}

struct Places {  // results of prepare, by key and by warp of keys
    i64* place;
    u8* outcome;
    // inserts << 32 | deletes of the row that continues in the next warp. Zeros between batches
    u64* moves;
    u32* marks;  // bitmap of first keys of rows that get another table, or that continue in the next warp
    u32* tally;  // inserted, deleted, updated, missing and unknown: 6 bits each, from the lowest
    u32* chains;  // in units of 1 / chain_unit
};

// One lane per key, warps converged: finds its place, its outcome, and whether its row may need another table. No block
// waits for its slowest warp here: Choose sums up the warps' results, which saved a tenth of the time.
struct Locate {
    static constexpr int lanes = 1;
    const u64* keys;
    const i8* op;
    i64 n;
    SlabView graph;
    i64 rows;
    i64 vertices;
    Places found;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        for (i64 i : grid.items(all_words)) status[i] = 0;  // for Choose
        i64 head = 0;  // first key of a row
        for (i64 w : grid.items(warp, warps(n))) {
            i64 first = w * warp.size(), end = first + warp.size(), k = first + warp.rank();
            fetch_ahead(k);
            u64 key = k < n ? keys[k] : nobody, row = key >> 32;
            u64 left = first > 0 ? keys[first - 1] : nobody, right = end < n ? keys[end] : nobody;
            bool known = (i64)row < rows && (i64)(u32)key < vertices, insert = k < n && (!op || op[k] > 0);
            Row of_row = known ? row_of(graph.rows, (i64)row) : Row{{no_slab, 0}, 0};
            Table own = of_row.table;
            Lanes same = {lanes_of_row(warp, row), left >> 32 == row, right >> 32 == row};
            bool leads = known && lowest_bit(same.bits) == warp.rank();
            BatchInspection at = look_up(graph, own.buckets ? own.slab((u32)key) : no_slab, (u32)key);
            u64 next = warp.shfl(key, lesser(warp.rank() + 1, warp.size() - 1));
            bool acts = known && (warp.rank() + 1 < warp.size() ? next : right) != key;  // of equal keys the last
            u8 is = !acts ? overridden : insert ? (at.slot < 0 ? inserted : updated) : at.slot < 0 ? missing : deleted;
            decide(warp, w, row, same, leads, is, of_row, head);
            tell(warp, w, is, k < n && !known);
            settle(warp, k, is, at, same.whole());
            u32 chained = warp.sum(is == inserted && own.buckets > 1 ? chains(at.room) : 0u);
            if (warp.rank() == 0) found.chains[w] = chained;
        }
    }
    struct Lanes {  // bitmap of the warp's lanes with keys of the same row; and whether other warps have some, too
        u32 bits;
        bool from_left, to_right;
        DEVICE bool whole() const { return !from_left && !to_right; }
    };
    static constexpr u64 nobody = ~(u64)0;
    DEVICE void fetch_ahead(i64 k) const {
        if (k + 24 < n) prefetch(&row_of(graph.rows, (i64)(keys[k + 24] >> 32)));
        i64 row = k + 12 < n ? (i64)(keys[k + 12] >> 32) : rows;
        if (row < rows) graph.prefetch_row(row, (u32)keys[k + 12]);
    }
    // c inserts into a bucket with at least f free slots chain at most c / (f + 1) slabs, with f less than a slab's
    // slots. A row of one bucket chains none: it has room, or gets a larger table.
    DEVICE static u32 chains(i32 room) {
        u32 parts = (u32)lesser(room, slots_of_slab - 1) + 1;
        return ((u32)chain_unit + parts - 1) / parts;
    }
    // Adds up a row's moves in the first lane with its keys. It decides about a row that is completely in this warp,
    // and leaves the others to Choose.
    DEVICE void decide(Tile<32> warp, i64 w, u64 row, Lanes same, bool leads, u8 is, Row of_row, i64& head) const {
        i32 inserts = popcount(warp.ballot(is == inserted) & same.bits);
        i32 deletes = popcount(warp.ballot(is == deleted) & same.bits);
        bool marked = leads && !same.from_left;
        if (leads && same.whole()) {
            marked = !keeps((i64)row, (i64)of_row.degree + inserts - deletes, of_row.table.buckets);
        } else if (leads) {
            i64 k = w * warp.size() + warp.rank();
            if (marked) head = k;
            else if (warp.size() > 1 || keys[head] >> 32 != row) head = lower_bound_near(keys, n, k, row << 32);
            u64 moves = (u64)inserts << 32 | (u64)deletes;
            if (moves) atomic_add(found.moves + head / warp.size(), moves);
        }
        u32 marks = warp.ballot(marked);
        if (warp.rank() == 0) found.marks[w] = marks;
    }
    DEVICE void tell(Tile<32> warp, i64 w, u8 is, bool strange) const {
        bool all[5] = {is == inserted, is == deleted, is == updated, is == missing, strange};
        u32 tally = 0;
        for (int j = 0; j < 5; ++j) tally |= (u32)popcount(warp.ballot(all[j])) << 6 * j;
        if (warp.rank() == 0) found.tally[w] = tally;
    }
    // Finds a free slot for each insert. Lanes that share a slab get different slots; if no other warp wants slots of
    // that slab and it has enough, they are `sure`.
    DEVICE void settle(Tile<32> warp, i64 k, u8 is, BatchInspection at, bool whole) const {
        bool wants = is == inserted && at.empty;
        u32 same = warp.match(wants ? at.slab : no_slab) & warp.ballot(wants), empty = at.empty;
        int before = popcount(same & ((1u << warp.rank()) - 1)), all = popcount(same), room = popcount(empty);
        if (k >= n) return;
        i64 place = at.slot >= 0 ? at.slot : at.empty ? absent : full;
        if (wants && before < room) {
            for (; before > 0; --before) empty &= empty - 1;
            place = (i64)at.slab * SLAB + lowest_bit(empty) | (whole && all <= room ? sure : loose);
        }
        found.place[k] = place;
        found.outcome[k] = is;
    }
};

// One lane per mark, blocks converged: chooses the marked rows that get another table, and lists their pieces.
struct Choose {
    static constexpr int lanes = 256, resident = 4;
    const u64* keys;
    i64 n;
    SlabView graph;
    Places found;
    const i64* state;
    const u64* holes;
    u32* tasks;
    u64* pieces;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        SHARED(i32, steps, 32);
        Block block;
        Tile<32> warp;
        i64 counts[4] = {}, sums[4] = {}, many = block.size() / warp.size();  // warps
        for (i64 c : grid.items(block, (Marks::turns(n) + many - 1) / many)) {
            Marks marks(warp, found.marks, n, c * many + warp.index());
            i64 w = marks.turn * Marks::words + warp.rank();
            if (warp.rank() < Marks::words && w < warps(n)) hear(w, counts);
            if (warp.rank() == 0) steps[warp.index()] = marks.steps();
            block.sync();
            i32 most = 0;
            for (int j = 0; j < many; ++j) most = greater(most, steps[j]);
            for (i32 i = warp.rank(); i < most * warp.size(); i += warp.size()) {
                u32 some = some_holes(warp, state + hole_lengths, status);  // early: loaded when it is needed
                i64 k = marks.key(warp, i);
                Task task = {};
                bool chosen = i < marks.all && is_task(k, task, sums);
                emit(warp, chosen, task, some);
            }
            block.sync();
        }
        add_by_block(counts, status + all_moves);
        add_by_block(sums, status + task_slabs);
        for (i64 i : grid.items(hole_lengths)) status[free_slabs + i] = state[i];
    }
    DEVICE void hear(i64 w, i64 (&counts)[4]) const {
        i64 tally = found.tally[w], six = 63;
        counts[0] += (tally & six) << 32 | (tally >> 6 & six);
        counts[1] += (tally >> 12 & six) << 32 | (tally >> 18 & six);
        counts[2] += found.chains[w];
        counts[3] += tally >> 24;
    }
    // Returns the moves of the row's keys, and their end; -1 if that must be searched.
    DEVICE u64 moved(i64 k, i64& end) const {
        constexpr int warp = Tile<32>::size();
        u64 row = keys[k] >> 32, sum = 0;
        i64 last = (k / warp + 1) * warp;
        if (last < n && keys[last] >> 32 == row) {
            end = -1;
            sum = found.moves[k / warp];
            found.moves[k / warp] = 0;
            return sum;
        }
        for (end = k;; end += 4) {  // most rows have fewer: all loads at once
            u64 key[4];
            u8 is[4];
#pragma unroll
            for (int j = 0; j < 4; ++j)
                key[j] = keys[lesser(end + j, n - 1)], is[j] = found.outcome[lesser(end + j, n - 1)];
            for (int j = 0; j < 4; ++j) {
                if (end + j >= n || key[j] >> 32 != row) return end += j, sum;
                sum += is[j] == inserted ? (u64)1 << 32 : is[j] == deleted;
            }
        }
    }
    DEVICE bool is_task(i64 k, Task& task, i64 (&sums)[4]) const {
        i64 row = (i64)(keys[k] >> 32), end;
        u64 moves = moved(k, end);
        Table own = row_of(graph.rows, row).table;
        i64 inserts = (i64)(moves >> 32), degree = (i64)row_of(graph.rows, row).degree + inserts - (i64)(u32)moves;
        if (keeps(row, degree, own.buckets)) return false;
        i64 buckets = buckets_for(degree);
        if (end < 0 && inserts) end = lower_bound_near(keys, n, k, (u64)(row + 1) << 32);
        task = {(u32)row, own.first, own.buckets, (u32)buckets, 0, (u32)k, (u32)(inserts ? end : k), 0, no_slab, 0};
        if (buckets > 1) sums[0] += degree / slots_of_slab, sums[1] += degree;  // slabs to chain, and their edges
        sums[2] += inserts, sums[3] += own.buckets > 1 ? own.buckets : 0;
        return true;
    }
    DEVICE void emit(Tile<32> warp, bool chosen, Task task, u32 some) const {
        Hole hole = take_hole(warp, task.new_buckets, some, holes, state + hole_lengths, status);
        i64 n_pieces = chosen ? task.bucket_pieces() + task.key_pieces() : 0, many = task.new_buckets;
        bool lies = hole.slabs > 0;
        i64 at[6] = {chosen, n_pieces, many == 1, many > 1 && !lies ? many : 0, lies ? many : 0, task.buckets == 1};
        append_by_block(at, status + n_tasks);  // tasks, pieces, singles, runs, reused, ones
        if (!chosen) return;
        task.place = (u32)(many == 1 ? at[2] : lies ? at[4] : at[3]), task.freed = (u32)at[5];
        if (lies) task.hole = hole.first, task.rest = hole.slabs - task.new_buckets;
        task_at(tasks, at[0]) = task;
        for (i64 p = 0; p < n_pieces; ++p) pieces[at[1] + p] = (u64)at[0] << 32 | (u64)p;
    }
};

struct Report {  // one lane per word: copies the status to the host
    static constexpr int lanes = 1;
    const i64* status;
    i64 n;
    i64* mailbox;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) mailbox[i] = status[i];
    }
};

// One tile per piece: counts the edges of each bucket of a new table, including those to be deleted.
struct CountBuckets {
    static constexpr int lanes = TILE;
    SlabView graph;
    Tasks tasks;
    i64 n;
    i64 at_tail;  // slabs of new tables at the tail, before those in holes
    Keys keys;
    u32* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            const Task& task = tasks.task(i);
            if (task.new_buckets < 2) continue;
            Table to = {task.place + (task.hole == no_slab ? 0 : (u32)at_tail), task.new_buckets};
            i64 number = tasks.number(i), of_keys = number - task.bucket_pieces();
            if (of_keys < 0) count_buckets(tile, task, to, number * piece_buckets);
            else count_keys(tile, to, task.first_key + of_keys * piece_keys, task.last_key);
        }
    }
    template <class T> DEVICE void count_buckets(T tile, const Task& task, Table to, i64 from) const {
        u32 end = (u32)lesser(from + piece_buckets, (i64)task.buckets);
        graph.buckets(tile, row_of(graph.rows, task.row), (u32)from, end, [&](u32 id, i64, bool live) {
            if (live) atomic_add(counts + to.slab(id), 1u);
            return false;
        });
    }
    template <class T> DEVICE void count_keys(T tile, Table to, i64 from, i64 end) const {
        for (i64 k = from + tile.rank(); k < lesser(from + piece_keys, end); k += tile.size())
            if (keys.outcome[k] == inserted) atomic_add(counts + to.slab((u32)keys.keys[k]), 1u);
    }
};

struct SumChains {  // one lane per bucket of a new table: sums[0], slabs to chain; sums[1], edges to go there
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
