// Many turns without the host, in the order of lengths, and rises of the limit.
#pragma once
#include "algorithms/paths/near_far/relax.cuh"

// Many turns without the host, while few vertices are near: a launch and a read-back would take longer than a turn. On
// a single rank it raises the limit, too. It leaves when more than `most` are near or far, and after `turns` turns.
template <class View>
struct RelaxPersistent {
    static constexpr int lanes = 32;
    static constexpr int persistent = 1;
    View graph;
    NearFarLists search;
    i64 alone;
    i64 most;
    i64 turns;
    f64 delta;
    u64* tasks;
    u64* arrived;
    DEVICE void operator()(Grid grid) const {
        const NearFarLists& s = search;
        i64 turn = load(s.state + s_turn), far_turn = load(s.state + s_far_turn), last = turn + turns, edges = 0;
        u64 limit = (u64)load(s.state + s_limit), goal = 0;
        grid.meet(arrived, goal);  // all have read them
        while (turn < last) {
            i64 count = load(s.near_count(turn)), far = count ? 0 : load(s.far_count(far_turn));
            if (count > most || (count == 0 && (!alone || far == 0 || far > most))) break;
            if (count) edges += take_turn(grid, goal, count, turn++, far_turn, limit);
            else rise(grid, goal, far, turn, far_turn++, limit);
        }
        count_edges(s, Tile<lanes>{}, edges);
        for (i64 one : grid.items(1)) {
            store(s.state + s_turn + one, turn);
            end_rise(s, far_turn, limit);
        }
    }
    DEVICE i64 take_turn(Grid grid, u64& goal, i64 count, i64 turn, i64 far_turn, u64 limit) const {
        Tile<lanes> tile;
        i64 edges = 0, few = rows_at_once(grid, tile, count);
        for ([[maybe_unused]] i64 one : grid.items(1)) begin_turn(search, turn);
        {
            Relaxation relaxation(search, turn + 1, far_turn);
            for (i64 i : grid.items(tile, (count + few - 1) / few)) {
                i64 end = lesser(count, (i + 1) * few);
                if constexpr (tile.size() > 1)
                    if (few <= narrow) {
                        i64 at = i * few + tile.rank(), row = at < end ? search.take(at, turn) : -1;
                        edges += relax_few(graph, tile, row, limit, relaxation, tasks, search.task_count(turn));
                        continue;
                    }
                edges += relax_near(graph, search, tile, i * few, end, turn, limit, relaxation, tasks);
            }
        }
        grid.meet(arrived, goal);
        i64 n_tasks = load(search.task_count(turn));
        if (n_tasks == 0) return edges;
        {
            Relaxation relaxation(search, turn + 1, far_turn);
            for (i64 i : grid.items(tile, n_tasks)) relax_task(graph, tile, load(tasks + i), limit, relaxation);
        }
        grid.meet(arrived, goal);
        return edges;
    }
    DEVICE void rise(Grid grid, u64& goal, i64 far, i64 turn, i64 far_turn, u64& limit) const {
        const NearFarLists& s = search;
        for ([[maybe_unused]] i64 one : grid.items(1)) store(s.least(far_turn + 1), ~(u64)0);
        for (i64 i : grid.items(far)) note_least(s, i, far_turn, limit);
        grid.meet(arrived, goal);
        u64 least = load(s.least(far_turn)), next = least == ~(u64)0 ? limit : next_limit((Word)least, delta);
        divide(grid, s, far, turn, far_turn, limit, next);
        for (i64 one : grid.items(1)) store(s.far_count(far_turn) + one, (i64)0);
        grid.meet(arrived, goal);
        limit = next;
    }
    DEVICE static void end_rise(const NearFarLists& s, i64 far_turn, u64 limit) {
        store(s.state + s_far_turn, far_turn), store(s.state + s_limit, (i64)limit);
        store(s.least(0), ~(u64)0), store(s.least(1), ~(u64)0);
    }
    DEVICE static void note_least(const NearFarLists& s, i64 at, i64 far_turn, u64 limit) {
        u64 word = load(s.length + s.first + load(s.far(far_turn) + at));
        if (word >= limit && word < load(s.least(far_turn))) atomic_min(s.least(far_turn), word);
    }
    // A far vertex below the old limit was near in the meantime; one below the new limit is near now.
    DEVICE static void divide(Grid grid, const NearFarLists& s, i64 far, i64 turn, i64 far_turn, u64 old, u64 limit) {
        Relaxation relaxation(s, turn, far_turn + 1);
        for (i64 i : grid.items(far)) {
            u32 row = load(s.far(far_turn) + i);
            u64 word = load(s.length + s.first + row);
            if (word >= limit) {
                relaxation.far.add(row);
                continue;
            }
            unmark(s.held, s.first + row);
            if (word >= old) relaxation.add_near(row);
        }
    }
};

template <class View>
struct FarLeast {  // one lane per far vertex: the least length from the limit on
    static constexpr int lanes = 1;
    View graph;
    NearFarLists search;
    i64 far_turn;
    i64 count;
    u64 limit;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(count)) RelaxPersistent<View>::note_least(search, i, far_turn, limit);
    }
};

template <class View>
struct Divide {  // one lane per far vertex: it becomes near if it is below the new limit
    static constexpr int lanes = 1;
    View graph;
    NearFarLists search;
    i64 turn;
    i64 far_turn;
    i64 count;
    u64 old;
    u64 limit;
    DEVICE void operator()(Grid grid) const {
        for (i64 one : grid.items(1)) {
            store(search.far_count(far_turn), one);
            RelaxPersistent<View>::end_rise(search, far_turn + 1, limit);
        }
        RelaxPersistent<View>::divide(grid, search, count, turn, far_turn, old, limit);
    }
};
