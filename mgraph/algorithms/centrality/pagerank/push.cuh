// Makes a push iteration of PageRank, for directed graphs whose in-edges are neither stored nor made for the call:
// every edge adds its source's share, rank / out-degree, to a fixed-point sum of its destination.
#pragma once
#include "algorithms/centrality/pagerank/ranks.cuh"
#include "kernels/rows.cuh"

struct Sums {  // fixed-point sums of one word, or of two if `low` is not null
    u64* high;
    u64* low;
    DEVICE Wide parts(f64 v) const { return low ? to_wide(v, fixed_one) : Wide{to_fixed(v), 0}; }
    DEVICE void add(i64 at, Wide v) const {
        atomic_add(high + at, v.high);
        if (low) atomic_add(low + at, v.low);
    }
    DEVICE f64 take(i64 at) const {  // returns a sum and clears it
        f64 sum = from_fixed(high[at]);
        high[at] = 0;
        if (low) sum += (f64)low[at] / low_one / fixed_one, low[at] = 0;
        return sum;
    }
};

DEVICE f64 share_of(f64 rank, Receivers receivers) { return receivers > 0 ? rank / receivers : 0; }  // weights may be 0

template <class View, class Group>
DEVICE void push_share(const View& graph, Group group, i64 row, i64 unit, f64 share, Sums sums) {
    Wide parts = sums.parts(share);
    graph.visit(group, row, unit, [&](u32 id, i64 slot, bool live) {
        if (live) sums.add(id, BY_WEIGHT ? sums.parts(share * graph.weight(slot)) : parts);
        return false;
    });
}

template <class View>
struct PushRanks {  // pushes the shares of 32 rows of out-edges per tile; leaves hubs to PushHubs
    static constexpr int lanes = 32;
    View graph;
    i64 n;
    const Receivers* degrees;
    const f64* ranks;
    Sums sums;  // of all vertices of the graph
    DEVICE void operator()(Grid grid) const {
        visit_all(grid, graph, n, EveryRow{}, nullptr, nullptr, [&](auto group, i64 row, i64 unit) {
            push_share(graph, group, row, unit, share_of(ranks[row], degrees[row]), sums);
        });
    }
};

template <class View>
struct PushHubs {  // pushes a task of a hub's out-edges per tile
    static constexpr int lanes = 32;
    View graph;
    const u64* tasks;
    i64 n;
    const Receivers* degrees;
    const f64* ranks;
    Sums sums;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, n, [&](auto tile, i64 row, i64 unit) {
            push_share(graph, tile, row, unit, share_of(ranks[row], degrees[row]), sums);
        });
    }
};

struct DrainSums {  // moves sums to the send buffer, one lane per vertex of other ranks (all but first .. end - 1)
    static constexpr int lanes = 1;
    Sums sums;
    i64 n;
    i64 first;
    i64 end;
    f64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n - (end - first))) {
            i64 v = i < first ? i : i + end - first;
            out[v] = sums.take(v);
        }
    }
};

struct AddSums {  // adds the sums of another rank, one lane per own vertex
    static constexpr int lanes = 1;
    const f64* part;
    i64 n;
    Sums sums;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) sums.add(i, sums.parts(part[i]));
    }
};

struct FinishRanks {  // computes a rank from a sum, and clears the sum, one lane per own vertex
    static constexpr int lanes = 1;
    Sums sums;
    i64 n;
    const Receivers* degrees;
    Base base;
    f64 alpha;
    f64* ranks;
    u64* tally;
    u64* spent;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(tally_cells)) spent[c] = 0;
        RankSums<true> all;
        for (i64 row : grid.items(n)) {
            f64 rank = greater(base.at(row) + alpha * sums.take(row), 0.0);
            all.count(all.change, magnitude(rank - ranks[row]));
            if (degrees[row]) all.count(all.handed, rank);
            ranks[row] = rank;
        }
        all.add_to(tally);
    }
};
