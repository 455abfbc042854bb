// Near-far search for shortest paths by all ranks together.
//
// A rank stores a length of every vertex: for own vertices the shortest yet, for others the shortest that this rank has
// found. A length that falls adds a row to the near or the far list, or sends a message to the owner. Messages are read
// when the next rows are relaxed. Turns follow each other until no rank has near vertices. Then the limit rises.
//
// CPU ranks that map each other's memory may have one array of lengths, in the region of rank 0. A message of 4 bytes has
// only the vertex. A bitmap behind the lengths has the vertices of which a message is on the way.
#pragma once
#include "algorithms/primitives/programs.cuh"
#include "algorithms/paths/near_far/relax.cuh"

template <class View>
struct NearFar {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    View graph;
    Word* length;  // of all vertices
    u64 none;  // the length of a vertex that is not reached
    i64 clears;  // 1 to reset all lengths first
    const u32* sources;
    const u64* words;  // their lengths
    i64 n_sources;
    u64 limit;  // of near vertices, at first
    f64 delta;
    u32* lists;  // own rows: two near lists, two far lists
    u32* marks;  // bitmaps of own rows: the members of each near list
    u32* held;  // a bitmap of all vertices: own ones in the far list, others that did not fit into an inbox
    u64* least;  // two words: the least length that went to the far list
    u64* tasks;  // pieces of rows of high degree
    struct State {
        i64 phase = 0;
        i64 turn = 0, far_turn = 0;  // which lists are read
        i64 limit = 0, before = 0;  // of near vertices, now and before its last rise
        i64 near = 0, next_near = 0, far = 0, divided = 0;  // own rows in the lists
        i64 inbox = 0;  // 1 if there are messages to read
        i64 tasks = 0;
        i64 all_near = 0, all_far = 0, all_kept = 0;  // of all ranks: listed in this turn, far, not sent yet
        i64 edges = 0;  // that this rank has followed
        i64 rounds = 0;
        i64 reached = 0;  // vertices of all ranks, after a search from the beginning
    };
    enum Stage : i64 { finished, clear, seed, relax_rows, hubs, send_again, tell, divide, count_reached };
    static constexpr int tile_words = Tile<lanes>::size() > 1 ? Finds::most + 1 : 1;
    static constexpr u64 nothing = ~(u64)0 >> 1;  // above every length of a far vertex
    enum Number { NEAR, FAR, TASKS, EDGES, KEPT, LEAST = NEAR, REACHED = NEAR };

    DEVICE bool is_common() const { return world.message_bytes == sizeof(u32); }
    DEVICE u32* on_the_way() const { return (u32*)(length + world.vertices()); }
    DEVICE u32* near_list(i64 turn) const { return lists + (turn & 1) * world.rows(); }
    DEVICE u32* far_list(i64 turn) const { return lists + (2 + (turn & 1)) * world.rows(); }
    DEVICE u32* marked(i64 turn) const { return marks + (turn & 1) * (words_of(world.rows()) + 1); }
    // Each lane of a group sends a length to an owner, or none. Returns true if there was no room.
    template <class Group>
    DEVICE bool send(Group group, const Heard& heard, bool wanted, u32 id, Word word) const {
        i64 owner = wanted ? world.owner(id) : 0, place = places_at(group, world, wanted, owner);
        if (wanted && place < world.room) put(heard, owner, place, id, word);
        return wanted && place >= world.room;
    }
    DEVICE void put(const Heard& heard, i64 owner, i64 place, u32 id, Word word) const {
        if constexpr (one_memory)
            if (is_common()) return world.put(heard, owner, place, id);
        if constexpr (LENGTHS == 32) {
            world.put(heard, owner, place, (u64)id << 32 | word);
        } else {
            world.put(heard, owner, 2 * place, (u64)id);
            world.put(heard, owner, 2 * place + 1, (u64)word);
        }
    }

    // Vertices whose lengths have fallen: rows for the near and the far list, and messages. On a GPU a tile keeps them
    // for a while, since all tiles take places from the same few counters.
    struct Fallen {
        static constexpr bool keeps = Tile<lanes>::size() > 1;
        static constexpr u32 enough = Finds::most / 3;  // that a tile hands on
        const NearFar& search;
        const State& s;
        const Heard& heard;
        Finds kept;
        BufferedIds near{}, far{};
        DEVICE Fallen(const NearFar& search, const State& s, const Heard& heard, u32* memory)
            : search(search), s(s), heard(heard), kept{memory} {
            if (keeps) kept.clear(Tile<lanes>{});
        }
        Fallen(const Fallen&) = delete;
        DEVICE ~Fallen() {
            if (keeps) hand_on(Tile<lanes>{}, 1);
            near.put(near_list(), search.world.number(NEAR));
            far.put(far_list(), search.world.number(FAR));
        }
        DEVICE u32* near_list() const { return search.near_list(s.turn + 1) + s.next_near; }
        DEVICE u32* far_list() const { return search.far_list(s.far_turn) + s.far; }
        DEVICE i64 first() const { return search.world.lo(); }
        DEVICE bool owns(u32 id) const { return id - (u32)first() < (u32)search.world.rows(); }  // those before wrap
        DEVICE Word length(i64 row) const { return load(search.length + first() + row); }
        DEVICE void add_near(u32 row) {
            if (keeps && kept.add((u32)first() + row)) return;
            list_near(Tile<1>{}, true, row);
        }
        DEVICE void note_least(Word word) const {
            u64* least = search.least + (s.far_turn & 1);
            if (word < stale_load(least)) atomic_min(least, (u64)word);
        }
        // Each lane of a group lists its row, or none.
        template <class Group> DEVICE void list_near(Group group, bool wanted, u32 row) {
            wanted = wanted && mark(search.marked(s.turn + 1), row);
            append(group, wanted, row, near, near_list(), search.world.number(NEAR));
        }
        template <class Group> DEVICE void list_far(Group group, bool wanted, u32 row) {
            append(group, wanted, row, far, far_list(), search.world.number(FAR));
        }
        template <class Group> DEVICE void add_far(Group group, bool wanted, u32 row, Word word) {
            if (wanted) note_least(word);
            list_far(group, wanted && mark(search.held, first() + row), row);
        }
        // Takes a path to `id`. True if it is an own vertex that is near now. The limit is that of the state.
        DEVICE bool takes(u32 id, Word word, u64) {
            if (!(word < stale_load(search.length + id)) || !(word < atomic_min(search.length + id, word)))
                return false;
            bool own = owns(id);
            if (own && word < (u64)s.limit) return true;
            if (keeps && kept.add(id)) return false;
            if (own) add_far(Tile<1>{}, true, id - (u32)first(), word);
            else to_owner(Tile<1>{}, true, id, word);
            return false;
        }
        // The same for a message of an own vertex, whose length is in the common array.
        DEVICE bool takes_sent(u32 id) {
            unmark(search.on_the_way(), id);
            fence();
            Word word = load(search.length + id);
            if (word >= (u64)s.limit) add_far(Tile<1>{}, true, id - (u32)first(), word);
            return word < (u64)s.limit;
        }
        // Each lane of a group tells an owner of a vertex, or none.
        template <class Group> DEVICE void to_owner(Group group, bool wanted, u32 id, Word word) const {
            if constexpr (one_memory)
                if (search.is_common()) {  // who reads the message sees this length
                    fence();
                    if (atomic_or(search.on_the_way() + id / word_bits, bit_of(id)) & bit_of(id)) return;
                }
            bool kept_back = search.send(group, heard, wanted, id, word) && mark(search.held, id);
            places(group, kept_back, search.world.number(KEPT));
        }
        // What the tile keeps leaves it, with the lengths as they are now, if that is `least` or more.
        template <class Tile32> DEVICE void hand_on(Tile32 tile, u32 least) {
            u32 n = kept.waiting(tile);
            if (n < least) return;
            for (u32 at = tile.rank(); at - tile.rank() < n; at += tile.size()) {
                u32 id = at < n ? kept.ids[at] : no_id, row = id - (u32)first();
                Word word = id == no_id ? 0 : load(search.length + id);
                bool own = id != no_id && owns(id), is_near = word < (u64)s.limit;
                list_near(tile, own && is_near, row);
                add_far(tile, own && !is_near, row, word);
                if (search.world.size > 1) to_owner(tile, id != no_id && !own, id, word);
            }
            tile.sync();
            kept.clear(tile);
        }
        template <class Group> DEVICE void make_room(Group group) {
            if constexpr (keeps && Group::width == lanes) hand_on(group, enough);
        }
    };

    // ---- phases -----------------------------------------------------------------------------------------------------

    DEVICE void begin(State& s) const { s.phase = clear, s.limit = (i64)limit; }
    DEVICE bool alone(const State& s) const { return s.phase == clear; }
    DEVICE i64 shares(const State&) const { return -1; }
    DEVICE i64 items(const State& s, const Heard& heard) const {
        switch (s.phase) {
        case clear: return clears ? world.vertices() : world.rows() / word_bits;
        case seed: return n_sources;
        case hubs: return s.tasks * 256;
        case send_again: return words_of(world.vertices());
        case divide: return s.divided;
        case count_reached: return world.rows() / word_bits;
        default: return rows_now(s, heard) / 16;  // a CPU wakes nobody for 512 rows
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        SHARED(u32, memory, tile_words * program_tiles);
        Fallen finds(*this, s, heard, memory + Tile<lanes>{}.index() * tile_words);
        Numbers mine;
        switch (s.phase) {
        case clear: do_clear(grid); break;
        case seed: do_seed(grid, finds); break;
        case relax_rows: do_relax(grid, s, heard, finds, mine); break;
        case hubs: do_hubs(grid, s, heard, finds); break;
        case send_again: do_send_again(grid, s, heard, finds, mine); break;
        case tell:
            for (i64 i : grid.items(1)) mine.of[LEAST] = (i64)load(least + (s.far_turn & 1)) + i;
            break;
        case count_reached:
            for (i64 row : grid.items(world.rows())) mine.of[REACHED] += length[world.lo() + row] != (Word)none;
            break;
        default: do_divide(grid, s, finds);
        }
        return mine;
    }
    DEVICE void do_clear(Grid grid) const {
        i64 all = clears ? world.vertices() : 0;
        if constexpr (one_memory)
            if (is_common()) do_clear_own(grid), all = 0;
        for (i64 i : grid.items(all)) length[i] = (Word)none;
        for (i64 i : grid.items(2 * (words_of(world.rows()) + 1))) marks[i] = 0;
        for (i64 i : grid.items(words_of(world.vertices()))) held[i] = 0;
        for (i64 i : grid.items(2)) least[i] = nothing;
    }
    DEVICE void do_clear_own(Grid grid) const {
        OwnBits own{world};
        for (i64 i : grid.items(world.rows())) length[world.lo() + i] = (Word)none;
        for (i64 i : grid.items(own.words()))
            atomic_and(on_the_way() + own.first_word() + i, ~own(own.first_word() + i));
    }
    DEVICE void do_seed(Grid grid, Fallen& finds) const {
        for (i64 i : grid.items(n_sources)) {
            i64 row = (i64)sources[i] - world.lo();
            if constexpr (one_memory)
                if (is_common() && (row < 0 || row >= world.rows())) continue;
            atomic_min(length + sources[i], (Word)words[i]);
            if (row >= 0 && row < world.rows()) finds.list_near(Tile<1>{}, true, (u32)row);  // however long
        }
    }
    DEVICE i64 inbox(const State& s, const Heard& heard, i64 r) const {  // messages received from a rank
        return s.inbox ? lesser(heard.messages(r), world.room) : 0;
    }
    DEVICE i64 rows_now(const State& s, const Heard& heard) const {  // in the near list and in inboxes
        i64 n = s.near;
        for (i64 r = 0; r < world.size; ++r) n += inbox(s, heard, r);
        return n;
    }
    // A received length: the row whose turn it is now, or -1.
    DEVICE i64 receive(const State& s, const Heard& heard, i64 from, i64 i, Fallen& finds) const {
        if constexpr (one_memory)
            if (is_common()) {
                u32 own = world.message<u32>(heard, from, i);
                return finds.takes_sent(own) ? (i64)own - world.lo() : -1;
            }
        u64 first = world.message<u64>(heard, from, LENGTHS == 32 ? i : 2 * i);
        u32 id = LENGTHS == 32 ? (u32)(first >> 32) : (u32)first;
        Word word = (Word)(LENGTHS == 32 ? first : world.message<u64>(heard, from, 2 * i + 1));
        return finds.takes(id, word, (u64)s.limit) ? (i64)id - world.lo() : -1;
    }
    DEVICE void receive_all(Grid grid, const State& s, const Heard& heard, Fallen& finds) const {
        Tile<lanes> tile;
        for (i64 r = 0; r < world.size; ++r) {
            i64 n = inbox(s, heard, r);
            for (i64 i : grid.items(tile, turns_of(n, (i64)tile.size()))) {
                i64 at = i * tile.size() + tile.rank(), row = at < n ? receive(s, heard, r, at, finds) : -1;
                if (row >= 0) finds.add_near((u32)row);
                finds.make_room(tile);
            }
        }
    }
    DEVICE i64 row_at(const State& s, const Heard& heard, i64 at, Fallen& finds) const {
        if (at >= s.near) {
            i64 r = 0;
            for (at -= s.near; at >= inbox(s, heard, r); ++r) at -= inbox(s, heard, r);
            return receive(s, heard, r, at, finds);
        }
        u32 row = load(near_list(s.turn) + at);
        store(marked(s.turn) + row / word_bits, 0u);  // all rows of the word are in this list
        return row;
    }
    DEVICE void do_relax(Grid grid, const State& s, const Heard& heard, Fallen& finds, Numbers& mine) const {
        Tile<lanes> tile;
        i64 n = rows_now(s, heard), few = rows_at_once(grid, tile, n);
        for (i64 i : grid.items(tile, turns_of(n, few))) {
            i64 at = i * few + tile.rank();
            fetch_row(graph, at, s.near, [&](i64 next) { return (i64)load(near_list(s.turn) + next); });
            finds.make_room(tile);
            i64 row = tile.rank() < few && at < n ? row_at(s, heard, at, finds) : -1;
            if constexpr (tile.size() > 1)
                if (few <= narrow) {
                    mine.of[EDGES] += relax_few(graph, tile, row, (u64)s.limit, finds, tasks, world.number(TASKS));
                    continue;
                }
            if (row >= 0) mine.of[EDGES] += graph.degree(row);
            visit_rows(graph, tile, row, tasks, world.number(TASKS),
                       [&](auto group, i64 its, i64 unit) { relax(graph, group, its, unit, (u64)s.limit, finds); });
        }
    }
    DEVICE void do_hubs(Grid grid, const State& s, const Heard& heard, Fallen& finds) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, s.tasks)) {
            finds.make_room(tile);
            relax_task(graph, tile, load(tasks + i), (u64)s.limit, finds);
        }
        receive_all(grid, s, heard, finds);
    }
    // The lengths that did not fit into an inbox, from `held`.
    DEVICE void do_send_again(Grid grid, const State& s, const Heard& heard, Fallen& finds, Numbers& mine) const {
        Tile<lanes> tile;
        OwnBits own{world};
        i64 words = words_of(world.vertices());
        for (i64 i : grid.items(tile, turns_of(words, (i64)tile.size()))) {
            i64 word = i * tile.size() + tile.rank();
            for (u32 bits = word < words ? load(held + word) & ~own(word) : 0; tile.any(bits != 0); bits &= bits - 1) {
                u32 id = (u32)(word * word_bits + (bits ? lowest_bit(bits) : 0));
                bool full = send(tile, heard, bits != 0, id, bits ? load(length + id) : 0);
                if (full) ++mine.of[KEPT];
                else if (bits) unmark(held, id);
            }
        }
        receive_all(grid, s, heard, finds);
    }
    // Divides the far rows by the new limit. A row below the old limit was near in the meantime.
    DEVICE void do_divide(Grid grid, const State& s, Fallen& finds) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(1)) store(least + (s.far_turn + 1 & 1) + i, nothing);
        for (i64 i : grid.items(tile, turns_of(s.divided, (i64)tile.size()))) {
            i64 at = i * tile.size() + tile.rank();
            bool live = at < s.divided;
            u32 row = live ? load(far_list(s.far_turn + 1) + at) : 0;
            Word word = live ? finds.length(row) : 0;
            bool is_far = live && (u64)word >= (u64)s.limit;
            if (is_far) finds.note_least(word);
            else if (live) unmark(held, world.lo() + row);
            finds.list_far(tile, is_far, row);
            finds.list_near(tile, live && !is_far && (u64)word >= (u64)s.before, row);
        }
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        switch (s.phase) {
        case clear: s.phase = seed; break;
        case seed:
        case divide:
            count(s, heard);
            end_turn(s);
            break;
        case relax_rows:
            s.all_near = 0, s.edges += heard.own(EDGES), s.tasks = heard.own(TASKS);
            ++s.rounds;
            count(s, heard);
            if (heard.total(TASKS)) s.phase = hubs;
            else end_turn(s);
            break;
        case hubs:
            count(s, heard);
            end_turn(s);
            break;
        case send_again:
            s.all_kept = 0;
            count(s, heard);
            end_turn(s);
            break;
        case count_reached:
            s.reached = heard.total(REACHED);
            s.phase = finished;
            break;
        default:  // tell: the limit rises
            s.before = s.limit, s.limit = (i64)next_limit((Word)heard.least(LEAST), delta);
            s.divided = s.far, s.far = s.all_far = s.all_near = 0;
            ++s.far_turn, ++s.rounds;
            s.phase = divide;
        }
    }
    DEVICE void count(State& s, const Heard& heard) const {
        s.next_near += heard.own(NEAR), s.far += heard.own(FAR);
        s.all_near += heard.total(NEAR), s.all_far += heard.total(FAR), s.all_kept += heard.total(KEPT);
        s.inbox = heard.sent() > 0;
    }
    DEVICE void end_turn(State& s) const {
        if (s.all_kept) {
            s.phase = send_again;
            return;
        }
        ++s.turn;
        s.near = s.next_near, s.next_near = 0;
        s.phase = s.all_near || s.inbox ? relax_rows : s.all_far ? tell : clears && !hops ? count_reached : finished;
    }
};
