// A search that goes on from many places at once.
#pragma once
#include "algorithms/near_far/follow.cuh"

// From many places at once, each of which changes few vertices around it: every block takes some near vertices, and goes
// on from there by itself, with lists of its own, whatever the order of lengths. Where a block has much to do while most
// have nothing, all lists are dealt out again, as after `steps` steps. It leaves when nothing is near, and after `turns`
// turns.
template <class View>
struct Spread {
    static constexpr int lanes = 32;
    static constexpr int stays = 1;
    static constexpr i64 room = 1024;  // of each of a block's lists
    static constexpr i64 much = 128;
    View graph;
    Search search;
    i64 turns;
    i64 steps;
    u64* tasks;
    u64* arrived;
    struct Own {  // a block's lists in memory that its lanes share: those of even and odd steps
        u32* rows;
        Word* words;
        u32* counts;  // of three steps in rotation: how many are listed; whether to stop
        DEVICE u32* count(i64 step) const { return counts + step % 3; }
        DEVICE u32* stop() const { return counts + 3; }
        DEVICE i64 place(i64 step, i64 at) const { return (step & 1) * room + at; }
        DEVICE i64 size(i64 step) const { return lesser((i64)load(count(step)), room); }
    };
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, rows, 2 * room);
        SHARED(Word, words, 2 * room);
        SHARED(u32, counts, 4);
        const Own own{rows, words, counts};
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
        i64 edges = 0, step = 0;
        take_rows(own, begin, end, turn);
        for (; step < steps; ++step) {
            i64 n = own.size(step);
            if (n == 0 || load(own.stop())) break;
            i64 all_idle = block.rank() == 0 && n > much ? load(search.idle(turn)) : 0;
            if (block.rank() == 0) store(own.count(step + 2), 0u);
            visit_in_block(
                graph, n, [&](i64 i) { return (i64)load(own.rows + own.place(step, i)); },
                [&](auto group, i64 i) { edges += go_on(own, group, own.place(step, i), step + 1, finds); });
            if (block.rank() == 0 && 2 * all_idle > blocks) store(own.stop(), 1u);
            block.sync();
        }
        for (i64 i = block.rank(), n = own.size(step); i < n; i += block.size())
            finds.add_near(load(own.rows + own.place(step, i)));
        block.sync();
        return edges;
    }
    DEVICE void take_rows(const Own& own, i64 begin, i64 end, i64 turn) const {
        Block block;
        if (block.rank() == 0)
            for (i64 i = 0; i < 4; ++i) store(own.counts + i, 0u);
        block.sync();
        for (i64 at = begin + block.rank(); at < end; at += block.size()) {
            i64 row = search.take(at, turn);
            if ((i64)graph.degree(row) > HUB_DEGREE) {
                add_tasks(graph, row, tasks, search.task_count(turn));
                continue;
            }
            i64 to = own.place(0, atomic_add(own.count(0), 1u));  // there is room for all
            store(own.rows + to, (u32)row), store(own.words + to, load(search.length + search.first + row));
        }
        block.sync();
    }
    // A group follows the edges of a row, unless a shorter path to it is known since. A lane holds an edge until it has
    // the next, so that nothing waits for its loads; nor for the atomic, without whose answer a vertex may be listed twice.
    template <class Group> DEVICE i64 go_on(const Own& own, Group group, i64 at, i64 step, Finds& finds) const {
        u32 row = load(own.rows + at);
        Word word = load(own.words + at), now = load(search.length + search.first + row), shortest = 0;
        i64 units = graph.units(row), edges = 0, id = -1, begin = 0;
        f32 weight = 0;
        auto take = [&] {  // the edge that is held
            Word next = longer(word, weight);
            if (now < word || !(next < shortest)) return;
            atomic_min(search.length + id, next);
            fetch_from(graph, begin);
            list(own, step, (u32)(id - search.first), next, finds);
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
                id = found, weight = graph.weight(slot), shortest = load(search.length + id);
                begin = begin_of(graph, id - search.first);
                return false;
            });
        if (id >= 0) take();
        return edges;
    }
    DEVICE void list(const Own& own, i64 step, u32 row, Word word, Finds& finds) const {
        i64 n = atomic_add(own.count(step), 1u);
        if (n >= room) return finds.add_near(row);
        store(own.rows + own.place(step, n), row), store(own.words + own.place(step, n), word);
    }
};
