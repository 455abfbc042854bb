// GraphVine, commit: weights and deletions in place before blocks are reserved, inserts after. Each edge gets its place
// from its row's counter, so writes are disjoint.
#pragma once
#include "structures/graphvine/batch.cuh"

struct SetWeights {  // one lane per key: new weights of edges that exist, before anything moves
    static constexpr int lanes = 1;
    VineView graph;
    Batch batch;
    const f32* weight;
    f32* weights;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (batch.outcome[k] != updated) continue;
            i64 row = (i64)(batch.keys[k] >> 32);
            i64 slot = graph.place((u32)graph.sentinels[row], graph.extent(row), batch.position[k]);
            weights[slot] = weight ? weight[k] : 1.0f;
        }
    }
};

struct MarkTombstones {  // one lane per key: leaves a tombstone in a deleted edge's slot, as in the paper
    static constexpr int lanes = 1;
    VineView graph;
    Batch batch;
    GraphVinePool pool;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (batch.outcome[k] != deleted) continue;
            i64 row = (i64)(batch.keys[k] >> 32);
            pool.slots[graph.place((u32)graph.sentinels[row], graph.extent(row), batch.position[k])] = nobody;
        }
    }
};

// One lane per key, warps converged: key a + i moves edge i of its row's tail into a hole.
struct MoveTails {
    static constexpr int lanes = 1;
    Batch batch;
    VineView graph;
    GraphVinePool pool;
    Holes holes;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        for (i64 t : grid.items(warp, (batch.n + warp.size() - 1) / warp.size())) {
            i64 k = t * warp.size() + warp.rank();
            u32 own = k < batch.n ? batch.owner[k] : nobody;
            bool stays = own != nobody && low(batch.moves[own]) > high(batch.moves[own]) && survives(own, k);
            i64 place = Peers(warp, own).places(warp, stays, holes.used + own);
            if (!stays) continue;
            Change change(graph, batch, own);
            i64 to = graph.place(change.root, change.before, holes.at[own + place]);
            pool.move(to, graph.place(change.root, change.before, change.after + k - own));
        }
    }
    DEVICE bool survives(i64 a, i64 k) const {
        return k - a < low(batch.moves[a]) - high(batch.moves[a]) && !holes.gone[k];
    }
};

struct Target {  // destination of a row's inserts, once blocks are reserved: holes, or behind the row's edges
    i64 a, before, after, holes;
    u32 root;
    DEVICE Target(const VineView& graph, const Batch& batch, const u32* roots, i64 first) {
        a = first;
        i64 inserts = high(batch.moves[a]), deletes = low(batch.moves[a]);
        after = LAZY ? graph.extent(batch.row(a)) : high(batch.held[a]) + inserts - deletes;
        root = roots ? roots[a] : (u32)graph.sentinels[batch.row(a)], holes = LAZY ? 0 : deletes;
        before = after - inserts + holes;
    }
    DEVICE i64 slot(const VineView& graph, const u32* at, i64 place) const {
        return graph.place(root, after, place < holes ? (i64)at[a + place] : before + place - holes);
    }
};

struct Insert {  // one lane per key, warps converged
    static constexpr int lanes = 1;
    Batch batch;
    const f32* weight;
    const u32* roots;  // of rows with reserved blocks; null if the pool was rebuilt
    VineView graph;
    GraphVinePool pool;
    Holes holes;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        for (i64 t : grid.items(warp, (batch.n + warp.size() - 1) / warp.size())) {
            i64 k = t * warp.size() + warp.rank();
            u32 own = k < batch.n ? batch.owner[k] : nobody;
            bool comes = k < batch.n && batch.outcome[k] == inserted;
            Target target(graph, batch, roots, comes ? own : 0);  // its loads are in flight before the atomic
            i64 place = Peers(warp, own).places(warp, comes, holes.used + own);
            if (!comes) continue;
            pool.put(target.slot(graph, holes.at, place), (u32)batch.keys[k], weight ? weight[k] : 1.0f);
        }
    }
};

// One lane per row, at its first key: inserts all edges of the row one after another, as in the paper.
struct InsertByRow {
    static constexpr int lanes = 1;
    Batch batch;
    const f32* weight;
    const u32* roots;  // of rows with reserved blocks; null if the pool was rebuilt
    VineView graph;
    GraphVinePool pool;
    Holes holes;
    DEVICE void operator()(Grid grid) const {
        for (i64 a : grid.items(batch.n)) {
            if (!batch.leads(a) || !batch.moves[a]) continue;
            Target target(graph, batch, roots, a);
            i64 place = holes.used[a];
            for (i64 k = a; k < batch.end[a]; ++k)
                if (batch.outcome[k] == inserted)
                    pool.put(target.slot(graph, holes.at, place++), (u32)batch.keys[k], weight ? weight[k] : 1.0f);
        }
    }
};
