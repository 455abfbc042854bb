// A pull iteration of PageRank. A vertex's share is what each of its out-edges hands on: rank / out-degree. In every
// iteration it hands on only what its share has changed by, cut to the 16 upper bits of a float32: 64 of them share a cache
// line, and what was cut off is part of the next change, so nothing is lost. Cutting never overshoots, so what is left to
// hand on shrinks in L1 by alpha + (1 - alpha) / 128 instead of alpha (rounding to nearest may swing for ever: on stars).
#pragma once
#include "ranks.cuh"
#include "rows.cuh"

constexpr i64 narrow_degree = 64;  // up to which a row is read by 8 lanes, so that a warp has four of them under way

DEVICE u16 cut(f32 v) { return (u16)(bits_of(v) >> 16); }
DEVICE f32 uncut(u16 v) { return float_of((u32)v << 16); }

// What a vertex hands on to each of its out-neighbours: what it has in all, and what is new.
struct Shares {
    const u32* degrees;
    f32* handed;
    u16* news;
    DEVICE f64 hand_on(i64 row, f32 rank) const {  // returns what all out-neighbours together have
        if (degrees[row] == 0) return news[row] = 0;
        f32 before = handed[row];
        u16 more = cut((f32)((f64)rank / degrees[row]) - before);
        handed[row] = before + uncut(more);
        news[row] = more;
        return (f64)handed[row] * degrees[row];
    }
};

struct FirstShares {  // one lane an own vertex: its whole share is new, in so many parts, one array after another
    static constexpr int lanes = 1;
    i64 n;
    const f32* ranks;
    Shares shares;
    i64 parts;
    u64* tally;
    u64* spent;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(2)) spent[c] = 0;
        Tally all;
        for (i64 row : grid.items(n)) {
            shares.handed[row] = 0;
            f64 handed = 0;
            for (i64 part = 0; part < parts; ++part)
                handed = Shares{shares.degrees, shares.handed, shares.news + part * n}.hand_on(row, ranks[row]);
            all.handed += handed;
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
    const u16* news;
    u64* sums;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            f64 sum = 0;
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                    if (live) sum += uncut(news[id]);
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
struct PullRows {  // a lane brings a row; hubs are left to PullHubs, and get 0 here
    static constexpr int lanes = 32;
    View graph;
    i64 n;
    const u16* news;  // of all vertices
    f32* sums;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            f64 sum = gather(tile, row < n ? row : -1);
            if (row < n) sums[row] = (f32)sum;
        }
    }
    template <class Tile32> DEVICE f64 gather(Tile32 tile, i64 row) const {
        i64 degree = row < 0 ? 0 : (i64)graph.degree(row);
        f64 sum = 0;
        if (degree > 0 && degree <= short_degree) sum = row_sum(Tile<1>{}, row);
        i64 narrow = lesser(narrow_degree, (i64)HUB_DEGREE);
        sum_rows(Tile<8>{}, degree > short_degree && degree <= narrow, row, sum);
        sum_rows(tile, degree > narrow && degree <= HUB_DEGREE, row, sum);
        return sum;
    }
    template <class Group> DEVICE void sum_rows(Group group, bool mine, i64 row, f64& sum) const {
        for (u32 rest = group.ballot(mine); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            f64 total = group.sum(row_sum(group, group.shfl(row, lane)));
            if (group.rank() == lane) sum = total;
        }
    }
    template <class Group> DEVICE f64 row_sum(Group group, i64 row) const {  // this lane's part of it
        f64 sum = 0;
        i64 units = graph.units(row);
        for (i64 unit = 0; unit < units; ++unit)
            graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
                if (live) sum += uncut(news[id]);
                return false;
            });
        return sum;
    }
};

struct FinishPull {  // one lane an own vertex: its rank changes by what came, and its share by that
    static constexpr int lanes = 1;
    const f32* sums;
    u64* hub_sums;  // cleared for the next iteration
    i64 hub_rows;
    i64 n;
    f64 keep;   // 0 in the first iteration, then 1
    f64 shift;  // what every vertex gets besides
    f64 alpha;
    f32* ranks;
    Shares shares;
    u64* tally;
    u64* spent;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(2)) spent[c] = 0;
        Tally all;
        for (i64 row : grid.items(n)) {
            f64 sum = sums[row];
            if (row < hub_rows && hub_sums[row]) sum = from_fixed(hub_sums[row]), hub_sums[row] = 0;
            f32 was = ranks[row], now = (f32)greater(keep * was + shift + alpha * sum, 0.0);
            ranks[row] = now;
            all.count(was, now);
            all.handed += shares.hand_on(row, now);
        }
        all.add_to(tally);
    }
};
