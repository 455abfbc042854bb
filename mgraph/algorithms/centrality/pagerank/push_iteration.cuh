// The power iteration of PageRank by push, by all ranks together, from given first ranks, for directed graphs whose
// in-edges are neither stored nor made for the call.
//   enter   sums the mass that the first ranks send
//   push    each own row adds its shares to a sum in fixed point of each vertex of the graph
//   drain   sums of the vertices of others go to their owners: message i is that of the owner's i-th vertex
//   finish  adds what came in, and computes the ranks. Its meeting carries the L1 change and the mass sent, from which
//           `next` decides whether the iteration ends
#pragma once
#include "algorithms/centrality/pagerank/ranks.cuh"
#include "kernels/rows.cuh"
#include "kernels/world.cuh"

struct Sums {  // fixed-point sums of one word, or of two if `low` is not null
    u64* high;
    u64* low;
    DEVICE Wide parts(f64 v) const { return low ? to_wide(v, fixed_one) : Wide{to_fixed(v), 0}; }
    DEVICE void add(i64 at, Wide v) const {
        atomic_add(high + at, v.high);
        if (low) atomic_add(low + at, v.low);
    }
    DEVICE f64 take(i64 at) const {  // returns a sum and clears it
        f64 sum = from_fixed(high[at]);
        high[at] = 0;
        if (low) sum += (f64)low[at] / low_one / fixed_one, low[at] = 0;
        return sum;
    }
};

DEVICE f64 share_of(f64 rank, Receivers receivers) { return receivers > 0 ? rank / receivers : 0; }  // weights may be 0

template <class View, class Group>
DEVICE void push_share(const View& graph, Group group, i64 row, i64 unit, f64 share, Sums sums) {
    Wide parts = sums.parts(share);
    graph.visit(group, row, unit, [&](u32 id, i64 slot, bool live) {
        if (live) sums.add(id, BY_WEIGHT ? sums.parts(share * graph.weight(slot)) : parts);
        return false;
    });
}

template <class View>
struct PushIteration {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    View graph;
    i64 steps;  // that earlier runs have made,
    f64 handed;  // with the mass sent
    f64 kept;  // 0
    i64 most;  // steps, with those of earlier runs
    f64 tol;
    BaseRule rule;
    const Receivers* degrees;
    f64* ranks;
    Sums pushed;  // of all vertices of the graph
    const u64* tasks;  // pieces of rows of high degree
    i64 n_tasks;
    struct State {
        i64 phase = 0;
        i64 steps = 0;
        f64 error = 0, handed = 0, kept = 0;
        f64 even = 0, chosen = 0, loose = 0;  // of Base
    };
    enum Stage : i64 { finished, enter, push, drain, finish };
    enum Number { CHANGE, HANDED, CHANGE_LOW, HANDED_LOW };

    DEVICE void begin(State& s) const { s.phase = enter, s.steps = steps, s.handed = handed; }
    DEVICE bool alone(const State& s) const { return s.phase == push; }
    DEVICE i64 shares(const State&) const { return -1; }
    DEVICE i64 items(const State& s, const Heard&) const {
        i64 others = (world.vertices() - world.rows()) / lanes;
        return s.phase == drain ? others : world.rows() / lanes + (s.phase == push ? n_tasks : 0);
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        RankSums<true> all;
        switch (s.phase) {
        case enter:
            for (i64 row : grid.items(world.rows()))
                if (degrees[row]) all.count(all.handed, ranks[row]);
            break;
        case push: do_push(grid, graph); break;
        case drain: do_drain(grid, heard); break;
        default: do_finish(grid, s, heard, all);
        }
        Numbers mine;
        mine.of[CHANGE] = (i64)all.change.high, mine.of[CHANGE_LOW] = (i64)all.change.low;
        mine.of[HANDED] = (i64)all.handed.high, mine.of[HANDED_LOW] = (i64)all.handed.low;
        return mine;
    }

    // ---- phases -----------------------------------------------------------------------------------------------------

    // `rows` is a copy, which no store can change.
    APART void do_push(Grid grid, View rows) const {
        auto push_unit = [&](auto group, i64 row, i64 unit) {
            push_share(rows, group, row, unit, share_of(ranks[row], degrees[row]), pushed);
        };
        visit_hubs(grid, rows, tasks, n_tasks, push_unit);
        visit_all(grid, rows, world.rows(), EveryRow{}, nullptr, nullptr, push_unit);
    }
    DEVICE void do_drain(Grid grid, const Heard& heard) const {
        for (i64 r = 0; r < world.size; ++r) {
            if (r == world.rank) continue;
            i64 first = world.start(r), n = world.start(r + 1) - first;
            for (i64 i : grid.items(n)) world.put(heard, r, i, bits_of(pushed.take(first + i)));
            for (i64 i : grid.items(1)) atomic_add(world.counts() + r, n + i);
        }
    }
    APART void do_finish(Grid grid, const State& s, const Heard& heard, RankSums<true>& all) const {
        Base base{s.even, rule.teleport, s.chosen, rule.dangling, s.loose};
        for (i64 row : grid.items(world.rows())) {
            i64 v = world.lo() + row;
            for (i64 r = 0; r < world.size; ++r)
                if (r != world.rank) pushed.add(v, pushed.parts(float_of(world.template message<u64>(heard, r, row))));
            f64 rank = greater(base.at(row) + rule.alpha * pushed.take(v), 0.0);
            all.count(all.change, magnitude(rank - ranks[row]));
            if (degrees[row]) all.count(all.handed, rank);
            ranks[row] = rank;
        }
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        bool ends = most == 0;
        switch (s.phase) {
        case push: s.phase = world.size > 1 ? drain : finish; return;
        case drain: s.phase = finish; return;
        case finish:
            ++s.steps;
            s.error = tally(heard, CHANGE, CHANGE_LOW);
            ends = s.steps >= most || s.error < tol;
        }
        if (s.phase == finish || s.steps == 0) s.handed = tally(heard, HANDED, HANDED_LOW);
        s.phase = ends ? finished : push;
        if (!ends) keep_base(rule.at(s.handed, world.vertices()), s);
    }
    DEVICE static f64 tally(const Heard& heard, int high, int low) {
        return from_tally((u64)heard.total(high), (u64)heard.total(low));
    }
};
