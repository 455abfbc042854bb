// Moves vertices between communities, builds the graph of the communities, and computes the modularity. Sums are
// integers, so that neither timing nor the number of ranks changes them.
#pragma once
#include "algorithms/primitives/weight_sums.cuh"
#include "kernels/search.cuh"

struct SumByLabel {  // adds a vertex's strength to its community's, one lane per vertex
    static constexpr int lanes = 1;
    const u32* labels;
    const i64* strength;
    i64 n;
    i64* sums;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) atomic_add(sums + labels[v], strength[v]);
    }
};

struct Move {  // applies moves (vertex << 32 | new community), one lane per move
    static constexpr int lanes = 1;
    const u64* moves;
    i64 n;
    const i64* strength;
    u32* labels;
    i64* sums;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 v = (u32)(moves[i] >> 32), to = (u32)moves[i];
            atomic_add(sums + labels[v], -strength[v]);
            atomic_add(sums + to, strength[v]);
            labels[v] = to;
        }
    }
};

struct LeastNames {  // computes the smallest name of each community's vertices, one lane per vertex
    static constexpr int lanes = 1;
    const u32* labels;
    const u32* names;  // null for their ids
    i64 n;
    u32* least;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) {
            u32 name = names ? names[v] : (u32)v;
            if (name < stale_load(least + labels[v])) atomic_min(least + labels[v], name);
        }
    }
};

struct MarkNames {  // marks smallest names, by which communities are numbered, one lane per community
    static constexpr int lanes = 1;
    const u32* least;
    i64 n;
    u8* marked;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(n))
            if (least[c] != no_label) marked[least[c]] = 1;
    }
};

struct NumberCommunities {  // writes strengths and smallest names by number, one lane per community
    static constexpr int lanes = 1;
    const u32* least;
    const i64* upto;  // number of marked names up to each
    const i64* sums;
    i64 n;
    i64* strength;
    u32* names;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(n)) {
            if (least[c] == no_label) continue;
            i64 number = upto[least[c]] - 1;
            strength[number] = sums[c], names[number] = least[c];
        }
    }
};

struct NumberVertices {  // writes the number of a vertex's community, one lane per vertex
    static constexpr int lanes = 1;
    const u32* labels;
    const u32* least;
    const i64* upto;
    i64 n;
    u32* numbers;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) numbers[v] = (u32)(upto[least[labels[v]]] - 1);
    }
};

struct Between {  // output of arcs between communities; the lanes of a row take places from its counter
    const u32* numbers;
    i64 first;
    i64 begin;  // first row of this piece
    f64 unit;
    u32* counts;
    const i64* offsets;
    u64* keys;  // null while arcs are only counted
    u64* weights;
    template <class View, class Group> DEVICE void take(const View& graph, Group group, i64 row,
                                                        i64 unit_of_row) const {
        u32 own = numbers[first + row];
        graph.visit(group, row, unit_of_row, [&](u32 id, i64 slot, bool live) {
            u32 other = live ? numbers[id] : own, all = group.ballot(other != own);
            if (all == 0) return false;
            u32 place = group.shfl(group.rank() == 0 ? atomic_add(counts + row, (u32)popcount(all)) : 0u, 0);
            place += popcount(all & ((1u << group.rank()) - 1));
            if (other == own || !keys) return false;
            i64 at = offsets[row] - offsets[begin] + place;
            keys[at] = (u64)own << 32 | other, weights[at] = fixed(graph, slot, unit);
            return false;
        });
    }
};

template <class View>
struct JoinRows {  // writes the arcs of a piece's rows, a row per lane; leaves hubs to JoinHubs
    static constexpr int lanes = 32;
    View graph;
    i64 begin;
    i64 rows;
    Between between;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_all(grid, graph, rows, EveryRow{begin}, tasks, n_tasks,
                  [&](auto group, i64 row, i64 unit) { between.take(graph, group, row, unit); });
    }
};

template <class View>
struct JoinHubs {  // writes the arcs of a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    Between between;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks,
                   [&](auto tile, i64 row, i64 unit) { between.take(graph, tile, row, unit); });
    }
};

struct MarkLast {  // marks the last of equal keys, one lane per key
    static constexpr int lanes = 1;
    const u64* keys;
    i64 n;
    u8* lasts;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) lasts[i] = i + 1 == n || keys[i + 1] != keys[i];
    }
};

struct KeepLast {  // keeps the last of equal keys and the running sum up to it, one lane per key
    static constexpr int lanes = 1;
    const u64* keys;
    const u64* running;
    const i64* upto;
    i64 n;
    u64* out;
    u64* sums;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n))
            if (i + 1 == n || keys[i + 1] != keys[i]) out[upto[i] - 1] = keys[i], sums[upto[i] - 1] = running[i];
    }
};

struct Contributions {  // computes a vertex's share of the modularity, one lane per own vertex
    static constexpr int lanes = 1;
    const u32* labels;
    const i64* within;  // weight of each row's edges inside its community
    const i64* strength;  // per own row
    const i64* sums;  // per label: sum of strengths
    i64 first;
    i64 n;
    f64 total;
    f64 resolution;
    f64* shares;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) {
            f64 there = (f64)sums[labels[first + row]] / total;
            shares[row] = (f64)within[row] / total - resolution * ((f64)strength[row] / total) * there;
        }
    }
};
