// Peeling: vertices are removed while they have at most `level` edges left, and each takes its edges along. left[row]
// are the edges that an own vertex has left, or `removed` and more once it was removed. A lane whose edge brings a
// neighbour down to `level` is the only one that sees this, and appends it to the frontier that comes next. Edges to
// other ranks' vertices are counted in less[id]; the first that counts one there adds the vertex to its owner's list.
#pragma once
#include "kernels/rows.cuh"
#include "kernels/search.cuh"

constexpr u32 removed = 0x80000000u;  // far above any number of edges left, whatever is still taken from it
constexpr i64 chase = 32;             // vertices that a lane removes one after another in one launch
constexpr i64 never = (i64)1 << 62;   // the least number of edges among no vertices

template <class View>
struct CountEdges {  // a lane brings a row: adds its edges without self-loops; hubs are left to CountHubs
    static constexpr int lanes = 32;
    View graph;
    i64 first;
    i64 rows;
    u32* left;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (rows + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            if (row < rows) atomic_add(left + row, (u32)graph.degree(row));
            tile.sync();
            visit_rows(graph, tile, row < rows ? row : -1, tasks, n_tasks, [&](auto group, i64 next, i64 unit) {
                graph.visit(group, next, unit, [&](u32 id, i64, bool live) {
                    if (live && id == first + next) atomic_add(left + next, ~0u);
                    return false;
                });
            });
        }
    }
};

template <class View>
struct CountHubs {  // a tile a task of a hub's row: takes a self-loop away
    static constexpr int lanes = 32;
    View graph;
    i64 first;
    u32* left;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks, [&](auto tile, i64 row, i64 unit) {
            graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                if (live && id == first + row) atomic_add(left + row, ~0u);
                return false;
            });
        });
    }
};

// A lane a vertex that was there at the last level: lists those that still are, and notes in `state` how many, and the
// least number of edges that one of them has left. `alive` is null for all own vertices.
DEVICE void keep(Grid grid, const u32* alive, i64 n, const u32* left, u32* kept, i64* state) {
    Tile<32> tile;
    u32 most = 0;  // of ~left: the least of `left`
    for (i64 i : grid.items((n + tile.size() - 1) / tile.size() * tile.size())) {  // whole tiles
        u32 row = i < n ? alive ? load(alive + i) : (u32)i : 0u, edges = i < n ? load(left + row) : removed;
        u32 all = tile.ballot(edges < removed);
        if (all == 0) continue;
        i64 place = tile.shfl(tile.rank() == 0 ? atomic_add(state, (i64)popcount(all)) : (i64)0, 0);
        if (edges >= removed) continue;
        store(kept + place + popcount(all & ((1u << tile.rank()) - 1)), row);
        most = greater(most, ~edges);
    }
    most = tile.most(most);
    if (tile.rank() == 0 && most) atomic_min(state + 1, (i64)(u32)~most);
}

// A lane a vertex that is there: those with at most `level` edges left are removed, and listed.
DEVICE void choose(Grid grid, const u32* alive, i64 n, u32* left, i64 level, u32* core, u32* frontier, i64* count) {
    for (i64 i : grid.items(n)) {
        u32 row = load(alive + i);
        if ((i64)load(left + row) > level) continue;
        store(left + row, removed + (removed >> 1));
        core[row] = (u32)level;
        store(frontier + atomic_add(count, (i64)1), row);
    }
}

struct Keep {
    static constexpr int lanes = 1;
    const u32* alive;
    i64 n;
    const u32* left;
    u32* kept;
    i64* state;
    DEVICE void operator()(Grid grid) const { keep(grid, alive, n, left, kept, state); }
};

struct Choose {
    static constexpr int lanes = 1;
    const u32* alive;
    i64 n;
    u32* left;
    i64 level;
    u32* core;
    u32* frontier;
    i64* count;
    DEVICE void operator()(Grid grid) const { choose(grid, alive, n, left, level, core, frontier, count); }
};

// What a removed vertex takes from its neighbours.
struct Peeled {
    i64 first;
    i64 rows;
    i64 level;
    u32* left;
    u32* core;
    u32* next;  // out: the vertices that come next
    i64* count;
    u32* less;  // of all vertices; null on one rank
    u32* lists;  // by owner, in its range's place: the vertices with some less
    i64* lengths;
    const i64* starts;
    i64 owners;
    // Takes an edge from `id`; whether that removes an own vertex.
    DEVICE bool take(u32 id, i64 row) const {
        i64 other = (i64)id - first;
        if (other == row) return false;
        if (other < 0 || other >= rows) {
            if (atomic_add(less + id, 1u) == 0) {
                i64 owner = upper_bound(starts, 0, owners + 1, (i64)id) - 1;
                lists[starts[owner] + atomic_add(lengths + owner, (i64)1)] = id;
            }
            return false;
        }
        if (load(left + other) > removed) return false;
        if (atomic_add(left + other, ~0u) != (u32)level + 1) return false;
        core[other] = (u32)level;
        atomic_add(left + other, removed + (removed >> 1));
        return true;
    }
    DEVICE void append(i64 row) const { store(next + atomic_add(count, (i64)1), (u32)row); }
};

// Each lane brings a removed vertex, or -1, and goes on with one that it removes, up to `steps` vertices in all; hubs
// become tasks.
template <class View, class Tile32>
DEVICE void peel_rows(const View& graph, Tile32 tile, i64 row, i64 steps, const Peeled& peeled, u64* tasks,
                      i64* n_tasks) {
    for (i64 step = 1; tile.any(row >= 0); ++step) {
        i64 then = -1;
        visit_rows(graph, tile, row, tasks, n_tasks, [&](auto group, i64 next, i64 unit) {
            graph.visit(group, next, unit, [&](u32 id, i64, bool live) {
                if (!live || !peeled.take(id, next)) return false;
                if (then < 0 && step < steps) then = id - peeled.first;
                else peeled.append(id - peeled.first);
                return false;
            });
        });
        row = then;
    }
}
template <class View, class Tile32> DEVICE void peel_task(const View& graph, Tile32 tile, u64 task,
                                                          const Peeled& peeled) {
    visit_task(graph, task, [&](i64 row, i64 unit) {
        graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
            if (live && peeled.take(id, row)) peeled.append(id - peeled.first);
            return false;
        });
        return false;
    });
}

template <class View>
struct Peel {  // a lane brings a vertex of the frontier
    static constexpr int lanes = 32;
    View graph;
    const u32* frontier;
    i64 n;
    i64 steps;  // vertices that a lane removes at most; 1 where their edges are in several views
    Peeled peeled;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 at = i * tile.size() + tile.rank(), row = at < n ? (i64)frontier[at] : -1;
            peel_rows(graph, tile, row, steps, peeled, tasks, n_tasks);
        }
    }
};

template <class View>
struct PeelHubs {  // a tile a task of a hub's row
    static constexpr int lanes = 32;
    View graph;
    Peeled peeled;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks)) peel_task(graph, tile, tasks[i], peeled);
    }
};

// Level after level without the host, on one rank whose edges are in one view. It ends when no vertex is left, and after
// `most` levels.
enum PeelState {
    s_arrived,
    s_levels,  // out: levels done
    s_level,   // out: the last one
    s_rest,    // out: how many vertices are listed, in `alive` after an odd number of levels
    s_kept,    // two pairs, used in turn: vertices kept and the least edges among them, `never` at first
    s_lengths = s_kept + 4,  // of three frontiers, used in turn
    s_tasks = s_lengths + 3,  // of three frontiers' hubs
    s_words = s_tasks + 3
};

template <class View>
struct PeelOn {
    static constexpr int lanes = 32;
    static constexpr int stays = 1;
    View graph;
    Peeled peeled;  // at the first level; `next` and `count` are not used
    u32* alive;     // the vertices that are there
    i64 n;
    u32* spare;  // for those that are there after every second level
    u32* frontier;
    u64* tasks;
    i64 most;
    i64* state;  // see PeelState
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Peeled now = peeled;
        u64 goal = 0;
        u32* lists[] = {alive, spare};
        i64 rest = n, done = 0, step = 0;
        while (true) {
            u32* fronts[] = {frontier, lists[(done + 1) % 2]};
            choose(grid, lists[done % 2], rest, now.left, now.level, now.core, fronts[0], state + s_lengths + step % 3);
            grid.meet((u64*)state, goal);
            i64 turn = 0;
            for (i64 count; (count = load(state + s_lengths + step % 3)) > 0; ++step, ++turn) {
                for (i64 one : grid.items(1)) {
                    store(state + s_lengths + (step + 2) % 3 + one, (i64)0);
                    store(state + s_tasks + (step + 2) % 3 + one, (i64)0);
                }
                now.next = fronts[(turn + 1) % 2], now.count = state + s_lengths + (step + 1) % 3;
                i64* hubs = state + s_tasks + step % 3;
                i64 few = rows_at_once(grid, tile, count);
                for (i64 i : grid.items(tile, (count + few - 1) / few)) {
                    i64 at = i * few + tile.rank();
                    i64 row = tile.rank() < few && at < count ? (i64)load(fronts[turn % 2] + at) : -1;
                    peel_rows(graph, tile, row, chase, now, tasks, hubs);
                }
                grid.meet((u64*)state, goal);
                i64 cut = load(hubs);
                if (cut == 0) continue;
                for (i64 i : grid.items(tile, cut)) peel_task(graph, tile, load(tasks + i), now);
                grid.meet((u64*)state, goal);
            }
            if (++done == most) break;
            i64* mine = state + s_kept + done % 2 * 2;
            for (i64 one : grid.items(1)) {
                i64* later = state + s_kept + (done + 1) % 2 * 2;
                store(later + one, (i64)0);
                store(later + one + 1, never);
            }
            keep(grid, lists[(done - 1) % 2], rest, now.left, lists[done % 2], mine);
            grid.meet((u64*)state, goal);
            rest = load(mine);
            if (rest == 0) break;
            now.level = load(mine + 1);
        }
        for (i64 one : grid.items(1)) {
            state[s_levels + one] = done;
            state[s_level + one] = now.level;
            state[s_rest + one] = rest;
        }
    }
};

struct Pack {  // one lane a listed vertex: how many edges it lost here, as id << 32 | edges, which begin anew
    static constexpr int lanes = 1;
    const u32* list;
    i64 n;
    u32* less;
    u64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            out[i] = (u64)list[i] << 32 | less[list[i]];
            less[list[i]] = 0;
        }
    }
};

struct Lose {  // one lane a vertex that another rank has listed, each once: takes the edges that it lost there
    static constexpr int lanes = 1;
    const u64* part;
    i64 n;
    Peeled peeled;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            i64 row = (i64)(part[i] >> 32) - peeled.first;
            u32 edges = peeled.left[row], lost = (u32)part[i];
            if (edges >= removed) continue;
            if ((i64)edges - (i64)lost > peeled.level) {
                peeled.left[row] = edges - lost;
                continue;
            }
            peeled.left[row] = removed + (removed >> 1), peeled.core[row] = (u32)peeled.level;
            peeled.append(row);
        }
    }
};
