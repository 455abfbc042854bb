// The turns of a sweep by all ranks together.
//   enter   agrees on the largest number of groups of wide rows in a turn
//   vote    lets the own rows of a turn choose, except wide rows, and lists the moves
//   cast, rank, settle  let wide rows choose, group by group; the tables of a group fit into memory
//   tell    sends the moves to all other ranks, in as many parts as inboxes need
//   apply   applies all moves to labels and sums
//   follow, follow_hubs  visit the edges of own vertices that have moved
//   tell_changes  in a refinement, sends the changes of the weights of parts to the rest of their communities
//   remember  keeps the labels before the next moves, and these weights
// A part is read in the next `tell`, or in the phase after it.
#pragma once
#include "algorithms/communities/multilevel/local_moving.cuh"
#include "algorithms/communities/multilevel/votes.cuh"
#include "algorithms/primitives/programs.cuh"

template <class View>
struct Sweep {
    static constexpr int lanes = 32;
    static constexpr int shared = 12 * most_tiles * table_slots;  // tables of all tiles
    i64 launch;
    i64 resume;
    World world;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    Votes votes;
    Labels moving;
    Follow follow;
    u32* before;  // of `follow`
    i64* cuts;  // of `votes`
    const u32* list;  // active rows by turn
    const i64* marks;  // where each turn begins in `list`
    const u32* wide;
    const i64* places;  // first slot of each wide row's table
    const i64* tasks;  // first task of each wide row, in each view
    const i64* back_tasks;
    const i64* groups;
    const i64* group_marks;  // where each turn's groups begin
    i64 n_groups;  // the maximum over all turns
    u32* keys;  // tables of a group
    u64* sums;
    u64* scores;  // of their pieces
    u32* best;
    u32* others;  // other ranks' vertices that have moved in the turn
    u64* hub_tasks;  // for each view, of `task_room`
    i64 task_room;
    struct State {
        i64 phase = 0;
        i64 turn = 0;
        i64 group = 0, groups = 0;  // groups: the maximum over all ranks
        i64 moves = 0, others = 0;  // in the turn: own vertices, and those of other ranks that are known
        i64 part = 0, parts = 0;
        i64 inbox = 0;  // 1 if messages wait
        i64 tasks = 0, back_tasks = 0;
        i64 moved = 0;  // in the sweep, by all ranks
    };
    enum Stage : i64 {
        finished,
        enter,
        vote,
        cast,
        rank,
        settle,
        tell,
        apply,
        follow_rows,
        follow_hubs,
        tell_changes,
        remember
    };
    enum Number { MOVES, TASKS, BACK_TASKS, LONGEST, OTHERS, GROUPS = MOVES };

    DEVICE i64 words() const { return votes.bounds ? 2 : 1; }  // of a message
    DEVICE u64* task_list(int side) const { return hub_tasks + side * task_room; }
    template <class Visit> DEVICE void visit_views(Visit visit) const {  // visit(rows, side)
        visit(graph, 0);
        if (both) visit(back, 1);
    }
    DEVICE i64 of_group(const State& s, i64 group, i64 word) const {  // 0 if the turn has no such group
        i64 at = group_marks[s.turn] + group;
        return at < group_marks[s.turn + 1] ? groups[at * group_words + word] : 0;
    }
    DEVICE WideRows rows_of(const State& s) const {
        return {wide, places, of_group(s, s.group, 0), of_group(s, s.group, 1), keys, sums};
    }
    DEVICE Votes votes_of(const State& s) const {
        Votes turn = votes;  // a copy, which no store can change
        turn.turn = s.turn, turn.moves += s.moves, turn.count = world.number(MOVES);
        return turn;
    }

    DEVICE void begin(State& s) const { s.phase = enter; }
    DEVICE bool alone(const State& s) const { return s.phase != enter && s.phase != tell && s.phase != tell_changes; }
    DEVICE i64 shares(const State&) const { return -1; }
    DEVICE i64 items(const State& s, const Heard& heard) const {
        switch (s.phase) {
        case enter: return 1;
        case vote: return (marks[s.turn + 1] - marks[s.turn]) / lanes;
        case cast: return of_group(s, s.group, 3) + of_group(s, s.group, 4);
        case rank: return of_group(s, s.group, 2) / chunk_slots;
        case settle: return of_group(s, s.group, 1) - of_group(s, s.group, 0);
        case follow_hubs: return s.tasks + s.back_tasks;
        case follow_rows: return s.moves / lanes;
        default: return (s.moves + s.others + received(heard, s.inbox)) / 32;
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        SHARED_LARGE(u32, nearer, Tile<lanes>::size() == 1 ? 1 : shared / sizeof(u32));
        Numbers mine;
        switch (s.phase) {
        case enter:
            for (i64 i : grid.items(1)) mine.of[GROUPS] = i - n_groups;
            break;
        case vote: do_vote(grid, s, graph, back, nearer); break;
        case cast:
            do_cast(grid, s, graph, tasks, of_group(s, s.group, 3), nearer);
            if (both) do_cast(grid, s, back, back_tasks, of_group(s, s.group, 4), nearer);
            break;
        case rank:
            if (of_group(s, s.group, 2)) rank_wide(grid, votes_of(s), rows_of(s), scores, best);
            break;
        case settle: do_settle(grid, s); break;
        case tell: do_tell(grid, s, heard, mine); break;
        case apply: do_apply(grid, s, heard); break;
        case follow_rows: do_follow(grid, s); break;
        case follow_hubs: do_follow_hubs(grid, s); break;
        case tell_changes: do_tell(grid, s, heard, mine); break;
        default: do_remember(grid, s, heard);
        }
        return mine;
    }

    // ---- choosing ----------------------------------------------------------------------------------------------------

    DEVICE void clear_tables(Grid grid, const State& s, i64 group) const {
        for (i64 at : grid.items(of_group(s, group, 2))) store(keys + at, no_label), store(sums + at, (u64)0);
    }
    // Views are copies, which no store can change.
    DEVICE void do_vote(Grid grid, const State& s, View rows, View back_rows, u32* nearer) const {
        clear_tables(grid, s, 0);  // first: afterwards the loop would have to keep what this needs
        i64 first = marks[s.turn];
        Voting<View, Votes>{rows, back_rows, both != 0, list + first, marks[s.turn + 1] - first, votes_of(s), nearer}
            .run(grid, [](i64) {});
    }
    DEVICE void do_cast(Grid grid, const State& s, View rows, const i64* task_of, i64 n, u32* nearer) const {
        if (n) cast_wide(grid, rows, votes_of(s), rows_of(s), task_of, n, nearer);
    }
    DEVICE void do_settle(Grid grid, const State& s) const {
        settle_wide(grid, votes_of(s), rows_of(s), scores, best, [](i64) {});
        clear_tables(grid, s, s.group + 1);
    }

    // ---- moving ------------------------------------------------------------------------------------------------------

    DEVICE void do_tell(Grid grid, const State& s, const Heard& heard, Numbers& mine) const {
        take_messages(grid, s, heard);
        i64 first = s.part * world.room, n = lesser(s.moves - first, world.room);
        for (i64 r = 0; r < world.size; ++r) {
            if (r == world.rank) continue;
            for (i64 i : grid.items(n)) {
                u64 move = votes.moves[first + i];
                world.put(heard, r, i * words(), move);
                if (words() > 1) world.put(heard, r, 2 * i + 1, (u64)follow.changes[(move >> 32) - world.lo()]);
            }
            for (i64 i : grid.items(1))
                if (n > 0) store(world.counts() + r + i, n);
        }
        for (i64 i : grid.items(s.part ? 0 : 1)) mine.of[MOVES] = s.moves + i, mine.of[LONGEST] = -s.moves;
    }
    DEVICE void take_messages(Grid grid, const State& s, const Heard& heard) const {
        for (i64 r = 0; s.inbox && r < world.size; ++r)
            for (i64 i : grid.items(heard.messages(r))) {
                u64 move = world.template message<u64>(heard, r, i * words());
                u32 v = (u32)(move >> 32), to = (u32)move;
                if (s.phase == tell || s.phase == apply) {
                    moving.move(v, to);
                    store(others + s.others + take_place(world.number(OTHERS)), v);
                } else {
                    join_cut(v, to, (i64)world.template message<u64>(heard, r, 2 * i + 1));
                }
            }
    }
    // Adds the weight of a moved vertex to the rest of its community to that of its part, with the change by the move.
    DEVICE void join_cut(u32 v, u32 to, i64 change) const {
        atomic_add(cuts + to, cuts[votes.names ? votes.names[v] : v] + change);
    }
    DEVICE void do_apply(Grid grid, const State& s, const Heard& heard) const {
        take_messages(grid, s, heard);
        for (i64 i : grid.items(s.moves)) moving.move((u32)(votes.moves[i] >> 32), (u32)votes.moves[i]);
    }
    DEVICE void add_inside(Tile<lanes> tile, i64 sum) const {
        sum = tile.sum(sum);
        if (tile.rank() == 0 && sum) atomic_add(follow.inside, sum);
    }
    DEVICE void do_follow(Grid grid, const State& s) const {
        i64 sum = 0;
        visit_views([&](const View& edges, int side) {
            Tile<lanes> tile;
            u32 n = (u32)s.moves, few = (u32)rows_at_once(grid, tile, n);  // 32 bits, for want of registers
            for (i64 i : grid.items(tile, turns_of(n, few))) {
                u32 at = (u32)i * few + tile.rank();
                visit_rows(edges, tile, (u32)tile.rank() < few && at < n ? follow(at) : -1, task_list(side),
                           world.number(TASKS + side),
                           [&](auto group, i64 row, i64 unit) { sum += follow.take(edges, group, row, unit); });
            }
        });
        add_inside(Tile<lanes>{}, sum);
    }
    DEVICE void do_follow_hubs(Grid grid, const State& s) const {
        i64 sum = 0;
        visit_views([&](const View& edges, int side) {
            visit_hubs(grid, edges, task_list(side), side ? s.back_tasks : s.tasks,
                       [&](auto tile, i64 row, i64 unit) { sum += follow.take(edges, tile, row, unit); });
        });
        add_inside(Tile<lanes>{}, sum);
    }
    DEVICE void do_remember(Grid grid, const State& s, const Heard& heard) const {
        take_messages(grid, s, heard);
        for (i64 i : grid.items(s.moves)) {
            u32 v = (u32)(votes.moves[i] >> 32), to = (u32)votes.moves[i];
            before[v] = to;
            if (!votes.bounds) continue;
            i64* change = follow.changes + (v - world.lo());
            join_cut(v, to, *change);
            *change = 0;
        }
        for (i64 i : grid.items(s.others)) before[others[i]] = moving.of[others[i]];
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        bool several = world.size > 1;
        switch (s.phase) {
        case enter:
            s.groups = -heard.least(GROUPS);
            s.phase = votes.classes > 0 ? (i64)vote : (i64)finished;
            break;
        case vote:
        case settle:
            s.moves += heard.own(MOVES), s.group += s.phase == settle;
            s.phase = s.group < s.groups ? cast : several ? tell : apply;
            if (s.phase == apply) s.moved += s.moves;
            break;
        case tell:
        case tell_changes:
            s.inbox = heard.sent() > 0, s.others += heard.own(OTHERS);
            if (s.part == 0) {
                s.parts = (world.room - 1 - heard.least(LONGEST)) / world.room;
                if (s.phase == tell) s.moved += heard.total(MOVES);
            }
            if (++s.part >= s.parts) s.part = 0, s.phase = s.parts == 0 ? end_turn(s) : s.phase + 1;
            break;
        case apply:
            s.others += heard.own(OTHERS), s.inbox = 0;
            s.phase = follow_rows;
            break;
        case follow_rows:
            s.tasks = heard.own(TASKS), s.back_tasks = heard.own(BACK_TASKS);
            s.phase = follow_hubs;
            break;
        case follow_hubs: s.phase = votes.bounds && several ? tell_changes : remember; break;
        case remember: s.phase = end_turn(s); break;
        default: ++s.phase;  // cast, rank
        }
    }
    DEVICE i64 end_turn(State& s) const {
        s.moves = s.others = s.group = s.inbox = 0;
        return ++s.turn < votes.classes ? vote : finished;
    }
};
