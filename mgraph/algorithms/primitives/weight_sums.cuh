// Sums edge weights in whole units, by row or by label. Integers, so that timing does not change them.
#pragma once
#include "algorithms/primitives/fixed_point.cuh"
#include "kernels/rows.cuh"

// The sum to compute: the largest weight, as the bits of a float, and the number of negative or infinite ones; the
// edges of each row; those of each row, or of all together, inside of a community; or the arcs to each community.
enum Weighing { largest, strengths, within, inside, incoming };

struct Scale {
    i64 weighing;
    i64 first;
    f64 unit;
    i64 loops;          // factor of a self-loop: 2 in an undirected graph
    const u32* labels;  // per vertex of the graph
    i64* sums;          // out: per row, or per label
    i64* found;         // out: the largest weight or the sum; the number refused
    template <class View, class Group>
    DEVICE i64 weigh(const View& graph, Group group, i64 row, i64 unit_of_row) const {
        i64 sum = 0, most = 0, bad = 0;
        bool filtered = weighing == inside || weighing == within;
        u32 own = filtered ? labels[first + row] : 0;
        graph.visit(group, row, unit_of_row, [&](u32 id, i64 slot, bool live) {
            if (!live) return false;
            if (weighing == largest) {
                f32 weight = graph.weight(slot);
                bool refused = !(weight >= 0.0f && weight <= 3.402823466e38f);
                bad += refused;
                if (weight > 0 && !refused) most = greater(most, (i64)bits_of(weight));  // -0.0 has the larger bits
                return false;
            }
            i64 weight = (i64)fixed(graph, slot, unit) * (id == first + row ? loops : 1);
            if (weighing == incoming) atomic_add(sums + labels[id], weight);
            else if (!filtered || labels[id] == own) sum += weight;
            return false;
        });
        if (weighing == largest && most > load(found)) atomic_max(found, most);
        if (weighing == largest && bad) atomic_add(found + 1, bad);
        if (weighing != strengths && weighing != within) return sum;
        sum = group.sum(sum);
        if (group.rank() == 0 && sum) atomic_add(sums + row, sum);
        return 0;
    }
};

template <class View>
struct WeighRows {  // weighs rows, a row per lane; leaves hubs to WeighHubs
    static constexpr int lanes = 32;
    View graph;
    i64 rows;
    Scale scale;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 sum = 0;
        visit_all(grid, graph, rows, EveryRow{}, tasks, n_tasks,
                  [&](auto group, i64 row, i64 unit) { sum += scale.weigh(graph, group, row, unit); });
        sum = tile.sum(sum);
        if (tile.rank() == 0 && sum) atomic_add(scale.found, sum);
    }
};

template <class View>
struct WeighHubs {  // weighs a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    Scale scale;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 sum = 0;
        visit_hubs(grid, graph, tasks, *n_tasks,
                   [&](auto whole, i64 row, i64 unit) { sum += scale.weigh(graph, whole, row, unit); });
        sum = tile.sum(sum);
        if (tile.rank() == 0 && sum) atomic_add(scale.found, sum);
    }
};
