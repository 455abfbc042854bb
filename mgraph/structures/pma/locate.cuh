// pma, prepare: slots and outcomes of keys.
#pragma once
#include "structures/pma/window.cuh"
#include "structures/outcome.cuh"
#include "structures/shift_sums.cuh"

enum Status {  // counts for the host, one read-back
    updates,
    misses,
    resize,
    leaf_windows,
    block_windows,
    wide_parts,
    row_tasks,
    scratch_leaves,
    all_moves,
    few_windows,
    unknown,
    crowded_leaves,
    status_words
};

// Finds each key's slot, its outcome, and the shifts before it; of equal keys the last acts.
struct Locate {  // one block per chunk
    static constexpr int lanes = 256;
    const u64* keys;
    const i8* op;
    i64 n;
    PmaView graph;
    i64 rows;
    i64 vertices;
    i64* located;
    u8* outcome;
    u32* before;
    u64* chunks;
    i64 shift;
    u64* arrived;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        Block block;
        i64 found[3] = {}, many = (n >> shift) + 1;  // the last one has the end of the keys
        for (i64 c : grid.items(block, many)) {
            i64 last = lesser((c + 1) << shift, n + 1);
            ChunkShifts moves;
            for (i64 first = c << shift; first < last; first += block.size() * in_flight) {
                i64 k = first + block.rank() * in_flight;
                u32 move[in_flight] = {}, mine = 0;
                look_up(k, (int)greater((i64)0, lesser(n - k, (i64)in_flight)), move, found);
                for (int j = 0; j < in_flight; ++j) mine += move[j];
                u32 upto = moves.before(block, mine);
                for (int j = 0; j < in_flight && k + j < last; upto += move[j++]) before[k + j] = upto;
            }
            moves.close(block, chunks, arrived, c, many, [&](u64 all) { status[all_moves] = (i64)all; });
        }
        report(updates, found[0]);
        report(misses, found[1]);
        report(unknown, found[2]);
    }
    // Looks up some neighbouring keys with interleaved searches: on a CPU their next loads overlap.
    DEVICE void look_up(i64 k, int some, u32* move, i64* found) const {
        PmaView::RowSearch search[in_flight];
        for (int j = 0; j < some; ++j) {
            if (k + j + 2 * in_flight < n) prefetch(graph.start + (keys[k + j + 2 * in_flight] >> 32));
            search[j] = graph.begin(lesser((i64)(keys[k + j] >> 32), rows - 1));
            prefetch(graph.heads + search[j].middle());
        }
        i64 most = 1;
        for (int j = 0; j < some; ++j) most = greater(most, search[j].leaves);
        for (; most > 1; most -= most >> 1)
            for (int j = 0; j < some; ++j) {
                graph.narrow(search[j], (u32)keys[k + j]);
                prefetch(graph.heads + search[j].middle());
            }
        if (in_flight > 1)
            for (int j = 0; j < some; ++j)
                for (int s = 0; s < LEAF; s += 16) prefetch(graph.leaf(search[j].leaf) + s);
        for (int j = 0; j < some; ++j) move[j] = settle(k + j, search[j], found);
    }
    DEVICE u32 settle(i64 k, const PmaView::RowSearch& search, i64* found) const {
        i64 row = (i64)(keys[k] >> 32);
        bool there, known = row < rows && (i64)(u32)keys[k] < vertices;
        i64 at = graph.end(search, (u32)keys[k], there);
        bool acts = k + 1 == n || keys[k + 1] != keys[k], inserts = !op || op[k] > 0;
        u8 is = !acts ? overridden : inserts ? (there ? updated : inserted) : there ? deleted : missing;
        outcome[k] = is;
        found[0] += is == updated;
        found[1] += is == missing;
        found[2] += !known;
        located[k] = Batch::at_slot(row < rows ? at : graph.first(rows)) + (is == inserted ? 2 : is == deleted ? 0 : 1);
        return is == inserted ? 1u << 16 : (u32)(is == deleted);
    }
    DEVICE void report(Status word, i64 mine) const {
        Tile<32> tile;
        i64 sum = tile.sum(mine);
        if (sum && tile.rank() == 0) atomic_add(status + word, sum);
    }
};
