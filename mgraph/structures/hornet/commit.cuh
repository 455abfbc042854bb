// Hornet, commit: weights first, then blocks for the rows that need others, then the rows' edges (merge.cuh). The blocks
// that rows leave are free at once, but taken by the next batch at the earliest.
#pragma once
#include "structures/hornet/batch.cuh"

struct SetWeights {  // one lane per key: new weights of edges that exist, before anything moves
    static constexpr int lanes = 1;
    Batch batch;
    HornetView graph;
    const f32* weight;
    f32* weights;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n))
            if (batch.outcome[k] == updated)
                weights[graph.slot_of(graph.rows[batch.row(k)]) + batch.place[k]] = weight ? weight[k] : 1.0f;
    }
};

struct Assign {  // one lane per key: the new words of the rows that change; the blocks that they leave go back
    static constexpr int lanes = 1;
    Batch batch;
    Arrays arrays;
    const i64* at;
    const u32* list;
    u64* rows;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (!batch.leads(k) || !batch.end[k]) continue;
            u64 word = batch.held[k];
            Change change(batch, k, batch.end[k], word, arrays.unit);
            bool moves = change.from != change.to;
            u32 block = moves && change.to >= 0 ? list[at[offset0 + change.to] + batch.drawn[k]] : (u32)word;
            rows[batch.row(k)] = change.has ? (u64)change.has << 32 | block : 0;
            if (moves && change.from >= 0) give_back(arrays, (i64)(u32)word << arrays.unit, change.from);
        }
    }
};
