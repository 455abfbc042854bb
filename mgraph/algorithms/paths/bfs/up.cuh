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
    const World& world = search.world;
    const View& back = search.back;
    OwnBits own{search.world};

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
        u32 old =
            tile.rank() < words_at_once && word + tile.rank() < own.end_word() ? load(bits + word + tile.rank()) : ~0u;
        u32 open = tile.rank() < words_at_once ? ~old & own(word + tile.rank()) : 0;
        if (tile.rank() < words_at_once) rows.words[tile.rank()] = old;
        i64 base = word * word_bits - world.lo();  // the row of the first bit
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
                if (parent[k] != no_id) settle(rows, base, bit[k], parent[k]);
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
                if (parent != no_id && group.rank() == 0) settle(rows, base, bit, parent);
            }
            tile.sync();
        }
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
        find(base + bit, parent);
    }
    DEVICE void find(i64 row, u32 parent) const {
        search.distance[row] = (i32)(s.level + 1);
        if (PARENTS && View::sorted) search.parents[row] = parent;  // the first visited neighbour is the least
        mine.of[Search::ARCS] += search.graph.degree(row);
        ++mine.of[Search::FOUND];
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
            if (length[k] > HUB_DEGREE) add_tasks(back, base + bit[k], search.tasks, world.number(Search::TASKS));
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
        if (degree > HUB_DEGREE) add_tasks(back, row, search.tasks, world.number(Search::TASKS));
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
    DEVICE void up_words(i64 word, const u32* bits) const {
        u32 open_rows[words_at_once * word_bits], hits[words_at_once] = {};
        i64 n = 0;
        int words = (int)lesser((i64)words_at_once, own.end_word() - word);
        for (int k = 0; k < words; ++k)
            for (u32 open = ~load(bits + word + k) & own(word + k); open; open &= open - 1) {
                i64 row = (word + k) * word_bits + lowest_bit(open) - world.lo();
                open_rows[n] = (u32)row;
                n += row < s.active && back.degree(row) > 0;
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
            find(row, parent);
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
                    mine.of[Search::ARCS] += search.graph.degree(row);
                    ++mine.of[Search::FOUND];
                    for (i64 r = 0; r < world.size; ++r)
                        if (r != world.rank && world.reaches(r))
                            or_everywhere(search.seen(r, s.buffer ^ 1) + v / word_bits, bit_of(v));
                }
                return true;
            });
    }
};
