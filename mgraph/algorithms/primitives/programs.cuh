// What searches have in common that ranks run together: rows into messages, messages into rows, and bitmaps of all
// vertices of which each rank writes its own bits.
#pragma once
#include "kernels/world.cuh"
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"

// ---- messages ------------------------------------------------------------------------------------------------------

// How many have come in, those that did not fit into an inbox among them.
DEVICE i64 received(const World& world, const Heard& heard, i64 inbox) {
    i64 sum = 0;
    for (i64 r = 0; inbox && r < world.size; ++r) sum += heard.messages(r);
    return sum;
}
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
    u32 all = group.ballot(wanted);
    i64 first = all && group.rank() == 0 ? atomic_add(counter, (i64)popcount(all)) : 0;
    return group.shfl(first, 0) + popcount(all & ((1u << group.rank()) - 1));
}
// Each lane of a group has a message to `owner`, or none. What does not fit is counted.
template <class Group, class T>
DEVICE void send_together(Group group, const World& world, const Heard& heard, bool mail, i64 owner, T message) {
    for (i64 r = 0; r < world.size; ++r) {
        bool now = mail && owner == r;
        if (!group.any(now)) continue;
        i64 at = places(group, now, world.counts + r);
        if (now && at < world.room) world.put(heard, r, at, message);
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
    // Each lane hands on its part, hand_on(tile, id), if there are `least` of them; a lane without one brings `none`.
    template <class Tile, class HandOn> DEVICE void hand_on(Tile tile, u32 least, u32 none, HandOn hand_on) const {
        tile.sync();
        u32 n = lesser(tile.shfl(load(count()), 0), most);  // a lane may add before another one has read
        if (n < least) return;
        for (u32 at = 0; at < n; at += tile.size()) hand_on(tile, at + tile.rank() < n ? ids[at + tile.rank()] : none);
        tile.sync();
        clear(tile);
    }
};

// Expands n rows, row_at(i) or -1, of which the first `listed` are in a list: visit(group, row, unit) for their units,
// after(tile) when a tile has done its share of them. Rows of high degree become tasks.
template <class View, class ListedAt, class RowAt, class Visit, class After>
DEVICE void expand_rows(Grid grid, const View& graph, i64 n, i64 listed, ListedAt listed_at, RowAt row_at, u64* tasks,
                        i64* n_tasks, Visit visit, After after) {
    Tile<32> tile;
    i64 few = rows_at_once(grid, tile, n);
    for (i64 i : grid.items(tile, (n + few - 1) / few)) {
        i64 at = i * few + tile.rank();
        fetch_row(graph, at, listed, listed_at);
        i64 row = tile.rank() < few && at < n ? row_at(at) : -1;
        if (few * narrow <= tile.size()) visit_few_rows(graph, tile, row, tasks, n_tasks, visit);
        else visit_rows(graph, tile, row, tasks, n_tasks, visit);
        after(tile);
    }
}

// ---- bitmaps of all vertices ---------------------------------------------------------------------------------------

// The own part of such a bitmap, as every rank has one. Words at the ends of a range belong to two ranks.
struct OwnBits {
    const World& world;
    DEVICE i64 first_word() const { return world.lo() / word_bits; }
    DEVICE i64 end_word() const { return words_of(world.hi()); }
    DEVICE i64 words() const { return end_word() - first_word(); }
    DEVICE u32 operator()(i64 word) const {  // the bits of a word that are own vertices
        i64 from = world.lo() - word * word_bits, to = world.hi() - word * word_bits;
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
