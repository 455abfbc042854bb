// Bit-parallel breadth-first search, up to 64 searches: M. Then et al., "The more the merrier: efficient multi-source
// graph traversal", PVLDB 8(4), 2014. A level follows the edges of listed vertices, and lists the vertices that it
// reaches; nothing scans all vertices. This rank owns the n vertices from `first` on.
#pragma once
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"
#include "kernels/search.cuh"
#include "algorithms/paths/bit_parallel_bfs/words.cuh"

// The words of `state`. Lists and the hubs' tasks are those of even and odd levels.
enum BitParallelState { w_list, w_tasks = w_list + 2, w_level = w_tasks + 2, w_out };

struct BitParallelLists {
    u64* coming;  // per vertex of the graph: the searches that reached it in this level
    u64* seen;  // per vertex of the graph: all searches that reached it; of other ranks: those sent
    u64* now;  // per own row: the searches that first reached it in the level before
    i64 first;
    i64 n;
    u32* lists;  // own rows: two lists of n each
    i32* distance;  // per search and own row; may be null
    const i64* starts;  // the first vertex of each owner's range
    const i64* places;  // the first place of each owner in `out`
    i64 owners;
    u32* out;
    i64* state;
    DEVICE u32* list(i64 level) const { return lists + (level & 1) * n; }
    DEVICE i64* count(int which, i64 level) const { return state + which + (level & 1); }
    DEVICE void come(u32 id, u64 bits, i64 level) const {
        bits &= ~load(seen + id);
        if ((bits & ~load(coming + id)) == 0 || atomic_or(coming + id, bits) != 0) return;
        i64 row = (i64)id - first;
        if (row >= 0 && row < n) return store(list(level) + take_place(count(w_list, level)), (u32)row);
        i64 owner = upper_bound(starts, 0, owners + 1, (i64)id) - 1;
        store(out + places[owner] + take_place(state + w_out + owner), id);
    }
    // Searches that reached a listed row for the first time.
    DEVICE u64 settle(i64 row, i64 level) const {
        u64 fresh = load(coming + first + row) & ~load(seen + first + row);
        store(coming + first + row, (u64)0);
        if (fresh) store(seen + first + row, load(seen + first + row) | fresh);
        store(now + row, fresh);
        if (distance)
            for (u64 rest = fresh; rest; rest &= rest - 1) distance[lowest_search(rest) * n + row] = (i32)level;
        return fresh;
    }
};

template <class View, class Tile>
DEVICE void expand(const View& graph, const BitParallelLists& w, Tile tile, i64 row, i64 unit, i64 level) {
    u64 bits = load(w.now + row);
    graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
        if (live) w.come(id, bits, level + 1);
        return false;
    });
}
template <class View, class Tile32>
DEVICE void expand_listed(const View& graph, const BitParallelLists& w, Tile32 tile, i64 base, i64 count, i64 level,
                          u64* tasks) {
    i64 at = base + tile.rank();
    visit_rows(graph, tile, at < count ? (i64)load(w.list(level) + at) : -1, tasks, w.count(w_tasks, level),
               [&](auto group, i64 row, i64 unit) { expand(graph, w, group, row, unit, level); });
}
template <class View, class Tile32>
DEVICE void expand_task(const View& graph, const BitParallelLists& w, Tile32 tile, u64 task, i64 level) {
    visit_task(graph, task, [&](i64 row, i64 unit) {
        expand(graph, w, tile, row, unit, level);
        return false;
    });
}
DEVICE void begin_level(const BitParallelLists& w, i64 level) {  // by one lane
    store(w.count(w_list, level), (i64)0);
    store(w.count(w_tasks, level + 1), (i64)0);
    store(w.state + w_level, level + 1);
}

template <class View>
struct Expand {  // one tile per 32 listed vertices
    static constexpr int lanes = 32;
    View graph;
    BitParallelLists bfs;
    i64 level;
    i64 count;
    u64* tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 one : grid.items(1)) begin_level(bfs, level + one);
        for (i64 i : grid.items(tile, (count + tile.size() - 1) / tile.size()))
            expand_listed(graph, bfs, tile, i * tile.size(), count, level, tasks);
    }
};

template <class View>
struct ExpandHubs {  // one tile per task
    static constexpr int lanes = 32;
    View graph;
    BitParallelLists bfs;
    i64 level;
    const u64* tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 n_tasks = load(bfs.count(w_tasks, level));
        for (i64 i : grid.items(tile, n_tasks)) expand_task(graph, bfs, tile, tasks[i], level);
    }
};

// One block expands many levels while few vertices are listed. On a single rank.
template <class View>
struct ExpandPersistent {
    static constexpr int lanes = 512;
    View graph;
    BitParallelLists bfs;
    i64 most;
    i64 levels;
    u64* tasks;
    DEVICE void operator()(Grid grid) const {
        for (i64 one : grid.items(Block{}, 1)) run(one);
    }
    DEVICE void run(i64) const {
        Block block;
        Tile<32> tile;
        i64 tiles = block.size() / tile.size(), own = block.rank() / tile.size();
        for (i64 level = load(bfs.state + w_level), end = level + levels; level < end; ++level) {
            i64 count = load(bfs.count(w_list, level));
            block.sync();
            if (count == 0 || count > most) return;
            if (block.rank() == 0) begin_level(bfs, level);
            for (i64 i = own * tile.size(); i < count; i += block.size())
                expand_listed(graph, bfs, tile, i, count, level, tasks);
            block.sync();
            i64 n_tasks = load(bfs.count(w_tasks, level));
            for (i64 i = own; i < n_tasks; i += tiles) expand_task(graph, bfs, tile, load(tasks + i), level);
            block.sync();
            i64 next = load(bfs.count(w_list, level + 1));
            for (i64 i = block.rank(); i < next; i += block.size())
                bfs.settle(load(bfs.list(level + 1) + i), level + 1);
            block.sync();
        }
    }
};

struct Settle {  // one lane per listed vertex: counts the searches that reached it for the first time
    static constexpr int lanes = 1;
    BitParallelLists bfs;
    i64 level;
    i64 count;
    i64* fresh;
    DEVICE void operator()(Grid grid) const {
        i64 found = 0;
        for (i64 i : grid.items(count)) {
            u64 bits = bfs.settle(load(bfs.list(level) + i), level);
            found += popcount((u32)bits) + popcount((u32)(bits >> 32));
        }
        Tile<32> tile;
        found = tile.sum(found);
        if (tile.rank() == 0 && found) atomic_add(fresh, found);
    }
};

struct Emit {  // one lane per listed vertex: one row per search that reached it in this level, in any order
    static constexpr int lanes = 1;
    BitParallelLists bfs;
    i64 level;
    i64 count;
    i64* next;
    i64* vertex;
    u8* search;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(count)) {
            i64 row = bfs.list(level)[i];
            for (u64 rest = bfs.now[row]; rest; rest &= rest - 1) {
                i64 at = take_place(next);
                vertex[at] = bfs.first + row, search[at] = (u8)lowest_search(rest);
            }
        }
    }
};

struct Begin {  // one lane per source: it begins its own search
    static constexpr int lanes = 1;
    BitParallelLists bfs;
    const u32* sources;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            i64 row = (i64)sources[i] - bfs.first;
            if (row >= 0 && row < bfs.n) bfs.come(sources[i], (u64)1 << i, 0);
        }
    }
};

struct PackSearches {  // one lane per vertex of the list for an owner: its id, and the searches that reached it
    static constexpr int lanes = 1;
    BitParallelLists bfs;
    const u32* list;
    i64 n;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 id = list[i];
            words[2 * i] = id, words[2 * i + 1] = bfs.coming[id];
            bfs.seen[id] |= bfs.coming[id];
            bfs.coming[id] = 0;
        }
    }
};

struct ReceiveSearches {  // one lane per vertex that another rank has sent
    static constexpr int lanes = 1;
    BitParallelLists bfs;
    const u64* words;
    i64 n;
    i64 level;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) bfs.come((u32)words[2 * i], words[2 * i + 1], level);
    }
};
