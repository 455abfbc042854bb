// Makes a pull iteration of PageRank: each row of in-edges sums the shares of its sources.
#pragma once
#include "algorithms/centrality/pagerank/shares.cuh"

struct Shares {  // of own vertices
    const Receivers* degrees;
    f64* handed;  // the total sent to each out-neighbour
    Share* news;  // the part sent in this iteration; the same array as `handed` if shares are whole
    DEVICE void hand_on(i64 row, Receivers degree, f64 rank, f64 before, RankSums<whole>& all) const {
        Sent<Share> sent = send_share<Share>(degree, rank, before, all);
        news[row] = sent.share;
        if (!whole) handed[row] = sent.total;
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

template <class View>
struct PullHubs {  // adds the shares of a hub's task to its sum in fixed point, a task per tile
    static constexpr int lanes = 32;
    View graph;
    const u64* tasks;
    i64 n;
    const Share* news;
    u64* sums;
    DEVICE void operator()(Grid grid) const { add_hub_shares(grid, graph, tasks, n, news, sums); }
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
            f64 sum = fold_rows(graph, tile, row, AddShares<View, Share>{graph, news});
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
