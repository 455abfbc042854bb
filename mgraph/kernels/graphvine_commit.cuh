// GraphVine, commit: weights and deletions in place before the relayout, inserts after it.
// Prefix sums gave every edge a place of its own: no two lanes write one slot.
#pragma once
#include "graphvine_batch.cuh"

struct SetWeights {  // one lane a key: the new weight of edges that are there already, before anything moves
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

struct Bury {  // one lane a key: a deleted edge's slot is marked and kept, as in the paper
    static constexpr int lanes = 1;
    VineView graph;
    Batch batch;
    Pool pool;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (batch.outcome[k] != deleted) continue;
            i64 row = (i64)(batch.keys[k] >> 32);
            pool.slots[graph.place((u32)graph.sentinels[row], graph.extent(row), batch.position[k])] = nobody;
        }
    }
};

struct ListHoles {  // one lane a key: holes[a + i] = the i-th hole left of its row's tail
    static constexpr int lanes = 1;
    Batch batch;
    const u64* flags;
    u32* holes;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (high(flags[k + 1]) == high(flags[k])) continue;
            i64 a = batch.first[batch.owner[k]];
            holes[a + high(flags[k]) - high(flags[a])] = batch.position[k];
        }
    }
};

struct MoveTails {  // one lane a key: inserts fill the first holes of a row, survivors of its tail the others
    static constexpr int lanes = 1;
    VineView graph;
    Batch batch;
    Pool pool;
    const u64* flags;
    const u32* holes;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            Change change(graph, batch, batch.owner[k]);
            i64 at = k - change.a;
            if (at >= change.tail() || low(flags[k + 1]) != low(flags[k])) continue;
            i64 survivor = at - (low(flags[k]) - low(flags[change.a]));
            i64 to = graph.place(change.root, change.before, holes[change.a + change.inserts + survivor]);
            pool.move(to, graph.place(change.root, change.before, change.after + at));
        }
    }
};

// Where insert `i` of a touched row goes: into the i-th hole, or behind what the row had.
struct Target {
    i64 row, before, after, a;
    u32 root;
    u64 moves;
    DEVICE Target(const VineView& graph, const Batch& batch, i64 t) {  // after the relayout
        a = batch.first[t], row = batch.row(t), moves = batch.moves[a];
        u64 sentinel = graph.sentinels[row];
        u64 all = batch.moves[batch.first[t + 1]] - moves;
        root = (u32)sentinel, after = graph.extent(row);
        before = LAZY ? after - high(all) : after - high(all) + low(all);
        holes = LAZY ? 0 : low(all);
    }
    i64 holes;
    DEVICE i64 slot(const VineView& graph, const Batch& batch, const u32* hole, i64 k) const {
        i64 i = high(batch.moves[k] - moves);
        return graph.place(root, after, i < holes ? (i64)hole[a + i] : before + i - holes);
    }
};

struct Insert {  // one lane a key
    static constexpr int lanes = 1;
    VineView graph;
    Batch batch;
    Pool pool;
    const f32* weight;
    const u32* holes;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (batch.outcome[k] != inserted) continue;
            Target target(graph, batch, batch.owner[k]);
            pool.put(target.slot(graph, batch, holes, k), (u32)batch.keys[k], weight ? weight[k] : 1.0f);
        }
    }
};

struct InsertByRow {  // one lane a touched row, which inserts all its edges one after another, as in the paper
    static constexpr int lanes = 1;
    VineView graph;
    Batch batch;
    Pool pool;
    const f32* weight;
    const u32* holes;
    DEVICE void operator()(Grid grid) const {
        for (i64 t : grid.items(*batch.touched)) {
            Target target(graph, batch, t);
            for (i64 k = batch.first[t]; k < batch.first[t + 1]; ++k)
                if (batch.outcome[k] == inserted)
                    pool.put(target.slot(graph, batch, holes, k), (u32)batch.keys[k], weight ? weight[k] : 1.0f);
        }
    }
};
