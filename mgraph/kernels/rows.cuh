// Load balancing of rows by degree: a short row goes to one lane, a longer row to a tile, and a hub, a row of more than
// HUB_DEGREE edges, is cut into tasks of about that many edges for any tile. A task is row << 32 | first unit. A graph of
// m edges has at most 2 m / HUB_DEGREE tasks, so their list never overflows.
#pragma once

constexpr u32 no_id = ~0u;  // no vertex
constexpr i64 short_degree = 8;
constexpr i64 most_parts = 8;  // of a task, for as many tiles
constexpr i64 narrow_degree = 64;  // up to this degree 8 lanes fold a row, so a warp reads four rows concurrently
static_assert(HUB_DEGREE >= short_degree, "a row is short, long or a hub");

// True if rows are contiguous slots: begins(row), ends(row), id_at(slot). Then a lane can read several rows at once.
struct Yes {
    static constexpr bool value = true;
};
struct No {
    static constexpr bool value = false;
};
template <class View> DEVICE auto has_stretches(int) -> decltype(View().id_at(i64()), Yes()) { return {}; }
template <class View> DEVICE No has_stretches(long) { return {}; }
template <class View> constexpr bool in_stretches = decltype(has_stretches<View>(0))::value;

// The number of rows before the last ones without slots, of which an order by degree has many. O(log rows).
template <class View> DEVICE i64 rows_before_empty(const View& graph, i64 rows) {
    i64 n = rows;
    if constexpr (in_stretches<View>) {
        i64 first = 0, end = graph.begins(n);
        while (first < n) {
            i64 middle = first + (n - first) / 2;
            if (graph.begins(middle) < end) first = middle + 1;
            else n = middle;
        }
    }
    return n;
}

// Prefetch on a CPU, in two steps, if the View has them: fetch_start(row), and a few rows later fetch(row).
constexpr i64 rows_ahead = 8;
template <class View> DEVICE auto fetch_start_if_any(const View& graph, i64 row, int)
    -> decltype(graph.fetch_start(row)) {
    graph.fetch_start(row);
}
template <class View> DEVICE void fetch_start_if_any(const View&, i64, long) {}
template <class View> DEVICE auto fetch_if_any(const View& graph, i64 row, int) -> decltype(graph.fetch(row)) {
    graph.fetch(row);
}
template <class View> DEVICE void fetch_if_any(const View&, i64, long) {}
template <class View, class RowAt> DEVICE void fetch_row(const View& graph, i64 at, i64 n, RowAt row_at) {
    if constexpr (Tile<32>::size() == 1) {
        if (at + 2 * rows_ahead < n) fetch_start_if_any(graph, row_at(at + 2 * rows_ahead), 0);
        if (at + rows_ahead < n) fetch_if_any(graph, row_at(at + rows_ahead), 0);
    }
}

template <class View> DEVICE i64 task_units(const View& graph, i64 row) {
    i64 degree = graph.degree(row);
    return (graph.units(row) * HUB_DEGREE + degree - 1) / degree;
}

template <class View> DEVICE void add_tasks(const View& graph, i64 row, u64* tasks, i64* n_tasks, u64 flag = 0) {
    i64 units = graph.units(row), step = task_units(graph, row);
    i64 at = atomic_add(n_tasks, (units + step - 1) / step);
    for (i64 unit = 0; unit < units; unit += step) tasks[at++] = (u64)row << 32 | (u64)unit | flag;
}

// Visits a task's edges by the tile: visit(row, unit) until it returns true.
template <class View, class Visit> DEVICE void visit_task(const View& graph, u64 task, Visit visit) {
    i64 row = (i64)(task >> 32), unit = (i64)(u32)task;
    i64 end = lesser(unit + task_units(graph, row), (i64)graph.units(row));
    while (unit < end && !visit(row, unit)) ++unit;
}

// Returns how many of n rows a tile takes at once; few rows are spread over all tiles of the grid.
template <class Tile> DEVICE i64 rows_at_once(Grid grid, Tile tile, i64 n) {
    i64 tiles = grid.items(tile, n).step;
    if (n <= tiles) return 1;
    if (n > tiles * (tile.size() - 1)) return tile.size();
    return (u32)(n + tiles - 1) / (u32)tiles;
}
// How often `few` of n rows are taken. A division takes a GPU's lane as long as a load.
template <class T> DEVICE T turns_of(T n, T few) { return few == 1 ? n : (n + few - 1) / few; }

template <class Tile32, class View, class Visit>  // the rows of visit_rows that are not short
DEVICE void visit_long_rows(const View& graph, Tile32 tile, i64 row, i64 degree, u64* tasks, i64* n_tasks,
                            Visit visit) {
    for (u32 rest = tile.ballot(degree > short_degree && degree <= HUB_DEGREE); rest; rest &= rest - 1) {
        i64 next = tile.shfl(row, lowest_bit(rest)), units = graph.units(next);
        for (i64 unit = 0; unit < units; ++unit) visit(tile, next, unit);
    }
    if (degree > HUB_DEGREE && tasks) add_tasks(graph, row, tasks, n_tasks);
}

// Visits every unit of the lanes' rows (-1 for none): visit(group, row, unit) by a group of one lane or the whole tile.
// Hubs are added to the tasks, or left out if `tasks` is null.
template <class Tile32, class View, class Visit>
DEVICE void visit_rows(const View& graph, Tile32 tile, i64 row, u64* tasks, i64* n_tasks, Visit visit) {
    i64 degree = row < 0 ? 0 : (i64)graph.degree(row);
    if (degree > 0 && degree <= short_degree) {
        i64 units = graph.units(row);
        for (i64 unit = 0; unit < units; ++unit) visit(Tile<1>{}, row, unit);
    }
    visit_long_rows(graph, tile, row, degree, tasks, n_tasks, visit);
}

// Visits the short rows of few lanes: 8 lanes take one, so its edges are read concurrently. Returns the lane's row if it
// was not short, else -1.
constexpr int narrow = 8;
template <class Tile32, class View, class Visit>
DEVICE i64 visit_few_short(const View& graph, Tile32 tile, i64 row, Visit visit) {
    if constexpr (Tile32::size() > 1) {
        i64 degree = row < 0 ? 0 : (i64)graph.degree(row);
        bool brief = degree > 0 && degree <= short_degree;
        for (u32 waiting = tile.ballot(brief); waiting;) {
            u32 mine = waiting;
            for (int g = tile.rank() / narrow; g; --g) mine &= mine - 1;
            for (int g = tile.size() / narrow; g; --g) waiting &= waiting - 1;
            i64 next = tile.shfl(row, mine ? lowest_bit(mine) : 0), units = mine ? (i64)graph.units(next) : 0;
            for (i64 unit = 0; unit < units; ++unit) visit(Tile<narrow>{}, next, unit);
            tile.sync();
        }
        if (brief) return -1;
    }
    return row;
}

// Prefetch on a GPU, in two steps, if the View has them: begin = begins(row), then fetch_from(begin).
template <class View> DEVICE auto begin_if_any(const View& graph, i64 row, int) -> decltype(graph.begins(row)) {
    return graph.begins(row);
}
template <class View> DEVICE i64 begin_if_any(const View&, i64, long) { return 0; }
template <class View> DEVICE auto fetch_from_if_any(const View& graph, i64 begin, int)
    -> decltype(graph.fetch_from(begin)) {
    graph.fetch_from(begin);
}
template <class View> DEVICE void fetch_from_if_any(const View&, i64, long) {}
template <class View> DEVICE i64 begin_of(const View& graph, i64 row) {
    if constexpr (Tile<32>::size() > 1) return begin_if_any(graph, row, 0);
    return 0;
}
template <class View> DEVICE void fetch_from(const View& graph, i64 begin) {
    if constexpr (Tile<32>::size() > 1) fetch_from_if_any(graph, begin, 0);
}

// Visits a few rows by a block: visit(group, i, row, units) of the i-th by 8 lanes, or by a tile if it has several
// units. With few active lanes, a GPU takes as long as one lane's instructions.
template <class View, class RowAt, class Visit>
DEVICE void visit_in_block(const View& graph, int n, RowAt row_at, Visit visit) {
    Tile<32> tile;
    Tile<narrow> group;
    const int groups = tile.size() / group.size(), all = Block{}.size() / group.size();
    for (int base = Block{}.rank() / tile.size() * groups; base < n; base += all) {
        int i = base + tile.rank() / group.size();
        u32 row = i < n ? row_at(i) : 0;
        int units = i < n ? (int)graph.units(row) : -1;
        if (units == 0 || units == 1) visit(group, i, row, units);
        for (u32 rest = tile.ballot(units > 1 && group.rank() == 0); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            visit(tile, tile.shfl(i, lane), tile.shfl(row, lane), tile.shfl(units, lane));
        }
    }
}

// Visits every unit of the rows row_at(0) .. row_at(n - 1), where -1 is none: visit(group, row, unit). The kernel has one
// tile per 32 rows. Hubs are added to the tasks, or left out if `tasks` is null.
template <class View, class RowAt, class Visit>
DEVICE void visit_all(Grid grid, const View& graph, i64 n, RowAt row_at, u64* tasks, i64* n_tasks, Visit visit) {
    Tile<32> tile;
    for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
        i64 at = i * tile.size() + tile.rank();
        visit_rows(graph, tile, at < n ? row_at(at) : -1, tasks, n_tasks, visit);
    }
}

// Returns how many tiles share a task; few tasks are spread over more tiles, unit by unit.
template <class Tile> DEVICE i64 parts_of_tasks(Grid grid, Tile tile, i64 n) {
    i64 parts = 1;
    if constexpr (Tile::size() > 1) {
        while (parts < most_parts && 2 * parts * n <= grid.items(tile, n).step) parts *= 2;
    }
    return parts;
}

// Visits the hubs' tasks, in a kernel with one tile per task.
template <class View, class Visit>
DEVICE void visit_hubs(Grid grid, const View& graph, const u64* tasks, i64 n, Visit visit) {
    Tile<32> tile;
    i64 parts = parts_of_tasks(grid, tile, n);
    for (i64 i : grid.items(tile, n * parts)) {
        u64 task = tasks[i / parts];
        i64 row = (i64)(task >> 32), unit = (i64)(u32)task, units = graph.units(row);
        i64 end = lesser(unit + task_units(graph, row), units);
        for (unit += i % parts; unit < end; unit += parts) visit(tile, row, unit);
    }
}

struct EveryRow {  // row_at of all rows, from `first` on
    i64 first = 0;
    DEVICE i64 operator()(i64 at) const { return first + at; }
};

// Reads the ids of a unit, on a GPU several of each lane at once if the View can: f(ids, slot), with no_id for none.
// ids[j] is at slot + j * group.size().
template <class View, class Group, class F>
DEVICE auto read_several(const View& graph, Group group, i64 row, i64 unit, F f, int)
    -> decltype(graph.read_ids(group, row, unit, f)) {
    graph.read_ids(group, row, unit, f);
}
template <class View, class Group, class F>
DEVICE void read_several(const View& graph, Group group, i64 row, i64 unit, F f, long) {
    auto one_by_one = [&](u32 id, i64 slot, bool live) {
        const u32 one[] = {live ? id : no_id};
        f(one, slot);
        return false;
    };
    graph.visit(group, row, unit, one_by_one);
}
template <class View, class Group, class F>
DEVICE void read_ids(const View& graph, Group group, i64 row, i64 unit, F f) {
    if constexpr (Tile<32>::size() > 1) read_several(graph, group, row, unit, f, 0);
    else read_several(graph, group, row, unit, f, 0L);
}

template <int n> DEVICE u32 present(const u32 (&ids)[n]) {  // a bit for each that is not no_id
    u32 which = 0;
    for (int j = 0; j < n; ++j) which |= (u32)(ids[j] != no_id) << j;
    return which;
}

// Folds reduce a row's edges to a value: nothing() is the neutral element, chosen(ids, which) the edges that count among
// those in the mask `which`, term(row, id, slot) what an edge adds, with(part, term) adds it, and over(group, part)
// combines the parts of a group's lanes. Terms are read before the first of them is added, since a lane that adds one
// waits for its memory.
template <class View, class Group, class Fold, class Part>
DEVICE Part fold_unit(const View& graph, Group group, i64 row, i64 unit, Part part, const Fold& fold) {
    auto take = [&](const auto& ids, i64 slot) {
        constexpr int n = sizeof(ids) / sizeof(u32);
        using Term = decltype(fold.term(row, no_id, slot));
        Term terms[n];
        u32 which = fold.chosen(ids, present(ids));
        for (int j = 0; j < n; ++j)
            terms[j] = which >> j & 1 ? fold.term(row, ids[j], slot + j * group.size()) : Term{};
        for (int j = 0; j < n; ++j)
            if (which >> j & 1) part = fold.with(part, terms[j]);
    };
    read_ids(graph, group, row, unit, take);
    return part;
}

template <class View, class Group, class Fold>
DEVICE auto fold_row(const View& graph, Group group, i64 row, const Fold& fold) {  // this lane's part of the row
    auto part = fold.nothing();
    i64 units = graph.units(row);
    for (i64 unit = 0; unit < units; ++unit) part = fold_unit(graph, group, row, unit, part, fold);
    return part;
}

template <class View, class Group, class Fold, class Part>
DEVICE void fold_together(const View& graph, Group group, bool mine, i64 row, const Fold& fold, Part& all) {
    for (u32 rest = group.ballot(mine); rest; rest &= rest - 1) {
        int lane = lowest_bit(rest);
        Part joined = fold.over(group, fold_row(graph, group, group.shfl(row, lane), fold));
        if (group.rank() == lane) all = joined;
    }
}

// Returns the fold of each lane's row (-1 for none). A hub's is nothing().
template <class View, class Tile32, class Fold>
DEVICE auto fold_rows(const View& graph, Tile32 tile, i64 row, const Fold& fold) {
    i64 degree = row < 0 ? 0 : (i64)graph.degree(row), narrow = lesser(narrow_degree, (i64)HUB_DEGREE);
    auto all = fold.nothing();
    if constexpr (Tile32::size() == 1) {
        return degree > 0 && degree <= HUB_DEGREE ? fold_row(graph, tile, row, fold) : all;
    } else {
        if (degree > 0 && degree <= short_degree) all = fold_row(graph, Tile<1>{}, row, fold);
        fold_together(graph, Tile<8>{}, degree > short_degree && degree <= narrow, row, fold, all);
        fold_together(graph, tile, degree > narrow && degree <= HUB_DEGREE, row, fold, all);
        return all;
    }
}

template <class View, class Tile32, class Fold>
DEVICE auto fold_task(const View& graph, Tile32 tile, u64 task, const Fold& fold) {  // of a task's edges, by the tile
    auto part = fold.nothing();
    visit_task(graph, task, [&](i64 row, i64 unit) {
        part = fold_unit(graph, tile, row, unit, part, fold);
        return false;
    });
    return fold.over(tile, part);
}

template <class View>
struct FirstIds {  // reads the id in each task's first live slot; one lane per task
    static constexpr int lanes = 1;
    View graph;
    const u64* tasks;
    i64 n;
    u32* ids;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            ids[i] = 0;
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                bool found = false;
                graph.visit(Tile<1>{}, row, unit, [&](u32 id, i64, bool live) {
                    if (live) ids[i] = id, found = true;
                    return found;
                });
                return found;
            });
        }
    }
};

template <class View>
struct ListHubs {  // lists the tasks of all hubs, one lane per row; state: number of tasks, one past the last hub's row
    static constexpr int lanes = 1;
    View graph;
    i64 n;
    u64* tasks;
    i64* state;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n))
            if ((i64)graph.degree(row) > HUB_DEGREE) {
                add_tasks(graph, row, tasks, state);
                atomic_max(state + 1, row + 1);
            }
    }
};
