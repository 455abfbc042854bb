// A search that goes on from many places at once.
#pragma once
#include "algorithms/near_far/follow.cuh"

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
    // edge until it has the next, so that nothing waits for its loads; nor for the atomic, without whose answer a vertex
    // may be listed twice.
    template <class Group>
    DEVICE i64 go_on(const Own& own, Group group, i64 at, i64 step, u32& least, Finds& finds) const {
        u32 row = load(own.rows + at);
        Word word = load(own.words + at);
        f32 by = load(own.changes + at);
        i64 units = graph.units(row), edges = 0, id = -1, begin = 0;
        Word now = load(search.length + search.first + row), then = 0, shortest = 0;
        f32 weight = 0;
        auto take = [&] {  // the edge that is held
            Word next = longer(word, weight);
            if (now < word || !(next < shortest)) return;
            atomic_min(search.length + id, next);
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
                id = found, weight = graph.weight(slot), shortest = load(search.length + id), then = before[id];
                begin = begin_of(graph, id - search.first);
                return false;
            });
        if (id >= 0) take();
        return edges;
    }
};
