// Moves between communities, the graph of the communities, and the modularity. Sums are integers, so that neither timing
// nor the number of ranks changes them.
#pragma once
#include "algorithms/primitives/weight_sums.cuh"
#include "kernels/search.cuh"

struct SumByLabel {  // one lane a vertex: adds its strength to its community's
    static constexpr int lanes = 1;
    const u32* labels;
    const i64* strength;
    i64 n;
    i64* sums;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) atomic_add(sums + labels[v], strength[v]);
    }
};

struct Move {  // one lane a move: vertex << 32 | the community that it joins
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

struct LeastNames {  // one lane a vertex: least[community] becomes the smallest name of its vertices
    static constexpr int lanes = 1;
    const u32* labels;
    const u32* names;  // null for their ids
    i64 n;
    u32* least;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) {
            u32 name = names ? names[v] : (u32)v;
            if (name < glance(least + labels[v])) atomic_min(least + labels[v], name);
        }
    }
};

struct MarkNames {  // one lane a community: marks its smallest name, by which communities are numbered
    static constexpr int lanes = 1;
    const u32* least;
    i64 n;
    u8* marked;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(n))
            if (least[c] != no_label) marked[least[c]] = 1;
    }
};

struct NumberCommunities {  // one lane a community: its strength and smallest name, in their order
    static constexpr int lanes = 1;
    const u32* least;
    const i64* upto;  // how many names are marked up to each
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

struct NumberVertices {  // one lane a vertex: the number of its community
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

struct Between {  // where arcs between communities go; lanes that work on one row take places from its counter
    const u32* numbers;
    i64 first;
    i64 begin;  // the rows of this piece begin here
    f64 unit;
    u32* counts;
    const i64* offsets;
    u64* keys;  // null where arcs are only counted
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
struct JoinRows {  // a lane brings a row of a piece; hubs are left to JoinHubs
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
struct JoinHubs {  // a tile a task of a hub's row
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

struct MarkLast {  // one lane a key: whether it is the last of equal ones
    static constexpr int lanes = 1;
    const u64* keys;
    i64 n;
    u8* lasts;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) lasts[i] = i + 1 == n || keys[i + 1] != keys[i];
    }
};

struct KeepLast {  // one lane a key: the last of equal ones, and the running sum up to it
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

struct Contributions {  // one lane an own vertex: its share of the modularity, of which the shares are the sum
    static constexpr int lanes = 1;
    const u32* labels;
    const i64* within;  // what the edges of each row weigh that stay inside
    const i64* strength;  // of own rows
    const i64* sums;  // by label: what can be met there
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
