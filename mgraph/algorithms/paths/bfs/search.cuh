// Breadth-first search by all ranks together, level-synchronous and direction-optimising.
//
// Each rank has two bitmaps of all vertices. In `seen(rank, buffer)` are the vertices that this rank knows to be visited:
// all of its own, and those of others that it has sent to their owners or was told of.
//   down  A rank sets a neighbour's bit in its own bitmap first, so it sends each vertex once. The owner settles what it
//         receives when it expands its next level.
//   up    Each own vertex that is not visited looks for a visited in-neighbour. By then all ranks know all visited
//         vertices. The words with the new ones go into the other bitmap of every rank.
// Where a rank found more vertices of another than an inbox holds, the owner reads the finder's bitmap instead.
#pragma once
#include "kernels/world.cuh"
#include "kernels/search.cuh"
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"

#ifndef PARENTS
#define PARENTS 0
#endif

constexpr i64 steep = 50;  // go up while the frontier has more than 1 / steep of the arcs not yet explored
constexpr i64 crowded = 1 << 16;  // rows of a frontier that finds most vertices more than once
constexpr u32 no_id = ~0u;

// Whether rows are stretches of slots: then a lane looks at the first slots of four rows at once.
struct Yes {
    static constexpr bool value = true;
};
struct No {
    static constexpr bool value = false;
};
template <class View> DEVICE auto has_stretches(int) -> decltype(View().id_at(i64()), Yes()) { return {}; }
template <class View> DEVICE No has_stretches(long) { return {}; }
template <class View> constexpr bool in_stretches = decltype(has_stretches<View>(0))::value;

template <class View>
struct BreadthFirst {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    View graph;
    View back;
    i64 root;
    i64 pulls;  // whether there are in-edges, as `back`
    i64 arcs;  // of this rank
    i64 seen_offset;  // of two bitmaps, in each rank's region
    i64 seen_words;  // of one of them, a multiple of four
    i32* distance;  // of the own vertices
    u64* parents;  // with PARENTS: the predecessors that searching up has found, the others all ones
    u32* lists;  // two lists of own rows
    u64* tasks;  // pieces of rows of high degree
    struct State {
        i64 phase = 0, after = 0;
        i64 level = 0;  // of the frontier
        i64 buffer = 0;  // which bitmap is up to date
        i64 listed = 0, next_listed = 0;  // own rows in the frontier's list, and in the next one
        i64 inbox = 0;  // whether messages belong to the frontier
        i64 lowered = 0;  // whether the frontier's list has rows of the level before
        i64 tasks = 0;
        i64 found = 0, found_arcs = 0;  // vertices of the next level, and their arcs, on all ranks
        i64 left = 0;  // arcs not yet explored, about
        i64 active = 0;  // own rows, but for those at the end that have no in-edges
        i64 reached = 0, levels = 0, pulled = 0;
    };
    enum Stage : i64 { finished, clear, expand, hubs, collect, settle, publish, up, up_hubs, list, tell };
    enum Number { LISTED, TASKS, FOUND, ARCS, LATE, LOWERED = FOUND };
    static constexpr i64 unreached = 0xffffffff;

    DEVICE i64 lo() const { return world.starts[world.rank]; }
    DEVICE i64 hi() const { return world.starts[world.rank + 1]; }
    DEVICE i64 rows() const { return hi() - lo(); }
    DEVICE i64 vertices() const { return world.starts[world.size]; }
    DEVICE u32* seen(i64 r, i64 buffer) const { return world.words(r, seen_offset) + buffer * seen_words; }
    DEVICE u32* listing(i64 level) const { return lists + (level & 1) * rows(); }
    DEVICE i64 first_word() const { return lo() / word_bits; }
    DEVICE i64 end_word() const { return words_of(hi()); }
    // The bits of a word that are own vertices.
    DEVICE u32 own_bits(i64 word) const {
        i64 from = lo() - word * word_bits, to = hi() - word * word_bits;
        u32 below = from <= 0 ? 0 : from >= word_bits ? ~0u : (1u << from) - 1;
        u32 upto = to <= 0 ? 0 : to >= word_bits ? ~0u : (1u << to) - 1;
        return upto & ~below;
    }

    static constexpr int words_at_once = 16;
    struct OVERLAY BlockOfRows {
        u32 words[words_at_once];
        u16 open[words_at_once * word_bits], longer[words_at_once * word_bits];  // bits, from the first word on
    };
    static constexpr u32 most_finds = 384;
    static constexpr int tile_words = (int)sizeof(BlockOfRows) / 4;  // of shared memory, for what a tile is doing
    static_assert(tile_words > most_finds, "finds and their count fit, too");

    // ---- what the phases do ------------------------------------------------------------------------------------------

    DEVICE void begin(State& s) const { s.phase = clear; }
    DEVICE bool alone(const State& s) const { return s.phase == settle || s.phase == list; }
    DEVICE i64 shares(const State& s) const {
        bool down = s.phase == publish, ups = s.phase == up || s.phase == up_hubs;
        return down || ups ? seen_offset + (s.buffer ^ (i64)ups) * seen_words * 4 : -1;
    }
    DEVICE i64 received(const State& s, const Heard& heard) const {
        i64 sum = 0;
        for (i64 r = 0; s.inbox && r < world.size; ++r) sum += heard.messages(r);
        return sum;
    }
    DEVICE i64 items(const State& s, const Heard& heard) const {
        i64 words = end_word() - first_word();
        switch (s.phase) {
        case clear: return rows();
        case expand: return (s.listed + received(s, heard)) * 8;
        case hubs: return s.tasks * 256 + received(s, heard);
        case up_hubs: return s.tasks * 256;
        case settle: return received(s, heard);
        default: return words * word_bits;
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        SHARED(u32, memory, tile_words * program_tiles);
        u32* own = memory + Tile<lanes>{}.index() * tile_words;
        Numbers mine;
        switch (s.phase) {
        case clear: do_clear(grid, mine); break;
        case expand: do_expand(grid, s, heard, {own, own + most_finds}, mine); break;
        case hubs:
            do_hubs(grid, s, heard, {own, own + most_finds}, mine);
            do_settle(grid, s, heard, s.level + 1, true, mine);
            break;
        case collect:
            do_collect(grid, s, heard, mine);
            do_settle(grid, s, heard, s.level + 1, true, mine);
            break;
        case settle: do_settle(grid, s, heard, s.level, false, mine); break;
        case publish: do_publish(grid, s); break;
        case up: do_up(grid, s, *(BlockOfRows*)own, mine); break;
        case up_hubs: do_up_hubs(grid, s, mine); break;
        case list: do_list(grid, s, mine); break;
        default:
            for (i64 i : grid.items(1)) mine.of[FOUND] = s.reached + i;
        }
        return mine;
    }

    DEVICE void do_clear(Grid grid, Numbers& mine) const {
        u32* both = seen(world.rank, 0);
        for (i64 i : grid.items(2 * seen_words / 4)) {
            u32 words[4];
            for (int k = 0; k < 4; ++k) words[k] = 4 * i + k == root / word_bits ? bit_of(root) : 0;
            store_four(both + 4 * i, words);
        }
        i64 own = root - lo(), n = rows();
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
            mine.of[LATE] = active_rows();
            if (own < 0 || own >= n) continue;
            store(lists, (u32)own);
            mine.of[LISTED] = 1;
            mine.of[ARCS] = graph.degree(own);
        }
    }
    // The rows before the last ones without in-edges, of which an order by degree has many.
    DEVICE i64 active_rows() const {
        i64 n = rows();
        if constexpr (in_stretches<View>) {
            if (!pulls) return n;
            i64 first = 0, end = back.begins(n);
            while (first < n) {
                i64 middle = first + (n - first) / 2;
                if (back.begins(middle) < end) first = middle + 1;
                else n = middle;
            }
            return first;
        }
        return n;
    }

    DEVICE u32 pending(const Heard& heard, i64 i) const {  // the i-th message
        i64 r = 0;
        for (; i >= heard.messages(r); ++r) i -= heard.messages(r);
        return world.message(heard, r, i);
    }
    DEVICE bool visit_first(const State& s, u32 id) const {
        u32* word = seen(world.rank, s.buffer) + id / word_bits;
        return !(atomic_or(word, bit_of(id)) & bit_of(id));
    }
    // An own vertex of the next level goes to the next list.
    DEVICE void enlist(const State& s, i64 row, i64 level, i64 base, Numbers& mine) const {
        store(listing(level) + base + take_place(world.number(LISTED)), (u32)row);
        mine.of[ARCS] += graph.degree(row);
    }
    // What a tile has found and not handed on yet. Lanes add to it one by one; handing on takes a place in a list for all.
    struct Finds {
        u32* ids;
        u32* count;
    };
    DEVICE void discover(const State& s, const Heard& heard, u32 id, bool look_again, const Finds& finds,
                         Numbers& mine) const {
        const u32* bits = seen(world.rank, s.buffer);
        if (saw_bit(bits, id) || (look_again && get_bit(bits, id)) || !visit_first(s, id)) return;
        u32 at = add_nearby(finds.count, 1u);
        if (at < most_finds) finds.ids[at] = id;
        else hand_on(Tile<1>{}, s, heard, id, mine);
    }
    // Own vertices get their distance and go to the next list, others to their owners. Lanes without a find bring no_id.
    template <class Group>
    DEVICE void hand_on(Group group, const State& s, const Heard& heard, u32 id, Numbers& mine) const {
        i64 row = (i64)id - lo();
        bool own = id != no_id && row >= 0 && row < rows(), other = id != no_id && !own;
        if (own && world.size == 1) distance[row] = (i32)(s.level + 1);
        else if (own) own = lower(row, s.level + 1) > s.level + 1;
        i64 place = places(group, own, world.number(LISTED));
        if (own) {
            store(listing(s.level + 1) + s.next_listed + place, (u32)row);
            mine.of[ARCS] += graph.degree(row);
        }
        if (world.size == 1 || !group.any(other)) return;
        i64 owner = other ? world.owner(id) : world.rank, there = (i64)id - world.starts[owner];
        for (i64 r = 0; r < world.size; ++r) {
            bool mail = other && owner == r;
            if (!group.any(mail)) continue;
            i64 at = places(group, mail, world.counts + r);
            if (mail && at < world.room) world.put(heard, r, at, id);
        }
        if (other && there < rows()) mine.of[ARCS] += graph.degree(there);  // ranges are alike: a guess
    }
    template <class Group> DEVICE i64 places(Group group, bool wanted, i64* counter) const {
        u32 all = group.ballot(wanted);
        i64 first = all && group.rank() == 0 ? atomic_add(counter, (i64)popcount(all)) : 0;
        return group.shfl(first, 0) + popcount(all & ((1u << group.rank()) - 1));
    }
    template <class Group>
    DEVICE void hand_on_all(Group tile, const State& s, const Heard& heard, const Finds& finds, u32 least,
                            Numbers& mine) const {
        tile.sync();
        u32 n = lesser(load(finds.count), most_finds);
        if (n < least) return;
        for (u32 at = 0; at < n; at += tile.size())
            hand_on(tile, s, heard, at + tile.rank() < n ? finds.ids[at + tile.rank()] : no_id, mine);
        tile.sync();
        if (tile.rank() == 0) *finds.count = 0;
        tile.sync();
    }
    template <class Group>
    DEVICE void expand_unit(const State& s, const Heard& heard, Group group, i64 row, i64 unit, bool look_again,
                            const Finds& finds, Numbers& mine) const {
        graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
            if (live) discover(s, heard, id, look_again, finds, mine);
            return false;
        });
        if constexpr (Group::width == lanes) hand_on_all(group, s, heard, finds, most_finds / 3, mine);
    }
    DEVICE void do_expand(Grid grid, const State& s, const Heard& heard, Finds finds, Numbers& mine) const {
        Tile<lanes> tile;
        if (tile.rank() == 0) *finds.count = 0;
        tile.sync();
        const u32* rows_listed = listing(s.level);
        i64 n = s.listed + received(s, heard), few = rows_at_once(grid, tile, n);
        bool look_again = n > crowded;
        for (i64 i : grid.items(tile, (n + few - 1) / few)) {
            i64 at = i * few + tile.rank(), row = -1;
            fetch_row(graph, at, s.listed, [&](i64 next) { return (i64)load(rows_listed + next); });
            if (tile.rank() < few && at < s.listed) {
                row = load(rows_listed + at);
                if (s.lowered && load(distance + row) != s.level) row = -1;  // it was of the level before
            }
            if (tile.rank() < few && at >= s.listed && at < n)
                row = receive(s, pending(heard, at - s.listed), s.level, mine);
            auto visit = [&](auto group, i64 row, i64 unit) {
                expand_unit(s, heard, group, row, unit, look_again, finds, mine);
            };
            if (few * narrow <= tile.size()) visit_few_rows(graph, tile, row, tasks, world.number(TASKS), visit);
            else visit_rows(graph, tile, row, tasks, world.number(TASKS), visit);
            hand_on_all(tile, s, heard, finds, most_finds / 3, mine);
        }
        hand_on_all(tile, s, heard, finds, 1, mine);
    }
    // A message may come after an own vertex of the same level has led to its vertex: then the vertex is lowered.
    DEVICE i64 lower(i64 row, i64 level) const {  // its distance before; none is the largest
        return atomic_min((u32*)distance + row, (u32)level);
    }
    DEVICE i64 receive(const State& s, u32 id, i64 level, Numbers& mine) const {  // its row if it is of this level now
        i64 row = (i64)id - lo(), before = lower(row, level);
        if (before <= level) return -1;
        visit_first(s, id);
        ++mine.of[before == unreached ? LATE : LOWERED];
        return row;
    }
    DEVICE void do_hubs(Grid grid, const State& s, const Heard& heard, Finds finds, Numbers& mine) const {
        Tile<lanes> tile;
        if (tile.rank() == 0) *finds.count = 0;
        tile.sync();
        for (i64 i : grid.items(tile, s.tasks))
            visit_task(graph, load(tasks + i), [&](i64 row, i64 unit) {
                expand_unit(s, heard, tile, row, unit, true, finds, mine);
                return false;
            });
        hand_on_all(tile, s, heard, finds, 1, mine);
    }
    // The messages of inboxes that held all of them.
    DEVICE void do_settle(Grid grid, const State& s, const Heard& heard, i64 level, bool lists_them,
                          Numbers& mine) const {
        for (i64 r = 0; s.inbox && r < world.size; ++r) {
            i64 n = heard.messages(r);
            if (n > world.room) continue;
            for (i64 i : grid.items(n)) {
                i64 row = receive(s, world.message(heard, r, i), level, mine);
                if (row >= 0 && lists_them) enlist(s, row, level, s.next_listed, mine);
            }
        }
    }
    // The finds of ranks whose messages did not fit, from their bitmaps.
    DEVICE void do_collect(Grid grid, const State& s, const Heard& heard, Numbers& mine) const {
        for (i64 r = 0; r < world.size; ++r) {
            if (heard.messages(r) <= world.room) continue;
            const u32* theirs = seen(r, s.buffer);
            for (i64 i : grid.items(end_word() - first_word())) {
                i64 word = first_word() + i;
                u32 bits = load(theirs + word) & own_bits(word) & ~load(seen(world.rank, s.buffer) + word);
                for (; bits; bits &= bits - 1) {
                    i64 row = receive(s, (u32)(word * word_bits + lowest_bit(bits)), s.level + 1, mine);
                    if (row >= 0) enlist(s, row, s.level + 1, s.next_listed, mine);
                }
            }
        }
    }

    // The own part of a word of a bitmap, to rank r. Words at the ends of a range belong to two ranks.
    DEVICE void put_word(i64 r, i64 buffer, i64 word, u32 bits) const {
        u32* to = seen(r, buffer) + word;
        u32 own = own_bits(word);
        if (own == ~0u) store(to, bits);
        else if (bits & own) or_everywhere(to, bits & own);
    }
    DEVICE void put_to_all(i64 buffer, i64 word, u32 bits) const {
        for (i64 r = 0; r < world.size; ++r)
            if (world.reaches(r)) put_word(r, buffer, word, bits);
    }
    DEVICE void do_publish(Grid grid, const State& s) const {
        for (i64 i : grid.items(end_word() - first_word())) {
            i64 word = first_word() + i;
            u32 bits = load(seen(world.rank, s.buffer) + word) & own_bits(word);
            for (i64 r = 0; r < world.size; ++r)
                if (r != world.rank && world.reaches(r)) put_word(r, s.buffer, word, bits);
        }
    }

    DEVICE void do_list(Grid grid, const State& s, Numbers& mine) const {
        const u32* now = seen(world.rank, s.buffer);
        const u32* before = seen(world.rank, s.buffer ^ 1);
        for (i64 i : grid.items(end_word() - first_word())) {
            i64 word = first_word() + i;
            for (u32 bits = load(now + word) & ~load(before + word) & own_bits(word); bits; bits &= bits - 1) {
                i64 row = word * word_bits + lowest_bit(bits) - lo();
                store(listing(s.level) + take_place(world.number(LISTED)), (u32)row);
            }
        }
    }

    // ---- up ----------------------------------------------------------------------------------------------------------

    // A tile takes `words_at_once` words, and lists their open rows, so that all its lanes have a row to look at however
    // few are left. The words go to all ranks when all rows have been looked at.
    DEVICE void do_up(Grid grid, const State& s, BlockOfRows& rows, Numbers& mine) const {
        Tile<lanes> tile;
        const u32* bits = seen(world.rank, s.buffer);
        i64 first = first_word() / words_at_once, end = (end_word() + words_at_once - 1) / words_at_once;
        if constexpr (tile.size() == 1) {
            for (i64 i : grid.items(end - first)) up_words(s, (first + i) * words_at_once, bits, mine);
        } else {
            for (i64 i : grid.scattered(tile, end - first))
                up_block(tile, s, rows, (first + i) * words_at_once, bits, mine);
        }
    }
    template <class Group>
    DEVICE void up_block(Group tile, const State& s, BlockOfRows& rows, i64 word, const u32* bits,
                         Numbers& mine) const {
        // the open rows
        int n = 0, longer = 0;
        u32 old =
            tile.rank() < words_at_once && word + tile.rank() < end_word() ? load(bits + word + tile.rank()) : ~0u;
        u32 open = tile.rank() < words_at_once ? ~old & own_bits(word + tile.rank()) : 0;
        if (tile.rank() < words_at_once) rows.words[tile.rank()] = old;
        i64 base = word * word_bits - lo();  // the row of the first bit
        for (int w = 0; w < words_at_once; ++w) {
            u32 now = tile.shfl(open, w);
            int bit = w * word_bits + tile.rank();
            now = tile.ballot(now >> tile.rank() & 1 && base + bit < s.active);
            if (now >> tile.rank() & 1) rows.open[n + popcount(now & ((1u << tile.rank()) - 1))] = (u16)bit;
            n += popcount(now);
        }
        tile.sync();
        // each lane looks at the first slots of four rows
        for (int at = 0; at < n; at += 4 * tile.size()) {
            u32 parent[4], more = 0;
            u16 bit[4];
            for (int k = 0; k < 4; ++k) {
                int i = at + k * tile.size() + tile.rank();
                bit[k] = i < n ? rows.open[i] : none;
                parent[k] = no_id;
            }
            if constexpr (in_stretches<View>) more = look_at_first(tile, base, bit, bits, parent);
            else
                for (int k = 0; k < 4; ++k)
                    if (bit[k] != none) parent[k] = look_alone(base + bit[k], bits, more, k);
            for (int k = 0; k < 4; ++k) {
                if (parent[k] != no_id) settle_up(s, rows, base, bit[k], parent[k], mine);
                u32 these = tile.ballot(more >> k & 1);
                if (more >> k & 1) rows.longer[longer + popcount(these & ((1u << tile.rank()) - 1))] = bit[k];
                longer += popcount(these);
            }
        }
        tile.sync();
        // a few lanes look at the rest of each longer row
        Tile<narrow> group;
        for (int at = 0; at < longer; at += tile.size() / narrow) {
            int i = at + tile.rank() / narrow;
            if (i < longer) {
                u16 bit = rows.longer[i];
                u32 parent = look_at_rest(group, base + bit, bits);
                if (parent != no_id && group.rank() == 0) settle_up(s, rows, base, bit, parent, mine);
            }
            tile.sync();
        }
        put_words(tile, s, rows, word);
        tile.sync();
    }
    template <class Group> DEVICE void put_words(Group tile, const State& s, const BlockOfRows& rows, i64 word) const {
        constexpr int quads = words_at_once / 4;  // a lane stores four words
        for (i64 i = tile.rank(); i < world.size * quads; i += tile.size()) {
            i64 r = i / quads, from = word + i % quads * 4;
            if (!world.reaches(r)) continue;
            u32 four[4];
            bool whole = true;
            for (int k = 0; k < 4; ++k) four[k] = rows.words[i % quads * 4 + k], whole &= own_bits(from + k) == ~0u;
            if (whole) {
                store_four(seen(r, s.buffer ^ 1) + from, four);
            } else {
                for (int k = 0; k < 4; ++k)
                    if (own_bits(from + k)) put_word(r, s.buffer ^ 1, from + k, four[k]);
            }
        }
    }
    DEVICE void settle_up(const State& s, BlockOfRows& rows, i64 base, u16 bit, u32 parent, Numbers& mine) const {
        atomic_or(rows.words + bit / word_bits, bit_of(bit));
        find(s, base + bit, parent, mine);
    }
    DEVICE void find(const State& s, i64 row, u32 parent, Numbers& mine) const {
        distance[row] = (i32)(s.level + 1);
        if (PARENTS && View::sorted) parents[row] = parent;  // the first visited neighbour is the least
        mine.of[ARCS] += graph.degree(row);
        ++mine.of[FOUND];
    }
    static constexpr u16 none = 0xffff;
    static constexpr int looks = 8;  // slots of a row that its lane looks at by itself
    // The first visited in-neighbours among the first slots; returns which rows have more slots. Those of high degree
    // become tasks instead.
    template <class Group>
    DEVICE u32 look_at_first(Group tile, i64 base, const u16 (&bit)[4], const u32* bits, u32 (&parent)[4]) const {
        i64 at[4];
        u32 length[4], open = 0, more = 0;
        for (int k = 0; k < 4; ++k) {
            at[k] = length[k] = 0;
            if (bit[k] == none) continue;
            i64 row = base + bit[k];
            at[k] = back.begins(row), length[k] = (u32)(back.ends(row) - at[k]);
            open |= (u32)(length[k] > 0) << k;
        }
        for (u32 j = 0; j < looks && tile.any(open); ++j) {
            u32 id[4];
            for (int k = 0; k < 4; ++k) id[k] = open >> k & 1 ? back.id_at(at[k] + j) : no_id;
            for (int k = 0; k < 4; ++k) {
                if (!(open >> k & 1)) continue;
                if (id[k] != no_id && saw_bit(bits, id[k])) parent[k] = id[k], open &= ~(1u << k);
                else if (j + 1 >= length[k]) open &= ~(1u << k);
            }
        }
        for (int k = 0; k < 4; ++k) {
            if (!(open >> k & 1)) continue;
            if (length[k] > HUB_DEGREE) add_tasks(back, base + bit[k], tasks, world.number(TASKS));
            else more |= 1u << k;
        }
        return more;
    }
    template <class Group> DEVICE u32 look_at_rest(Group group, i64 row, const u32* bits) const {
        if constexpr (in_stretches<View>) {
            i64 at = back.begins(row) + looks, end = back.ends(row);
            for (; at < end; at += 2 * group.size()) {
                u32 id[2];
                for (int j = 0; j < 2; ++j) {
                    i64 slot = at + j * group.size() + group.rank();
                    id[j] = slot < end ? back.id_at(slot) : no_id;
                }
                for (int j = 0; j < 2; ++j) {
                    u32 hits = group.ballot(id[j] != no_id && saw_bit(bits, id[j]));
                    if (hits) return group.shfl(id[j], lowest_bit(hits));
                }
            }
            return no_id;
        } else {
            return look_in_row(group, row, bits);
        }
    }
    // A short row's, by one lane; a longer one is left to several, and one of high degree becomes tasks.
    DEVICE u32 look_alone(i64 row, const u32* bits, u32& more, int k) const {
        i64 degree = back.degree(row);
        if (degree > HUB_DEGREE) add_tasks(back, row, tasks, world.number(TASKS));
        else if (degree > short_degree) more |= 1u << k;
        else if (degree > 0) return look_in_row(Tile<1>{}, row, bits);
        return no_id;
    }
    // A visited in-neighbour of a row, the first one met, or no_id.
    template <class Group> DEVICE u32 look_in_row(Group group, i64 row, const u32* bits) const {
        i64 units = back.units(row);
        u32 parent = no_id;
        for (i64 unit = 0; unit < units && parent == no_id; ++unit) parent = look_in_unit(group, row, unit, bits);
        return parent;
    }
    template <class Group> DEVICE u32 look_in_unit(Group group, i64 row, i64 unit, const u32* bits) const {
        u32 parent = no_id;
        back.visit(group, row, unit, [&](u32 id, i64, bool live) {
            u32 hits = group.ballot(live && saw_bit(bits, id));
            if (hits) parent = group.shfl(id, lowest_bit(hits));
            return hits != 0;
        });
        return parent;
    }
    // A CPU lists the open rows that have edges, and so knows early enough whose memory to ask for.
    DEVICE void up_words(const State& s, i64 word, const u32* bits, Numbers& mine) const {
        u32 open_rows[words_at_once * word_bits], hits[words_at_once] = {};
        i64 n = 0;
        int words = (int)lesser((i64)words_at_once, end_word() - word);
        for (int k = 0; k < words; ++k)
            for (u32 open = ~load(bits + word + k) & own_bits(word + k); open; open &= open - 1) {
                i64 row = (word + k) * word_bits + lowest_bit(open) - lo();
                open_rows[n] = (u32)row;
                n += row < s.active && back.degree(row) > 0;
            }
        for (i64 i = 0; i < n; ++i) {
            fetch_row(back, i, n, [&](i64 next) { return (i64)open_rows[next]; });
            i64 row = open_rows[i];
            if (back.degree(row) > HUB_DEGREE) {
                add_tasks(back, row, tasks, world.number(TASKS));
                continue;
            }
            u32 parent = look_in_row(Tile<lanes>{}, row, bits);
            if (parent == no_id) continue;
            find(s, row, parent, mine);
            hits[(row + lo()) / word_bits - word] |= bit_of(row + lo());
        }
        for (int k = 0; k < words; ++k)
            if (own_bits(word + k)) put_to_all(s.buffer ^ 1, word + k, load(bits + word + k) | hits[k]);
    }
    DEVICE void do_up_hubs(Grid grid, const State& s, Numbers& mine) const {
        Tile<lanes> tile;
        const u32* bits = seen(world.rank, s.buffer);
        for (i64 i : grid.items(tile, s.tasks))
            visit_task(back, load(tasks + i), [&](i64 row, i64 unit) {
                i64 v = row + lo();
                u32* word = seen(world.rank, s.buffer ^ 1) + v / word_bits;
                if (tile.any(load(word) & bit_of(v))) return true;
                if (look_in_unit(tile, row, unit, bits) == no_id) return false;
                if (tile.rank() == 0 && !(atomic_or(word, bit_of(v)) & bit_of(v))) {
                    distance[row] = (i32)(s.level + 1);
                    mine.of[ARCS] += graph.degree(row);
                    ++mine.of[FOUND];
                    for (i64 r = 0; r < world.size; ++r)
                        if (r != world.rank && world.reaches(r))
                            or_everywhere(seen(r, s.buffer ^ 1) + v / word_bits, bit_of(v));
                }
                return true;
            });
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        switch (s.phase) {
        case clear:
            s.left = heard.total(FOUND), s.active = heard.own(LATE);
            s.listed = heard.own(LISTED), s.reached = s.listed;
            s.found = 1, s.found_arcs = heard.total(ARCS);
            s.levels = 1;
            s.phase = expand;
            break;
        case expand:
            s.tasks = heard.own(TASKS);
            after_sending(s, heard, heard.total(TASKS) ? hubs : finished);
            break;
        case hubs: after_sending(s, heard, finished); break;
        case collect:
            count_finds(s, heard);
            s.inbox = 0;
            if (s.after == hubs) s.phase = hubs;
            else end_level(s, 0);
            break;
        case settle:
            s.reached += heard.own(LATE), s.inbox = 0;
            s.phase = publish;
            break;
        case publish: s.phase = up; break;
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
            end_level(s, 0);
            break;
        case list:
            s.listed = heard.own(LISTED);
            s.phase = expand;
            break;
        default: s.reached = heard.total(FOUND), s.phase = finished;
        }
    }
    // What was found and listed, or settled late, on all ranks.
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
    DEVICE void after_sending(State& s, const Heard& heard, i64 after) const {
        if (s.phase == expand) s.found = s.found_arcs = 0;
        count_finds(s, heard);
        s.inbox = heard.sent() > 0;
        if (heard.any(overflowed)) s.phase = collect, s.after = after;
        else if (after == hubs) s.phase = hubs;
        else end_level(s, heard.sent());
    }
    // The next level becomes the frontier; `sent` of its vertices are still messages.
    DEVICE void end_level(State& s, i64 sent) const {
        bool was_up = s.phase == up || s.phase == up_hubs;
        if (s.found > 0) s.levels = greater(s.levels, s.level + 2);
        s.left -= s.found_arcs;
        i64 n = s.found + sent, arcs = s.found_arcs;
        if (was_up) s.lowered = 0;
        ++s.level;
        s.listed = s.next_listed, s.next_listed = 0;
        s.found = s.found_arcs = 0;
        if (n == 0) {
            s.phase = tell;
            return;
        }
        bool goes_up = pulls && arcs * steep > s.left && arcs > vertices() / word_bits;
        if (goes_up) s.phase = was_up || world.size == 1 ? up : s.inbox ? settle : publish;
        else s.phase = was_up ? list : expand;
    }
};
