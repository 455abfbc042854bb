// Applies changed arcs to the strengths of vertices and to the weight inside of communities. Sums are integers.
#pragma once
#include "algorithms/communities/dynamic/live.cuh"
#include "algorithms/primitives/edge_delta.cuh"
#include "algorithms/primitives/fixed_point.cuh"

struct ApplyArcs {  // one lane per arc
    static constexpr int lanes = 1;
    EdgeDelta changes;
    const u32* labels;  // per vertex of the graph
    f64 unit;
    i64 directed;
    i64 weighs;  // 0 if strengths are not weights
    i64* strength;  // of out-edges, per vertex of the graph
    i64* strength_in;  // of in-edges; null in an undirected graph
    i64* of_label;  // sums of strengths per label
    i64* of_label_in;
    u8* active;  // out: 1 for the ends of each arc that weighs more or less than before
    i64* changed;  // per vertex of the graph: its changed arcs
    i64* totals;  // out: changes of the weight inside of communities, and of all; `refused`
    DEVICE bool fits(f32 weight) const {
        f64 units = unit == 0 ? 1 : (f64)weight * unit;
        return units >= 0 && units < 0x1p62;
    }
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changes.n)) {
            i64 src = changes.src(i), dst = changes.dst(i);
            if (changes.is(i) && !fits(changes.after(i))) {
                atomic_add(totals + refused, too_large);
                continue;
            }
            i64 was = changes.was(i) ? (i64)fixed(changes.before(i), unit) : 0;
            i64 now = changes.is(i) ? (i64)fixed(changes.after(i), unit) : 0, more = now - was;
            if (now >> 32) atomic_add(totals + refused, now >> 32);
            if (more == 0) continue;
            i64 both = directed || src == dst ? 2 * more : more;  // an undirected edge is two arcs, a loop is one
            bool inside = labels[src] == labels[dst];
            atomic_add(totals + all_more, both);
            if (inside) atomic_add(totals + inside_more, both);
            if (weighs) {
                i64 out = directed ? more : both;
                atomic_add(strength + src, out), atomic_add(of_label + labels[src], out);
                if (strength_in) atomic_add(strength_in + dst, more), atomic_add(of_label_in + labels[dst], more);
            }
            if (src == dst) continue;
            store(active + src, (u8)1), store(active + dst, (u8)1);
            atomic_add(changed + src, (i64)1);
            if (directed) atomic_add(changed + dst, (i64)1);
        }
    }
};
