// A push iteration of PageRank, for directed graphs without in-edges and without the memory to transpose them: every edge
// adds its source's share, rank / out-degree, to a fixed-point sum of its destination.
#pragma once
#include "ranks.cuh"
#include "rows.cuh"

template <class View, class Group>
DEVICE void push_share(const View& graph, Group group, i64 row, i64 unit, const u32* degrees, const f32* ranks, u64* sums) {
    u64 share = to_fixed((f64)ranks[row] / degrees[row]);
    graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
        if (live) atomic_add(sums + id, share);
        return false;
    });
}

template <class View>
struct PushRanks {  // a lane brings a row of out-edges; hubs are left to PushHubs
    static constexpr int lanes = 32;
    View graph;
    i64 n;
    const u32* degrees;
    const f32* ranks;
    u64* sums;  // of all vertices
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            visit_rows(graph, tile, row < n ? row : -1, (u64*)nullptr, (i64*)nullptr, [&](auto group, i64 next, i64 unit) {
                push_share(graph, group, next, unit, degrees, ranks, sums);
            });
        }
    }
};

template <class View>
struct PushHubs {  // a tile a task of a hub's out-edges
    static constexpr int lanes = 32;
    View graph;
    const u64* tasks;
    i64 n;
    const u32* degrees;
    const f32* ranks;
    u64* sums;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n))
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                push_share(graph, tile, row, unit, degrees, ranks, sums);
                return false;
            });
    }
};

struct DrainSums {  // one lane a vertex of the other ranks, all but first .. end - 1: its sum so far leaves for its owner
    static constexpr int lanes = 1;
    u64* sums;
    i64 n;
    i64 first;
    i64 end;
    f32* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n - (end - first))) {
            i64 v = i < first ? i : i + end - first;
            out[v] = (f32)from_fixed(sums[v]);
            sums[v] = 0;
        }
    }
};

struct AddSums {  // one lane a vertex: what another rank sent
    static constexpr int lanes = 1;
    const f32* part;
    i64 n;
    u64* sums;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) sums[i] += to_fixed(part[i]);
    }
};

struct FinishRanks {  // one lane an own vertex: from its sum to its rank; the sum is cleared for the next iteration
    static constexpr int lanes = 1;
    u64* sums;
    i64 n;
    const u32* degrees;
    f64 base;
    f64 alpha;
    f32* ranks;
    u64* tally;
    u64* spent;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(2)) spent[c] = 0;
        Tally all;
        for (i64 row : grid.items(n)) {
            f64 rank = base + alpha * from_fixed(sums[row]);
            sums[row] = 0;
            all.count(ranks[row], (f32)rank);
            ranks[row] = (f32)rank;
            if (degrees[row]) all.handed += ranks[row];
        }
        all.add_to(tally);
    }
};
