// Core numbers by all ranks together. Level k removes the vertices that have at most k edges left, until none has.
//   scan     lists the own rows that the level removes, and those that stay
//   receive  takes the edges away that messages tell of, and lists the rows that this removes; a CPU does that in `peel`
//   peel     removes the edges of the listed rows. An edge to another rank's vertex is a message with its id. The rows
//            that this removes are listed for the next round; a CPU's thread goes on with them at once.
// CPU ranks that map each other's memory may have one array of the edges left instead, in the region of rank 0. They take
// edges away from each other's rows as threads of one rank do, and a message has the id of a vertex that this removed.
// A row of high degree is listed as tasks. A list knows how many edges its rows have together. If they do not all fit into
// an inbox, rows reserve room before they are expanded, and wait for the next round where there is none.
#pragma once
#include "algorithms/density/core_number/round.cuh"

constexpr i64 never = (i64)1 << 62;  // the least number of edges among no vertices

#ifndef VIEWS
#define VIEWS 2
#endif

template <class View>
struct Cores {
    static constexpr int lanes = 32;
    static constexpr int resident = 1;  // more blocks would meet later, and have too few registers
    i64 launch;
    i64 resume;
    World world;
    View graph;
    View back;  // the other edges of each row, where there are two VIEWS
    i64 searched;  // 1 if rows can be searched by `find`; a copy of unsorted rows cannot
    i64 first_level;
    i64 last_level;
    u32* left;  // edges left of each own row; of a removed one, at most the level that removed it
    i64* core;  // out: the level at which each own row was removed, or -1
    u32* lists;  // two lists of own rows, to remove
    u32* alive;  // two lists of own rows, those that are left
    i64* least;  // the least number of edges among these: two, used in turn
    // The edges of all rows of a list: three, used in turn. Null if the ranks have one array `left`; then an inbox has
    // room for all vertices of its rank.
    i64* frontier;
    u64* tasks;  // two lists for each view, of task_room
    i64 task_room;
    struct State {
        i64 phase = 0;
        i64 level = 0, below = 0;  // the level, and the one before
        i64 turn = 0;  // which lists are read: its lowest bit
        i64 scans = 0;
        i64 alive = 0;  // own rows in the list of those that are left
        i64 listed = 0, tasks = 0, back_tasks = 0;  // own rows and tasks to expand
        i64 inbox = 0;  // 1 if messages wait
        i64 quiet = 0;  // 1 if no rank has listed rows: the level ends unless messages remove some
        i64 fresh = 0;  // 1 if the level has just begun
        i64 took = 0, least_left = 0;  // 1 if it removes vertices of any rank; the least number of edges above it
        i64 largest = 0, too_long = 0;
    };
    enum Stage : i64 { finished, count, count_hubs, scan, receive, peel };
    enum Number { LISTED, TASKS, BACK_TASKS, RESERVED, KEPT, LEAST = KEPT };
    static constexpr int tile_words = Finds::most + 1;

    DEVICE bool is_common() const { return !frontier; }  // `left` is that of all ranks
    DEVICE u32* listing(i64 turn) const { return lists + (turn & 1) * world.rows(); }
    DEVICE u32* living(i64 turn) const { return alive + (turn & 1) * world.rows(); }
    DEVICE u64* task_list(i64 side, i64 turn) const { return tasks + (2 * side + (turn & 1)) * task_room; }
    DEVICE i64* edges_of(i64 turn) const {
        if constexpr (one_memory)
            if (is_common()) return world.number(RESERVED);  // 0: they are not counted
        return frontier + turn % 3;
    }
    template <class Visit> DEVICE void visit_views(Visit visit) const {  // visit(rows, side)
        visit(graph, 0);
        if constexpr (VIEWS > 1) visit(back, 1);
    }

    DEVICE void begin(State& s) const {
        s.level = first_level, s.below = -1, s.alive = -1;
        s.phase = world.vertices() > 0 ? (i64)count : (i64)finished;
    }
    DEVICE bool alone(const State& s) const {
        if constexpr (one_memory)  // no row is lowered while it is scanned
            if (is_common() && s.phase == scan) return false;
        return s.phase == receive ? !s.quiet : s.phase != peel;
    }
    DEVICE i64 shares(const State&) const { return -1; }
    DEVICE i64 remaining(const State& s) const { return s.alive < 0 ? world.rows() : s.alive; }
    DEVICE i64 items(const State& s, const Heard& heard) const {
        switch (s.phase) {
        case count: return world.rows() / 16;
        case count_hubs: return s.tasks + s.back_tasks;
        case scan: return remaining(s) / 128;
        case receive: return received(heard, s.inbox) / 64;
        default: return s.listed / 2 + (s.tasks + s.back_tasks) * 8 + received(heard, s.inbox) / 64;
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        SHARED(u32, memory, tile_words * program_tiles);
        Finds finds{memory + Tile<lanes>{}.index() * tile_words};
        Numbers mine;
        switch (s.phase) {
        case count: do_count(grid, s); break;
        case count_hubs: do_count_hubs(grid, s); break;
        case scan: do_scan(grid, s); break;
        case receive: do_receive(grid, s, heard); break;
        default: do_peel(grid, s, heard, finds, mine);
        }
        return mine;
    }

    // ---- the edges at the start, without self-loops ------------------------------------------------------------------

    DEVICE void do_count(Grid grid, const State& s) const {
        i64 n = world.rows();
        for (i64 row : grid.items(n)) {
            u32 degrees = 0;
            visit_views([&](const View& rows, int side) {
                fetch_row(rows, row, n, EveryRow{});
                i64 degree = rows.degree(row);
                degrees += (u32)degree;
                if (degree > HUB_DEGREE && reads_loops())
                    add_tasks(rows, row, task_list(side, s.turn), world.number(TASKS + side));
                else if (degree > 0) degrees -= has_loop(rows, row);
            });
            store(left + row, degrees);
            core[row] = -1;
        }
        for (i64 i : grid.items(2)) store(least + i, never);
        if constexpr (one_memory)
            if (is_common()) return;
        for (i64 i : grid.items(3)) store(frontier + i, (i64)0);
    }
    DEVICE bool reads_loops() const { return !View::sorted || !searched; }  // from the whole row of a vertex
    DEVICE bool has_loop(const View& rows, i64 row) const {
        u32 own = (u32)(row + world.lo());
        if (searched) return rows.find(row, own) >= 0;
        bool loop = false;
        i64 units = rows.units(row);
        for (i64 unit = 0; unit < units; ++unit)
            rows.visit(Tile<1>{}, row, unit, [&](u32 id, i64, bool live) { return loop |= live && id == own; });
        return loop;
    }
    DEVICE void do_count_hubs(Grid grid, const State& s) const {
        visit_views([&](const View& rows, int side) {
            visit_hubs(grid, rows, task_list(side, s.turn), side ? s.back_tasks : s.tasks,
                       [&](auto tile, i64 row, i64 unit) {
                           rows.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                               if (live && id == row + world.lo()) atomic_add(left + row, ~0u);
                               return false;
                           });
                       });
        });
    }

    // ---- lists of removed rows ---------------------------------------------------------------------------------------

    // Adds the tasks of a row's sides of high degree to the list of a turn, after `before` of each side. Returns true if
    // the row is to be listed, too.
    DEVICE bool add_hubs(i64 row, i64 turn, i64 before = 0, i64 back_before = 0) const {
        bool hubs = false, others = false;
        visit_views([&](const View& edges, int side) {
            i64 degree = edges.degree(row);
            others |= degree > 0 && degree <= HUB_DEGREE;
            if (degree <= HUB_DEGREE) return;
            hubs = true;
            add_tasks(edges, row, task_list(side, turn) + (side ? back_before : before), world.number(TASKS + side));
            if constexpr (one_memory)
                if (is_common()) return;
            if (world.size > 1) atomic_add(edges_of(turn), degree);
        });
        return !hubs || others;
    }
    DEVICE u32 edges_to_visit(i64 row) const {  // those that are no task's
        u32 sum = 0;
        visit_views([&](const View& edges, int) {
            i64 degree = edges.degree(row);
            sum += degree > HUB_DEGREE ? 0 : (u32)degree;
        });
        return sum;
    }
    // Counts the edges of the rows that lanes list in a turn, -1 for none.
    template <class Group> DEVICE void count_listed(Group group, i64 row, i64 turn) const {
        if constexpr (one_memory)
            if (is_common()) return;
        if (world.size == 1) return;
        u32 sum = group.sum(row < 0 ? 0 : edges_to_visit(row));
        if (group.rank() == 0 && sum) atomic_add(edges_of(turn), (i64)sum);
    }
    // Lists rows for the next peel, after what is listed already.
    template <class Group>
    DEVICE void list(Group group, const State& s, bool wanted, u32 row, BufferedAppender& to) const {
        if (!group.any(wanted)) return;
        bool goes = wanted && add_hubs(row, s.turn, s.tasks, s.back_tasks);
        count_listed(group, goes ? (i64)row : -1, s.turn);
        append(group, goes, row, to.ids, to.list, to.count);
    }
    DEVICE BufferedAppender to_list(const State& s) const {
        return BufferedAppender(listing(s.turn) + s.listed, world.number(LISTED));
    }

    // ---- a level's first rows ----------------------------------------------------------------------------------------

    DEVICE void do_scan(Grid grid, const State& s) const {
        Tile<lanes> tile;
        constexpr int several = Tile<lanes>::size() > 1 ? 4 : 1;  // rows of a lane that take places together
        BufferedAppender gone = to_list(s), kept(living(s.scans + 1), world.number(KEPT));
        const u32* before = living(s.scans);
        i64 n = remaining(s), at_once = several * tile.size();
        u32 most = 0;  // of ~left: the least of `left`
        for (i64 i : grid.items(tile, (n + at_once - 1) / at_once)) {
            u32 row[several], count = 0;
            i64 edges_left[several];
            for (int k = 0; k < several; ++k) {
                i64 at = i * at_once + k * tile.size() + tile.rank();
                row[k] = at >= n ? no_id : s.alive < 0 ? (u32)at : load(before + at);
            }
            for (int k = 0; k < several; ++k) edges_left[k] = row[k] == no_id ? -1 : (i64)load(left + row[k]);
            for (int k = 0; k < several; ++k) {
                bool stays = edges_left[k] > s.level, goes = edges_left[k] > s.below && !stays;
                if (goes) core[row[k]] = s.level;
                if (stays) most = greater(most, ~(u32)edges_left[k]);
                list(tile, s, goes, row[k], gone);
                count += popcount(tile.ballot(stays));
            }
            if constexpr (BufferedIds::holds) {
                if (edges_left[0] > s.level) kept.add(row[0]);
            } else if (count) {  // one atomic for all of them
                i64 place = tile.shfl(tile.rank() == 0 ? atomic_add(kept.count, (i64)count) : 0, 0);
                for (int k = 0; k < several; ++k) {
                    u32 stay = tile.ballot(edges_left[k] > s.level);
                    i64 to = place + popcount(stay & ((1u << tile.rank()) - 1));
                    if (edges_left[k] > s.level) store(kept.list + to, row[k]);
                    place += popcount(stay);
                }
            }
        }
        most = tile.most(most);
        if (tile.rank() == 0 && most) atomic_min(least + (s.scans & 1), (i64)(u32)~most);
        for (i64 i : grid.items(1)) store(least + ((s.scans + 1) & 1) + i, never);
    }

    // ---- messages ----------------------------------------------------------------------------------------------------

    // Takes an edge from each row of a lane, no_id for none: their reads and their atomics do not wait for each other.
    // Sets edges[k] to level + 1 where that removes the row.
    template <int n> DEVICE void lower_several(const State& s, const u32 (&rows)[n], u32 (&edges)[n]) const {
#pragma unroll
        for (int k = 0; k < n; ++k) edges[k] = rows[k] == no_id ? 0 : load(left + rows[k]);
#pragma unroll
        for (int k = 0; k < n; ++k) edges[k] = edges[k] > (u32)s.level ? atomic_add(left + rows[k], ~0u) : 0;
#pragma unroll
        for (int k = 0; k < n; ++k)
            if (edges[k] == (u32)s.level + 1) core[rows[k]] = s.level;
    }
    DEVICE void do_receive(Grid grid, const State& s, const Heard& heard) const {
        Tile<lanes> tile;
        constexpr int several = 4;
        BufferedAppender gone = to_list(s);
        u32 first = (u32)world.lo();
        for (i64 r = 0; r < world.size; ++r) {
            i64 n = heard.messages(r);
            for (i64 i : grid.items(tile, (n + several * lanes - 1) / (several * lanes))) {
                u32 rows[several], edges[several];
                for (int k = 0; k < several; ++k) {
                    i64 at = (i * several + k) * lanes + tile.rank();
                    rows[k] = at < n ? world.message(heard, r, at) - first : no_id;
                }
                lower_several(s, rows, edges);
                for (int k = 0; k < several; ++k) list(tile, s, edges[k] == (u32)s.level + 1, rows[k], gone);
            }
        }
    }

    // ---- removing ----------------------------------------------------------------------------------------------------

    DEVICE void do_peel(Grid grid, const State& s, const Heard& heard, Finds finds, Numbers& mine) const {
        Tile<lanes> tile;
        Round<View> round{*this, s, heard, finds, grid.alone()};
        finds.clear(tile);
        for (i64 i : grid.items(1)) store(edges_of(s.turn + 2) + i, (i64)0);
        // the tasks
        visit_views([&](const View& edges, int side) {
            i64 tasks = side ? s.back_tasks : s.tasks;
            u32 parts = round.parts_of(grid, tile, tasks);
            for (i64 i : grid.scattered(tile, tasks * parts))
                round.expand_task(edges, tile, side, load(task_list(side, s.turn) + i / parts), i % parts, parts);
        });
        if (Tile<lanes>::size() == 1 && s.inbox) round.receive(grid);
        // the listed rows: parts of one, or several at once
        u32 n = (u32)s.listed, parts = round.parts_of(grid, tile, n), few = (u32)rows_at_once(grid, tile, n);
        Items share = parts > 1 ? grid.scattered(tile, n * parts) : grid.items(tile, turns_of(n, few));
        const u32* rows = listing(s.turn);
        for (u32 i = (u32)share.first; i < (u32)share.last; i += (u32)share.step) {  // 32 bits, for want of registers
            i64 row = -1;
            if (parts > 1) {
                u32 one = load(rows + i / parts);
                visit_views([&](const View& edges, int) {
                    if (edges.degree(one) <= HUB_DEGREE)
                        round.expand_part(edges, tile, one, i % parts, edges.units(one), parts);
                });
            } else {
                u32 at = i * few + tile.rank();
                fetch_row(graph, at, s.listed, [&](i64 next) { return (i64)load(rows + next); });
                if ((u32)tile.rank() < few && at < n) row = (i64)load(rows + at);
            }
            round.expand(tile, row);
        }
        if (Tile<lanes>::size() == 1) round.expand(tile, -1);
        round.hand_on(tile, 1);
        if (s.fresh)  // 0 where the level has removed rows of this rank
            for (i64 i : grid.items(1))
                mine.of[LEAST] = s.listed + s.tasks + s.back_tasks ? i : load(least + ((s.scans - 1) & 1));
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        switch (s.phase) {
        case count:
            s.tasks = heard.own(TASKS), s.back_tasks = heard.own(BACK_TASKS);
            s.phase = reads_loops() ? count_hubs : scan;
            break;
        case count_hubs:
            s.tasks = s.back_tasks = 0;
            s.phase = scan;
            break;
        case scan:
            s.alive = heard.own(KEPT);
            ++s.scans;
            s.fresh = 1;
            begin_peel(s, heard);
            break;
        case receive:
            s.inbox = 0;
            if (s.quiet && listed(heard) == 0) end_level(s);
            else begin_peel(s, heard);
            break;
        default:
            if (s.fresh) s.least_left = heard.least(LEAST), s.took = s.least_left == 0;
            s.fresh = 0;
            s.listed = heard.own(LISTED), s.tasks = heard.own(TASKS), s.back_tasks = heard.own(BACK_TASKS);
            s.inbox = heard.sent() > 0, s.quiet = listed(heard) == 0;
            ++s.turn;
            if (heard.any(overflowed)) s.too_long = 1, s.phase = finished;
            else if (!s.inbox && s.quiet) end_level(s);
            else if (s.inbox && Tile<lanes>::size() > 1) s.phase = receive;
        }
    }
    DEVICE i64 listed(const Heard& heard) const {  // by all ranks
        return heard.total(LISTED) + heard.total(TASKS) + heard.total(BACK_TASKS);
    }
    DEVICE void begin_peel(State& s, const Heard& heard) const {
        s.listed += heard.own(LISTED), s.tasks += heard.own(TASKS), s.back_tasks += heard.own(BACK_TASKS);
        s.phase = peel;
    }
    DEVICE void end_level(State& s) const {
        if (s.took) s.largest = s.level;
        s.below = s.level;
        s.level = s.took ? s.level + 1 : s.least_left;
        s.phase = s.level > last_level || s.level == never ? (i64)finished : (i64)scan;
    }
};
