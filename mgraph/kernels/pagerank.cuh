// PageRank's power iteration. A rank's share is what each of its edges hands on: rank / out-degree.
// Sums that many tiles add to are 64-bit fixed point, so that they come out the same whatever the order of the adds. All
// ranks together are 1, and an add is rounded to 2^-60: 2^32 edges err by less than 2e-9 in all.
#pragma once
#include "rows.cuh"

constexpr f64 fixed_one = 1152921504606846976.0;  // 2^60

DEVICE u64 to_fixed(f64 v) { return (u64)(v * fixed_one + 0.5); }
DEVICE f64 from_fixed(u64 v) { return (f64)v / fixed_one; }

// What the loop's end needs: the L1 change, and the rank of vertices without out-edges.
struct Tally {
    f64 change = 0, dangling = 0;
    DEVICE void count(f64 was, f64 now, bool dangles) {
        change += now < was ? was - now : now - was;
        if (dangles) dangling += now;
    }
    DEVICE void add_to(u64* cells) {
        Tile<32> tile;
        change = tile.sum(change), dangling = tile.sum(dangling);
        if (tile.rank() == 0) {
            if (change > 0) atomic_add(cells, to_fixed(change));
            if (dangling > 0) atomic_add(cells + 1, to_fixed(dangling));
        }
    }
};

template <class View>
struct StartRanks {  // one lane a row: degrees, first ranks and shares from `start`, or `even` where that ends or is null
    static constexpr int lanes = 1;
    View graph;
    i64 n;
    const f32* start;
    i64 given;
    f64 scale;
    f64 even;
    u32* degrees;
    f32* ranks;
    f32* shares;
    u64* tally;
    DEVICE void operator()(Grid grid) const {
        Tally all;
        for (i64 row : grid.items(n)) {
            f64 rank = (row < given ? (f64)start[row] : even) * scale;
            u32 degree = (u32)graph.degree(row);
            degrees[row] = degree;
            ranks[row] = (f32)rank;
            shares[row] = degree ? (f32)(rank / degree) : 0.0f;
            all.count(rank, rank, degree == 0);
        }
        all.add_to(tally);
    }
};

template <class View>
struct PullHubs {  // a tile a task of a hub's in-edges
    static constexpr int lanes = 32;
    View graph;
    const u64* tasks;
    i64 n;
    const f32* shares;
    u64* sums;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            f64 sum = 0;
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                    if (live) sum += shares[id];
                    return false;
                });
                return false;
            });
            sum = tile.sum(sum);
            if (tile.rank() == 0) atomic_add(sums + (tasks[i] >> 32), to_fixed(sum));
        }
    }
};

template <class View>
struct PullRanks {  // a lane brings a row; hubs' sums are there already, and are cleared for the next iteration
    static constexpr int lanes = 32;
    View graph;
    i64 n;
    const u32* degrees;
    const f32* shares;  // of all vertices
    u64* sums;
    f64 base;
    f64 alpha;
    f32* ranks;
    f32* shares_out;    // of the own vertices
    u64* tally;
    u64* spent;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(2)) spent[c] = 0;
        Tile<lanes> tile;
        Tally all;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            f64 sum = gather(tile, row < n ? row : -1);
            if (row >= n) continue;
            f64 rank = base + alpha * sum;
            all.count(ranks[row], (f32)rank, degrees[row] == 0);
            ranks[row] = (f32)rank;
            shares_out[row] = degrees[row] ? (f32)(rank / degrees[row]) : 0.0f;
        }
        all.add_to(tally);
    }
    template <class Tile32> DEVICE f64 gather(Tile32 tile, i64 row) const {
        i64 degree = row < 0 ? 0 : (i64)graph.degree(row);
        f64 sum = 0;
        if (degree > HUB_DEGREE) sum = from_fixed(sums[row]), sums[row] = 0;
        if (degree > 0 && degree <= short_degree) sum = row_sum(Tile<1>{}, row);
        for (u32 rest = tile.ballot(degree > short_degree && degree <= HUB_DEGREE); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            f64 total = tile.sum(row_sum(tile, tile.shfl(row, lane)));
            if (tile.rank() == lane) sum = total;
        }
        return sum;
    }
    template <class Group> DEVICE f64 row_sum(Group group, i64 row) const {  // this lane's part of it
        f64 sum = 0;
        i64 units = graph.units(row);
        for (i64 unit = 0; unit < units; ++unit)
            graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
                if (live) sum += shares[id];
                return false;
            });
        return sum;
    }
};

template <class View, class Group>
DEVICE void push_share(const View& graph, Group group, i64 row, i64 unit, const u32* degrees, const f32* ranks, u64* sums) {
    u64 share = to_fixed((f64)ranks[row] / degrees[row]);
    graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
        if (live) atomic_add(sums + id, share);
        return false;
    });
}

template <class View>
struct PushRanks {  // a lane brings a row of out-edges; hubs are left to PushHubs
    static constexpr int lanes = 32;
    View graph;
    i64 n;
    const u32* degrees;
    const f32* ranks;
    u64* sums;  // of all vertices
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            visit_rows(graph, tile, row < n ? row : -1, (u64*)nullptr, (i64*)nullptr, [&](auto group, i64 next, i64 unit) {
                push_share(graph, group, next, unit, degrees, ranks, sums);
            });
        }
    }
};

template <class View>
struct PushHubs {  // a tile a task of a hub's out-edges
    static constexpr int lanes = 32;
    View graph;
    const u64* tasks;
    i64 n;
    const u32* degrees;
    const f32* ranks;
    u64* sums;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n))
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                push_share(graph, tile, row, unit, degrees, ranks, sums);
                return false;
            });
    }
};

struct DrainSums {  // one lane a vertex of the other ranks, all but first .. end - 1: its sum so far leaves for its owner
    static constexpr int lanes = 1;
    u64* sums;
    i64 n;
    i64 first;
    i64 end;
    f32* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n - (end - first))) {
            i64 v = i < first ? i : i + end - first;
            out[v] = (f32)from_fixed(sums[v]);
            sums[v] = 0;
        }
    }
};

struct AddSums {  // one lane a vertex: what another rank sent
    static constexpr int lanes = 1;
    const f32* part;
    i64 n;
    u64* sums;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) sums[i] += to_fixed(part[i]);
    }
};

struct FinishRanks {  // one lane an own vertex: from its sum to its rank; the sum is cleared for the next iteration
    static constexpr int lanes = 1;
    u64* sums;
    i64 n;
    const u32* degrees;
    f64 base;
    f64 alpha;
    f32* ranks;
    u64* tally;
    u64* spent;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(2)) spent[c] = 0;
        Tally all;
        for (i64 row : grid.items(n)) {
            f64 rank = base + alpha * from_fixed(sums[row]);
            sums[row] = 0;
            all.count(ranks[row], (f32)rank, degrees[row] == 0);
            ranks[row] = (f32)rank;
        }
        all.add_to(tally);
    }
};
