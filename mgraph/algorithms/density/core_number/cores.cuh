// Core numbers by all ranks together. Level k removes the vertices that have at most k edges left, until none has.
//   scan  lists the own rows that the level removes, and those that stay
//   peel  removes the edges of the listed rows, those of rows of high degree one round later. An edge to another rank's
//         vertex is a message with its id, which the owner reads in the next round. If few rows are removed, a tile
//         expands the rows that it has removed itself, too; a CPU always does.
// Rows reserve room in the inboxes before they are expanded. Without room they wait for the next round.
#pragma once
#include "algorithms/primitives/programs.cuh"
#include "kernels/buffered_append.cuh"

constexpr i64 never = (i64)1 << 62;  // the least number of edges among no vertices
constexpr int chase = 3;  // frontiers that a tile of a GPU removes by itself
constexpr u32 no_id = ~0u;

#ifndef VIEWS
#define VIEWS 2
#endif

template <class View>
struct Cores {
    static constexpr int lanes = 32;
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
        i64 fresh = 0;  // 1 if the level has just begun
        i64 took = 0, least_left = 0;  // 1 if it removes vertices of any rank; the least number of edges above it
        i64 largest = 0, too_long = 0;
    };
    enum Stage : i64 { finished, count, count_hubs, scan, peel };
    enum Number { LISTED, TASKS, BACK_TASKS, RESERVED, KEPT, LEAST = KEPT };
    static constexpr int tile_words = Finds::most + 1;

    DEVICE u32* listing(i64 turn) const { return lists + (turn & 1) * world.rows(); }
    DEVICE u32* living(i64 turn) const { return alive + (turn & 1) * world.rows(); }
    DEVICE u64* task_list(i64 side, i64 turn) const { return tasks + (2 * side + (turn & 1)) * task_room; }
    template <class Visit> DEVICE void visit_views(Visit visit) const {  // visit(rows, side)
        visit(graph, 0);
        if constexpr (VIEWS > 1) visit(back, 1);
    }

    DEVICE void begin(State& s) const {
        s.level = first_level, s.below = -1, s.alive = -1;
        s.phase = world.vertices() > 0 ? (i64)count : (i64)finished;
    }
    DEVICE bool alone(const State& s) const { return s.phase != peel; }
    DEVICE i64 shares(const State&) const { return -1; }
    DEVICE i64 remaining(const State& s) const { return s.alive < 0 ? world.rows() : s.alive; }
    DEVICE i64 items(const State& s, const Heard& heard) const {
        switch (s.phase) {
        case count: return world.rows() / 16;
        case count_hubs: return s.tasks + s.back_tasks;
        case scan: return remaining(s) / 128;
        default: return s.listed / 2 + (s.tasks + s.back_tasks) * 8 + received(world, heard, s.inbox) / 64;
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

    // ---- a level's first rows ----------------------------------------------------------------------------------------

    // Appends the values of lanes that want it.
    template <class Tile32> static DEVICE void append(Tile32 tile, bool wanted, u32 value, BufferedAppender& to) {
        if constexpr (BufferedIds::holds) {
            if (wanted) to.add(value);
        } else {
            i64 place = places(tile, wanted, to.count);
            if (wanted) store(to.list + place, value);
        }
    }
    DEVICE void do_scan(Grid grid, const State& s) const {
        Tile<lanes> tile;
        BufferedAppender list(listing(s.turn), world.number(LISTED));
        BufferedAppender kept(living(s.scans + 1), world.number(KEPT));
        const u32* before = living(s.scans);
        i64 n = remaining(s);
        u32 most = 0;  // of ~left: the least of `left`
        for (i64 i : grid.items((n + tile.size() - 1) / tile.size() * tile.size())) {  // whole tiles
            u32 row = i >= n ? 0u : s.alive < 0 ? (u32)i : load(before + i);
            i64 edges_left = i >= n ? -1 : (i64)load(left + row);
            bool stays = edges_left > s.level, goes = edges_left > s.below && !stays;
            if (goes) core[row] = s.level;
            if (stays) most = greater(most, ~(u32)edges_left);
            append(tile, stays, row, kept);
            append(tile, goes, row, list);
        }
        most = tile.most(most);
        if (tile.rank() == 0 && most) atomic_min(least + (s.scans & 1), (i64)(u32)~most);
        for (i64 i : grid.items(1)) store(least + ((s.scans + 1) & 1) + i, never);
    }

    // ---- removing ----------------------------------------------------------------------------------------------------

    static constexpr u32 enough = Finds::most / 3;  // finds that a tile hands on at once
    // On a GPU a tile has less than `enough` before it visits a unit, or a short row of each lane. Units of sorted rows
    // have at most 256 edges.
    static constexpr bool always_fits = View::sorted && Tile<lanes>::size() > 1;
    static_assert(enough + 256 <= Finds::most && short_degree * lanes <= 256);

    struct Round {  // one lane's, of a phase
        const Cores& all;
        const State& s;
        const Heard& heard;
        Finds finds;
        bool single;  // true if no other thread takes edges away
        const World& world = all.world;
        u32 first = (u32)world.lo(), rows = (u32)world.rows();

        // Takes an edge from an own row; true if that removes it.
        DEVICE bool lower(u32 row) const {
            u32 *edges = all.left + row, level = (u32)s.level;
            if (load(edges) <= level) return false;
            if ((single ? add_nearby(edges, ~0u) : atomic_add(edges, ~0u)) != level + 1) return false;
            all.core[row] = level;
            return true;
        }
        DEVICE u32 row_of(u32 id) const { return id - first; }
        DEVICE bool owns(u32 row) const { return row < rows; }  // those before its first one wrap around
        DEVICE void take(u32 id, u32 from) const {
            u32 row = row_of(id);
            if (row == from || (owns(row) && !lower(row))) return;
            if (single && !owns(row)) return send_alone(id);
            if (finds.add(id) || always_fits) return;
            if (owns(row)) enlist(row);
            else world.send(heard, world.owner(id), id);
        }
        DEVICE void send_alone(u32 id) const {
            i64 owner = world.owner(id), place = world.counts[owner]++;
            if (place < world.room) world.put(heard, owner, place, id);
        }
        DEVICE void enlist(u32 row) const { store(all.listing(s.turn + 1) + take_place(world.number(LISTED)), row); }
        // Takes the edges away that messages tell of. A tile of a GPU expands the rows that this removes once it has
        // enough of them.
        template <class Tile32> DEVICE void receive_all(Grid grid, Tile32 tile) const {
            constexpr bool cpu = Tile32::size() == 1;
            constexpr i64 ahead = cpu ? 16 : 4;  // messages whose rows' memory has been asked for
            for (i64 r = 0; r < world.size; ++r) {
                i64 n = heard.messages(r);
                if constexpr (cpu) {
                    for (i64 i : grid.items(n)) {
                        if (i + ahead < n) prefetch_to_write(all.left + row_of(world.message(heard, r, i + ahead)));
                        u32 row = row_of(world.message(heard, r, i));
                        if (lower(row) && !finds.add(row + first)) enlist(row);
                    }
                } else {
                    constexpr i64 several = ahead * Tile32::size();
                    for (i64 i : grid.items(tile, (n + several - 1) / several)) {
                        u32 rows_told[ahead], edges[ahead];
                        for (int k = 0; k < ahead; ++k) {
                            i64 at = i * several + k * tile.size() + tile.rank();
                            rows_told[k] = at < n ? row_of(world.message(heard, r, at)) : no_id;
                        }
                        for (int k = 0; k < ahead; ++k)
                            edges[k] = rows_told[k] == no_id ? 0 : load(all.left + rows_told[k]);
                        for (int k = 0; k < ahead; ++k)
                            if (edges[k] > (u32)s.level && lower(rows_told[k])) finds.add(rows_told[k] + first);
                        for (u32 found; (found = waiting(tile)) >= (u32)tile.size();) {
                            if (is_full()) {
                                hand_on(tile, 1);
                                break;
                            }
                            expand(tile, deliver(tile, finds.take_last(tile, found, no_id), true), enough);
                        }
                    }
                }
            }
        }
        // Own vertices go to the next list, others to their ranks; a lane without one brings no_id. Returns the row of an
        // own one instead if the tile goes on with it, else -1.
        template <class Group> DEVICE i64 deliver(Group group, u32 id, bool goes_on) const {
            bool own = owns(row_of(id));
            int me = (int)world.rank, owner = own ? me : id != no_id ? (int)world.owner(id) : -1;
            for (int r = 0; r < (int)world.size; ++r) {
                bool now = owner == r && !(r == me && goes_on);
                if (!group.any(now)) continue;
                i64 place = places(group, now, r == me ? world.number(LISTED) : world.counts + r);
                if (now && r == me) store(all.listing(s.turn + 1) + place, row_of(id));
                else if (now && place < world.room) world.put(heard, r, place, id);
            }
            return own && goes_on ? (i64)row_of(id) : -1;
        }
        template <class Tile32> DEVICE u32 waiting(Tile32 tile) const {
            tile.sync();
            return lesser(tile.shfl(load(finds.count()), 0), Finds::most);  // before any lane finds more
        }
        // What the tile has found leaves it, if that is `least` or more: one atomic for each rank.
        template <class Tile32> DEVICE void hand_on(Tile32 tile, u32 least) const {
            u32 n = waiting(tile);
            if (n < least) return;
            for (int r = 0; r < (int)world.size; ++r) {
                bool mine = r == (int)world.rank;
                u32 sum = 0;
                for (u32 at = 0; at < n; at += tile.size())
                    sum += popcount(tile.ballot(goes_to(r, at + tile.rank(), n)));
                if (sum == 0) continue;
                i64* counter = mine ? world.number(LISTED) : world.counts + r;
                i64 place = tile.shfl(tile.rank() == 0 ? atomic_add(counter, (i64)sum) : 0, 0);
                for (u32 at = 0; at < n; at += tile.size()) {
                    bool goes = goes_to(r, at + tile.rank(), n);
                    u32 others = tile.ballot(goes);
                    i64 to = place + popcount(others & ((1u << tile.rank()) - 1));
                    if (goes && mine) store(all.listing(s.turn + 1) + to, row_of(finds.ids[at + tile.rank()]));
                    else if (goes && to < world.room) world.put(heard, r, to, finds.ids[at + tile.rank()]);
                    place += popcount(others);
                }
            }
            tile.sync();
            finds.clear(tile);
        }
        DEVICE bool goes_to(int r, u32 at, u32 n) const { return at < n && (int)world.owner(finds.ids[at]) == r; }
        template <class Group> DEVICE void expand_unit(const View& edges, Group group, i64 row, i64 unit) const {
            if constexpr (Tile<lanes>::size() == 1) {  // a CPU asks for the memory of a few at once
                constexpr int few = 16;
                u32 ids[few];
                int n = 0;
                auto take_all = [&] {
                    for (int k = 0; k < n; ++k) take(ids[k], (u32)row);
                    n = 0;
                };
                edges.visit(group, row, unit, [&](u32 id, i64, bool live) {
                    if (!live) return false;
                    prefetch_to_write(all.left + row_of(id));
                    ids[n++] = id;
                    if (n == few) take_all();
                    return false;
                });
                take_all();
            } else {
                if constexpr (Group::width == lanes) hand_on(group, enough);
                edges.visit(group, row, unit, [&](u32 id, i64, bool live) {
                    if (live) take(id, (u32)row);
                    return false;
                });
            }
        }

        // Returns true if `edges` messages fit into every inbox. More than an inbox can hold are let through: if they
        // go to one rank, the meeting says `overflowed`.
        DEVICE bool reserve(i64 edges) const {
            return edges == 0 || edges > world.room || atomic_add(world.number(RESERVED), edges) + edges <= world.room;
        }
        DEVICE bool is_full() const { return world.size > 1 && load(world.number(RESERVED)) > world.room; }
        // Each lane has a row or -1. Rows without room for their messages are listed again.
        template <class Tile32> DEVICE i64 admit(Tile32 tile, i64 row) const {
            u32 sum = 0;
            if (row >= 0)
                all.visit_views([&](const View& edges, int) {
                    i64 degree = edges.degree(row);
                    sum += degree > HUB_DEGREE ? 0 : (u32)degree;  // tasks are admitted one by one
                });
            u32 whole = tile.sum(sum);
            bool fits = true;
            if (whole > world.room / 8) fits = reserve(sum);
            else if (whole > 0) fits = tile.any(tile.rank() == 0 && reserve(whole));
            if (!fits && row >= 0 && !finds.add((u32)row + first) && !always_fits) enlist((u32)row);
            return fits ? row : -1;
        }
        // Each lane has a row or -1. The tile expands the rows that these remove, too, while they are fewer than `least`;
        // more of them go to the next round.
        template <class Tile32> DEVICE void expand(Tile32 tile, i64 row, u32 least) const {
            constexpr bool cpu = Tile32::size() == 1;
            for (int step = 0;; ++step) {
                if (world.size > 1) row = admit(tile, row);
                all.visit_views([&](const View& edges, int side) {
                    if (side) hand_on(tile, enough);
                    if (row >= 0 && edges.degree(row) > HUB_DEGREE)
                        add_tasks(edges, row, all.task_list(side, s.turn + 1), world.number(TASKS + side));
                    visit_rows(edges, tile, row, nullptr, nullptr,
                               [&](auto group, i64 next, i64 unit) { expand_unit(edges, group, next, unit); });
                });
                u32 n = waiting(tile);
                bool goes_on = (cpu || (n <= tile.size() && step < chase)) && !is_full();
                if (n == 0 || (!goes_on && n < least)) return;
                row = deliver(tile, finds.take_last(tile, n, no_id), goes_on);
            }
        }
        template <class Tile32> DEVICE void expand_task(const View& edges, Tile32 tile, int side, u64 task) const {
            i64 count = world.size > 1 ? count_edges(edges, tile, task) : 0;
            if (!tile.any(tile.rank() == 0 && reserve(count))) {
                u64* later = all.task_list(side, s.turn + 1);
                if (tile.rank() == 0) store(later + take_place(world.number(TASKS + side)), task);
                return;
            }
            visit_task(edges, task, [&](i64 row, i64 unit) {
                expand_unit(edges, tile, row, unit);
                return false;
            });
        }
        template <class Tile32> DEVICE i64 count_edges(const View& edges, Tile32 tile, u64 task) const {
            u32 n = 0;
            visit_task(edges, task, [&](i64 row, i64 unit) {
                edges.visit(tile, row, unit, [&](u32, i64, bool live) {
                    n += live;
                    return false;
                });
                return false;
            });
            return tile.sum(n);
        }
    };
    DEVICE void do_peel(Grid grid, const State& s, const Heard& heard, Finds finds, Numbers& mine) const {
        Tile<lanes> tile;
        Round round{*this, s, heard, finds, grid.alone()};
        finds.clear(tile);
        visit_views([&](const View& edges, int side) {
            for (i64 i : grid.items(tile, side ? s.back_tasks : s.tasks))
                round.expand_task(edges, tile, side, load(task_list(side, s.turn) + i));
        });
        // those that messages remove, and the listed rows
        if (s.inbox) round.receive_all(grid, tile);
        u32 n = (u32)s.listed, few = (u32)rows_at_once(grid, tile, n);
        Items share = grid.items(tile, (n + few - 1) / few);
        for (u32 i = (u32)share.first; i < (u32)share.last; i += (u32)share.step) {  // 32 bits, for want of registers
            u32 at = i * few + tile.rank();
            const u32* rows = listing(s.turn);
            fetch_row(graph, at, s.listed, [&](i64 next) { return (i64)load(rows + next); });
            round.expand(tile, (u32)tile.rank() < few && at < n ? (i64)load(rows + at) : -1, enough);
        }
        if (s.inbox) round.expand(tile, -1, enough);
        round.hand_on(tile, 1);
        if (s.fresh)  // 0 where the level has removed rows of this rank
            for (i64 i : grid.items(1)) mine.of[LEAST] = s.listed ? i : load(least + ((s.scans - 1) & 1));
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
            s.alive = heard.own(KEPT), s.listed = heard.own(LISTED);
            ++s.scans;
            s.fresh = 1;
            s.phase = peel;
            break;
        default:
            if (s.fresh) s.least_left = heard.least(LEAST), s.took = s.least_left == 0;
            s.fresh = 0;
            s.listed = heard.own(LISTED), s.tasks = heard.own(TASKS), s.back_tasks = heard.own(BACK_TASKS);
            s.inbox = heard.sent() > 0;
            ++s.turn;
            if (heard.any(overflowed)) s.too_long = 1, s.phase = finished;
            else if (!s.inbox && heard.total(LISTED) + heard.total(TASKS) + heard.total(BACK_TASKS) == 0) end_level(s);
        }
    }
    DEVICE void end_level(State& s) const {
        if (s.took) s.largest = s.level;
        s.below = s.level;
        s.level = s.took ? s.level + 1 : s.least_left;
        s.phase = s.level > last_level || s.level == never ? (i64)finished : (i64)scan;
    }
};
