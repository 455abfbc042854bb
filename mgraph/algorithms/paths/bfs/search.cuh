// Breadth-first search by all ranks together, level-synchronous and direction-optimising.
//
// Each rank has two bitmaps of all vertices. In `seen(rank, buffer)` are the vertices that this rank knows to be
// visited: all of its own, and those of others that it has sent to their owners or was told of. A level goes down from
// its rows to their neighbours, or up from the vertices that are not visited yet.
#pragma once
#include "algorithms/primitives/programs.cuh"
#include "kernels/search.cuh"

#ifndef PARENTS
#define PARENTS 0
#endif

constexpr i64 steep = 24;  // go up while the frontier has more than 1 / steep of the arcs not yet explored
constexpr i64 long_way = 16;  // gives up if it has explored less than 1 / long_way of the arcs after `most_levels`
constexpr i64 crowded = 1 << 16;  // rows of a frontier that finds most vertices more than once

#include "algorithms/paths/bfs/down.cuh"
#include "algorithms/paths/bfs/up.cuh"

template <class View>
struct BreadthFirst {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    View graph;
    View back;
    i64 root;
    i64 pulls;  // 1 if there are in-edges, as `back`
    i64 arcs;  // of this rank
    i64 most_levels;  // after which the search gives up if the way is long; 0 for never
    i64 seen_offset;  // of two bitmaps, in each rank's region
    i64 seen_words;  // of one of them, a multiple of four
    i32* distance;  // of the own vertices
    u64* parents;  // with PARENTS: the predecessors that searching up has found, the others all ones
    u32* lists;  // two lists of own rows
    u64* tasks;  // pieces of rows of high degree
    struct State {
        i64 phase = 0, after = 0;
        i64 level = 0;  // of the frontier
        i64 buffer = 0;  // index of the current bitmap
        i64 listed = 0, next_listed = 0;  // own rows in the frontier's list, and in the next one
        i64 inbox = 0;  // 1 if messages belong to the frontier
        i64 lowered = 0;  // 1 if the frontier's list has rows of the level before
        i64 settled = 0;  // own vertices that messages added to the frontier before a level upwards
        i64 tasks = 0;
        i64 short_rows = 0;  // 1 if the frontier's rows are short, on average
        i64 found = 0, found_arcs = 0;  // vertices of the next level, and their arcs, on all ranks
        i64 all = 0, left = 0;  // arcs, and those not yet explored, about
        i64 active = 0;  // own rows, but for those at the end that have no in-edges, and so are never found
        i64 reached = 0, levels = 0, pulled = 0;
        i64 gave_up = 0;
    };
    enum Stage : i64 { finished, clear, expand, hubs, collect, settle, publish, up, up_hubs, list, tell };
    enum Number { LISTED, TASKS, FOUND, ARCS, LATE, LOWERED = FOUND };
    static constexpr i64 unreached = 0xffffffff;

    DEVICE u32* seen(i64 r, i64 buffer) const { return world.words(r, seen_offset) + buffer * seen_words; }
    DEVICE OwnBits active_bits(const State& s) const { return {world, world.lo() + s.active}; }
    DEVICE u32* listing(i64 level) const { return lists + (level & 1) * world.rows(); }
    static constexpr int tile_words = (int)sizeof(BlockOfRows) / 4;  // of shared memory for a tile's BlockOfRows
    static_assert(tile_words > Finds::most, "finds and their count fit, too");

    // ---- phases -----------------------------------------------------------------------------------------------------

    DEVICE void begin(State& s) const { s.phase = clear; }
    DEVICE bool alone(const State& s) const { return s.phase == settle || s.phase == list; }
    DEVICE i64 shares(const State& s) const {
        bool down = s.phase == publish, ups = s.phase == up || s.phase == up_hubs;
        return down || ups ? seen_offset + (s.buffer ^ (i64)ups) * seen_words * 4 : -1;
    }
    DEVICE i64 items(const State& s, const Heard& heard) const {
        i64 messages = received(heard, s.inbox);
        switch (s.phase) {
        case clear: return world.rows();
        case expand: return (s.listed + messages) * 8;
        case hubs: return s.tasks * 256 + messages;
        case up_hubs: return s.tasks * 256;
        case settle: return messages;
        default: return s.active;
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        SHARED(u32, memory, tile_words * program_tiles);
        u32* own = memory + Tile<lanes>{}.index() * tile_words;
        Numbers mine;
        if (s.phase == expand && SearchDown<BreadthFirst>::is_brief(grid, s, heard)) {
            auto counted = SearchDown<BreadthFirst>::expand_brief(grid, *this, s, heard);
            mine.of[ARCS] = counted.arcs, mine.of[LATE] = counted.late, mine.of[LOWERED] = counted.lowered;
            return mine;
        }
        SearchDown<BreadthFirst> down{*this, s, heard, {own}, mine};
        SearchUp<BreadthFirst> upwards{*this, s, mine, active_bits(s)};
        switch (s.phase) {
        case clear: do_clear(grid, mine); break;
        case expand: down.expand(grid); break;
        case hubs:
            down.expand_tasks(grid);
            down.settle(grid, s.level + 1, true);
            break;
        case collect:
            down.collect(grid);
            down.settle(grid, s.level + 1, true);
            break;
        case settle: down.settle(grid, s.level, false); break;
        case publish:
            down.publish(grid);
            for (i64 i : grid.items(1)) mine.of[LATE] = s.settled + i;
            break;
        case up: upwards.look(grid, *(BlockOfRows*)own); break;
        case up_hubs: upwards.look_at_tasks(grid); break;
        case list: down.list(grid); break;
        default:
            for (i64 i : grid.items(1)) mine.of[FOUND] = s.reached + i;
        }
        return mine;
    }

    DEVICE void do_clear(Grid grid, Numbers& mine) const {
        // The root is in both bitmaps: levels upwards write no words after the last row with in-edges.
        for (i64 i : grid.items(seen_words / 4)) {
            u32 words[4];
            for (int k = 0; k < 4; ++k) words[k] = 4 * i + k == root / word_bits ? bit_of(root) : 0;
            store_four(seen(world.rank, 0) + 4 * i, words), store_four(seen(world.rank, 1) + 4 * i, words);
        }
        i64 own = root - world.lo(), n = world.rows();
        for (i64 i : grid.items(n / 4)) {
            u32 four[4] = {~0u, ~0u, ~0u, ~0u};
            if (PARENTS) store_four((u32*)(parents + 4 * i), four), store_four((u32*)(parents + 4 * i + 2), four);
            for (int k = 0; k < 4; ++k) four[k] = 4 * i + k == own ? 0 : ~0u;
            store_four((u32*)distance + 4 * i, four);
        }
        for (i64 i : grid.items(n % 4)) {
            i64 row = n / 4 * 4 + i;
            if (PARENTS) parents[row] = ~(u64)0;
            distance[row] = row == own ? 0 : -1;
        }
        for (i64 i : grid.items(1)) {
            mine.of[FOUND] = arcs + i;
            mine.of[LATE] = pulls ? rows_before_empty(back, n) : n;
            if (own < 0 || own >= n) continue;
            store(lists, (u32)own);
            mine.of[LISTED] = 1;
            mine.of[ARCS] = graph.degree(own);
        }
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        i64 sent = 0;  // of the next level's vertices
        bool ends = false;  // the level
        switch (s.phase) {
        case clear:
            s.all = s.left = heard.total(FOUND), s.active = heard.own(LATE);
            s.listed = heard.own(LISTED), s.reached = s.listed;
            s.found = 1, s.found_arcs = heard.total(ARCS);
            s.levels = 1;
            s.phase = expand;
            break;
        case expand:
            s.tasks = heard.own(TASKS);
            s.found = s.found_arcs = 0;
            [[fallthrough]];
        case hubs:
            count_finds(s, heard);
            s.inbox = heard.sent() > 0;
            s.after = s.phase == expand && heard.total(TASKS) ? hubs : finished;
            if (heard.any(overflowed)) s.phase = collect;
            else if (s.after == hubs) s.phase = hubs;
            else ends = true, sent = heard.sent();
            break;
        case collect:
            count_finds(s, heard);
            s.inbox = 0;
            if (s.after == hubs) s.phase = hubs;
            else ends = true;
            break;
        case settle:
            s.settled = heard.own(LATE), s.reached += s.settled, s.inbox = 0;
            s.phase = publish;
            break;
        case publish:
            if (heard.total(LATE) > 0) s.levels = greater(s.levels, s.level + 1);
            s.settled = 0;
            s.phase = up;
            break;
        case up:
            s.tasks = heard.own(TASKS);
            ++s.pulled;
            [[fallthrough]];
        case up_hubs:
            s.reached += heard.own(FOUND);
            s.found += heard.total(FOUND), s.found_arcs += heard.total(ARCS);
            if (s.phase == up && heard.total(TASKS)) {
                s.phase = up_hubs;
                break;
            }
            s.buffer ^= 1;
            ends = true;
            break;
        case list:
            s.listed = heard.own(LISTED);
            s.phase = expand;
            break;
        default: s.reached = heard.total(FOUND), s.phase = finished;
        }
        if (ends) end_level(s, sent);
    }
    // Vertices found and listed, or settled late, on all ranks.
    DEVICE void count_finds(State& s, const Heard& heard) const {
        s.reached += heard.own(LISTED);
        s.next_listed += heard.own(LISTED);
        s.found += heard.total(LISTED);
        if (s.phase == expand) {
            s.lowered = heard.total(LOWERED);
            s.reached += heard.own(LATE);
            s.found -= s.lowered;
            if (heard.total(LATE) > 0) s.levels = greater(s.levels, s.level + 1);
        }
        s.found_arcs += heard.total(ARCS);
    }
    // The next level becomes the frontier; `sent` of its vertices are still messages.
    DEVICE void end_level(State& s, i64 sent) const {
        bool was_up = s.phase == up || s.phase == up_hubs;
        if (s.found > 0) s.levels = greater(s.levels, s.level + 2);
        s.left -= s.found_arcs;
        i64 n = s.found + sent, arcs = s.found_arcs;
        s.short_rows = arcs <= n * short_degree;
        if (was_up) s.lowered = 0;
        ++s.level;
        s.listed = s.next_listed, s.next_listed = 0;
        s.found = s.found_arcs = 0;
        if (n == 0) {
            s.phase = tell;
            return;
        }
        if (s.level == most_levels && (s.all - s.left) * long_way < s.all) {
            s.gave_up = 1, s.phase = finished;
            return;
        }
        bool goes_up = pulls && arcs * steep > s.left && arcs > world.vertices() / word_bits;
        if (goes_up) s.phase = was_up || world.size == 1 ? up : s.inbox ? settle : publish;
        else s.phase = was_up ? list : expand;
    }
};
