// What searches have in common that ranks run together: rows into messages, messages into rows, and bitmaps of all
// vertices of which each rank writes its own bits.
#pragma once
#include "kernels/world.cuh"
#include "kernels/bits.cuh"
#include "kernels/buffered_append.cuh"
#include "kernels/rows.cuh"

// True if ranks may work on arrays in the region of one of them, as `World.one_memory` says.
constexpr bool one_memory = Tile<32>::size() == 1;

// ---- messages ------------------------------------------------------------------------------------------------------

// How many have come in, those that did not fit into an inbox among them.
DEVICE i64 received(const Heard& heard, i64 inbox) { return inbox ? heard.messages() : 0; }
DEVICE u32 pending(const World& world, const Heard& heard, i64 i) {  // the i-th message, where all fitted
    i64 r = 0;
    for (; i >= heard.messages(r); ++r) i -= heard.messages(r);
    return world.message(heard, r, i);
}
// Calls take(message) with those of the ranks from which all fitted.
template <class Take>
DEVICE void visit_whole_inboxes(Grid grid, const World& world, const Heard& heard, i64 inbox, Take take) {
    for (i64 r = 0; inbox && r < world.size; ++r) {
        i64 n = heard.messages(r);
        if (n > world.room) continue;
        for (i64 i : grid.items(n)) take(world.message(heard, r, i));
    }
}
// The place of each lane that wants one in a list, by one atomic for the group.
template <class Group> DEVICE i64 places(Group group, bool wanted, i64* counter) {
    if constexpr (Group::width == 1) return wanted ? take_place(counter) : 0;
    u32 all = group.ballot(wanted);
    i64 first = all && group.rank() == 0 ? atomic_add(counter, (i64)popcount(all)) : 0;
    return group.shfl(first, 0) + popcount(all & ((1u << group.rank()) - 1));
}
// Each lane of a group appends an id to a list, or none.
template <class Group> DEVICE void append(Group group, bool wanted, u32 id, BufferedIds& to, u32* list, i64* count) {
    if constexpr (BufferedIds::holds) {
        if (wanted) to.add(id, list, count);
    } else {
        i64 place = places(group, wanted, count);
        if (wanted) store(list + place, id);
    }
}
// The place of each lane's message among those to `owner`; `room` or more: it does not fit, and is counted only.
template <class Group> DEVICE i64 places_at(Group group, const World& world, bool mail, i64 owner) {
    if constexpr (Group::width == 1) return mail ? take_place(world.counts() + owner) : 0;
    i64 place = 0;
    for (i64 r = 0; r < world.size; ++r) {
        bool now = mail && owner == r;
        if (!group.any(now)) continue;
        i64 at = places(group, now, world.counts() + r);
        if (now) place = at;
    }
    return place;
}
// Each lane of a group has a message to `owner`, or none.
template <class Group, class T>
DEVICE void send_together(Group group, const World& world, const Heard& heard, bool mail, i64 owner, T message) {
    i64 place = places_at(group, world, mail, owner);
    if (mail && place < world.room) world.put(heard, owner, place, message);
}

// Returns how many lanes go to the rank with this lane's number; same: the lanes that go where this one goes.
template <class Group> DEVICE u32 lanes_to(Group group, int to, int ranks, u32* same = nullptr) {
    u32 count = 0;
    for (int r = 0; r < ranks; ++r) {
        u32 there = group.ballot(to == r);
        if (group.rank() == r) count = popcount(there);
        if (same && to == r) *same = there;
    }
    return count;
}
// Sends the ids id_at(0) .. id_at(n - 1), no_id for none, by one atomic of the group for each rank, all at once. Own ones
// take places in a list that `listed` counts: keep(place, id).
template <class Group, class IdAt, class Keep>
DEVICE void send_all(Group group, const World& world, const Heard& heard, u32 n, IdAt id_at, i64* listed, Keep keep) {
    for (int first = 0; first < (int)world.size; first += group.size()) {
        int ranks = lesser((int)world.size - first, group.size());
        auto rank_of = [&](u32 at) {
            u32 id = at < n ? id_at(at) : no_id;
            return id == no_id ? -1 : (int)world.owner(id) - first;
        };
        // Each lane counts what goes to one rank, and takes places there.
        u32 count = 0;
        for (u32 at = 0; at < n; at += group.size()) count += lanes_to(group, rank_of(at + group.rank()), ranks);
        int of = first + group.rank();
        i64* counter = of == (int)world.rank ? listed : world.counts() + of;
        i64 place = count ? atomic_add(counter, (i64)count) : 0;
        for (u32 at = 0; at < n; at += group.size()) {
            int to = rank_of(at + group.rank());
            u32 same = 0, more = lanes_to(group, to, ranks, &same);
            i64 next = group.shfl(place, greater(to, 0)) + popcount(same & ((1u << group.rank()) - 1));
            place += more;
            if (to < 0 || to >= ranks) continue;
            u32 id = id_at(at + group.rank());
            if (first + to == (int)world.rank) keep(next, id);
            else if (next < world.room) world.put(heard, first + to, next, id);
        }
    }
}

// ---- rows ----------------------------------------------------------------------------------------------------------

// What a tile has found and not handed on yet. Lanes add to it one by one; handing on takes a place in a list for all.
struct Finds {
    static constexpr u32 most = 384;
    u32* ids;  // `most` of them, then their count
    DEVICE u32* count() const { return ids + most; }
    template <class Tile> DEVICE void clear(Tile tile) const {
        if (tile.rank() == 0) *count() = 0;
        tile.sync();
    }
    DEVICE bool add(u32 id) const {  // true if there was room
        u32 at = add_nearby(count(), 1u);
        if (at < most) ids[at] = id;
        return at < most;
    }
    // Each lane of a tile adds an id, or nothing. There must be room.
    template <class Group> DEVICE void add_together(Group group, bool wanted, u32 id) const {
        if constexpr (Group::width < 32) {
            if (wanted) add(id);
        } else {
            u32 all = group.ballot(wanted), at = load(count());
            if (wanted) ids[at + popcount(all & ((1u << group.rank()) - 1))] = id;
            group.sync();  // all have read the count
            if (group.rank() == 0 && all) store(count(), at + popcount(all));
            group.sync();
        }
    }
    // The last of n ids, one for each lane, which leave the list; `none` for lanes without one.
    template <class Tile> DEVICE u32 take_last(Tile tile, u32 n, u32 none) const {
        u32 first = n > (u32)tile.size() ? n - tile.size() : 0, at = first + tile.rank();
        u32 id = at < n ? ids[at] : none;
        tile.sync();
        if (tile.rank() == 0) *count() = first;
        tile.sync();
        return id;
    }
    template <class Tile> DEVICE u32 waiting(Tile tile) const {
        tile.sync();
        return lesser(tile.shfl(load(count()), 0), most);  // before any lane finds more
    }
};

// Expands n rows, row_at(i) or -1, of which the first `listed` are in a list: visit(group, row, unit) for their units,
// after(tile) when a tile has done its share of them. Rows of high degree become tasks.
template <class View, class ListedAt, class RowAt, class Visit, class After>
DEVICE void expand_rows(Grid grid, const View& graph, i64 n, i64 listed, ListedAt listed_at, RowAt row_at, u64* tasks,
                        i64* n_tasks, Visit visit, After after) {
    Tile<32> tile;
    i64 few = rows_at_once(grid, tile, n);
    for (i64 i : grid.items(tile, turns_of(n, few))) {
        i64 at = i * few + tile.rank();
        fetch_row(graph, at, listed, listed_at);
        i64 row = tile.rank() < few && at < n ? row_at(at) : -1;
        if (few * narrow <= tile.size()) row = visit_few_short(graph, tile, row, visit);
        visit_rows(graph, tile, row, tasks, n_tasks, visit);
        after(tile);
    }
}

// ---- bitmaps of all vertices ---------------------------------------------------------------------------------------

// The own part of such a bitmap, as every rank has one. Words at the ends of a range belong to two ranks.
struct OwnBits {
    const World& world;
    i64 end = world.hi();
    DEVICE i64 first_word() const { return world.lo() / word_bits; }
    DEVICE i64 end_word() const { return words_of(end); }
    DEVICE i64 words() const { return end_word() - first_word(); }
    DEVICE u32 operator()(i64 word) const {  // the bits of a word that are own vertices
        i64 from = world.lo() - word * word_bits, to = end - word * word_bits;
        u32 below = from <= 0 ? 0 : from >= word_bits ? ~0u : (1u << from) - 1;
        u32 upto = to <= 0 ? 0 : to >= word_bits ? ~0u : (1u << to) - 1;
        return upto & ~below;
    }
    DEVICE void put(u32* bitmap, i64 word, u32 bits) const {
        u32 own = (*this)(word);
        if (own == ~0u) store(bitmap + word, bits);
        else if (bits & own) or_everywhere(bitmap + word, bits & own);
    }
};
