// Upwards: each own vertex that is not visited looks for a visited in-neighbour. By then all ranks know all visited
// vertices. The words with the new ones go into the other bitmap of every rank.
#pragma once
#include "algorithms/primitives/programs.cuh"

constexpr int words_at_once = 16;
struct OVERLAY BlockOfRows {  // the open rows of a tile
    u32 words[words_at_once];
    u16 open[words_at_once * word_bits], longer[words_at_once * word_bits];  // bits, from the first word on
};

template <class Search>
struct SearchUp {
    using View = decltype(Search::back);
    const Search& search;
    const typename Search::State& s;
    Numbers& mine;
    OwnBits own;
    const World& world = search.world;
    const View& back = search.back;

    // A tile takes `words_at_once` words, and lists their open rows, so that all its lanes have a row to look at
    // however few are left. The words go to all ranks when all rows have been looked at.
    DEVICE void look(Grid grid, BlockOfRows& rows) const {
        Tile<Search::lanes> tile;
        const u32* bits = search.seen(world.rank, s.buffer);
        i64 first = own.first_word() / words_at_once, end = (own.end_word() + words_at_once - 1) / words_at_once;
        if constexpr (tile.size() == 1) {
            for (i64 i : grid.items(end - first)) up_words((first + i) * words_at_once, bits);
        } else {
            for (i64 i : grid.scattered(tile, end - first)) up_block(tile, rows, (first + i) * words_at_once, bits);
        }
    }
    template <class Group>
    DEVICE void up_block(Group tile, BlockOfRows& rows, i64 word, const u32* bits) const {
        // the open rows
        int n = 0, longer = 0;
        u32 old = ~0u, open = 0;
        if (tile.rank() < words_at_once) {
            if (word + tile.rank() < own.end_word()) old = load(bits + word + tile.rank());
            open = ~old & own(word + tile.rank());
            rows.words[tile.rank()] = old;
        }
        if (tile.any(open))
            for (int w = 0; w < words_at_once; ++w) {
                u32 now = tile.shfl(open, w);
                if (now >> tile.rank() & 1)
                    rows.open[n + popcount(now & ((1u << tile.rank()) - 1))] = (u16)(w * word_bits + tile.rank());
                n += popcount(now);
            }
        tile.sync();
        // each lane looks at the first slots of some rows
        i64 base = word * word_bits - world.lo();  // the row of the first bit
        u32 found = 0;
        i64 arcs = 0;
        for (int at = 0; at < n; at += rows_at_once * tile.size()) {
            u32 parent[rows_at_once], degree[rows_at_once], more = 0;
            u16 bit[rows_at_once];
            for (int k = 0; k < rows_at_once; ++k) {
                int i = at + k * tile.size() + tile.rank();
                bit[k] = i < n ? rows.open[i] : none;
                parent[k] = no_id;
            }
            if constexpr (in_stretches<View>) more = look_at_first(tile, base, bit, bits, parent);
            else
                for (int k = 0; k < rows_at_once; ++k)
                    if (bit[k] != none) parent[k] = look_alone(base + bit[k], bits, more, k);
            for (int k = 0; k < rows_at_once; ++k)
                degree[k] = parent[k] == no_id ? 0 : search.graph.degree(base + bit[k]);
            for (int k = 0; k < rows_at_once; ++k) {
                if (parent[k] != no_id) settle(rows, base, bit[k], parent[k]);
                found += parent[k] != no_id, arcs += degree[k];
                u32 these = tile.ballot(more >> k & 1);
                if (more >> k & 1) rows.longer[longer + popcount(these & ((1u << tile.rank()) - 1))] = bit[k];
                longer += popcount(these);
            }
        }
        tile.sync();
        // a few lanes look at the rest of each longer row; one of high degree becomes tasks
        Tile<few, true> group;
        for (int at = 0; at < longer; at += tile.size() / few) {
            int i = at + tile.rank() / few;
            u16 bit = i < longer ? rows.longer[i] : none;
            i64 row = base + bit;
            bool hub = bit != none && is_hub(row);
            if (hub && group.rank() == 0) add_tasks(back, row, search.tasks, world.number(Search::TASKS));
            u32 parent = look_at_rest(tile, group, bit == none || hub ? -1 : row, bits);
            if (parent != no_id && group.rank() == 0) {
                settle(rows, base, bit, parent);
                ++found, arcs += search.graph.degree(row);
            }
            tile.sync();
        }
        mine.of[Search::FOUND] += found, mine.of[Search::ARCS] += arcs;
        put_words(tile, rows, word);
        tile.sync();
    }
    template <class Group> DEVICE void put_words(Group tile, const BlockOfRows& rows, i64 word) const {
        constexpr int quads = words_at_once / 4;  // a lane stores four words
        for (i64 i = tile.rank(); i < world.size * quads; i += tile.size()) {
            i64 r = i / quads, from = word + i % quads * 4;
            if (!world.reaches(r)) continue;
            u32 four[4];
            bool whole = true;
            for (int k = 0; k < 4; ++k) four[k] = rows.words[i % quads * 4 + k], whole &= own(from + k) == ~0u;
            if (whole) {
                store_four(search.seen(r, s.buffer ^ 1) + from, four);
            } else {
                for (int k = 0; k < 4; ++k)
                    if (own(from + k)) own.put(search.seen(r, s.buffer ^ 1), from + k, four[k]);
            }
        }
    }
    DEVICE void settle(BlockOfRows& rows, i64 base, u16 bit, u32 parent) const {
        atomic_or(rows.words + bit / word_bits, bit_of(bit));
        write(base + bit, parent);
    }
    DEVICE void write(i64 row, u32 parent) const {
        search.distance[row] = (i32)(s.level + 1);
        if (PARENTS && View::sorted) search.parents[row] = parent;  // the first visited neighbour is the least
    }
    DEVICE void count(i64 row) const { ++mine.of[Search::FOUND], mine.of[Search::ARCS] += search.graph.degree(row); }
    static constexpr u16 none = 0xffff;
    static constexpr int looks = 8;  // slots of a row that its lane looks at by itself
    static constexpr int rows_at_once = 2, slots_at_once = 2;  // that a lane reads without waiting
    static constexpr int few = in_stretches<View> ? 4 : narrow;  // lanes that look at the rest of a row
    static constexpr int rest_at_once = 4;  // slots that each of them reads without waiting
    // The first visited in-neighbours among the first slots; returns which rows have none there, but more slots.
    template <class Group>
    DEVICE u32 look_at_first(Group tile, i64 base, const u16 (&bit)[rows_at_once], const u32* bits,
                             u32 (&parent)[rows_at_once]) const {
        i64 at[rows_at_once], end[rows_at_once];
        u32 open = 0;
        for (int k = 0; k < rows_at_once; ++k) {
            bool some = bit[k] != none;
            at[k] = some ? back.begins(base + bit[k]) : 0, end[k] = some ? back.ends(base + bit[k]) : 0;
        }
        for (int k = 0; k < rows_at_once; ++k) open |= (u32)(at[k] < end[k]) << k;
        for (int first = 0; first < looks && tile.any(open); first += slots_at_once) {
            u32 id[slots_at_once][rows_at_once];
            for (int k = 0; k < rows_at_once; ++k)
                for (int j = 0; j < slots_at_once; ++j) {
                    i64 slot = at[k] + first + j;
                    id[j][k] = open >> k & 1 && slot < end[k] ? back.id_at(slot) : no_id;
                }
            for (int j = 0; j < slots_at_once; ++j) {
                u32 hits = saw_bits(bits, id[j], present(id[j]) & open);
                for (int k = 0; k < rows_at_once; ++k)
                    if (hits >> k & 1) parent[k] = id[j][k];
                open &= ~hits;
            }
            for (int k = 0; k < rows_at_once; ++k)
                if (at[k] + first + slots_at_once >= end[k]) open &= ~(1u << k);
        }
        return open;
    }
    DEVICE bool is_hub(i64 row) const {
        if constexpr (in_stretches<View>)
            if (back.ends(row) - back.begins(row) <= HUB_DEGREE) return false;
        return back.degree(row) > HUB_DEGREE;
    }
    // The first visited in-neighbour after those slots, by a few lanes, while others do the same for their rows (-1 for
    // none).
    template <class Tile32, class Group>
    DEVICE u32 look_at_rest(Tile32 tile, Group group, i64 row, const u32* bits) const {
        u32 parent = no_id;
        if constexpr (in_stretches<View>) {
            i64 at = row < 0 ? 0 : back.begins(row) + looks, end = row < 0 ? 0 : back.ends(row);
            for (; tile.any(at < end); at += rest_at_once * few) {
                u32 id[rest_at_once], first = no_id;
                for (int j = 0; j < rest_at_once; ++j) {
                    i64 slot = at + group.rank() * rest_at_once + j;
                    id[j] = slot < end ? back.id_at(slot) : no_id;
                }
                u32 hits = saw_bits(bits, id, present(id));
                for (int j = rest_at_once - 1; j >= 0; --j)
                    if (hits >> j & 1) first = id[j];
                u32 lanes = group.ballot(hits != 0);
                first = group.shfl(first, lanes ? lowest_bit(lanes) : 0);
                if (lanes) parent = first, end = 0;
            }
        } else if (row >= 0) {
            parent = look_in_row(Tile<few>{}, row, bits);
        }
        return parent;
    }
    // A short row's, by one lane; a longer one is left to several.
    DEVICE u32 look_alone(i64 row, const u32* bits, u32& more, int k) const {
        i64 degree = back.degree(row);
        if (degree > short_degree) more |= 1u << k;
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
    DEVICE void up_words(i64 word, const u32* bits) const {
        u32 open_rows[words_at_once * word_bits], hits[words_at_once] = {};
        i64 n = 0;
        int words = (int)lesser((i64)words_at_once, own.end_word() - word);
        for (int k = 0; k < words; ++k)
            for (u32 open = ~load(bits + word + k) & own(word + k); open; open &= open - 1) {
                i64 row = (word + k) * word_bits + lowest_bit(open) - world.lo();
                open_rows[n] = (u32)row;
                n += back.degree(row) > 0;
            }
        for (i64 i = 0; i < n; ++i) {
            fetch_row(back, i, n, [&](i64 next) { return (i64)open_rows[next]; });
            i64 row = open_rows[i];
            if (back.degree(row) > HUB_DEGREE) {
                add_tasks(back, row, search.tasks, world.number(Search::TASKS));
                continue;
            }
            u32 parent = look_in_row(Tile<Search::lanes>{}, row, bits);
            if (parent == no_id) continue;
            write(row, parent), count(row);
            hits[(row + world.lo()) / word_bits - word] |= bit_of(row + world.lo());
        }
        for (int k = 0; k < words; ++k)
            for (i64 r = 0; own(word + k) && r < world.size; ++r)
                if (world.reaches(r)) own.put(search.seen(r, s.buffer ^ 1), word + k, load(bits + word + k) | hits[k]);
    }
    DEVICE void look_at_tasks(Grid grid) const {
        Tile<Search::lanes> tile;
        const u32* bits = search.seen(world.rank, s.buffer);
        for (i64 i : grid.items(tile, s.tasks))
            visit_task(back, load(search.tasks + i), [&](i64 row, i64 unit) {
                i64 v = row + world.lo();
                u32* word = search.seen(world.rank, s.buffer ^ 1) + v / word_bits;
                if (tile.any(load(word) & bit_of(v))) return true;
                if (look_in_unit(tile, row, unit, bits) == no_id) return false;
                if (tile.rank() == 0 && !(atomic_or(word, bit_of(v)) & bit_of(v))) {
                    search.distance[row] = (i32)(s.level + 1);
                    count(row);
                    for (i64 r = 0; r < world.size; ++r)
                        if (r != world.rank && world.reaches(r))
                            or_everywhere(search.seen(r, s.buffer ^ 1) + v / word_bits, bit_of(v));
                }
                return true;
            });
    }
};
