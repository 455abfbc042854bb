// Makes a pull iteration of PageRank. A vertex's share, rank / out-degree, is the mass that it sends along each of its
// out-edges. SHARE_BITS is its form. 16 or 32: each iteration sends only the change of the share, cut to the upper bits
// of a float32, and the receivers add it to their sums. The part that was cut off belongs to the next change, so
// nothing is lost. Cutting goes towards 0 and never overshoots (rounding to nearest may oscillate for ever, as on
// stars). With 16 bits, of which 64 fit into a cache line, the L1 norm of the rest to send shrinks by alpha + (1 -
// alpha) / 128 in each iteration. 64: whole float64 shares, and sums computed anew.
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

// Shares of own vertices: the total sent to each out-neighbour, and the part sent in this iteration. A vertex without
// out-neighbours is treated as if it had one, so that lanes do not diverge.
struct Shares {
    const Receivers* degrees;
    f64* handed;
    Share* news;  // the same array as `handed` if shares are whole
    DEVICE void hand_on(i64 row, Receivers degree, f64 rank, f64 before, RankSums<whole>& all) const {
        f64 receivers = divisor(degree), share = rank / receivers;
        Share more;
        cut(whole ? share : share - before, more);
        f64 after = whole ? share : before + uncut(more);
        news[row] = more;
        if (!whole) handed[row] = after;
        all.count(all.change, magnitude(rank - before * receivers));
        all.count(all.handed, after * degree);
        if (!whole) all.count(all.kept, magnitude(rank - after * receivers));
    }
};

struct FirstShares {  // sends the whole share, one lane per own vertex
    static constexpr int lanes = 1;
    i64 n;
    const f64* ranks;
    Shares shares;
    u64* tally;
    u64* spent;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(tally_cells)) spent[c] = 0;
        RankSums<whole> all;
        for (i64 row : grid.items(n)) { shares.hand_on(row, shares.degrees[row], ranks[row], 0, all); }
        all.add_to(tally);
    }
};

template <class View> struct AddShares {  // the fold of a row's in-edges: the sum of the neighbours' shares
    const View& graph;
    const Share* news;
    DEVICE f64 nothing() const { return 0; }
    DEVICE f64 with(f64 sum, i64, u32 id, i64 slot) const {
        return sum + (BY_WEIGHT ? (f64)uncut(news[id]) * graph.weight(slot) : (f64)uncut(news[id]));
    }
    template <class Group> DEVICE f64 over(Group group, f64 sum) const { return group.sum(sum); }
};

template <class View>
struct PullHubs {  // adds the shares of a hub's task to its sum in fixed point, a task per tile
    static constexpr int lanes = 32;
    View graph;
    const u64* tasks;
    i64 n;
    const Share* news;
    u64* sums;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            f64 sum = fold_task(graph, tile, tasks[i], AddShares<View>{graph, news});
            if (tile.rank() == 0) atomic_add(sums + (tasks[i] >> 32), to_fixed(sum));
        }
    }
};

template <class View>
struct PullRows {  // sums the shares of 32 rows of in-edges per tile; leaves hubs to PullHubs
    static constexpr int lanes = 32;
    View graph;
    const u32* rows;  // null for all
    i64 n;
    const Share* news;  // per vertex of the graph
    f64* sums;  // the shares received in total
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 at = i * tile.size() + tile.rank(), row = at < n ? rows ? (i64)rows[at] : at : -1;
            f64 sum = fold_rows(graph, tile, row, AddShares<View>{graph, news});
            if (whole ? row >= 0 : sum != 0) sums[row] = whole ? sum : sums[row] + sum;
        }
    }
};

struct FinishPull {  // computes a rank from the received shares, and then the next share, one lane per own vertex
    static constexpr int lanes = 1;
    const u32* rows;  // null for all
    i64 n;
    f64* sums;
    u64* hub_sums;
    i64 hub_rows;
    Base base;
    f64 alpha;
    Shares shares;
    u64* tally;
    u64* spent;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(tally_cells)) spent[c] = 0;
        RankSums<whole> all;
        if (Tile<32>::size() > 1 || rows) {
            for (i64 at : grid.items(n)) finish(rows ? (i64)rows[at] : at, all);
        } else {  // a CPU vectorises over consecutive rows
            for (i64 row : grid.items(n)) finish(row, all);
        }
        all.add_to(tally);
    }
    DEVICE void finish(i64 row, RankSums<whole>& all) const {
        f64 sum = sums[row], before = shares.handed[row];  // both loads at once: a lane waits once
        Receivers degree = shares.degrees[row];
        if (row < hub_rows && hub_sums[row]) {
            sums[row] = sum = from_fixed(hub_sums[row]);
            if (whole) hub_sums[row] = 0;
        }
        f64 rank = greater(base.at(row) + alpha * sum, 0.0);
        shares.hand_on(row, degree, rank, before, all);
    }
};
