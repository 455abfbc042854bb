// GraphVine, prepare: outcomes of keys, needs of touched rows, and places of rows in a new pool. Does not write the
// structure. status: counts for the host, one read-back.
#pragma once
#include "kernels/count.cuh"
#include "structures/graphvine/batch.cuh"

enum Status { all_moves, updates, misses, stretches, unknown, long_runs, row_pieces, pieces_listed, first_counter };

// One lane per key, warps converged: determines its outcome and the moves of its row; of equal keys the last acts.
struct Outcomes {
    static constexpr int lanes = 1;
    const u64* keys;
    const i8* op;
    i64 n;
    const u32* position;
    const u32* owner;
    u8* outcome;
    u64* moves;
    u32* filters;  // reset to zeros; only long runs have others
    i64* status;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        i64 sums[3] = {};
        for (i64 t : grid.items(warp, (n + warp.size() - 1) / warp.size())) {
            i64 k = t * warp.size() + warp.rank();
            u32 own = k < n ? owner[k] : nobody;
            u8 is = own != nobody ? outcome_of(k) : overridden;
            if (k < n) outcome[k] = is;
            if (k < n && status[long_runs] && filters[k]) filters[k] = 0;
            Peers peers(warp, own);
            u64 inserts = warp.ballot(is == inserted) & peers.all, deletes = warp.ballot(is == deleted) & peers.all;
            u64 both = (u64)popcount((u32)inserts) << 32 | (u64)popcount((u32)deletes);
            if (peers.leads() && both) atomic_add(moves + own, both), sums[0] += (i64)both;
            sums[1] += is == updated, sums[2] += is == missing;
        }
        add_by_block(sums, status + all_moves);
    }
    DEVICE u8 outcome_of(i64 k) const {
        if (k + 1 < n && keys[k + 1] == keys[k]) return overridden;
        bool there = position[k] != nobody;
        return !op || op[k] > 0 ? (there ? updated : inserted) : (there ? deleted : missing);
    }
};

// One lane per key, warps converged: lists the holes of deletions, and marks deleted edges of tails.
struct ListHoles {
    static constexpr int lanes = 1;
    Batch batch;
    VineView graph;
    Holes holes;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        for (i64 t : grid.items(warp, (batch.n + warp.size() - 1) / warp.size())) {
            i64 k = t * warp.size() + warp.rank(), a = 0, beyond = 0;
            bool goes = k < batch.n && batch.outcome[k] == deleted;
            u32 own = k < batch.n ? batch.owner[k] : nobody;
            if (goes) a = own, beyond = (i64)batch.position[k] - Change(graph, batch, a).after;
            if (goes && beyond >= 0) holes.gone[a + beyond] = 1;
            i64 place = Peers(warp, own).places(warp, goes && beyond < 0, holes.listed + own);
            if (goes && beyond < 0) holes.at[a + place] = batch.position[k];
        }
    }
};

struct CountNeeds {  // one block per chunk; the last to finish sums up the groups and reports to the host
    static constexpr int lanes = 256;
    Batch batch;
    VineView graph;
    Sums sums;
    u64* arrived;
    i64* status;
    i64* mailbox;
    DEVICE void operator()(Grid grid) const {
        u64 done = 0;
        for (i64 c : grid.items(Block{}, chunks_of(batch.n))) count(c), ++done;
        close(done);
    }
    DEVICE void count(i64 c) const {
        SHARED(u32, total, counters + 1);  // the chunk's needs, and pieces
        Block block;
        Tile<32> tile;
        u32 all[counters + 1] = {};
        for (int i = block.rank(); i <= counters; i += block.size()) total[i] = 0;
        for (i64 k = c * chunk + block.rank(); k < lesser((c + 1) * chunk, batch.n); k += block.size()) {
            if (!batch.leads(k) || !batch.moves[k]) continue;
            Change change(graph, batch, k);
            Need need(graph, change);
            for (int i = 0; i < counters; ++i) all[i] += (u32)need.count(i, change);
            all[counters] += (u32)need.pieces(change);
        }
        block.sync();
        for (int i = 0; i <= counters; ++i) {
            u32 sum = tile.any(all[i]) ? tile.sum(all[i]) : 0;
            if (sum && tile.rank() == 0) atomic_add(total + i, sum);
        }
        block.sync();
        for (int i = block.rank(); i <= counters; i += block.size()) {
            i64 sum = (i32)total[i];  // negative values occur for `filled`
            if (i < filled) sums.of_chunks[i * chunks_of(batch.n) + c] = total[i];
            if (sum)
                atomic_add(i < counters ? sums.of_groups + i * sums.groups(batch.n) + c / group : status + row_pieces,
                           sum);
        }
    }
    // Turns sums of groups into prefix sums, with one tile per counter.
    DEVICE void close(u64 done) const {
        SHARED(bool, is_last, 1);
        Block block;
        Tile<32> tile;
        const int tiles = block.size() / tile.size();
        const i64 groups = sums.groups(batch.n);
        block.sync();
        if (block.rank() == 0) *is_last = done && arrive(arrived, done) + done == (u64)chunks_of(batch.n);
        block.sync();
        for (i64 i = tile.index(); *is_last && i < counters; i += tiles) {
            i64 sum = add_up(tile, sums.of_groups + i * groups, groups);
            if (tile.rank() == 0) mailbox[first_counter + i] = sum;
        }
        for (int i = block.rank(); *is_last && i < first_counter; i += block.size()) mailbox[i] = load(status + i);
        block.sync();
    }
    DEVICE static i64 add_up(Tile<32> tile, i64* of_groups, i64 groups) {
        constexpr int some = 8;  // loads in flight per lane: no other block hides their latency
        i64 before = 0;
        for (i64 first = 0; first < groups; first += some * tile.size()) {
            i64 its[some], mine = 0, at = first + some * tile.rank();
            for (int j = 0; j < some; ++j) its[j] = at + j < groups ? load(of_groups + at + j) : 0;
            for (int j = 0; j < some; ++j) mine += its[j];
            i64 upto = tile.scan(mine), sum = before + upto - mine;
            for (int j = 0; j < some && at + j < groups; sum += its[j++]) of_groups[at + j] = sum;
            before += tile.shfl(upto, tile.size() - 1);
        }
        return before;
    }
};

// --- a new pool with new places for all rows ---

struct CopySentinels {  // one lane per row; grown[row]: its number of positions
    static constexpr int lanes = 1;
    VineView graph;
    i64 n;
    u64* sentinels_out;
    u32* grown;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) sentinels_out[row] = graph.sentinels[row], grown[row] = (u32)graph.extent(row);
    }
};

struct GrowRows {  // one lane per key; a row's first key acts
    static constexpr int lanes = 1;
    VineView graph;
    Batch batch;
    u64* sentinels_out;
    u32* grown;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (!batch.leads(k)) continue;
            Change change(graph, batch, k);
            grown[change.row] = (u32)change.after;
            sentinels_out[change.row] += (u64)(change.inserts - change.deletes) << 32;
        }
    }
};

// One lane per row: writes its quanta of the new pool, for a prefix sum, and totals those of directories.
struct CountQuanta {
    static constexpr int lanes = 1;
    VineView graph;  // with the new pool's parameters, still without slots
    const u32* grown;
    i64 n;
    i64* places;
    i64* total;
    DEVICE void operator()(Grid grid) const {
        i64 sum = 0;
        for (i64 row : grid.items(n)) {
            i64 blocks = graph.blocks(grown[row]), directory = graph.directory(blocks);
            places[row + 1] = directory + (blocks << graph.size_class(grown[row]));
            sum += directory;
        }
        Tile<32> tile;
        sum = tile.sum(sum);
        if (sum && tile.rank() == 0) atomic_add(total, sum);
    }
};

struct PlaceRows {  // one lane per row
    static constexpr int lanes = 1;
    const i64* places;
    i64 n;
    u64* sentinels_out;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) sentinels_out[row] = sentinels_out[row] >> 32 << 32 | (u32)places[row];
    }
};
