// Takes changed edges into the state of PageRank's pull iteration. What each vertex has received is the sum of what its
// in-neighbours have sent along each edge. This stays true if a vertex sends the same along a new edge, and takes it back
// from a deleted one. Then some of the vertices with changed edges compute their ranks, and send the change of their
// shares. `Flow` adds it all up in fixed point; its residuals are what vertices receive.
#pragma once
#include "algorithms/centrality/pagerank/forward_push.cuh"
#include "algorithms/centrality/pagerank/shares.cuh"

struct Withdraw {  // one lane per own row: takes back the last share, which nobody has received
    static constexpr int lanes = 1;
    i64 n;
    const Share* news;
    f64* sent;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) sent[row] -= uncut(news[row]);
    }
};

constexpr f64 weight_one = (f64)((u64)1 << 30);  // so that 2^32 shares can be summed

// One lane per changed arc. Sums the shares along changed arcs of own rows, and lists the rows that are no hubs.
template <class View>
struct ListChanged {
    static constexpr int lanes = 1;
    View graph;
    Flow flow;
    EdgeDelta changed;
    const f64* sent;
    Receivers* degrees;  // out: of changed rows, now
    u32* rows;  // out
    i64* counts;  // the listed rows, their edges, and the sum of shares
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            i64 row = changed.src(i) - flow.first;
            if (!flow.owns(row)) continue;
            if (changed.kinds[i] != updated) atomic_add(counts + 2, (i64)(sent[row] * weight_one));
            if (i > 0 && changed.src(i - 1) == changed.src(i)) continue;
            i64 degree = graph.degree(row);
            degrees[row] = (Receivers)degree;
            if (degree == 0 || degree > HUB_DEGREE) continue;
            rows[take_place(counts)] = (u32)row;
            atomic_add(counts + 1, degree);
        }
    }
};

struct SendAlong {  // one lane per changed arc of an own row: sends its share, or takes it back
    static constexpr int lanes = 1;
    Flow flow;
    EdgeDelta changed;
    const f64* sent;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            if (!counts(flow, changed, i)) continue;
            i64 share = (i64)(sent[changed.src(i) - flow.first] * flow.one);
            flow.add((u32)changed.dst(i), changed.is(i) ? share : -share);
        }
    }
};

struct NewShares {  // one lane per listed row: the change of its share, from its rank
    static constexpr int lanes = 1;
    Flow flow;
    const u32* rows;
    i64 count;
    Base base;
    const Receivers* degrees;
    const f64* sums;
    f64* sent;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(count)) {
            i64 row = rows[i];
            f64 rank = greater(base.at(row) + flow.alpha * (sums[row] + (f64)flow.residual[row] / flow.one), 0.0);
            i64 change = (i64)((rank / divisor(degrees[row]) - sent[row]) * flow.one);
            store(flow.value + row, change);
            sent[row] += (f64)change / flow.one;
        }
    }
};

struct TakeSums {  // one lane per own row: adds what it has received, and sums what all have sent
    static constexpr int lanes = 1;
    Flow flow;
    const Receivers* degrees;
    f64* sums;
    const f64* sent;
    u64* tally;
    DEVICE void operator()(Grid grid) const {
        RankSums<true> all;
        for (i64 row : grid.items(flow.n)) {
            sums[row] += (f64)flow.residual[row] / flow.one;
            all.count(all.change, sent[row] * divisor(degrees[row]));  // as if each had an out-neighbour
            all.count(all.handed, sent[row] * degrees[row]);
        }
        all.add_to(tally);
    }
};
