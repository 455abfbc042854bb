// Random walks by all ranks together. A walk is at the rank that owns its vertex; it goes to a random neighbour, or stays
// without any. A step of all walks has three phases:
//   pieces  the pieces of rows of high degree draw
//   move    the other rows draw, and each walk goes to the owner of its next vertex
//   arrive  the walks that came are listed
// In the first phase, `enter`, each rank lists the walks that begin here. All ranks are in the program then, so that
// others may write to their inboxes.
#pragma once
#include "algorithms/primitives/programs.cuh"
#include "kernels/random_draws.cuh"

template <class View>
struct Walking {
    static constexpr int lanes = 32;
    static constexpr int resident = 1;  // more blocks would meet later, and have too few registers
    i64 launch;
    i64 resume;
    World world;
    View graph;
    const u32* starts;  // the vertex at which each walk begins
    i64 walks;
    i64 first_walk;  // the number of the first
    i64 length;
    u64 seed;
    const u32* names;  // user's id of each vertex; null if it is the internal id
    const u32* order;  // vertex of each user's id; null if they are equal
    u32* vertex;  // of each present walk
    u32* walk;
    u32* visited;  // out, of each visit of an own vertex: its user's id, and its place in the table of all walks
    i64* places;
    u64* tasks;  // present walk << 32 | piece of its row
    i64 most_pieces;  // of a row
    u64* least;  // of each present walk: the least draw of its row's pieces
    struct State {
        i64 phase = 0, step = 0;
        i64 first = 0, here = 0;  // the visits before this step, and in it: the present walks
        i64 tasks = 0;
    };
    enum Stage : i64 { finished, enter, pieces, move, arrive };
    enum Number { HERE, TASKS };
    static constexpr u64 none = ~(u64)0;

    DEVICE void begin(State& s) const { s.phase = enter; }
    DEVICE bool alone(const State& s) const { return s.phase == pieces || s.phase == arrive; }
    DEVICE Shared shares(const State&) const { return -1; }
    DEVICE i64 items(const State& s, const Heard&) const {
        switch (s.phase) {
        case enter: return walks / 64;
        case pieces: return s.tasks * 32;
        case move: return s.here;
        default: return s.here / 16;
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        Numbers mine;
        switch (s.phase) {
        case enter:
            for (i64 i : grid.items(walks)) {
                i64 row = (i64)starts[i] - world.lo();
                if (row < 0 || row >= world.rows()) continue;
                list(take_place(world.number(HERE)), (u64)(first_walk + i) << 32 | starts[i], s);
            }
            break;
        case pieces: draw_pieces(grid, s); break;
        case move: do_move(grid, s, heard); break;
        default:
            for (i64 r = 0, before = 0; r < world.size; before += heard.messages(r++))
                for (i64 i : grid.items(heard.messages(r))) list(before + i, world.message<u64>(heard, r, i), s);
        }
        return mine;
    }

    // ---- phases ------------------------------------------------------------------------------------------------------

    DEVICE i64 row_of(i64 present) const { return (i64)load(vertex + present) - world.lo(); }
    DEVICE u64 stream(i64 present, i64 step) const { return stream_of(seed, load(walk + present), (u64)step); }
    DEVICE i64 pieces_of(i64 degree) const { return lesser((degree + HUB_DEGREE - 1) / HUB_DEGREE, most_pieces); }

    // Lists a walk, number << 32 | vertex, its visit, and the pieces of its row if there are several.
    DEVICE void list(i64 present, u64 message, const State& s) const {
        u32 at = (u32)message, number = (u32)(message >> 32);
        store(vertex + present, at), store(walk + present, number);
        visited[s.first + present] = names ? names[at] : at;
        places[s.first + present] = (i64)number * (length + 1) + s.step;
        i64 n = s.step < length ? pieces_of(graph.degree((i64)at - world.lo())) : 0;
        if (n <= 1) return;
        i64 first = atomic_add(world.number(TASKS), n);
        for (i64 piece = 0; piece < n; ++piece) store(tasks + first + piece, (u64)present << 32 | (u64)piece);
        store(least + present, none);
    }
    // Returns this lane's part of the least draw of a row's units.
    template <class Group> DEVICE u64 draw(Group group, i64 row, i64 unit, i64 end, u64 stream) const {
        u64 mine = none;
        auto take = [&](const auto& ids, i64) {
            constexpr int n = sizeof(ids) / sizeof(u32);
            u32 named[n];
#pragma unroll
            for (int k = 0; k < n; ++k) named[k] = names && ids[k] != no_id ? names[ids[k]] : ids[k];
#pragma unroll
            for (int k = 0; k < n; ++k)
                if (ids[k] != no_id) mine = lesser(mine, scramble(stream ^ named[k]));
        };
        for (; unit < end; ++unit) read_ids(graph, group, row, unit, take);
        return mine;
    }
    DEVICE void draw_pieces(Grid grid, const State& s) const {
        Tile<32> tile;
        for (i64 i : grid.items(tile, s.tasks)) {
            u64 task = load(tasks + i);
            i64 present = (i64)(task >> 32), piece = (i64)(u32)task, row = row_of(present);
            u32 n = (u32)pieces_of(graph.degree(row)), units = (u32)graph.units(row), size = (units + n - 1) / n;
            i64 unit = piece * size, end = lesser(unit + size, (i64)units);
            u64 mine = draw(tile, row, unit, end, stream(present, s.step));
            u64 all = ~tile.most(~mine);
            if (tile.rank() == 0) atomic_min(least + present, all);
        }
    }
    // Draws for each lane that `wants` it, one after another by the whole group.
    template <class Group> DEVICE void draw_together(Group group, bool wants, i64 row, u64 stream, u64& least) const {
        for (u32 rest = group.ballot(wants); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            i64 next = group.shfl(row, lane);
            u64 mine = draw(group, next, 0, graph.units(next), group.shfl(stream, lane));
            u64 all = ~group.most(~mine);
            if (group.rank() == lane) least = all;
        }
    }
    DEVICE void do_move(Grid grid, const State& s, const Heard& heard) const {
        Tile<32> tile;
        i64 few = rows_at_once(grid, tile, s.here);
        bool crowded = few * narrow > tile.size();  // else each row is read by all lanes
        i64 brief = crowded ? short_degree : 0, middling = crowded ? narrow_degree : 0;
        for (i64 i : grid.items(tile, turns_of(s.here, few))) {
            i64 present = i * few + tile.rank();
            bool mine = tile.rank() < few && present < s.here;
            i64 row = mine ? row_of(present) : 0, degree = mine ? (i64)graph.degree(row) : 0;
            u64 hashes = mine ? stream(present, s.step) : 0, draws = none;
            bool whole = pieces_of(degree) <= 1;
            if (!whole) draws = load(least + present);
            else if (degree > 0 && degree <= brief) draws = draw(Tile<1>{}, row, 0, graph.units(row), hashes);
            draw_together(Tile<narrow>{}, whole && degree > brief && degree <= middling, row, hashes, draws);
            draw_together(tile, whole && degree > middling, row, hashes, draws);

            // Without an edge there was no draw.
            u32 name = (u32)(unscramble(draws) ^ hashes), to = (u32)(world.lo() + row);
            if (degree > 0) to = order ? order[name] : name;
            u64 number = mine ? load(walk + present) : 0;
            send_together(tile, world, heard, mine, world.owner(to), number << 32 | to);
        }
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        switch (s.phase) {
        case pieces: s.phase = move; return;
        case move:
            s.first += s.here, s.here = received(heard, 1);
            ++s.step;
            s.phase = arrive;
            return;
        case enter: s.here = heard.own(HERE);
        }
        s.tasks = heard.own(TASKS);
        s.phase = s.step < length ? (i64)pieces : (i64)finished;
    }
};
