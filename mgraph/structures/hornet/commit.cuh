// Hornet, commit: weights first, then blocks for the rows that need others, then the rows' edges (merge.cuh), and at
// last the blocks that are left go back.
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

struct Assign {  // one lane per key, a warp in step: the new words of the rows that change
    static constexpr int lanes = 1;
    Batch batch;
    i64 unit;
    i64* at;
    const u32* list;
    u64* rows;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        for (i64 t : grid.items(warp, (batch.n + warp.size() - 1) / warp.size())) {
            i64 k = t * warp.size() + warp.rank();
            bool changes = k < batch.n && batch.leads(k) && batch.end[k];
            u64 word = changes ? batch.held[k] : 0;
            Change change(batch, changes ? k : 0, changes ? batch.end[k] : 0, word, unit);
            bool needs = changes && change.to >= 0 && change.from != change.to;
            i64 drawn = draw(warp, needs, change.to, at + next0);
            u32 block = needs ? list[at[offset0 + change.to] + drawn] : (u32)word;
            if (changes) rows[batch.row(k)] = change.has ? (u64)change.has << 32 | block : 0;
        }
    }
};

struct Release {  // one lane per key: blocks that rows have left
    static constexpr int lanes = 1;
    Batch batch;
    Arrays arrays;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (!batch.leads(k) || !batch.end[k]) continue;
            u64 word = batch.held[k];
            Change change(batch, k, batch.end[k], word, arrays.unit);
            if (change.from >= 0 && change.from != change.to)
                give_back(arrays, (i64)(u32)word << arrays.unit, change.from);
        }
    }
};
