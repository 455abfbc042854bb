// Predecessors of a search: the least vertex of the level before.
//   share  each rank writes the depths of its vertices to all ranks: one byte, or four where there are more than 254
//          levels; all ones for a vertex that was not reached
//   pull   each own vertex without a predecessor looks for the least in-neighbour that is one level nearer. A GPU lists
//          longer rows: an order by degree has them all at the beginning, where few tiles would look at all of them
//   longer looks for those of the listed rows
//   hubs   looks for those of rows of high degree
#pragma once
#include "algorithms/primitives/programs.cuh"
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"
#include "kernels/world.cuh"

#if DEPTH_BITS == 8
using Depth = u8;
#elif DEPTH_BITS == 32
using Depth = u32;
#endif

// The least neighbour of a row, among the edges of a unit, that is one level nearer.
template <class View, class Group>
DEVICE u32 least_in(const View& graph, Group group, i64 row, i64 unit, const Depth* depths, Depth nearer) {
    u32 least = ~0u;
    graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
        bool hit = live && depths[id] == nearer;
        if (hit) least = lesser(least, id);
        return View::sorted && group.any(hit);
    });
    return ~group.most(~least);
}

template <class View>
struct Tree {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    View graph;
    i64 pulls;  // 1 if `graph` has the in-edges, 0 if depths are shared only
    const i32* distance;  // of the own vertices, -1 for none
    i64 depths_offset;  // of the depths of all vertices, in each rank's region
    u64* parents;  // of the own vertices; all ones where none is known yet
    u32* list;  // room for the own vertices
    u64* tasks;
    struct State {
        i64 phase = 0;
        i64 listed = 0, tasks = 0;
    };
    enum Stage : i64 { finished, share, pull, longer, hubs };
    enum Number { LISTED, TASKS };
    static constexpr i64 at_once = 4 / sizeof(Depth);  // depths of a word

    DEVICE void begin(State& s) const { s.phase = share; }
    DEVICE bool alone(const State& s) const { return s.phase != share; }
    DEVICE Shared shares(const State& s) const {
        Shared shared;
        if (s.phase == share) shared.array = depths_offset, shared.width = sizeof(Depth);
        return shared;
    }
    DEVICE i64 items(const State& s, const Heard&) const {
        return s.phase == hubs ? s.tasks : s.phase == longer ? s.listed : world.rows() / lanes;
    }
    DEVICE const Depth* depths() const { return (const Depth*)world.words(world.rank, depths_offset); }
    DEVICE Numbers step(Grid grid, const State& s, const Heard&) const {
        if (s.phase == share) do_share(grid);
        else if (s.phase == pull) do_pull(grid, graph);
        else if (s.phase == longer) do_longer(grid, s, graph);
        else do_hubs(grid, s);
        return {};
    }
    DEVICE void next(State& s, const Heard& heard) const {
        if (s.phase == pull) s.listed = heard.own(LISTED);
        if (s.phase == longer) s.tasks = heard.own(TASKS);
        bool ends = s.phase == share ? !pulls : s.phase == hubs;  // all ranks have the same phases
        s.phase = ends ? (i64)finished : s.phase + 1;
    }

    DEVICE void do_share(Grid grid) const {
        i64 first = world.lo() / at_once, end = (world.hi() + at_once - 1) / at_once;
        for (i64 i : grid.items(end - first)) {  // by words
            i64 v = (first + i) * at_once;
            Depth few[at_once];
            for (i64 k = 0; k < at_once; ++k) few[k] = owns(v + k) ? (Depth)distance[v + k - world.lo()] : (Depth)0;
            u32 word = 0;
            copy_bytes(&word, few, sizeof word);
            for (i64 r = 0; r < world.size; ++r) {
                if (!world.reaches(r)) continue;
                Depth* to = (Depth*)world.words(r, depths_offset) + v;
                if (owns(v) && owns(v + at_once - 1)) {
                    store((u32*)to, word);
                } else {
                    for (i64 k = 0; k < at_once; ++k)
                        if (owns(v + k)) to[k] = few[k];
                }
            }
        }
    }
    DEVICE bool owns(i64 v) const { return v >= world.lo() && v < world.hi(); }
    // `rows` is a copy, which no store can change.
    DEVICE void do_pull(Grid grid, View rows) const {
        Tile<lanes> tile;
        i64 n = world.rows();
        const Depth* own_depths = depths() + world.lo();
        constexpr int few = tile.size() > 1 ? 4 : 1;  // most rows have one, so a lane looks at some at once
        const i64 whole = few * tile.size();
        for (i64 i : grid.items(tile, (n + whole - 1) / whole)) {
            Depth own[few];
            bool open[few];
            for (int k = 0; k < few; ++k) {
                i64 row = i * whole + k * tile.size() + tile.rank();
                own[k] = row < n ? own_depths[row] : (Depth)0;
            }
            for (int k = 0; k < few; ++k) {
                i64 row = i * whole + k * tile.size() + tile.rank();
                open[k] = own[k] != 0 && own[k] != (Depth) ~(Depth)0 && parents[row] == ~(u64)0;
            }
            for (int k = 0; k < few; ++k) {
                if (!tile.any(open[k])) continue;
                i64 row = i * whole + k * tile.size() + tile.rank(), degree = open[k] ? (i64)rows.degree(row) : 0;
                bool brief = degree > 0 && degree <= short_degree;
                if (brief) settle(row, search(rows, Tile<1>{}, row, (Depth)(own[k] - 1)));
                if (!tile.any(degree > short_degree)) continue;
                i64 place = places(tile, degree > short_degree, world.number(LISTED));
                if (degree > short_degree) list[place] = (u32)row;
            }
        }
    }
    DEVICE void do_longer(Grid grid, const State& s, View rows) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, s.listed)) {
            i64 row = load(list + i);
            bool hub = rows.degree(row) > HUB_DEGREE;
            // mostly a predecessor is among a hub's first edges
            i64 units = !hub ? rows.units(row) : View::sorted ? task_units(rows, row) : 0;
            u32 least = search(rows, tile, row, (Depth)(depths()[world.lo() + row] - 1), units);
            if (tile.rank()) continue;
            if (least != ~0u) settle(row, least);
            else if (hub) add_tasks(rows, row, tasks, world.number(TASKS));
        }
    }
    DEVICE void settle(i64 row, u32 least) const {
        if (least != ~0u) parents[row] = least;
    }
    template <class Group> DEVICE u32 search(const View& rows, Group group, i64 row, Depth nearer) const {
        return search(rows, group, row, nearer, rows.units(row));
    }
    template <class Group> DEVICE u32 search(const View& rows, Group group, i64 row, Depth nearer, i64 units) const {
        u32 least = ~0u;
        for (i64 unit = 0; unit < units && !(View::sorted && least != ~0u); ++unit)
            least = lesser(least, least_in(rows, group, row, unit, depths(), nearer));
        return least;
    }
    DEVICE void do_hubs(Grid grid, const State& s) const {
        Tile<lanes> tile;
        const Depth* all = depths();
        for (i64 i : grid.items(tile, s.tasks))
            visit_task(graph, load(tasks + i), [&](i64 row, i64 unit) {
                u32 least = least_in(graph, tile, row, unit, all, (Depth)(all[world.lo() + row] - 1));
                if (least == ~0u) return false;
                if (tile.rank() == 0) atomic_min(parents + row, (u64)least);
                return View::sorted;
            });
    }
};

// Without in-edges: each rank finds, for all vertices, the least of its own vertices that is one level nearer.
template <class View>
struct Push {  // one tile per 32 own vertices; rows of high degree become tasks
    static constexpr int lanes = 32;
    View graph;
    i64 first;
    i64 n;
    const Depth* depths;
    u64* least;  // of all vertices, all ones
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        auto row_at = [&](i64 row) { return depths[first + row] == (Depth) ~(Depth)0 ? -1 : row; };
        visit_all(grid, graph, n, row_at, tasks, n_tasks,
                  [&](auto group, i64 row, i64 unit) { offer(graph, group, first, row, unit, depths, least); });
    }
    template <class Group>
    static DEVICE void offer(const View& graph, Group group, i64 first, i64 row, i64 unit, const Depth* depths,
                             u64* least) {
        Depth further = (Depth)(depths[first + row] + 1);
        graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
            if (live && depths[id] == further && (u64)(first + row) < load(least + id))
                atomic_min(least + id, (u64)(first + row));
            return false;
        });
    }
};

template <class View>
struct PushTasks {  // one tile per task
    static constexpr int lanes = 32;
    View graph;
    i64 first;
    const Depth* depths;
    u64* least;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks, [&](auto tile, i64 row, i64 unit) {
            Push<View>::offer(graph, tile, first, row, unit, depths, least);
        });
    }
};
