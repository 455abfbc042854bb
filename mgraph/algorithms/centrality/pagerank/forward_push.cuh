// Updates PageRank by forward push from changed edges. x solves x = b + alpha * P' x up to a residual r, both per own
// vertex. A vertex pushes its residual: it adds it to x, and passes a part to each out-neighbour's residual. The parts
// that a vertex receives in a round are summed first, in fixed point, so that the order does not matter.
#pragma once
#include "algorithms/primitives/edge_delta.cuh"
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"
#include "kernels/search.cuh"

// The words of `state`, twice: for even and odd rounds of Rounds.
enum ForwardPush { o_listed, o_next, o_edges, o_tasks, o_words };

struct Flow {
    f64* x;
    i64* residual;
    i64* value;  // per own row: its push to each out-neighbour in this round
    i64* sums;   // per vertex of the graph: the sum of pushes to it in this round
    u32* marks;  // a bitmap of all vertices: 1 for members of `list`
    u32* list;   // vertices with a push to them
    u32* next;   // out: own rows whose residual is above `most`
    i64* state;
    i64 first;
    i64 n;
    i64 most;
    f64 one;  // the number 1 in fixed point
    f64 alpha;
    DEVICE void add(u32 id, i64 value) const {
        if (value == 0) return;
        atomic_add(sums + id, value);
        if (saw_bit(marks, id) || atomic_or(marks + id / word_bits, bit_of(id)) & bit_of(id)) return;
        list[take_place(state + o_listed)] = id;
    }
    DEVICE bool owns(i64 row) const { return row >= 0 && row < n; }
    DEVICE i64 part(f64 share, i64 degree) const {  // per edge of `degree`
        return degree ? (i64)(alpha * share / (f64)degree * one) : 0;
    }
    DEVICE void take(i64 row, i64 degree) const {  // an own row adds its residual to x, and sets its push
        f64 share = (f64)residual[row] / one;
        residual[row] = 0;
        x[row] += share;
        store(value + row, part(share, degree));
    }
    DEVICE void end(u32 id) const {  // adds the pushes to a listed own vertex to its residual
        i64 row = (i64)id - first;
        atomic_and(marks + id / word_bits, ~bit_of(id));
        if (!owns(row)) return;
        i64 now = residual[row] += load(sums + id);
        store(sums + id, (i64)0);
        if (now > most || now < -most) store(next + take_place(state + o_next), (u32)row);
    }
};

template <class View>
struct FirstValues {  // one lane per own row: pushes all of x, with the residual b - x
    static constexpr int lanes = 1;
    View graph;
    Flow flow;
    const f64* base;  // null for 1
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(flow.n)) {
            flow.residual[row] = (i64)(((base ? base[row] : 1) - flow.x[row]) * flow.one);
            flow.value[row] = flow.part(flow.x[row], graph.degree(row));
        }
    }
};

template <class View>
struct Values {  // one lane per row of a list: pushes its residual
    static constexpr int lanes = 1;
    View graph;
    Flow flow;
    const u32* rows;
    i64 count;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(count)) flow.take(rows[i], graph.degree(rows[i]));
    }
};

// Returns true if a changed arc of an own row was inserted or deleted. Data of its row is at the place of the row's
// first arc.
DEVICE bool counts(const Flow& flow, const EdgeDelta& changed, i64 i) {
    return changed.kinds[i] != updated && flow.owns(changed.src(i) - flow.first);
}
DEVICE i64 place_of(const EdgeDelta& changed, i64 i) {
    return lower_bound_near(changed.keys, changed.n, i, first_key_of(changed.src(i)));
}

struct ChangedRows {  // one lane per changed arc: adds up the growth of its row's degree; lists each row once
    static constexpr int lanes = 1;
    Flow flow;
    EdgeDelta changed;
    i64* more;
    u32* arcs;  // of a row
    i64* places;  // out: of the rows, in any order
    i64* rows;    // their number
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            if (!counts(flow, changed, i)) continue;
            i64 place = place_of(changed, i);
            atomic_add(more + place, changed.is(i) ? (i64)1 : (i64)-1);
            if (atomic_add(arcs + place, 1u) == 0) places[take_place(rows)] = place;
        }
    }
};

template <class View>
struct ChangedValues {  // one lane per listed row: the push along each of its edges now, and before
    static constexpr int lanes = 1;
    View graph;
    Flow flow;
    EdgeDelta changed;
    const i64* more;
    const i64* places;
    i64 count;
    i64* before;
    u32* rows;  // out
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(count)) {
            i64 place = places[i], row = changed.src(place) - flow.first, degree = graph.degree(row);
            i64 carried = flow.part(flow.x[row], degree - more[place]);
            before[place] = carried;
            flow.value[row] = flow.part(flow.x[row], degree) - carried;
            rows[i] = (u32)row;
        }
    }
};

struct ChangedArcs {  // one lane per changed arc of an own row: pushes its mass of before, or takes it back
    static constexpr int lanes = 1;
    Flow flow;
    EdgeDelta changed;
    const i64* before;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(changed.n)) {
            if (!counts(flow, changed, i)) continue;
            i64 carried = before[place_of(changed, i)];
            flow.add((u32)changed.dst(i), changed.is(i) ? carried : -carried);
        }
    }
};

template <class View, class Group> DEVICE void hand_on(const View& graph, Group group, i64 row, i64 unit,
                                                       const Flow& flow) {
    i64 value = load(flow.value + row);
    graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
        if (live) flow.add(id, value);
        return false;
    });
}

template <class View>
struct HandOn {  // pushes 32 rows per tile, of all rows or of a list; hubs become tasks
    static constexpr int lanes = 32;
    View graph;
    Flow flow;
    const u32* rows;  // null for all
    i64 count;
    u64* tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, (count + tile.size() - 1) / tile.size())) {
            i64 at = i * tile.size() + tile.rank(), row = at < count ? (rows ? (i64)rows[at] : at) : -1;
            edges += row < 0 ? 0 : (i64)graph.degree(row);
            visit_rows(graph, tile, row, tasks, flow.state + o_tasks,
                       [&](auto group, i64 its, i64 unit) { hand_on(graph, group, its, unit, flow); });
        }
        edges = tile.sum(edges);
        if (tile.rank() == 0 && edges) atomic_add(flow.state + o_edges, edges);
    }
};

template <class View>
struct HandOnHubs {  // pushes a task of a hub per tile
    static constexpr int lanes = 32;
    View graph;
    Flow flow;
    const u64* tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 n_tasks = load(flow.state + o_tasks);
        for (i64 i : grid.items(tile, n_tasks))
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                hand_on(graph, tile, row, unit, flow);
                return false;
            });
    }
};

struct SendOut {  // one lane per vertex of another rank: moves the sum of pushes to it into the send buffer
    static constexpr int lanes = 1;
    Flow flow;
    const u32* ids;
    i64 count;
    i64* values;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(count)) {
            values[i] = flow.sums[ids[i]];
            flow.sums[ids[i]] = 0;
        }
    }
};

struct TakeIn {  // one lane per own vertex with a push from another rank
    static constexpr int lanes = 1;
    Flow flow;
    const u32* ids;
    const i64* values;
    i64 count;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(count)) flow.add(ids[i], values[i]);
    }
};

struct Sums {  // one lane per own row: sums in fixed point
    static constexpr int lanes = 1;
    Flow flow;
    i64* sums;  // of absolute residuals, of x, and of positive x
    DEVICE void operator()(Grid grid) const {
        i64 lacks = 0, all = 0, positive = 0;
        for (i64 row : grid.items(flow.n)) {
            i64 residual = flow.residual[row], x = (i64)(flow.x[row] * flow.one);
            lacks += greater(residual, -residual), all += x, positive += greater(x, (i64)0);
        }
        Tile<32> tile;
        lacks = tile.sum(lacks), all = tile.sum(all), positive = tile.sum(positive);
        if (tile.rank() > 0) return;
        atomic_add(sums, lacks), atomic_add(sums + 1, all), atomic_add(sums + 2, positive);
    }
};

struct ShareOut {  // one lane per own row: its rank
    static constexpr int lanes = 1;
    Flow flow;
    f64 sum;
    f32* single;  // one of these; the other is null
    f64* twice;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(flow.n)) {
            f64 rank = greater(flow.x[row], 0.0) / sum;
            if (single) single[row] = (f32)rank;
            else twice[row] = rank;
        }
    }
};

struct EndRound {  // one lane per listed vertex: adds the pushes to own residuals
    static constexpr int lanes = 1;
    Flow flow;
    i64 count;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(count)) flow.end(flow.list[i]);
    }
};

// Makes round after round without the host, on a single rank, while at most `few` rows are above the limit. It ends
// when none are, when more than `visits` edges were visited, and after `rounds` rounds. Then the last rows are in
// `next`, or after an odd number of rounds in `rows`; state, which is 0 before, has that number in place of the listed
// vertices.
template <class View>
struct Rounds {
    static constexpr int lanes = 32;
    static constexpr int persistent = 1;
    View graph;
    Flow flow;
    u32* rows;
    i64 first;  // the rows in `next`
    u64* tasks;
    i64 few;
    i64 visits;
    i64 rounds;
    u64* arrived;
    // The arrays of round `round`. It begins with the rows of the list that it does not write to.
    DEVICE Flow at(i64 round) const {
        Flow now = flow;
        now.state += round % 2 * o_words;
        now.next = round % 2 ? flow.next : rows;
        return now;
    }
    DEVICE void operator()(Grid grid) const {
        u64 goal = 0;
        i64 round = 0, edges = 0, count = first;
        while (count > 0 && count <= few && edges <= visits && round < rounds) {
            // Push the rows of the front, then the tasks of hubs.
            Flow now = at(round);
            hand_on_all(grid, now, at(round + 1).next, count);
            grid.meet(arrived, goal);
            i64 listed = load(now.state + o_listed), n_tasks = load(now.state + o_tasks);
            edges += load(now.state + o_edges);
            if (n_tasks) {
                hand_on_tasks(grid, now, n_tasks);
                grid.meet(arrived, goal);
                listed = load(now.state + o_listed);
            }
            // Add the pushes to the residuals, and clear the state of the next round.
            for (i64 i : grid.items(listed)) now.end(load(now.list + i));
            for (i64 one : grid.items(1)) {
                i64* next = at(round + 1).state + one;
                store(next + o_listed, (i64)0), store(next + o_edges, (i64)0), store(next + o_tasks, (i64)0);
            }
            grid.meet(arrived, goal);
            count = load(now.state + o_next);
            ++round;
        }
        grid.meet(arrived, goal);  // all blocks have read the counts
        for (i64 one : grid.items(1)) {
            store(flow.state + o_listed + one, round);
            store(flow.state + o_next, count), store(flow.state + o_edges, edges);
        }
    }
    DEVICE void hand_on_all(Grid grid, const Flow& now, const u32* front, i64 count) const {
        Tile<lanes> tile;
        i64 edges = 0, share = rows_at_once(grid, tile, count);
        for (i64 one : grid.items(1)) store(now.state + o_next + one, (i64)0);
        for (i64 i : grid.items(tile, turns_of(count, share))) {
            i64 at = i * share + tile.rank(), row = at < lesser(count, (i + 1) * share) ? (i64)load(front + at) : -1;
            i64 degree = row < 0 ? 0 : (i64)graph.degree(row);
            if (row >= 0) now.take(row, degree);
            edges += degree;
            tile.sync();
            auto visit = [&](auto group, i64 its, i64 unit) { hand_on(graph, group, its, unit, now); };
            row = visit_few_short(graph, tile, row, visit);
            visit_rows(graph, tile, row, tasks, now.state + o_tasks, visit);
        }
        edges = tile.sum(edges);
        if (tile.rank() == 0 && edges) atomic_add(now.state + o_edges, edges);
    }
    DEVICE void hand_on_tasks(Grid grid, const Flow& now, i64 n_tasks) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n_tasks))
            visit_task(graph, load(tasks + i), [&](i64 row, i64 unit) {
                hand_on(graph, tile, row, unit, now);
                return false;
            });
    }
};
