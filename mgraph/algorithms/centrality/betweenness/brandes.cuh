// Counts shortest paths and sums dependencies, level by level: each vertex of a level sums over its neighbours in the
// level before (forward, over in-edges) or after (backward, over out-edges), which a bitmap marks. Sums are pulled, so
// that no sum depends on timing. Numbers of paths may exceed any float: they are m * 2^(512 power), with m from 1 to
// below 2^512.
#pragma once
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"

constexpr f64 step_up = 1.3407807929942597e154, step_down = 1 / step_up;  // 2^512

struct Big {
    f64 m;
    i64 power;
};
DEVICE f64 scaled(f64 m, i64 steps) {  // scaled down by `steps` powers; after two of them it is negligible
    return steps == 0 ? m : steps == 1 ? m * step_down : 0;
}
DEVICE Big add(Big a, Big b) {
    if (a.m == 0 || b.m == 0) return a.m == 0 ? b : a;
    i64 power = greater(a.power, b.power);
    return {scaled(a.m, power - a.power) + scaled(b.m, power - b.power), power};
}
template <class Tile> DEVICE Big sum(Tile tile, Big part) {
    i64 power = (i64)tile.most((u64)(part.m == 0 ? 0 : part.power));
    return {tile.sum(part.m == 0 ? 0 : scaled(part.m, power - part.power)), power};
}

struct Counts {
    const u32* near;  // a bit per vertex: 1 in the level to sum over
    f64* paths;  // per vertex of the graph: number of shortest paths from the source
    i32* power;
    i64* raised;  // 1 once a power is above 0; until then no power is read
    f64* credit;  // per vertex of the graph: (1 + dependency) / paths
    f64* total;  // per own row: sum of the dependencies of all sources
    i64 first;
    i64 backward;
    DEVICE void put(i64 row, Big sum) const {
        // Backward: delta(v) = sigma(v) * sum over w in the next level of (1 + delta(w)) / sigma(w).
        i64 v = first + row;
        if (backward) {
            f64 dependency = paths[v] * sum.m;
            credit[v] = (1 + dependency) / paths[v], total[row] += dependency;
            return;
        }
        // Forward: sigma(v) = sum over u in the level before of sigma(u), with an exponent of its own.
        bool up = sum.m >= step_up;
        paths[v] = up ? sum.m * step_down : sum.m, power[v] = (i32)(sum.power + up);
        if (sum.power + up) store(raised, (i64)1);
    }
};

struct Terms {  // the fold of a row: the sum over its neighbours in `near`
    const Counts& counts;
    bool plain;  // true if all powers are 0
    DEVICE explicit Terms(const Counts& counts) : counts(counts), plain(load(counts.raised) == 0) {}
    DEVICE Big nothing() const { return {0, 0}; }
    DEVICE Big with(Big sum, i64 row, u32 id, i64) const {
        if (!saw_bit(counts.near, id)) return sum;
        f64 value = (counts.backward ? counts.credit : counts.paths)[id];
        if (plain) return {sum.m + value, 0};
        i64 power = counts.power[id];
        if (!counts.backward) return add(sum, {value, power});
        return {sum.m + scaled(value, power - counts.power[counts.first + row]), 0};
    }
    template <class Group> DEVICE Big over(Group group, Big part) const {
        return plain ? Big{group.sum(part.m), 0} : sum(group, part);
    }
};

// Marks a level in a bitmap, one lane per listed vertex. Lists ascend, so the first vertex of each word writes it.
// Clears the words of the vertices in `old`.
struct MarkLevel {
    static constexpr int lanes = 1;
    const i64* listed;
    i64 n;
    u32* near;
    const i64* old;
    i64 n_old;
    u32* before;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(greater(n, n_old))) {
            if (i < n_old && first_of_word(old, i)) before[old[i] / word_bits] = 0;
            if (i >= n || !first_of_word(listed, i)) continue;
            i64 word = listed[i] / word_bits;
            u32 bits = 0;
            for (i64 at = i; at < n && listed[at] / word_bits == word; ++at) bits |= bit_of(listed[at]);
            near[word] = bits;
        }
    }
    DEVICE static bool first_of_word(const i64* list, i64 i) {
        return i == 0 || list[i - 1] / word_bits != list[i] / word_bits;
    }
};

template <class View>
struct SumRows {  // sums the rows of 32 vertices of a level per tile; hubs become tasks
    static constexpr int lanes = 32;
    View graph;
    Counts counts;
    const i64* listed;  // vertices
    i64 n;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Terms terms(counts);
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 at = i * tile.size() + tile.rank();
            fetch_row(graph, at, n, [&](i64 next) { return listed[next] - counts.first; });
            i64 row = at < n ? listed[at] - counts.first : -1;
            Big sum = fold_rows(graph, tile, row, terms);
            if (row < 0) continue;
            if ((i64)graph.degree(row) > HUB_DEGREE) add_tasks(graph, row, tasks, n_tasks);
            else counts.put(row, sum);
        }
    }
};

template <class View>
struct SumHubs {  // sums a task per tile
    static constexpr int lanes = 32;
    View graph;
    Counts counts;
    const u64* tasks;
    const i64* n_tasks;
    f64* parts;
    i64* powers;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Terms terms(counts);
        for (i64 i : grid.items(tile, *n_tasks)) {
            Big part = fold_task(graph, tile, tasks[i], terms);
            if (tile.rank() == 0) parts[i] = part.m, powers[i] = part.power;
        }
    }
};

template <class View>
struct JoinHubs {  // one lane per task: the task of a row's first unit adds up the row's parts, which follow it
    static constexpr int lanes = 1;
    View graph;
    Counts counts;
    const u64* tasks;
    const i64* n_tasks;
    const f64* parts;
    const i64* powers;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(*n_tasks)) {
            if ((u32)tasks[i] != 0) continue;
            i64 row = (i64)(tasks[i] >> 32), step = task_units(graph, row),
                count = (graph.units(row) + step - 1) / step;
            Big sum{0, 0};
            for (i64 k = i; k < i + count; ++k) sum = add(sum, {parts[k], powers[k]});
            counts.put(row, sum);
        }
    }
};
