// Bit-parallel breadth-first search by all ranks together: up to 64 searches, level by level. M. Then et al., "The more
// the merrier: efficient multi-source graph traversal", PVLDB 8(4), 2014.
//
// A level follows the edges of listed vertices, and lists the vertices that it reaches. Searches that reach a vertex of
// another rank are collected here, and sent after the level's expansion: one message per vertex and level, for all
// searches. If the messages of a level exceed the inboxes, they are sent in several parts.
//
// CPU ranks that map each other's memory have one array of each word, in the region of rank 0. Then a search is collected
// there, and a message of 8 bytes has only the vertex.
#pragma once
#include "algorithms/primitives/programs.cuh"

constexpr i64 searches = 64;  // bits of a word

DEVICE i64 lowest_search(u64 bits) { return bit_width(bits & (~bits + 1)) - 1; }

template <class View>
struct BitParallel {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    View graph;
    u64* coming;  // per vertex of the graph: the searches that reached it in this level
    u64* seen;  // per vertex of the graph: all searches that reached it; of other ranks: those sent
    u64* now;  // per own row: the searches that first reached it in the level before
    u32* lists;  // own rows: two lists in turn, or those of all levels of a single search
    i64* counts;  // of own rows in each level of this run, if all are kept; else null
    i32* distance;  // per search and own row; may be null
    u32* out;  // vertices of other ranks: each rank's list begins at the place of its first vertex
    i64* out_counts;  // per rank
    const u32* sources;
    i64 n_sources;
    u64* tasks;  // pieces of rows of high degree
    i64 level_before;  // the last level of the run before, which goes on here, or -1
    i64 first_before;  // own rows of the levels before that one
    i64 listed_before;  // and of that one
    i64 last_level;
    struct State {
        i64 phase = 0, level = 0;
        i64 first = 0, listed = 0, next_listed = 0;  // own rows of the levels before, of this one, and of the next
        i64 tasks = 0;
        i64 part = 0;  // of the level that is sent
        i64 inbox = 0;  // 1 if there are messages to read
        i64 found = 0;  // on all ranks, vertices listed last, and messages
        i64 pairs = 0;  // of an own vertex of this level, and a search that first reached it
    };
    enum Stage : i64 { finished, clear, seed, settling, expanding, hubs, sending, receiving };
    enum Number { LISTED, TASKS, FOUND, LEFT, PAIRS };

    DEVICE bool is_common() const { return world.message_bytes == sizeof(u64); }

    // Searches that reach a vertex of the next level.
    struct Arrivals {
        const BitParallel& bfs;
        const State& s;
        DEVICE void list(i64 row) const {
            store(bfs.next_list(s) + s.next_listed + take_place(bfs.world.number(LISTED)), (u32)row);
        }
        DEVICE void come(u32 id, u64 bits) const {
            bits &= ~load(bfs.seen + id);
            if ((bits & ~load(bfs.coming + id)) == 0 || atomic_or(bfs.coming + id, bits) != 0) return;
            i64 row = (i64)id - bfs.world.lo();
            if (row >= 0 && row < bfs.world.rows()) {
                list(row);
                return;
            }
            i64 owner = bfs.world.owner(id);
            store(bfs.out + bfs.world.start(owner) + take_place(bfs.out_counts + owner), id);
        }
    };

    DEVICE u32* list(const State& s) const { return lists + (counts ? s.first : (s.level & 1) * world.rows()); }
    DEVICE u32* next_list(const State& s) const {
        return lists + (counts ? s.first + s.listed : (~s.level & 1) * world.rows());
    }
    DEVICE void begin(State& s) const {
        s.phase = level_before < 0 ? clear : expanding;
        s.level = level_before, s.first = first_before, s.listed = listed_before;
    }
    DEVICE bool alone(const State& s) const {
        if constexpr (one_memory)
            if (is_common() && s.phase == settling) return false;
        return s.phase != sending;
    }
    DEVICE i64 shares(const State&) const { return -1; }
    DEVICE i64 items(const State& s, const Heard& heard) const {
        switch (s.phase) {
        case clear: return world.vertices();
        case seed: return n_sources;
        case hubs: return s.tasks * 256;
        case sending: return world.size;
        case receiving: return received(heard, s.inbox);
        default: return s.listed / 16;  // a CPU wakes nobody for 512 rows
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        Numbers mine;
        Arrivals arrivals{*this, s};
        switch (s.phase) {
        case clear: do_clear(grid); break;
        case seed:
            for (i64 i : grid.items(n_sources))
                if (world.owner(sources[i]) == world.rank) arrivals.come(sources[i], (u64)1 << i);
            break;
        case settling:
            for (i64 i : grid.items(s.listed)) mine.of[PAIRS] += settle(load(list(s) + i), s.level);
            for (i64 i : grid.items(counts ? 1 : 0)) store(counts + s.level - level_before - 1 + i, s.listed);
            for (i64 i : grid.items(world.size)) store(out_counts + i, (i64)0);
            break;
        case expanding: do_expand(grid, s, arrivals); break;
        case hubs:
            visit_hubs(grid, graph, tasks, s.tasks,
                       [&](auto tile, i64 row, i64 unit) { follow(tile, row, unit, arrivals); });
            break;
        case sending: do_send(grid, s, heard, arrivals, mine); break;
        default: do_receive(grid, s, heard, arrivals);
        }
        return mine;
    }
    DEVICE void do_clear(Grid grid) const {
        i64 first = 0, n = world.vertices();
        if constexpr (one_memory)
            if (is_common()) first = world.lo(), n = world.rows();
        for (i64 i : grid.items(n)) coming[first + i] = seen[first + i] = 0;
        for (i64 i : grid.items(world.size)) out_counts[i] = 0;
    }
    // Returns how many searches reached a listed row for the first time.
    DEVICE i64 settle(i64 row, i64 level) const {
        i64 v = world.lo() + row;
        u64 before = load(seen + v), fresh = load(coming + v) & ~before;
        store(coming + v, (u64)0);
        if (fresh) store(seen + v, before | fresh);
        store(now + row, fresh);
        if (distance)
            for (u64 rest = fresh; rest; rest &= rest - 1)
                distance[lowest_search(rest) * world.rows() + row] = (i32)level;
        return popcount((u32)fresh) + popcount((u32)(fresh >> 32));
    }
    template <class Group> DEVICE void follow(Group group, i64 row, i64 unit, const Arrivals& arrivals) const {
        u64 bits = load(now + row);
        graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
            if (live) arrivals.come(id, bits);
            return false;
        });
    }
    DEVICE void do_expand(Grid grid, const State& s, const Arrivals& arrivals) const {
        auto row_at = [&](i64 at) { return (i64)load(list(s) + at); };
        expand_rows(
            grid, graph, s.listed, s.listed, row_at, row_at, tasks, world.number(TASKS),
            [&](auto group, i64 row, i64 unit) { follow(group, row, unit, arrivals); }, [](auto) {});
    }
    // Sends a part of the messages to other ranks, and reads their messages of the part before.
    DEVICE void do_send(Grid grid, const State& s, const Heard& heard, const Arrivals& arrivals, Numbers& mine) const {
        for (i64 r = 0; r < world.size; ++r) {
            i64 count = load(out_counts + r), first = s.part * world.room;
            i64 n = greater(lesser(world.room, count - first), (i64)0);
            for (i64 i : grid.items(n)) {
                u32 id = load(out + world.start(r) + first + i);
                if constexpr (one_memory)
                    if (is_common()) {
                        world.put(heard, r, i, (u64)id);
                        continue;
                    }
                u64 bits = load(coming + id);
                world.put(heard, r, 2 * i, (u64)id);
                world.put(heard, r, 2 * i + 1, bits);
                store(seen + id, load(seen + id) | bits);
                store(coming + id, (u64)0);
            }
            for (i64 i : grid.items(1)) {
                if (n) store(world.counts() + r, n + i);
                mine.of[LEFT] += greater(count - first - n, (i64)0);
            }
        }
        do_receive(grid, s, heard, arrivals);
        for (i64 i : grid.items(1)) mine.of[FOUND] = (s.part ? 0 : s.next_listed) + i;
    }
    DEVICE void do_receive(Grid grid, const State& s, const Heard& heard, const Arrivals& arrivals) const {
        for (i64 r = 0; s.inbox && r < world.size; ++r)
            for (i64 i : grid.items(heard.messages(r))) {
                if constexpr (one_memory)
                    if (is_common()) {
                        arrivals.list((i64)world.message<u64>(heard, r, i) - world.lo());
                        continue;
                    }
                arrivals.come((u32)world.message<u64>(heard, r, 2 * i), world.message<u64>(heard, r, 2 * i + 1));
            }
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        s.next_listed += heard.own(LISTED);
        switch (s.phase) {
        case clear: s.phase = seed; break;
        case settling:
            s.pairs = heard.own(PAIRS);
            s.phase = s.level < last_level ? expanding : finished;
            break;
        case expanding:
            s.tasks = heard.own(TASKS);
            s.phase = hubs;
            break;
        case seed:
        case hubs:
            s.found = s.next_listed, s.part = 0, s.inbox = 0;
            if (world.size > 1) s.found = 0, s.phase = sending;
            else end_level(s);
            break;
        case sending:
            s.found += heard.total(FOUND) + heard.sent();
            s.inbox = heard.sent() > 0, ++s.part;
            if (heard.total(LEFT)) break;
            if (s.inbox) s.phase = receiving;
            else end_level(s);
            break;
        default: s.inbox = 0, end_level(s);
        }
    }
    DEVICE void end_level(State& s) const {
        ++s.level;
        s.first += s.listed, s.listed = s.next_listed, s.next_listed = s.pairs = 0;
        s.phase = s.found ? settling : finished;
    }
};

struct Emit {  // one lane per listed vertex: one row per search that first reached it in this level, in any order
    static constexpr int lanes = 1;
    const u32* list;
    i64 count;
    const u64* now;
    i64 first_vertex;
    i64 first_source;
    i64* next;
    i64* vertex;
    i64* source;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(count))
            for (u64 rest = now[list[i]]; rest; rest &= rest - 1) {
                i64 at = take_place(next);
                vertex[at] = first_vertex + list[i], source[at] = first_source + lowest_search(rest);
            }
    }
};
