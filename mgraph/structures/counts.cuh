// Counts outcomes: of an undirected graph's edges, and of each batch of a run of several. One lane per key.
#pragma once
#include "structures/outcome.cuh"

// Counts the outcomes of arcs whose source, `lo` + row, is at most their destination: one per undirected edge.
struct CountForward {
    static constexpr int lanes = 1;
    const u64* keys;
    const u8* outcome;
    i64 n;
    i64 lo;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        i64 found[5] = {};
        for (i64 k : grid.items(n))
            if ((keys[k] >> 32) + (u64)lo <= (keys[k] & 0xffffffffu)) ++found[outcome[k]];
        Tile<32> tile;
        for (int c = 0; c < 5; ++c) {
            i64 sum = tile.sum(found[c]);
            if (tile.rank() == 0 && sum) atomic_add(counts + c, sum);
        }
    }
};

// Counts the outcomes of each batch of a run, as if the batches were applied one after another. The outcome of an edge's
// last operation tells if the edge existed before; each operation tells it for the batches after its own.
struct CountBatches {
    static constexpr int lanes = 1;
    const u64* keys;
    const i8* op;  // null if all are inserts
    const u32* batch;
    const u8* outcome;
    i64 n;
    i64 lo;  // counts arcs with `lo` + row <= dst, one per undirected edge; -1 for all arcs
    i64* counts;  // [batches][5]
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(n)) {
            bool first = k == 0 || keys[k - 1] != keys[k];
            if (first && (lo < 0 || (keys[k] >> 32) + (u64)lo <= (keys[k] & 0xffffffffu))) count(k);
        }
    }
    DEVICE void count(i64 k) const {  // all operations on an edge, of which k is the first
        i64 end = k + 1;
        while (end < n && keys[end] == keys[k]) ++end;
        bool exists = outcome[end - 1] == updated || outcome[end - 1] == deleted;
        for (; k < end; ++k) {
            if (k + 1 < end && batch[k + 1] == batch[k]) continue;  // overridden within its batch
            bool insert = !op || op[k] > 0;
            int result = insert ? (exists ? updated : inserted) : (exists ? deleted : missing);
            atomic_add(counts + 5 * (i64)batch[k] + result, (i64)1);
            exists = insert;
        }
    }
};
