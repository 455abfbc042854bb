// Shortest paths by a near and a far list. Lengths only fall, by atomics. A vertex whose length fell is listed again:
// near if it is below the limit, else far; a vertex of another rank, in the list for its owner. Rows of near vertices
// are read until there are none. Then the limit rises, and far vertices below it become near. This rank owns the n
// vertices from `first` on.
#pragma once
#include "algorithms/near_far/lengths.cuh"
#include "kernels/append.cuh"
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"
#include "kernels/search.cuh"

// The words of `state`. Near lists, their marks and the hubs' tasks are those of even and odd turns; far lists alike.
enum State {
    s_turn,
    s_far_turn,
    s_limit,
    s_least,
    s_near,
    s_far = s_near + 2,
    s_tasks = s_far + 2,
    s_edges = s_tasks + 2,
    s_out
};

DEVICE bool mark(u32* bits, i64 v) {
    return !get_bit(bits, v) && !(atomic_or(bits + v / word_bits, bit_of(v)) & bit_of(v));
}
DEVICE void unmark(u32* bits, i64 v) { atomic_and(bits + v / word_bits, ~bit_of(v)); }

struct Search {
    Word* length;  // of the shortest path that is known here to each vertex of the graph
    i64 first;
    i64 n;
    u32* lists;  // own rows: two near lists, two far lists, of n each
    u32* marks;  // bitmaps of own rows: who is in which near list
    u32* held;   // a bitmap of all vertices: own ones in the far list, others in the list for their owner
    const i64* starts;  // the first vertex of each owner's range
    const i64* places;  // the first place of each owner in `out`
    i64 owners;
    u32* out;
    i64* state;
    DEVICE u32* near(i64 turn) const { return lists + (turn & 1) * n; }
    DEVICE u32* far(i64 turn) const { return lists + (2 + (turn & 1)) * n; }
    DEVICE u32* marked(i64 turn) const { return marks + (turn & 1) * (words_of(n) + 1); }
    DEVICE i64* count(int which, i64 turn) const { return state + which + (turn & 1); }
    DEVICE Appender to_near(i64 turn) const { return {near(turn), count(s_near, turn)}; }
    DEVICE Appender to_far(i64 turn) const { return {far(turn), count(s_far, turn)}; }
    DEVICE void to_owner(u32 id) const {
        if (!mark(held, id)) return;
        i64 owner = upper_bound(starts, 0, owners + 1, (i64)id) - 1;
        store(out + places[owner] + take_place(state + s_out + owner), id);
    }
    // The row at a place of the near list, which is no longer marked: every row of a word of marks is in this list.
    DEVICE i64 take(i64 at, i64 turn) const {
        u32 row = load(near(turn) + at);
        store(marked(turn) + row / word_bits, 0u);
        return row;
    }
};

// What a lane finds in a turn: vertices that are near in the next one, and far ones.
struct Finds {
    const Search& s;
    Appender near, far;
    u32* marked;
    DEVICE Finds(const Search& s, i64 turn, i64 far_turn)
        : s(s), near(s.to_near(turn)), far(s.to_far(far_turn)), marked(s.marked(turn)) {}
    DEVICE void add_near(u32 row) {
        if (mark(marked, row)) near.add(row);
    }
    // A path to `id`.
    DEVICE void add(u32 id, Word word, u64 limit) {
        if (!(word < glance(s.length + id)) || !(word < atomic_min(s.length + id, word))) return;
        i64 row = (i64)id - s.first;
        if (row < 0 || row >= s.n) s.to_owner(id);
        else if (word < limit) add_near((u32)row);
        else if (mark(s.held, id)) far.add((u32)row);
    }
};

template <class View, class Tile>
DEVICE void follow(const View& graph, const Search& s, Tile tile, i64 row, i64 unit, u64 limit, Finds& finds) {
    Word length = load(s.length + s.first + row);
    graph.visit(tile, row, unit, [&](u32 id, i64 slot, bool live) {
        if (live) finds.add(id, longer(length, graph.weight(slot)), limit);
        return false;
    });
}

// A tile follows the edges of a near vertex each lane; hubs become tasks. Returns how many edges the lane's vertex has.
template <class View, class Tile32>
DEVICE i64 follow_near(const View& graph, const Search& s, Tile32 tile, i64 base, i64 count, i64 turn, u64 limit,
                       Finds& finds, u64* tasks, bool last = true) {
    i64 at = base + tile.rank(), row = at < count ? (last ? s.take(at, turn) : (i64)load(s.near(turn) + at)) : -1;
    visit_rows(graph, tile, row, tasks, s.count(s_tasks, turn),
               [&](auto group, i64 its, i64 unit) { follow(graph, s, group, its, unit, limit, finds); });
    return row < 0 ? 0 : (i64)graph.degree(row);
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
DEVICE void begin_turn(const Search& s, i64 turn) {  // by one lane, when all know how many are near
    store(s.count(s_near, turn), (i64)0);
    store(s.count(s_tasks, turn + 1), (i64)0);
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
        i64 n_tasks = load(search.count(s_tasks, turn));
        for (i64 i : grid.items(tile, n_tasks)) follow_task(graph, search, tile, tasks[i], limit, finds);
    }
};

// Turn after turn without the host, while few vertices are near: a launch and a read-back would take longer than each.
// If the rank is alone, it raises the limit, too. It leaves when more than `most` are near or far, and after `turns`
// turns.
template <class View>
struct Settle {
    static constexpr int lanes = 32;
    static constexpr int stays = 1;
    View graph;
    Search search;
    i64 alone;
    i64 most;
    i64 turns;
    f64 delta;
    u64* tasks;
    u64* arrived;
    DEVICE void operator()(Grid grid) const {
        const Search& s = search;
        i64 turn = load(s.state + s_turn), far_turn = load(s.state + s_far_turn), last = turn + turns;
        u64 limit = (u64)load(s.state + s_limit), goal = 0;
        while (turn < last) {
            i64 count = load(s.count(s_near, turn)), far = load(s.count(s_far, far_turn));
            grid.meet(arrived, goal);  // all have read them
            if (count > most || (count == 0 && (!alone || far == 0 || far > most))) break;
            if (count) take_turn(grid, goal, count, turn++, far_turn, limit);
            else rise(grid, goal, far, turn, far_turn++, limit);
        }
        for (i64 one : grid.items(1)) {
            store(s.state + s_turn + one, turn);
            end_rise(s, far_turn, limit);
        }
    }
    DEVICE void take_turn(Grid grid, u64& goal, i64 count, i64 turn, i64 far_turn, u64 limit) const {
        Tile<lanes> tile;
        i64 edges = 0, few = rows_at_once(grid, tile, count);
        for ([[maybe_unused]] i64 one : grid.items(1)) begin_turn(search, turn);
        {
            Finds finds(search, turn + 1, far_turn);
            for (i64 i : grid.items(tile, (count + few - 1) / few)) {
                i64 end = lesser(count, (i + 1) * few);
                edges += follow_near(graph, search, tile, i * few, end, turn, limit, finds, tasks);
            }
        }
        count_edges(search, tile, edges);
        grid.meet(arrived, goal);
        i64 n_tasks = load(search.count(s_tasks, turn));
        if (n_tasks == 0) return;
        {
            Finds finds(search, turn + 1, far_turn);
            for (i64 i : grid.items(tile, n_tasks)) follow_task(graph, search, tile, load(tasks + i), limit, finds);
        }
        grid.meet(arrived, goal);
    }
    DEVICE void rise(Grid grid, u64& goal, i64 far, i64 turn, i64 far_turn, u64& limit) const {
        const Search& s = search;
        for (i64 i : grid.items(far)) note_least(s, i, far_turn, limit);
        grid.meet(arrived, goal);
        u64 least = (u64)load(s.state + s_least), next = least == ~(u64)0 ? limit : next_limit((Word)least, delta);
        grid.meet(arrived, goal);  // all have read it
        divide(grid, s, far, turn, far_turn, limit, next);
        for (i64 one : grid.items(1)) {
            store(s.count(s_far, far_turn) + one, (i64)0);
            store(s.state + s_least + one, ~(i64)0);
        }
        grid.meet(arrived, goal);
        limit = next;
    }
    DEVICE static void end_rise(const Search& s, i64 far_turn, u64 limit) {
        store(s.state + s_far_turn, far_turn), store(s.state + s_limit, (i64)limit), store(s.state + s_least, ~(i64)0);
    }
    DEVICE static void note_least(const Search& s, i64 at, i64 far_turn, u64 limit) {
        u64 word = load(s.length + s.first + load(s.far(far_turn) + at));
        if (word >= limit && word < (u64)load(s.state + s_least)) atomic_min((u64*)s.state + s_least, word);
    }
    // A far vertex below the old limit was near in the meantime; one below the new limit is near now.
    DEVICE static void divide(Grid grid, const Search& s, i64 far, i64 turn, i64 far_turn, u64 old, u64 limit) {
        Finds finds(s, turn, far_turn + 1);
        for (i64 i : grid.items(far)) {
            u32 row = load(s.far(far_turn) + i);
            u64 word = load(s.length + s.first + row);
            if (word >= limit) {
                finds.far.add(row);
                continue;
            }
            unmark(s.held, s.first + row);
            if (word >= old) finds.add_near(row);
        }
    }
};

template <class View>
struct FarLeast {  // one lane a far vertex: the least length from the limit on
    static constexpr int lanes = 1;
    View graph;
    Search search;
    i64 far_turn;
    i64 count;
    u64 limit;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(count)) Settle<View>::note_least(search, i, far_turn, limit);
    }
};

template <class View>
struct Divide {  // one lane a far vertex: which are near from now on
    static constexpr int lanes = 1;
    View graph;
    Search search;
    i64 turn;
    i64 far_turn;
    i64 count;
    u64 old;
    u64 limit;
    DEVICE void operator()(Grid grid) const {
        for (i64 one : grid.items(1)) {
            store(search.count(s_far, far_turn), one);
            Settle<View>::end_rise(search, far_turn + 1, limit);
        }
        Settle<View>::divide(grid, search, count, turn, far_turn, old, limit);
    }
};

struct Begin {  // one lane a source: its length, on every rank, and its owner's near list
    static constexpr int lanes = 1;
    Search search;
    const u32* sources;
    const u64* words;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        Finds finds(search, 0, 0);
        for (i64 i : grid.items(n)) {
            i64 row = (i64)sources[i] - search.first;
            atomic_min(search.length + sources[i], (Word)words[i]);
            if (row >= 0 && row < search.n) finds.add_near((u32)row);
        }
    }
};

struct PackOut {  // one lane a vertex of the list for an owner: its id and length in one word, or in two
    static constexpr int lanes = 1;
    Search search;
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

struct TakeIn {  // one lane a vertex that another rank has sent
    static constexpr int lanes = 1;
    Search search;
    const u64* words;
    i64 n;
    i64 turn;
    i64 far_turn;
    u64 limit;
    DEVICE void operator()(Grid grid) const {
        Finds finds(search, turn, far_turn);
        for (i64 i : grid.items(n)) {
            u64 id = LENGTHS == 32 ? words[i] >> 32 : words[2 * i];
            u64 length = LENGTHS == 32 ? words[i] & 0xffffffffu : words[2 * i + 1];
            finds.add((u32)id, (Word)length, limit);
        }
    }
};
