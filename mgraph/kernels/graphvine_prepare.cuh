// GraphVine, prepare: what becomes of each key, what each touched row needs, and the rows' places in a new pool.
// Nothing of the structure is written. status: counts for the host, one read-back.
#pragma once
#include "graphvine_batch.cuh"

enum Status { updates, misses, all_moves, rows_touched, hub_pieces, first_counter };

struct Outcomes {  // one lane a key: what becomes of it, what it moves (to be summed up); of equal keys the last acts
    static constexpr int lanes = 1;
    const u64* keys;
    const i8* op;
    const u32* position;
    i64 n;
    u8* outcome;
    u64* moves;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        i64 update = 0, miss = 0;
        for (i64 k : grid.items(n)) {
            u8 is = outcome_of(k);
            outcome[k] = is;
            moves[k + 1] = is == inserted ? (u64)1 << 32 : (u64)(is == deleted);
            if (k == 0) moves[0] = 0;
            update += is == updated, miss += is == missing;
        }
        Tile<32> tile;
        update = tile.sum(update), miss = tile.sum(miss);
        if (update && tile.rank() == 0) atomic_add(status + updates, update);
        if (miss && tile.rank() == 0) atomic_add(status + misses, miss);
    }
    DEVICE u8 outcome_of(i64 k) const {
        if (k + 1 < n && keys[k + 1] == keys[k]) return overridden;
        bool there = position[k] != nobody;
        return !op || op[k] > 0 ? (there ? updated : inserted) : (there ? deleted : missing);
    }
};

// A row that loses more edges than it gets gives up its last positions, its tail; survivors there move into holes left
// of it. One lane a key: flags[k + 1] = key k leaves a hole left of the tail << 32 | the edge at place k - a of the
// tail is deleted. They come as zeros; two lanes may write one pair, each its own half.
struct MarkTails {
    static constexpr int lanes = 1;
    VineView graph;
    Batch batch;
    u32* halves;  // of the flags, the low ones first
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (batch.outcome[k] != deleted) continue;
            Change change(graph, batch, batch.owner[k]);
            i64 beyond = (i64)batch.position[k] - change.after;
            halves[beyond < 0 ? 2 * (k + 1) + 1 : 2 * (change.a + beyond + 1)] = 1;
        }
    }
};

struct CountNeeds {  // one tile a chunk of touched rows; counts[counter * chunks + chunk], to be summed up
    static constexpr int lanes = 32;
    VineView graph;
    Batch batch;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 chunks = chunks_of(batch.n), rows = *batch.touched;
        for (i64 c : grid.items(tile, chunks)) {
            i64 sums[counters] = {};
            for (i64 t = c * chunk + tile.rank(); t < lesser((c + 1) * chunk, rows); t += tile.size()) {
                Change change(graph, batch, t);
                Need need(graph, change);
                for (int i = 0; i < counters; ++i) sums[i] += need.count(i, change);
            }
            for (int i = 0; i < counters; ++i) {
                i64 sum = tile.sum(sums[i]);
                if (tile.rank() == 0) counts[i * chunks + c] = sum;
            }
        }
    }
};

struct Totals {  // one lane a word of status
    static constexpr int lanes = 1;
    Batch batch;
    const i64* counts;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        i64 chunks = chunks_of(batch.n);
        for (i64 i : grid.items(counters))
            status[first_counter + i] = counts[(i + 1) * chunks - 1] - (i ? counts[i * chunks - 1] : 0);
        for (i64 i : grid.items(1)) status[all_moves + i] = (i64)batch.moves[batch.n];
    }
};

// --- a new pool: every row gets a new place ---

struct CopySentinels {  // one lane a row; grown[row]: positions it will use
    static constexpr int lanes = 1;
    VineView graph;
    i64 n;
    u64* sentinels_out;
    u32* grown;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) sentinels_out[row] = graph.sentinels[row], grown[row] = (u32)graph.extent(row);
    }
};

struct GrowRows {  // one lane a touched row
    static constexpr int lanes = 1;
    VineView graph;
    Batch batch;
    u64* sentinels_out;
    u32* grown;
    DEVICE void operator()(Grid grid) const {
        for (i64 t : grid.items(*batch.touched)) {
            Change change(graph, batch, t);
            grown[change.row] = (u32)change.after;
            sentinels_out[change.row] += (u64)(change.inserts - change.deletes) << 32;
        }
    }
};

struct CountQuanta {  // one lane a row: its quanta of the new pool, to be summed up; those of directories are totalled
    static constexpr int lanes = 1;
    VineView graph;  // the new pool's, as yet without slots
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

struct PlaceRows {  // one lane a row
    static constexpr int lanes = 1;
    const i64* places;
    i64 n;
    u64* sentinels_out;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) sentinels_out[row] = sentinels_out[row] >> 32 << 32 | (u32)places[row];
    }
};
