// Shortest paths by a near and a far list. Lengths only fall, by atomics. A vertex whose length fell is listed again:
// near if it is below the limit, else far; a vertex of another rank, in the list for its owner. Rows of near vertices
// are read until there are none. Then the limit rises, and far vertices below it become near. This rank owns the n
// vertices from `first` on.
#pragma once
#include "algorithms/paths/near_far/relax_persistent.cuh"
#include "algorithms/paths/near_far/relax_blockwise.cuh"

template <class View>
struct RelaxNear {  // one tile per 32 near vertices
    static constexpr int lanes = 32;
    View graph;
    NearFarLists search;
    i64 turn;
    i64 far_turn;
    i64 count;
    u64 limit;
    i64 last;  // 0 if their edges in another structure follow
    u64* tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Relaxation relaxation(search, turn + 1, far_turn);
        i64 edges = 0;
        for (i64 i : grid.items(tile, (count + tile.size() - 1) / tile.size())) {
            fetch_row(graph, i, count, [&](i64 next) { return (i64)load(search.near(turn) + next); });
            if (i == 0 && tile.rank() == 0 && last) begin_turn(search, turn);
            edges += relax_near(graph, search, tile, i * tile.size(), count, turn, limit, relaxation, tasks, last);
        }
        count_edges(search, tile, edges);
    }
};

template <class View>
struct RelaxHubs {  // one tile per task
    static constexpr int lanes = 32;
    View graph;
    NearFarLists search;
    i64 turn;
    i64 far_turn;
    u64 limit;
    const u64* tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Relaxation relaxation(search, turn + 1, far_turn);
        i64 n_tasks = load(search.task_count(turn));
        for (i64 i : grid.items(tile, n_tasks)) relax_task(graph, tile, tasks[i], limit, relaxation);
    }
};

struct BeginSearch {  // one lane per source: its length, on every rank, and its owner's near list
    static constexpr int lanes = 1;
    NearFarLists search;
    u64 limit;
    const u32* sources;
    const u64* words;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 one : grid.items(1)) {
            store((u64*)search.state + s_limit + one, limit);
            store(search.least(0), ~(u64)0), store(search.least(1), ~(u64)0);
        }
        Relaxation relaxation(search, 0, 0);
        for (i64 i : grid.items(n)) {
            i64 row = (i64)sources[i] - search.first;
            atomic_min(search.length + sources[i], (Word)words[i]);
            if (row >= 0 && row < search.n) relaxation.add_near((u32)row);
        }
    }
};

struct PackLengths {  // one lane per vertex of the list for an owner: its id and length in one word, or in two
    static constexpr int lanes = 1;
    NearFarLists search;
    const u32* list;
    i64 n;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u64 id = list[i], length = search.length[id];
            unmark(search.held, (i64)id);
            if (LENGTHS == 32) words[i] = id << 32 | length;
            else words[2 * i] = id, words[2 * i + 1] = length;
        }
    }
};

struct ReceiveLengths {  // one lane per vertex that another rank has sent
    static constexpr int lanes = 1;
    NearFarLists search;
    const u64* words;
    i64 n;
    i64 turn;
    i64 far_turn;
    u64 limit;
    DEVICE void operator()(Grid grid) const {
        Relaxation relaxation(search, turn, far_turn);
        for (i64 i : grid.items(n)) {
            u64 id = LENGTHS == 32 ? words[i] >> 32 : words[2 * i];
            u64 length = LENGTHS == 32 ? words[i] & 0xffffffffu : words[2 * i + 1];
            relaxation.add((u32)id, (Word)length, limit);
        }
    }
};
