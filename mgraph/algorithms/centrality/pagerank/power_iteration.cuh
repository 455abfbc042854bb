// The power iteration of PageRank by all ranks together, from given first ranks. Each rank has two arrays with the
// shares of all vertices, for even and odd steps: one is read while the other one is written.
//   enter     all ranks are in the program, so that others may write to their regions
//   send      each own vertex's first share goes to all ranks
//   go_on     instead, if the shares sent and received are given: each own vertex's rank, and the change of its share
//   sum_hubs  adds the shares of rows of high degree, task by task
//   sum_rows  sums the other rows, range by range. After each range it computes the ranks and next shares of its vertices,
//             and stores them into the arrays of all ranks, which takes place while the next range is summed
// The meeting after sum_rows carries the L1 change, the mass sent and the mass cut off. From these `next` decides whether
// the iteration ends, and computes what vertices get besides shares in the next step. FIRST_BITS is the form of the
// first shares.
#pragma once
#include "algorithms/centrality/pagerank/shares.cuh"
#include "kernels/world.cuh"

#if FIRST_BITS == 16
using FirstShare = u16;
#elif FIRST_BITS == 32
using FirstShare = f32;
#elif FIRST_BITS == 64
using FirstShare = f64;
#endif

// Rows of a range for each lane: a CPU computes ranks of many rows at once, by vectors.
constexpr int range_rows = Tile<32>::size() == 1 ? 512 : 1;

template <class View>
struct PowerIteration {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    View graph;  // the in-edges
    i64 steps;  // that earlier runs have made,
    f64 handed;  // with the mass sent
    f64 kept;  // and cut off in the last one
    i64 most;  // steps, with those of earlier runs
    f64 tol;
    i64 carried;  // 1 to begin with `sums` and `sent`, times `scale`, and `handed`
    f64 scale;
    BaseRule rule;
    const Receivers* degrees;
    f64* sums;  // of own vertices: the first ranks, then the shares received
    f64* sent;  // the shares sent in total; null if shares are whole
    const u64* tasks;  // pieces of rows of high degree
    i64 n_tasks;
    u64* hub_sums;
    i64 hub_rows;
    i64 even_offset;  // in each rank's region: the shares of all vertices, of even and odd steps
    i64 odd_offset;
    struct State {
        i64 phase = 0;
        i64 steps = 0, hubs = 0;
        f64 error = 0, handed = 0, kept = 0;
        f64 even = 0, chosen = 0, loose = 0;  // of Base
    };
    enum Stage : i64 { finished, enter, send, go_on, sum_hubs, sum_rows };
    enum Number { CHANGE, HANDED, KEPT, CHANGE_LOW, HANDED_LOW, TASKS = CHANGE };

    DEVICE void begin(State& s) const { s.phase = enter, s.steps = steps, s.handed = handed, s.kept = kept; }
    DEVICE bool alone(const State& s) const { return s.phase == sum_hubs; }
    DEVICE i64 shares_at(i64 step) const { return step & 1 ? odd_offset : even_offset; }
    DEVICE Shared shares(const State& s) const {
        Shared shared;
        if (s.phase == send) shared.array = shares_at(0), shared.width = sizeof(FirstShare);
        if (s.phase == go_on) shared.array = shares_at(0), shared.width = sizeof(Share);
        if (s.phase == sum_rows) shared.array = shares_at(s.steps + 1), shared.width = sizeof(Share);
        return shared;
    }
    DEVICE i64 items(const State& s, const Heard&) const {
        return s.phase == sum_hubs ? n_tasks : s.phase == enter ? 1 : world.rows() / lanes;
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard&) const {
        Numbers mine;
        if (s.phase == enter) {
            for (i64 i : grid.items(1)) mine.of[TASKS] = n_tasks + i;
            return mine;
        }
        if (s.phase == go_on) return do_go_on(grid, s, graph);
        if (FIRST_BITS != SHARE_BITS && s.steps == 0 && s.phase != send) return read(grid, s, FirstShare{});
        return s.phase == send ? do_send(grid) : read(grid, s, Share{});
    }
    template <class T> DEVICE Numbers read(Grid grid, const State& s, T) const {
        const T* news = (const T*)world.words(world.rank, shares_at(s.steps));
        if (s.phase == sum_rows) return do_sum_rows(grid, s, graph, news);
        do_sum_hubs(grid, graph, news);
        return {};
    }

    // ---- phases -----------------------------------------------------------------------------------------------------

    DEVICE static Numbers numbers(const RankSums<whole>& all) {
        Numbers mine;
        mine.of[CHANGE] = (i64)all.change.high, mine.of[CHANGE_LOW] = (i64)all.change.low;
        mine.of[HANDED] = (i64)all.handed.high, mine.of[HANDED_LOW] = (i64)all.handed.low;
        mine.of[KEPT] = (i64)all.kept.high;  // whole shares keep nothing
        return mine;
    }
    // The range of a tile, from `first` on. Calls compute(row) for its rows, which returns their shares, and stores these
    // into the array of each rank.
    template <class T, class Tile32, class Compute>
    DEVICE void put_range(Tile32 tile, i64 first, i64 step, Compute compute) const {
        T news[range_rows];
        i64 n = lesser(world.rows() - first, (i64)range_rows * tile.size());
        for (i64 at = tile.rank(), j = 0; at < n; at += tile.size(), ++j) news[j] = compute(first + at, j);
        for (i64 r = 0; r < world.size; ++r) {
            if (!world.reaches(r)) continue;
            T* to = (T*)world.words(r, shares_at(step)) + world.lo() + first;
            for (i64 at = tile.rank(), j = 0; at < n; at += tile.size(), ++j) to[at] = news[j];
        }
    }
    DEVICE i64 ranges(i64 lanes_of_tile) const {
        i64 rows = lanes_of_tile * range_rows;
        return (world.rows() + rows - 1) / rows;
    }
    APART Numbers do_send(Grid grid) const {
        Tile<lanes> tile;
        RankSums<whole> all;
        for (i64 i : grid.items(tile, ranges(tile.size())))
            put_range<FirstShare>(tile, i * range_rows * tile.size(), 0, [&](i64 row, i64) {
                Sent<FirstShare> now = send_share<FirstShare>(degrees[row], sums[row], 0, all);
                if (!whole) sent[row] = now.total;
                return now.share;
            });
        return numbers(all);
    }
    APART Numbers do_go_on(Grid grid, const State& s, View rows) const {
        Tile<lanes> tile;
        RankSums<whole> all;
        Base base{s.even, rule.teleport, s.chosen, rule.dangling, s.loose};
        for (i64 i : grid.items(tile, ranges(tile.size())))
            put_range<Share>(tile, i * range_rows * tile.size(), 0, [&](i64 row, i64) {
                f64 sum = sums[row] *= scale;
                if (row < hub_rows && (i64)rows.degree(row) > HUB_DEGREE) hub_sums[row] = to_fixed(sum);
                f64 rank = greater(base.at(row) + rule.alpha * sum, 0.0);
                Sent<Share> next = send_share<Share>(degrees[row], rank, sent[row] * scale, all);
                sent[row] = next.total;
                return next.share;
            });
        return numbers(all);
    }
    // `rows` is a copy, which no store can change.
    template <class T> APART void do_sum_hubs(Grid grid, View rows, const T* news) const {
        add_hub_shares(grid, rows, tasks, n_tasks, news, hub_sums);
    }
    struct Vertex {
        f64 received, before;  // and sent
        Receivers degree;
    };
    template <class T> DEVICE Vertex vertex(i64 row, bool first, const T* news) const {
        f64 before = whole ? (f64)uncut(news[world.lo() + row]) : sent[row];
        return {first || whole ? 0 : sums[row], before, degrees[row]};
    }
    template <class T> APART Numbers do_sum_rows(Grid grid, const State& s, View rows, const T* news) const {
        Tile<lanes> tile;
        RankSums<whole> all;
        bool first_step = s.steps == 0 && !carried;
        struct Outside {  // what a rank has besides shares
            Base base;
            f64 alpha;
        };
        auto outside_of = [&] {
            return Outside{{s.even, rule.teleport, s.chosen, rule.dangling, s.loose}, rule.alpha};
        };
        Outside common = outside_of();  // by a CPU; a GPU has no registers for it
        Items share = grid.items(tile, ranges(tile.size()));
        for (u32 i = (u32)share.first; i < (u32)share.last; i += (u32)share.step) {  // 32 bits, for want of registers
            u32 first = i * range_rows * tile.size();
            f64 part[range_rows];
            for (int j = 0; j < range_rows; ++j) {
                i64 row = first + j * tile.size() + tile.rank();
                part[j] = fold_rows(rows, tile, row < world.rows() ? row : -1, AddShares<View, T>{rows, news});
            }
            put_range<Share>(tile, first, s.steps + 1, [&](i64 row, i64 j) {
                Vertex now = vertex(row, first_step, news);
                f64 sum = now.received + part[j];
                if (row < hub_rows && hub_sums[row]) {
                    sum = from_fixed(hub_sums[row]);
                    if (whole) hub_sums[row] = 0;
                }
                Outside outside = range_rows > 1 ? common : outside_of();
                f64 rank = greater(outside.base.at(row) + outside.alpha * sum, 0.0);
                Sent<Share> next = send_share<Share>(now.degree, rank, now.before, all);
                sums[row] = sum;
                if (!whole) sent[row] = next.total;
                return next.share;
            });
        }
        return numbers(all);
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        switch (s.phase) {
        case enter:
            s.hubs = heard.total(TASKS) > 0;
            s.phase = most == 0 ? finished : s.steps ? first_of_step(s) : carried ? (i64)go_on : (i64)send;
            if (s.steps || carried) keep_base(rule.at(s.handed, world.vertices()), s);
            return;
        case sum_hubs: s.phase = sum_rows; return;
        case go_on:
        case sum_rows:
            s.steps += s.phase == sum_rows;
            // The bound of the distance to the limit: the change, and what was cut off in the step before.
            s.error = tally(heard, CHANGE, CHANGE_LOW) + s.kept;
        }
        s.handed = tally(heard, HANDED, HANDED_LOW), s.kept = tally(heard, KEPT, -1);
        bool ends = s.phase != send && (s.steps >= most || s.error < tol);
        s.phase = ends ? (i64)finished : first_of_step(s);
        if (!ends) keep_base(rule.at(s.handed, world.vertices()), s);
    }
    DEVICE i64 first_of_step(const State& s) const { return s.hubs ? sum_hubs : sum_rows; }
    DEVICE static f64 tally(const Heard& heard, int high, int low) {  // over all ranks
        return from_tally((u64)heard.total(high), whole && low >= 0 ? (u64)heard.total(low) : 0);
    }
};
