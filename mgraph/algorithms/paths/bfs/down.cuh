// From the rows of a level to their neighbours. A rank sets a neighbour's bit in its own bitmap first, so it sends each
// vertex once. The owner settles what it receives when it expands its next level. Where a rank found more vertices of
// another than an inbox holds, the owner reads the finder's bitmap instead.
#pragma once
#include "algorithms/primitives/programs.cuh"

template <class Search>
struct SearchDown {
    using State = typename Search::State;
    const Search& search;
    const State& s;
    const Heard& heard;
    Finds finds;
    Numbers& mine;
    const World& world = search.world;

    DEVICE bool visit_first(u32 id) const {
        u32* word = search.seen(world.rank, s.buffer) + id / word_bits;
        return !(atomic_or(word, bit_of(id)) & bit_of(id));
    }
    // An own vertex of the next level goes to the next list.
    DEVICE void enlist(i64 row, i64 level, i64 base) const {
        store(search.listing(level) + base + take_place(world.number(Search::LISTED)), (u32)row);
        mine.of[Search::ARCS] += search.graph.degree(row);
    }
    // Finds those of a lane's ids (no_id for none) that nobody has visited. Each step is one access for all of them.
    template <int n> DEVICE void discover(const u32 (&ids)[n], bool look_again) const {
        u32* bits = search.seen(world.rank, s.buffer);
        u32 open = present(ids), before[n];
        open &= ~saw_bits(bits, ids, open);
        if (look_again) open &= ~get_bits(bits, ids, open);
        for (int k = 0; k < n; ++k)
            before[k] = open >> k & 1 ? atomic_or(bits + ids[k] / word_bits, bit_of(ids[k])) : 0;
        for (int k = 0; k < n; ++k)
            if (before[k] & bit_of(ids[k])) open &= ~(1u << k);
        for (int k = 0; k < n; ++k)
            if (open >> k & 1 && finds.add(ids[k])) open &= ~(1u << k);
        if (open)
            for (int k = 0; k < n; ++k) {
                u32 id = ids[k];
                if (open >> k & 1) hand_on(Tile<1>{}, &id, 1);
            }
    }
    template <class Group> DEVICE void hand_on_all(Group tile, u32 least) const {
        u32 n = finds.waiting(tile);
        if (n < least) return;
        hand_on(tile, finds.ids, n);
        tile.sync();
        finds.clear(tile);
    }
    template <class Group> DEVICE void hand_on(Group group, u32* ids, u32 n) const {
        mine.of[Search::ARCS] += handed_on(group, search, heard, s.level + 1, s.next_listed, ids, n);
    }
    // Own vertices get their distance and go to the next list, others to their owners. Returns the arcs of them that the
    // lane counted. Apart: with a copy for each caller, a GPU took longer to fetch the instructions.
    template <class Group>
    static APART i64 handed_on(Group group, const Search& all, Heard heard, i64 level, i64 next_listed, u32* ids,
                               u32 n) {
        const Search& search = nearby(all);
        constexpr int few = Group::width > 1 ? 4 : 1;  // accesses of a lane at once
        const World& world = search.world;
        i64 arcs = 0;
        for (u32 base = group.rank(); base < n; base += few * group.size()) {
            u32 id[few];
            i64 row[few], before[few];
#pragma unroll
            for (int k = 0; k < few; ++k) {
                u32 at = base + k * group.size();
                id[k] = at < n ? ids[at] : no_id;
                i64 owner = id[k] == no_id ? world.rank : world.owner(id[k]);
                row[k] = (i64)id[k] - world.start(owner), before[k] = Search::unreached;
                if (id[k] == no_id || owner != world.rank) continue;
                if (world.size == 1) search.distance[row[k]] = (i32)level;
                else before[k] = (i64)atomic_min((u32*)search.distance + row[k], (u32)level);
            }
#pragma unroll
            for (int k = 0; k < few; ++k) {
                if (id[k] == no_id) continue;
                if (before[k] <= level) ids[base + k * group.size()] = no_id;
                else if (row[k] < world.rows()) arcs += search.graph.degree(row[k]);  // others' alike
            }
        }
        group.sync();
        send_all(
            group, world, heard, n, [&](u32 at) { return ids[at]; }, world.number(Search::LISTED),
            [&](i64 place, u32 id) {
                store(search.listing(level) + next_listed + place, (u32)((i64)id - world.lo()));
            });
        return arcs;
    }
    template <class Group> DEVICE void expand_unit(Group group, i64 row, i64 unit, bool look_again) const {
        read_ids(search.graph, group, row, unit, [&](const auto& ids, i64) { discover(ids, look_again); });
        if constexpr (Group::width == Search::lanes) hand_on_all(group, Finds::most / 3);
    }
    DEVICE void expand(Grid grid) const {
        Tile<Search::lanes> tile;
        finds.clear(tile);
        const u32* rows_listed = search.listing(s.level);
        i64 n = s.listed + received(heard, s.inbox);
        bool look_again = n > crowded;
        auto row_at = [&](i64 at) -> i64 {
            if (at >= s.listed) return receive(pending(world, heard, at - s.listed), s.level);
            i64 row = load(rows_listed + at);
            bool before = s.lowered && load(search.distance + row) != s.level;  // it was of the level before
            return before ? -1 : row;
        };
        expand_rows(
            grid, search.graph, n, s.listed, [&](i64 at) { return (i64)load(rows_listed + at); }, row_at, search.tasks,
            world.number(Search::TASKS),
            [&](auto group, i64 row, i64 unit) { expand_unit(group, row, unit, look_again); },
            [&](auto tile) { hand_on_all(tile, Finds::most / 3); });
        hand_on_all(tile, 1);
    }
    // A message may come after an own vertex of the same level has led to its vertex: then the vertex is lowered.
    DEVICE i64 lower(i64 row, i64 level) const {  // its distance before; none is the largest
        return atomic_min((u32*)search.distance + row, (u32)level);
    }
    DEVICE i64 receive(u32 id, i64 level) const {  // its row if it is of this level now
        i64 row = (i64)id - world.lo(), before = lower(row, level);
        if (before <= level) return -1;
        visit_first(id);
        ++mine.of[before == Search::unreached ? Search::LATE : Search::LOWERED];
        return row;
    }
    // Few rows, most of them short: 16 lanes take one each, and hand on at once what they find. A GPU then waits for a
    // chain of few accesses. So a bit is set without a look at it before.
    static constexpr int brief = 16;
    static DEVICE bool is_brief(Grid grid, const State& s, const Heard& heard) {
        i64 groups = grid.items(Tile<brief>{}, 0).step;
        return Tile<brief>::size() > 1 && s.short_rows && s.listed + received(heard, s.inbox) <= groups;
    }
    struct Counted {
        i64 arcs = 0;
        u32 late = 0, lowered = 0;
    };
    static APART Counted expand_brief(Grid grid, const Search& all, const State& s, Heard heard) {
        const Search& search = nearby(all);
        const World& world = search.world;
        u32* bits = search.seen(world.rank, s.buffer);
        const u32* listed = search.listing(s.level);
        u32* next = search.listing(s.level + 1) + s.next_listed;
        const u32 level = (u32)s.level, lo = (u32)world.lo(), rows = (u32)world.rows(), n = (u32)s.listed;
        constexpr bool by_slots = in_stretches<decltype(search.graph)>;
        Counted counted;
        auto discover = [&](u32 id) {
            if (id == no_id || atomic_or(bits + id / word_bits, bit_of(id)) & bit_of(id)) return;
            u32 row = id - lo;  // those before its first one wrap around
            if (row < rows) {
                if (world.size == 1) search.distance[row] = (i32)(level + 1);
                else if (atomic_min((u32*)search.distance + row, level + 1) <= level + 1) return;
                // The next level reads the row's start and slots: they are fetched while the place is taken.
                u32 degree = search.graph.degree(row);
                i64 begins = 0;
                if constexpr (by_slots) begins = search.graph.begins(row);
                store(next + take_place(world.number(Search::LISTED)), row);
                if constexpr (by_slots) search.graph.fetch_from(begins);
                counted.arcs += degree;
                return;
            }
            i64 owner = world.owner(id), alike = (i64)id - world.start(owner),
                place = take_place(world.counts() + owner);
            if (place < world.room) world.put(heard, owner, place, id);
            if (alike < rows) counted.arcs += search.graph.degree(alike);
        };
        auto receive = [&](u32 id) -> i64 {  // its row if it is of this level now
            u32 before = atomic_min((u32*)search.distance + (id - lo), level);
            if (before <= level) return -1;
            atomic_or(bits + id / word_bits, bit_of(id));
            ++(before == Search::unreached ? counted.late : counted.lowered);
            return id - lo;
        };
        Tile<brief> group;
        for (i64 i : grid.scattered(group, n + received(heard, s.inbox))) {
            i64 row = -1;
            if (i < n) {
                row = load(listed + i);
                if (s.lowered && (u32)load(search.distance + row) != level) continue;  // it was of the level before
            } else {
                if (group.rank() == 0) row = receive(pending(world, heard, i - n));
                row = group.shfl(row, 0);
                if (row < 0) continue;
            }
            const auto& graph = search.graph;
            i64 at = 0, end = HUB_DEGREE + 1;  // of its slots, where they are in one stretch
            if constexpr (by_slots) at = graph.begins(row), end = graph.ends(row);
            if (end - at > HUB_DEGREE && (i64)graph.degree(row) > HUB_DEGREE) {
                if (group.rank() == 0) add_tasks(graph, row, search.tasks, world.number(Search::TASKS));
            } else if constexpr (by_slots) {
                for (at += group.rank(); at < end; at += group.size()) discover(graph.id_at(at));
            } else {
                for (i64 unit = 0, units = graph.units(row); unit < units; ++unit)
                    graph.visit(group, row, unit, [&](u32 id, i64, bool live) {
                        discover(live ? id : no_id);
                        return false;
                    });
            }
        }
        return counted;
    }
    DEVICE void expand_tasks(Grid grid) const {
        Tile<Search::lanes> tile;
        finds.clear(tile);
        visit_hubs(grid, search.graph, search.tasks, s.tasks,
                   [&](auto group, i64 row, i64 unit) { expand_unit(group, row, unit, true); });
        hand_on_all(tile, 1);
    }
    DEVICE void settle(Grid grid, i64 level, bool lists_them) const {
        visit_whole_inboxes(grid, world, heard, s.inbox, [&](u32 id) {
            i64 row = receive(id, level);
            if (row >= 0 && lists_them) enlist(row, level, s.next_listed);
        });
    }
    // The finds of ranks whose messages did not fit, from their bitmaps.
    DEVICE void collect(Grid grid) const {
        OwnBits own = search.active_bits(s);
        for (i64 r = 0; r < world.size; ++r) {
            if (heard.messages(r) <= world.room) continue;
            const u32* theirs = search.seen(r, s.buffer);
            for (i64 i : grid.items(own.words())) {
                i64 word = own.first_word() + i;
                u32 bits = load(theirs + word) & own(word) & ~load(search.seen(world.rank, s.buffer) + word);
                for (; bits; bits &= bits - 1) {
                    i64 row = receive((u32)(word * word_bits + lowest_bit(bits)), s.level + 1);
                    if (row >= 0) enlist(row, s.level + 1, s.next_listed);
                }
            }
        }
    }
    DEVICE void publish(Grid grid) const {
        OwnBits own = search.active_bits(s);
        for (i64 i : grid.items(own.words())) {
            i64 word = own.first_word() + i;
            u32 bits = load(search.seen(world.rank, s.buffer) + word) & own(word);
            for (i64 r = 0; r < world.size; ++r)
                if (r != world.rank && world.reaches(r)) own.put(search.seen(r, s.buffer), word, bits);
        }
    }
    // After levels upwards: the rows of the last one, by what its bitmap has more than the one before.
    DEVICE void list(Grid grid) const {
        OwnBits own = search.active_bits(s);
        const u32* now = search.seen(world.rank, s.buffer);
        const u32* before = search.seen(world.rank, s.buffer ^ 1);
        for (i64 i : grid.items(own.words())) {
            i64 word = own.first_word() + i;
            for (u32 bits = load(now + word) & ~load(before + word) & own(word); bits; bits &= bits - 1) {
                i64 row = word * word_bits + lowest_bit(bits) - world.lo();
                store(search.listing(s.level) + take_place(world.number(Search::LISTED)), (u32)row);
            }
        }
    }
};
