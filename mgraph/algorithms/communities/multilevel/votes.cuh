// The rule by which the vertices of a level choose their communities. They do so in turns.
#pragma once
#include "algorithms/primitives/label_counts.cuh"
#include "kernels/splitmix.cuh"

DEVICE u64 ordered(f64 v) {  // order-preserving bits of v
    u64 bits = bits_of(v);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// A vertex chooses the label with the largest gain: the weight of its edges to the label's vertices, less their
// expected weight. That is `price` times the product of the strengths; on a directed graph, of the out- and
// in-strengths both ways.
//
// With `bounds` (the refinement of Leiden) labels are parts of communities. Only a vertex that is alone in its part may
// choose. It may choose parts of its own community that are well connected to the rest and lose no vertex in this turn.
struct Votes {
    const u32* labels;  // per vertex of the graph
    i64 first;  // the vertex of row 0
    f64 unit;
    i64 tabled;  // longer rows are wide
    const i64* strength;  // per vertex of the graph: weight of its out-edges
    const i64* strength_in;  // of its in-edges; null if they are the same
    const i64* sums;  // sums of strengths per label
    const i64* sums_in;
    f64 price;
    const u32* names;  // per vertex of the graph: the name that decides its turn; null for ids
    i64 classes;  // number of turns in which vertices choose
    i64 turn;
    u64 seed;
    i64 lone;  // a vertex may move to label `lone` + its name, if no vertex has that; 0 if it may not
    const u32* bounds;  // community per vertex; or null
    const i64* bound_sums;  // sums of strengths per community
    const i64* bound_sums_in;
    const i64* cuts;  // per part: weight of its edges to the rest of its community
    const u8* joined;  // per part: 1 if it has several vertices
    f64 noise;  // with bounds: a gain above 0 grows by less than this, at random
    u64* moves;  // out: vertex << 32 | label, for moving vertices
    i64* count;
    template <class View> DEVICE u64 amount(const View& graph, i64 slot) const { return fixed(graph, slot, unit); }
    DEVICE void fetch(u32 label) const { prefetch(sums + label); }  // before its score
    DEVICE u64 turn_of_name(u64 name) const { return mix64(name ^ seed) % (u64)classes; }
    DEVICE u64 name_of(i64 row) const { return names ? names[first + row] : (u64)(first + row); }
    DEVICE u64 turn_of(i64 row) const { return turn_of_name(name_of(row)); }
    DEVICE f64 random_share(i64 row, u32 label) const {  // 0 to less than 1
        return spread((u32)name_of(row) ^ label * 0x9E3779B1u ^ (u32)seed) * 0x1p-32;
    }
    DEVICE bool counts(i64 row, u32 id) const {
        return id != first + row && (!bounds || bounds[id] == bounds[first + row]);
    }
    DEVICE bool may_choose(i64 row) const { return !bounds || !joined[labels[first + row]]; }
    DEVICE f64 expected(i64 out, i64 in, i64 others_out, i64 others_in) const {
        if (!strength_in) return price * (f64)out * (f64)others_out;
        return price * (f64)out * (f64)others_in + price * (f64)in * (f64)others_out;
    }
    // Returns true if the edges from a part to the rest of its community weigh as much as expected, or more.
    DEVICE bool well_connected(u32 part, u32 community) const {
        i64 out = sums[part], rest = bound_sums[community] - out;
        i64 in = sums_in ? sums_in[part] : 0, rest_in = sums_in ? bound_sums_in[community] - in : 0;
        return (f64)cuts[part] >= expected(out, in, rest, rest_in);
    }
    DEVICE bool may_join(i64 row, u32 part) const {
        return (joined[part] || turn_of_name(part) != (u64)turn) && well_connected(part, bounds[first + row]);
    }
    DEVICE u64 score(i64 row, u32 label, u64 sum) const {
        i64 v = first + row;
        bool own = labels[v] == label;
        if (bounds && !own && !may_join(row, label)) return 0;
        i64 out = strength[v], in = strength_in ? strength_in[v] : 0;
        i64 others_out = sums[label] - (own ? out : 0), others_in = strength_in ? sums_in[label] - (own ? in : 0) : 0;
        f64 gain = (f64)sum - expected(out, in, others_out, others_in);
        if (bounds && !own && gain > 0) gain += noise * random_share(row, label);
        return (ordered(gain) & ~1ull) | own;  // among equals, the own label
    }
    DEVICE void settle(i64 row, Best best) const {
        u32 own = labels[first + row];
        if (best.label == no_label || !may_choose(row)) return;
        best.meet(score(row, own, 0), own);
        if (lone && best.score < (ordered(0.0) & ~1ull)) {  // no label has a gain: alone it is 0
            u32 label = (u32)(lone + name_of(row));
            if (sums[label] == 0 && (!sums_in || sums_in[label] == 0)) best.label = label;
        }
        if (best.label != own) moves[atomic_add(count, (i64)1)] = (u64)(first + row) << 32 | best.label;
    }
};

template <class View>
struct CountTurns {  // deals active rows to `classes` turns
    static constexpr int lanes = 32;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    Dealing deal;
    Votes votes;
    const u8* active;  // per row; null for all
    DEVICE void operator()(Grid grid) const {
        count_classes(grid, graph, back, both != 0, deal,
                      [&](i64 row) { return !active || active[row] ? (i64)votes.turn_of(row) : -1; });
    }
};

// Marks own vertices that may join another part of their community: alone, and well connected to the rest.
struct Separate {  // one lane per own vertex
    static constexpr int lanes = 1;
    Votes votes;
    i64 n;
    u8* active;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) {
            i64 v = votes.first + row;
            u32 part = votes.labels[v], own = votes.names ? votes.names[v] : (u32)v;
            active[row] = part == own && votes.may_choose(row) && votes.cuts[part] > 0 &&
                          votes.well_connected(part, votes.bounds[v]);
        }
    }
};
