// One turn: the edges of all near vertices are followed.
#pragma once
#include "algorithms/paths/near_far/lists.cuh"
#include "kernels/rows.cuh"

// Calls take(row) for own vertices that are near now.
template <class View, class Tile, class Take>
DEVICE void follow_found(const View& graph, const Search& s, Tile tile, i64 row, i64 unit, u64 limit, Finds& finds,
                         Take take) {
    Word length = load(s.length + s.first + row);
    graph.visit(tile, row, unit, [&](u32 id, i64 slot, bool live) {
        if (live && finds.takes(id, longer(length, graph.weight(slot)), limit)) take((u32)((i64)id - s.first));
        return false;
    });
}
template <class View, class Tile>
DEVICE void follow(const View& graph, const Search& s, Tile tile, i64 row, i64 unit, u64 limit, Finds& finds) {
    follow_found(graph, s, tile, row, unit, limit, finds, [&](u32 found) { finds.add_near(found); });
}

// A tile follows the edges of a near vertex each lane; hubs become tasks. Returns how many edges the lane's vertex has.
template <class View, class Tile32>
DEVICE i64 follow_near(const View& graph, const Search& s, Tile32 tile, i64 base, i64 count, i64 turn, u64 limit,
                       Finds& finds, u64* tasks, bool last = true) {
    i64 at = base + tile.rank(), row = at < count ? (last ? s.take(at, turn) : (i64)load(s.near(turn) + at)) : -1;
    visit_rows(graph, tile, row, tasks, s.task_count(turn),
               [&](auto group, i64 its, i64 unit) { follow(graph, s, group, its, unit, limit, finds); });
    return row < 0 ? 0 : (i64)graph.degree(row);
}

// Few vertices, at most one a lane: 8 lanes follow a short row. What they find near is followed next, for some steps: the
// grid need not meet in between, and a vertex that is followed too early is followed again. Returns how many edges the
// lane has followed.
constexpr int steps_ahead = 8;
template <class View, class Tile32>
DEVICE i64 run_ahead(const View& graph, const Search& s, Tile32 tile, i64 row, u64 limit, Finds& finds) {
    Tile<narrow> group;
    i64 edges = 0;
    for (int step = 0; step < steps_ahead; ++step) {
        u32 waiting = tile.ballot(row >= 0), mine = waiting;
        if (waiting == 0) return edges;
        for (int g = tile.rank() / narrow; g; --g) mine &= mine - 1;
        i64 next = tile.shfl(row, mine ? lowest_bit(mine) : 0);
        if (popcount(waiting & ((1u << tile.rank()) - 1)) < tile.size() / narrow) row = -1;  // a group takes it
        i64 degree = mine ? (i64)graph.degree(next) : 0;
        i64 units = mine && degree <= short_degree ? (i64)graph.units(next) : 0;
        if (degree > short_degree && group.rank() == 0) finds.add_near((u32)next);
        for (i64 unit = 0; unit < units; ++unit)
            follow_found(graph, s, group, next, unit, limit, finds, [&](u32 found) {
                if (row < 0) row = found;
                else finds.add_near(found);
            });
        if (units && group.rank() == 0) edges += degree;
        tile.sync();
    }
    if (row >= 0) finds.add_near((u32)row);
    return edges;
}

// As follow_near of few vertices.
template <class View, class Tile32>
DEVICE i64 follow_few(const View& graph, const Search& s, Tile32 tile, i64 base, i64 count, i64 turn, u64 limit,
                      Finds& finds, u64* tasks) {
    i64 at = base + tile.rank(), row = at < count ? s.take(at, turn) : -1;
    i64 degree = row < 0 ? 0 : (i64)graph.degree(row);
    bool brief = degree <= short_degree;
    visit_rows(graph, tile, brief ? -1 : row, tasks, s.task_count(turn),
               [&](auto group, i64 its, i64 unit) { follow(graph, s, group, its, unit, limit, finds); });
    return run_ahead(graph, s, tile, brief ? row : -1, limit, finds) + (brief ? 0 : degree);
}
template <class Tile32> DEVICE void count_edges(const Search& s, Tile32 tile, i64 edges) {
    edges = tile.sum(edges);
    if (tile.rank() == 0 && edges) atomic_add(s.state + s_edges, edges);
}
template <class View, class Tile32>
DEVICE void follow_task(const View& graph, const Search& s, Tile32 tile, u64 task, u64 limit, Finds& finds) {
    visit_task(graph, task, [&](i64 row, i64 unit) {
        follow(graph, s, tile, row, unit, limit, finds);
        return false;
    });
}
DEVICE void begin_turn(const Search& s, i64 turn) {  // by one lane
    store(s.near_count(turn + 2), (i64)0);
    store(s.task_count(turn + 1), (i64)0);
    store(s.state + s_turn, turn + 1);
}

template <class View>
struct Follow {  // a tile 32 near vertices
    static constexpr int lanes = 32;
    View graph;
    Search search;
    i64 turn;
    i64 far_turn;
    i64 count;
    u64 limit;
    i64 last;  // 0 if their edges in another structure are to be followed after these
    u64* tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Finds finds(search, turn + 1, far_turn);
        i64 edges = 0;
        for (i64 i : grid.items(tile, (count + tile.size() - 1) / tile.size())) {
            fetch_row(graph, i, count, [&](i64 next) { return (i64)load(search.near(turn) + next); });
            if (i == 0 && tile.rank() == 0 && last) begin_turn(search, turn);
            edges += follow_near(graph, search, tile, i * tile.size(), count, turn, limit, finds, tasks, last);
        }
        count_edges(search, tile, edges);
    }
};

template <class View>
struct FollowHubs {  // a tile a task
    static constexpr int lanes = 32;
    View graph;
    Search search;
    i64 turn;
    i64 far_turn;
    u64 limit;
    const u64* tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Finds finds(search, turn + 1, far_turn);
        i64 n_tasks = load(search.task_count(turn));
        for (i64 i : grid.items(tile, n_tasks)) follow_task(graph, search, tile, tasks[i], limit, finds);
    }
};
