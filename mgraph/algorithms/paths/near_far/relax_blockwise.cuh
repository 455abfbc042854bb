// Relaxation from many places at once, on a single rank, which owns all vertices.
#pragma once
#include "algorithms/paths/near_far/relax.cuh"

// The words of `state`. Near lists and their marks are those of even and odd turns. Three counters of near vertices, and
// three of hubs' tasks, are used in turn: while one is read, one is added to and one is cleared.
enum State { s_turn, s_near, s_tasks = s_near + 3, s_idle = s_tasks + 3, s_edges = s_idle + 2 };

struct NearLists {
    Word* length;  // per vertex: of the shortest path that is known
    i64 n;
    u32* lists;  // two near lists
    u32* marks;  // bitmaps of the members of each
    i64* state;
    DEVICE u32* near(i64 turn) const { return lists + (turn & 1) * n; }
    DEVICE u32* marked(i64 turn) const { return marks + (turn & 1) * (words_of(n) + 1); }
    DEVICE i64* near_count(i64 turn) const { return state + s_near + turn % 3; }
    DEVICE i64* task_count(i64 turn) const { return state + s_tasks + turn % 3; }
    DEVICE i64* idle(i64 turn) const { return state + s_idle + (turn & 1); }
    // The vertex at a place of the near list, which is no longer marked: every vertex of a word of marks is in this list.
    DEVICE i64 take(i64 at, i64 turn) const {
        u32 v = load(near(turn) + at);
        store(marked(turn) + v / word_bits, 0u);
        return v;
    }
    DEVICE void begin_turn(i64 turn) const {  // by one lane
        store(near_count(turn + 2), (i64)0), store(task_count(turn + 1), (i64)0);
        store(idle(turn + 1), (i64)0);
        store(state + s_turn, turn + 1);
    }
};

struct Relaxation {  // vertices that a lane finds in a turn, which are near in the next one
    const NearLists& s;
    BufferedAppender near;
    u32* marked;
    DEVICE Relaxation(const NearLists& s, i64 turn)
        : s(s), near(s.near(turn), s.near_count(turn)), marked(s.marked(turn)) {}
    DEVICE i64 first() const { return 0; }
    DEVICE Word length(i64 v) const { return load(s.length + v); }
    DEVICE void add_near(u32 v) {
        if (mark(marked, v)) near.add(v);
    }
    DEVICE bool takes(u32 v, Word word, u64) {  // true if the path to v is the shortest yet
        return word < stale_load(s.length + v) && word < atomic_min(s.length + v, word);
    }
};

struct BeginBlockwise {  // one lane per source: its length, and the near list
    static constexpr int lanes = 1;
    NearLists search;
    const u32* sources;
    const u64* words;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        Relaxation relaxation(search, 0);
        for (i64 i : grid.items(n)) {
            atomic_min(search.length + sources[i], (Word)words[i]);
            relaxation.add_near(sources[i]);
        }
    }
};

// For many places that each change few vertices around them: each block takes some near vertices, and continues from
// there independently, with its own lists, whatever the order of lengths. If a block has much to do while most are
// idle, all lists are dealt out again, as after `steps` steps. It leaves when no vertex is near, and after `turns`
// turns.
template <class View>
struct RelaxBlockwise {
    static constexpr int lanes = 32;
    static constexpr int persistent = 1;
    static constexpr u32 room = 1024;  // of each of a block's lists
    static constexpr u32 nobody_held = ~(u32)0;
    static constexpr i64 much = 128;
    View graph;
    NearLists search;
    i64 turns;
    i64 steps;
    u64* tasks;
    u64* arrived;
    struct Own {  // a block's two lists in memory that its lanes share, one of which is read while the other is made
        u32* rows;
        Word* words;
        u32* counts;  // of three steps in rotation: list sizes; of even and odd steps: 1 to stop
        DEVICE u32* stop(u32 side) const { return counts + 3 + side; }
    };
    struct List {
        u32* rows;
        Word* words;
        u32* count;
        DEVICE List(const Own& own, u32 side, u32 at)
            : rows(own.rows + side * room), words(own.words + side * room), count(own.counts + at) {}
        DEVICE int size() const { return lesser((int)load(count), (int)room); }
    };
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, rows, 2 * room);
        SHARED(Word, words, 2 * room);
        SHARED(u32, counts, 5);
        const Own own{rows, words, counts};
        const NearLists& s = search;
        Tile<lanes> tile;
        u64 goal = 0;
        i64 turn = load(s.state + s_turn), last = turn + turns, edges = 0;
        grid.meet(arrived, goal);  // all have read them
        for (; turn < last; ++turn) {
            i64 count = load(s.near_count(turn));
            if (count == 0) break;
            i64 blocks = grid.items(Block{}, count).step, part = (count + blocks - 1) / blocks;
            for (i64 one : grid.items(1)) s.begin_turn(turn + one);
            {
                Relaxation relaxation(s, turn + 1);
                part = greater(lesser(part, (i64)room / 2), (i64)1);
                for (i64 i : grid.items(Block{}, (count + part - 1) / part))
                    edges += relax_blockwise(own, i * part, lesser(count, (i + 1) * part), turn, blocks, relaxation);
                if (Block{}.rank() == 0) atomic_add(s.idle(turn), (i64)1);
            }
            grid.meet(arrived, goal);
            i64 n_tasks = load(s.task_count(turn));
            if (n_tasks == 0) continue;
            {
                Relaxation relaxation(s, turn + 1);
                for (i64 i : grid.items(tile, n_tasks)) relax_task(graph, tile, load(tasks + i), ~(u64)0, relaxation);
            }
            grid.meet(arrived, goal);
        }
        edges = tile.sum(edges);
        if (tile.rank() == 0 && edges) atomic_add(s.state + s_edges, edges);
    }
    // A block continues from the near vertices at begin .. end - 1; those that are left are near in the next turn.
    DEVICE i64 relax_blockwise(const Own& own, i64 begin, i64 end, i64 turn, i64 blocks, Relaxation& relaxation) const {
        Block block;
        i64 edges = 0;
        u32 side = 0, at = 0;
        take_rows(own, begin, end, turn);
        for (i64 left = steps; left; --left) {
            const u32 next = at == 2 ? 0 : at + 1;
            const List list(own, side, at), onward(own, 1 - side, next);
            int n = list.size();
            if (n == 0 || load(own.stop(side))) break;
            i64 all_idle = block.rank() == 0 && n > much ? load(search.idle(turn)) : 0;
            if (block.rank() == 0) store(own.counts + (next == 2 ? 0 : next + 1), 0u);
            visit_in_block(
                graph, n, [&](int i) { return load(list.rows + i); },
                [&](auto group, int i, u32 row, int units) {
                    edges += go_on(onward, group, row, load(list.words + i), units, relaxation);
                });
            if (block.rank() == 0 && 2 * all_idle > blocks) store(own.stop(1 - side), 1u);
            block.sync();
            side = 1 - side, at = next;
        }
        const List list(own, side, at);
        for (int i = block.rank(), n = list.size(); i < n; i += block.size()) relaxation.add_near(load(list.rows + i));
        block.sync();
        return edges;
    }
    DEVICE void take_rows(const Own& own, i64 begin, i64 end, i64 turn) const {
        Block block;
        const List list(own, 0, 0);
        if (block.rank() == 0)
            for (i64 i = 0; i < 5; ++i) store(own.counts + i, 0u);
        block.sync();
        for (i64 at = begin + block.rank(); at < end; at += block.size()) {
            i64 row = search.take(at, turn);
            if ((i64)graph.degree(row) > HUB_DEGREE) {
                add_tasks(graph, row, tasks, search.task_count(turn));
                continue;
            }
            u32 to = atomic_add(list.count, 1u);  // there is room for all
            store(list.rows + to, (u32)row), store(list.words + to, load(search.length + row));
        }
        block.sync();
    }
    // A group follows the edges of a row, unless a shorter path to it was found since. A lane holds an edge until it
    // has the next, so that nothing waits for its loads; nor for the atomic, without whose answer a vertex may be
    // listed twice.
    template <class Group>
    DEVICE i64 go_on(const List& onward, Group group, u32 row, Word word, int units, Relaxation& relaxation) const {
        Word now = load(search.length + row), shortest = 0;
        i64 edges = 0, begin = 0;
        u32 id = nobody_held;
        f32 weight = 0;
        auto take = [&] {  // the edge that is held
            Word next = longer(word, weight);
            if (now < word || !(next < shortest)) return;
            atomic_min(search.length + id, next);
            fetch_from(graph, begin);
            list(onward, id, next, relaxation);
        };
        if (units > 1) {
            if (now < word) return 0;
            if ((i64)graph.degree(row) > HUB_DEGREE) {
                if (group.rank() == 0) relaxation.add_near(row);
                return 0;
            }
        }
        for (int unit = 0; unit < units; ++unit)
            graph.visit(group, row, unit, [&](u32 found, i64 slot, bool live) {
                if (!live) return false;
                ++edges;
                if (id != nobody_held) take();
                id = found, weight = graph.weight(slot), shortest = load(search.length + id);
                begin = begin_of(graph, id);
                return false;
            });
        if (id != nobody_held) take();
        return edges;
    }
    DEVICE void list(const List& onward, u32 row, Word word, Relaxation& relaxation) const {
        u32 n = atomic_add(onward.count, 1u);
        if (n >= room) return relaxation.add_near(row);
        store(onward.rows + n, row), store(onward.words + n, word);
    }
};
