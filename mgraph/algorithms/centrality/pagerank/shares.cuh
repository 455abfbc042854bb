// A vertex's share, rank / out-degree, is the mass that it sends along each of its out-edges. SHARE_BITS is its form. 16
// or 32: each iteration sends only the change of the share, cut to the upper bits of a float32, and the receivers add it
// to their sums. The part that was cut off belongs to the next change, so nothing is lost. Cutting goes towards 0 and
// never overshoots (rounding to nearest may oscillate for ever, as on stars). With 16 bits, of which 64 fit into a cache
// line, the L1 norm of the rest to send shrinks by alpha + (1 - alpha) / 128 in each iteration. 64: whole float64 shares,
// and sums computed anew.
#pragma once
#include "algorithms/centrality/pagerank/ranks.cuh"
#include "kernels/rows.cuh"

#if SHARE_BITS == 16
using Share = u16;
#elif SHARE_BITS == 32
using Share = f32;
#elif SHARE_BITS == 64
using Share = f64;
#endif

constexpr bool whole = SHARE_BITS == 64;

DEVICE f32 towards_0(f64 v) {
    f32 near = (f32)v;
    return float_of(bits_of(near) - (magnitude(near) > magnitude(v)));
}
DEVICE void cut(f64 v, u16& share) { share = (u16)(bits_of(towards_0(v)) >> 16); }
DEVICE void cut(f64 v, f32& share) { share = towards_0(v); }
DEVICE void cut(f64 v, f64& share) { share = v; }
DEVICE f32 uncut(u16 share) { return float_of((u32)share << 16); }
DEVICE f32 uncut(f32 share) { return share; }
DEVICE f64 uncut(f64 share) { return share; }

// What a vertex sends along each out-edge in an iteration, and in total from the first iteration on.
template <class T> struct Sent {
    T share;
    f64 total;
};
// Computes it from a rank and the total `before`. A vertex without out-neighbours is treated as if it had one, so that
// lanes do not diverge.
template <class T> DEVICE Sent<T> send_share(Receivers degree, f64 rank, f64 before, RankSums<whole>& all) {
    f64 receivers = divisor(degree), share = rank / receivers;
    T more;
    cut(whole ? share : share - before, more);
    f64 after = whole ? share : before + uncut(more);
    all.count(all.change, magnitude(rank - before * receivers));
    all.count(all.handed, after * degree);
    if (!whole) all.count(all.kept, magnitude(rank - after * receivers));
    return {more, after};
}

// The fold of a row's in-edges: the sum of the neighbours' shares.
template <class View, class T> struct AddShares {
    const View& graph;
    const T* news;  // per vertex of the graph
    DEVICE f64 nothing() const { return 0; }
    template <int n> DEVICE u32 chosen(const u32 (&)[n], u32 which) const { return which; }
    DEVICE auto term(i64, u32 id, [[maybe_unused]] i64 slot) const {
        if constexpr (BY_WEIGHT) return (f64)uncut(news[id]) * graph.weight(slot);
        else return uncut(news[id]);
    }
    template <class Term> DEVICE f64 with(f64 sum, Term share) const { return sum + (f64)share; }
    template <class Group> DEVICE f64 over(Group group, f64 sum) const { return group.sum(sum); }
};

// A hub's sum in fixed point grows by the shares of a task, one task per tile.
template <class View, class T>
DEVICE void add_hub_shares(Grid grid, const View& graph, const u64* tasks, i64 n, const T* news, u64* sums) {
    Tile<32> tile;
    for (i64 i : grid.items(tile, n)) {
        f64 sum = fold_task(graph, tile, tasks[i], AddShares<View, T>{graph, news});
        if (tile.rank() == 0) atomic_add(sums + (tasks[i] >> 32), to_fixed(sum));
    }
}
