// Moves vertices between labels, which name communities or their parts, and follows what the moves change. Sums are
// integers, so that neither timing nor the number of ranks changes them.
#pragma once
#include "algorithms/primitives/label_counts.cuh"
#include "algorithms/primitives/weight_sums.cuh"
#include "kernels/count.cuh"

struct SumByLabel {  // adds a vertex's strength to its label's, one lane per vertex
    static constexpr int lanes = 1;
    const u32* labels;
    const i64* strength;
    i64 n;
    i64* sums;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) atomic_add(sums + labels[v], strength[v]);
    }
};

struct SumProducts {  // adds up the products of two sums of each label, a chunk of labels per tile
    static constexpr int lanes = 32;
    static constexpr i64 chunk = 1024;
    const i64* sums;
    const i64* others;
    i64 n;
    f64* parts;  // out, per chunk
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, (n + chunk - 1) / chunk)) {
            f64 sum = 0;
            for (i64 i = c * chunk + tile.rank(); i < lesser(c * chunk + chunk, n); i += tile.size())
                sum += (f64)sums[i] * (f64)others[i];
            sum = tile.sum(sum);
            if (tile.rank() == 0) parts[c] = sum;
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

// The labels of all vertices, and the strengths of each label.
struct Labels {
    u32* of;
    const i64* strength;
    const i64* strength_in;  // null if it equals `strength`
    i64* sums;
    i64* sums_in;
    u8* joined;  // per label: 1 if another vertex has come; or null
    DEVICE void add(i64* to, const i64* from, u32 label, i64 v, i64 sign) const {
        if (from) atomic_add(to + label, sign * from[v]);
    }
    DEVICE void move(u32 v, u32 to) const {
        u32 from = of[v];
        add(sums, strength, from, v, -1), add(sums, strength, to, v, 1);
        add(sums_in, strength_in, from, v, -1), add(sums_in, strength_in, to, v, 1);
        of[v] = to;
        if (joined) store(joined + to, (u8)1);
    }
};

// The edges of vertices that have just moved. An edge of two of them is met twice, other edges once.
struct Follow {
    const u64* moves;  // of own vertices
    const u32* labels;
    const u32* before;  // labels before the moves
    i64 first;
    f64 unit;
    u8* marks;  // out, per vertex of the graph: 1 for neighbours in other communities; or null
    f64 reach;  // a neighbour is marked with this probability times the edge's share of its strength
    const i64* strength;  // per vertex of the graph
    const i64* strength_in;  // null if it equals `strength`
    const u32* names;  // per vertex of the graph; null for ids
    u64 seed;
    i64* inside;  // out: change of the weight inside of communities, both ways
    const u32* bounds;  // community per vertex, of which labels are parts; or null
    i64* changes;  // out, with bounds, per row: change of its label's weight to the rest of the community
    DEVICE i64 operator()(i64 at) const { return (i64)(moves[at] >> 32) - first; }
    DEVICE bool reaches(u32 name, u32 id, u64 weight) const {
        f64 all = (f64)strength[id] + (strength_in ? (f64)strength_in[id] : 0.0), likely = reach * (f64)weight;
        if (all <= likely) return true;
        u32 draw = spread(spread(name ^ (u32)seed) ^ (names ? names[id] : id));
        return (f64)draw * 0x1p-32 * all < likely;
    }
    template <class View, class Group> DEVICE i64 take(const View& graph, Group group, i64 row, i64 unit_of_row) const {
        i64 v = first + row, sum = 0;
        u32 now = labels[v], was = before[v], name = names ? names[v] : (u32)v;
        graph.visit(group, row, unit_of_row, [&](u32 id, i64 slot, bool live) {
            if (!live || id == v) return false;
            u32 other = labels[id], other_was = before[id];
            i64 gained = bounds ? -(other == now && bounds[id] == bounds[v]) : (other == now) - (other_was == was);
            if (gained) sum += gained * (i64)fixed(graph, slot, unit) * (other == other_was ? 2 : 1);
            if (marks && other != now && reaches(name, id, fixed(graph, slot, unit))) store(marks + id, (u8)1);
            return false;
        });
        if (!bounds) return sum;
        sum = group.sum(sum);
        if (group.rank() == 0 && sum) atomic_add(changes + row, sum);
        return 0;
    }
};

struct TakeLabels {  // takes labels that a user has given, and counts those that are not from 0 to before `end`
    static constexpr int lanes = 1;
    const i64* whole;  // or null
    const f64* real;  // or null
    i64 n;
    i64 end;
    u32* labels;
    i64* wrong;
    DEVICE void operator()(Grid grid) const {
        i64 mine[1] = {};
        for (i64 row : grid.items(n)) {
            f64 value = whole ? 0 : real[row];
            bool held = whole || (value >= 0 && value < (f64)end);  // NaN is neither
            i64 label = whole ? whole[row] : held ? (i64)value : -1;
            if (label < 0 || label >= end || (!whole && (f64)label != value)) ++mine[0];
            else labels[row] = (u32)label;
        }
        add_by_block(mine, wrong);
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
