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

// The words of `state`. Near lists and their marks are those of even and odd turns; far lists alike. Three counters of
// near vertices, and three of hubs' tasks, are used in turn: while one is read, one is added to and one is cleared.
enum State {
    s_turn,
    s_far_turn,
    s_limit,
    s_least,
    s_near = s_least + 2,
    s_far = s_near + 3,
    s_tasks = s_far + 2,
    s_edges = s_tasks + 3,
    s_idle,
    s_out = s_idle + 2
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
    DEVICE i64* near_count(i64 turn) const { return state + s_near + turn % 3; }
    DEVICE i64* far_count(i64 turn) const { return state + s_far + (turn & 1); }
    DEVICE i64* task_count(i64 turn) const { return state + s_tasks + turn % 3; }
    DEVICE i64* idle(i64 turn) const { return state + s_idle + (turn & 1); }
    DEVICE u64* least(i64 far_turn) const { return (u64*)state + s_least + (far_turn & 1); }
    DEVICE Appender to_near(i64 turn) const { return {near(turn), near_count(turn)}; }
    DEVICE Appender to_far(i64 turn) const { return {far(turn), far_count(turn)}; }
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
    // A path to `id`: whether it is an own vertex that is near now. Others are listed.
    DEVICE bool takes(u32 id, Word word, u64 limit) {
        if (!(word < glance(s.length + id)) || !(word < atomic_min(s.length + id, word))) return false;
        i64 row = (i64)id - s.first;
        if (row < 0 || row >= s.n) s.to_owner(id);
        else if (word < limit) return true;
        else if (mark(s.held, id)) far.add((u32)row);
        return false;
    }
    DEVICE void add(u32 id, Word word, u64 limit) {
        if (takes(id, word, limit)) add_near((u32)((i64)id - s.first));
    }
};

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
            Finds finds(search, turn + 1, far_turn);
            for (i64 i : grid.items(tile, (count + few - 1) / few)) {
                i64 end = lesser(count, (i + 1) * few);
                if constexpr (tile.size() > 1)
                    if (few <= narrow) {
                        edges += follow_few(graph, search, tile, i * few, end, turn, limit, finds, tasks);
                        continue;
                    }
                edges += follow_near(graph, search, tile, i * few, end, turn, limit, finds, tasks);
            }
        }
        grid.meet(arrived, goal);
        i64 n_tasks = load(search.task_count(turn));
        if (n_tasks == 0) return edges;
        {
            Finds finds(search, turn + 1, far_turn);
            for (i64 i : grid.items(tile, n_tasks)) follow_task(graph, search, tile, load(tasks + i), limit, finds);
        }
        grid.meet(arrived, goal);
        return edges;
    }
    DEVICE void rise(Grid grid, u64& goal, i64 far, i64 turn, i64 far_turn, u64& limit) const {
        const Search& s = search;
        for ([[maybe_unused]] i64 one : grid.items(1)) store(s.least(far_turn + 1), ~(u64)0);
        for (i64 i : grid.items(far)) note_least(s, i, far_turn, limit);
        grid.meet(arrived, goal);
        u64 least = load(s.least(far_turn)), next = least == ~(u64)0 ? limit : next_limit((Word)least, delta);
        divide(grid, s, far, turn, far_turn, limit, next);
        for (i64 one : grid.items(1)) store(s.far_count(far_turn) + one, (i64)0);
        grid.meet(arrived, goal);
        limit = next;
    }
    DEVICE static void end_rise(const Search& s, i64 far_turn, u64 limit) {
        store(s.state + s_far_turn, far_turn), store(s.state + s_limit, (i64)limit);
        store(s.least(0), ~(u64)0), store(s.least(1), ~(u64)0);
    }
    DEVICE static void note_least(const Search& s, i64 at, i64 far_turn, u64 limit) {
        u64 word = load(s.length + s.first + load(s.far(far_turn) + at));
        if (word >= limit && word < load(s.least(far_turn))) atomic_min(s.least(far_turn), word);
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

// From many places at once, each of which changes few vertices around it: every block takes some near vertices, and goes
// on from there by itself, with lists of its own. It takes those first whose lengths have grown least, or fallen most,
// since `before`: along the shortest paths of then, all change by as much, whatever their lengths. How many it takes at a
// time follows from how many lanes it has. Where a block has much to do while most have nothing, all lists are dealt out
// again, as after `steps` steps. It leaves when nothing is near, and after `turns` turns.
template <class View>
struct Spread {
    static constexpr int lanes = 32;
    static constexpr int stays = 1;
    static constexpr i64 room = LENGTHS == 32 ? 1024 : 768;  // of each of a block's lists
    static constexpr i64 much = 128;
    View graph;
    Search search;
    const Word* before;
    i64 turns;
    i64 steps;
    f64 window;  // of changes that are taken together at first
    u64* tasks;
    u64* arrived;
    struct Own {  // a block's lists in memory that its lanes share: those of even and odd steps, and what is followed
        u32* rows;
        Word* words;
        f32* changes;
        u32* chosen;
        u32* counts;  // of three steps in rotation: how many are listed, how many chosen; whether to stop
        u32* least;
        DEVICE u32* count(i64 step) const { return counts + step % 3; }
        DEVICE u32* chosen_count(i64 step) const { return counts + 3 + step % 3; }
        DEVICE u32* stop() const { return counts + 6; }
        DEVICE i64 place(i64 step, i64 at) const { return (step & 1) * room + at; }
        DEVICE i64 size(i64 step) const { return lesser((i64)load(count(step)), room); }
    };
    // Words in the order of floats, and back.
    DEVICE static u32 ordered(f32 change) {
        u32 bits = bits_of(change);
        return bits >> 31 ? ~bits : bits | 1u << 31;
    }
    DEVICE static f32 change_of(u32 order) { return float_of(order >> 31 ? order & ~(1u << 31) : ~order); }
    DEVICE static f32 value(Word word) {
        if (hops) return (f32)((u64)word >> 32);
        return LENGTHS == 32 ? float_of((u32)word) : (f32)float_of((u64)word);
    }
    // By how much a length differs from before; as that of what led here if there was none.
    DEVICE f32 change(Word now, Word then, f32 here) const {
        f32 by = LENGTHS == 64 ? (f32)(float_of((u64)now) - float_of((u64)then)) : value(now) - value(then);
        return by - by == 0 ? by : here;
    }
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, rows, 2 * room);
        SHARED(Word, words, 2 * room);
        SHARED(f32, changes, 2 * room);
        SHARED(u32, chosen, room);
        SHARED(u32, counts, 8);
        SHARED(u32, least, 4);
        const Own own{rows, words, changes, chosen, counts, least};
        const Search& s = search;
        Tile<lanes> tile;
        u64 goal = 0;
        i64 turn = load(s.state + s_turn), far_turn = load(s.state + s_far_turn), last = turn + turns, edges = 0;
        grid.meet(arrived, goal);  // all have read them
        for (; turn < last; ++turn) {
            i64 count = load(s.near_count(turn));
            if (count == 0) break;
            i64 blocks = grid.items(Block{}, count).step, part = (count + blocks - 1) / blocks;
            for (i64 one : grid.items(1)) begin_turn(s, turn + one), store(s.idle(turn + 1), (i64)0);
            {
                Finds finds(s, turn + 1, far_turn);
                part = greater(lesser(part, room / 2), (i64)1);
                for (i64 i : grid.items(Block{}, (count + part - 1) / part))
                    edges += spread(own, i * part, lesser(count, (i + 1) * part), turn, blocks, finds);
                if (Block{}.rank() == 0) atomic_add(s.idle(turn), (i64)1);
            }
            grid.meet(arrived, goal);
            i64 n_tasks = load(s.task_count(turn));
            if (n_tasks == 0) continue;
            {
                Finds finds(s, turn + 1, far_turn);
                for (i64 i : grid.items(tile, n_tasks)) follow_task(graph, s, tile, load(tasks + i), ~(u64)0, finds);
            }
            grid.meet(arrived, goal);
        }
        count_edges(s, tile, edges);
    }
    // A block goes on from the near vertices at the places begin .. end - 1; what is left is near in the next turn.
    DEVICE i64 spread(const Own& own, i64 begin, i64 end, i64 turn, i64 blocks, Finds& finds) const {
        Block block;
        Tile<lanes> tile;
        i64 edges = 0, step = 0, groups = block.size() / Tile<narrow>::size();
        f32 width = (f32)window;
        take_rows(own, begin, end, turn, finds);
        for (; step < steps; ++step) {
            i64 n = own.size(step);
            if (n == 0 || load(own.stop())) break;
            f32 limit = change_of(load(own.least + step % 3)) + width;
            u32 least = ~0u;
            i64 all_idle = block.rank() == 0 && n > much ? load(search.idle(turn)) : 0;
            if (block.rank() == 0) {
                store(own.count(step + 2), 0u), store(own.chosen_count(step + 1), 0u);
                store(own.least + (step + 2) % 3, ~0u);
            }
            for (i64 i = block.rank(); i < n; i += block.size()) {
                i64 at = own.place(step, i);
                f32 by = load(own.changes + at);
                if (by <= limit) store(own.chosen + atomic_add(own.chosen_count(step), 1u), (u32)at);
                else list(own, step + 1, load(own.rows + at), load(own.words + at), by, least, finds);
            }
            block.sync();
            i64 n_chosen = load(own.chosen_count(step));
            visit_in_block(
                graph, n_chosen, [&](i64 i) { return load(own.rows + load(own.chosen + i)); },
                [&](auto group, i64 i) {
                    i64 at = load(own.chosen + i);
                    edges += go_on(own, group, at, step, least, finds);
                });
            least = ~tile.most(~least);
            if (tile.rank() == 0 && least != ~0u) atomic_min(own.least + (step + 1) % 3, least);
            if (block.rank() == 0 && 2 * all_idle > blocks) store(own.stop(), 1u);
            if (n_chosen < n && n_chosen < groups) width *= 2;
            if (n_chosen > 2 * groups) width /= 2;
            block.sync();
        }
        for (i64 i = block.rank(), n = own.size(step); i < n; i += block.size())
            finds.add_near(load(own.rows + own.place(step, i)));
        block.sync();
        return edges;
    }
    DEVICE void take_rows(const Own& own, i64 begin, i64 end, i64 turn, Finds& finds) const {
        Block block;
        Tile<lanes> tile;
        if (block.rank() == 0) {
            for (i64 i = 0; i < 8; ++i) store(own.counts + i, 0u);
            for (i64 i = 0; i < 3; ++i) store(own.least + i, ~0u);
        }
        block.sync();
        u32 least = ~0u;
        for (i64 at = begin + block.rank(); at < end; at += block.size()) {
            i64 row = search.take(at, turn);
            Word word = load(search.length + search.first + row);
            if ((i64)graph.degree(row) > HUB_DEGREE) add_tasks(graph, row, tasks, search.task_count(turn));
            else list(own, 0, (u32)row, word, change(word, before[search.first + row], 0), least, finds);
        }
        least = ~tile.most(~least);
        if (tile.rank() == 0 && least != ~0u) atomic_min(own.least, least);
        block.sync();
    }
    DEVICE void list(const Own& own, i64 step, u32 row, Word word, f32 by, u32& least, Finds& finds) const {
        i64 n = atomic_add(own.count(step), 1u);
        if (n >= room) return finds.add_near(row);
        i64 at = own.place(step, n);
        store(own.rows + at, row), store(own.words + at, word), store(own.changes + at, by);
        least = lesser(least, ordered(by));
    }
    // A group follows the edges of a row, unless a shorter path to it was listed since. A lane holds an
    // edge until it has the next, so that nothing waits for its loads.
    template <class Group>
    DEVICE i64 go_on(const Own& own, Group group, i64 at, i64 step, u32& least, Finds& finds) const {
        u32 row = load(own.rows + at);
        Word word = load(own.words + at);
        f32 by = load(own.changes + at);
        i64 units = graph.units(row), edges = 0, id = -1, begin = 0;
        Word now = load(search.length + search.first + row), then = 0;
        f32 weight = 0;
        auto take = [&] {  // the edge that is held
            Word next = longer(word, weight);
            if (now < word || !(next < atomic_min(search.length + id, next))) return;
            fetch_from(graph, begin);
            list(own, step + 1, (u32)(id - search.first), next, change(next, then, by), least, finds);
        };
        if (units > 1) {
            if (now < word) return 0;
            if ((i64)graph.degree(row) > HUB_DEGREE) {
                if (group.rank() == 0) finds.add_near(row);
                return 0;
            }
        }
        for (i64 unit = 0; unit < units; ++unit)
            graph.visit(group, row, unit, [&](u32 found, i64 slot, bool live) {
                if (!live) return false;
                ++edges;
                if (id >= 0) take();
                id = found, weight = graph.weight(slot), then = before[id], begin = begin_of(graph, id - search.first);
                return false;
            });
        if (id >= 0) take();
        return edges;
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
            store(search.far_count(far_turn), one);
            Settle<View>::end_rise(search, far_turn + 1, limit);
        }
        Settle<View>::divide(grid, search, count, turn, far_turn, old, limit);
    }
};

struct Begin {  // one lane a source: its length, on every rank, and its owner's near list
    static constexpr int lanes = 1;
    Search search;
    u64 limit;
    const u32* sources;
    const u64* words;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 one : grid.items(1)) {
            store((u64*)search.state + s_limit + one, limit);
            store(search.least(0), ~(u64)0), store(search.least(1), ~(u64)0);
        }
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
