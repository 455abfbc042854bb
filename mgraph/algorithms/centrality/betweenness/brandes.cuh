// Brandes' algorithm for one source by all ranks together, after a search has found the level of each vertex.
//   clear               empties the bitmaps of levels, and begins at the source
//   count, begin, list  sort the own vertices by level
//   sum                 goes through the levels. Each own vertex of a level sums over its neighbours in the level before
//                       (forward, over in-edges: paths) or after (backward, over out-edges: dependencies), and its owner
//                       writes the result to all ranks, with its bit for the next level
//   hubs, join          sum rows of high degree piece by piece, where a rank has some in the level
// Sums are pulled, so that no sum depends on timing. Numbers of paths may exceed any float: they are m * 2^(512 power),
// with m from 1 to below 2^512.
#pragma once
#include "algorithms/primitives/programs.cuh"

constexpr f64 step_up = 1.3407807929942597e154, step_down = 1 / step_up;  // 2^512
constexpr i64 few_levels = 32;  // levels whose vertices a tile counts by itself before it adds to the counts of all
constexpr i64 sorted_words = 32;  // of vertices, that a tile sorts by level at once

struct Big {
    f64 m;
    i32 power;
};
DEVICE f64 scaled(f64 m, i32 steps) {  // scaled down by `steps` powers; after two of them it is negligible
    return steps == 0 ? m : steps == 1 ? m * step_down : 0;
}
DEVICE Big add(Big a, Big b) {
    if (a.m == 0 || b.m == 0) return a.m == 0 ? b : a;
    i32 power = greater(a.power, b.power);
    return {scaled(a.m, power - a.power) + scaled(b.m, power - b.power), power};
}
template <class Tile> DEVICE Big sum(Tile tile, Big part) {
    i32 power = (i32)tile.most((u32)(part.m == 0 ? 0 : part.power));
    return {tile.sum(part.m == 0 ? 0 : scaled(part.m, power - part.power)), power};
}

// The fold of a row: the sum over its neighbours in `near`. It is `plain` if all powers are 0.
template <class Program, bool way_back, bool plain> struct Terms {
    static constexpr bool backward = way_back;
    const Program& all;
    const u32* near;
    const f64* values;
    DEVICE Big nothing() const { return {0, 0}; }
    template <int n> DEVICE u32 chosen(const u32 (&ids)[n], u32 which) const { return saw_bits(near, ids, which); }
    DEVICE Big term(i64 row, u32 id, i64) const {
        f64 value = values[id];
        if (plain) return {value, 0};
        const i32* powers = all.powers(all.world.rank);
        if (!backward) return {value, powers[id]};
        return {scaled(value, powers[id] - powers[all.world.lo() + row]), 0};
    }
    DEVICE Big with(Big sum, Big term) const { return plain || backward ? Big{sum.m + term.m, 0} : add(sum, term); }
    template <class Group> DEVICE Big over(Group group, Big part) const {
        return plain || backward ? Big{group.sum(part.m), 0} : sum(group, part);
    }
};

template <class View>
struct Brandes {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    View graph;
    View back;  // the in-edges
    i64 source;
    i64 levels;  // at least 3: without a vertex in between there is nothing to do
    const i32* level;  // of each own vertex; -1 without a path from the source
    i64* firsts;  // levels + 1: where each level begins in the list of the own vertices
    f64* total;  // of each own vertex: the sum of the dependencies of all sources
    u64* tasks;  // pieces of rows of high degree,
    f64* parts;  // and their sums
    i32* part_powers;
    i64 list_offset;  // in each rank's region: its own vertices by level, ascending in each word of a bitmap
    i64 values_offset;  // per vertex of the graph: the number of shortest paths, later (1 + dependency) / paths
    i64 powers_offset;  // per vertex of the graph: the power of the number of paths
    i64 near_offset;  // four bitmaps: of even and odd levels, forward and backward
    i64 near_words;  // of one of them
    struct State {
        i64 phase = 0;
        i64 level = 0, backward = 0;
        i64 raised = 0;  // 1 if a power is above 0; until then no power is read
        i64 tasks = 0;
    };
    enum Stage : i64 { finished, clear, count, begin_levels, list, sum_rows, sum_hubs, join_hubs };
    enum Number { TASKS, RAISED };

    DEVICE u32* listing() const { return world.words(world.rank, list_offset); }
    DEVICE f64* values(i64 r) const { return (f64*)world.words(r, values_offset); }
    DEVICE i32* powers(i64 r) const { return (i32*)world.words(r, powers_offset); }
    // The way is that in which the bitmap is read. It also has the levels read before, which no row leads to: an edge
    // leads at most one level further from the source.
    DEVICE i64 near(i64 backward, i64 level) const {
        return near_offset + (2 * backward + (level & 1)) * near_words * (i64)sizeof(u32);
    }
    DEVICE i64 marked(const State& s) const { return near(s.backward || s.level == levels - 1, s.level); }
    DEVICE i64 length(i64 level) const { return load(firsts + level + 1) - load(firsts + level); }

    // ---- phases -----------------------------------------------------------------------------------------------------

    DEVICE void begin(State& s) const { s.phase = clear; }
    DEVICE bool alone(const State& s) const {
        return s.phase == count || s.phase == begin_levels || s.phase == list || s.phase == sum_hubs;
    }
    DEVICE Shared shares(const State& s) const {
        Shared shared;
        if (s.phase != sum_rows && s.phase != join_hubs) return shared;
        shared.vertices = list_offset + load(firsts + s.level) * (i64)sizeof(u32), shared.count = length(s.level);
        shared.bits = marked(s), shared.wide = values_offset, shared.narrow = s.backward ? -1 : powers_offset;
        return shared;
    }
    DEVICE i64 items(const State& s, const Heard&) const {
        switch (s.phase) {
        case clear: return world.vertices() / 64;
        case count:
        case list: return world.rows() / 64;
        case sum_rows: return length(s.level) / 4;
        case sum_hubs: return s.tasks * 8;
        case join_hubs: return s.tasks / 8;
        default: return 1;
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard&) const {
        SHARED(u32, memory, few_levels * program_tiles);
        u32* counts = memory + Tile<lanes>{}.index() * few_levels;
        switch (s.phase) {
        case clear: do_clear(grid); break;
        case count: do_count(grid, counts); break;
        case begin_levels: do_begin_levels(grid); break;
        case list: do_list(grid, counts); break;
        case sum_rows: visit_side(s, [&](const View& rows, auto fold) { do_sum(grid, s, rows, fold); }); break;
        case sum_hubs: visit_side(s, [&](const View& rows, auto fold) { do_sum_hubs(grid, s, rows, fold); }); break;
        default: visit_side(s, [&](const View& rows, auto fold) { do_join(grid, s, rows, fold); });
        }
        return {};
    }

    DEVICE void do_clear(Grid grid) const {
        u32* near_source = world.words(world.rank, near(0, 0));
        for (i64 i : grid.items(4 * near_words)) store(near_source + i, i == source / word_bits ? bit_of(source) : 0u);
        for (i64 v : grid.items(world.vertices())) store(powers(world.rank) + v, 0);
        for (i64 i : grid.items(levels + 1)) store(firsts + i, (i64)0);
        for (i64 i : grid.items(1)) store(values(world.rank) + source + i, 1.0);
    }

    // ---- the own vertices by level, a counting sort ------------------------------------------------------------------

    // Calls take(level, vertices) once for each level above 0 of the own vertices in a word. Vertices are bits.
    template <class Tile32, class Take> DEVICE void visit_levels(Tile32 tile, i64 word, Take take) const {
        i64 first = word * word_bits - world.lo(), n = world.rows();
        if constexpr (Tile32::size() == 1) {
            i64 from = greater(first, (i64)0), end = lesser(first + word_bits, n);
            u32 open = 0;
            for (i64 row = from; row < end; ++row) open |= level[row] > 0 ? bit_of(row - first) : 0u;
            while (open) {
                i32 now = level[first + lowest_bit(open)];
                u32 same = 0;
                for (i64 row = from; row < end; ++row) same |= level[row] == now ? bit_of(row - first) : 0u;
                take((i64)now, same);
                open &= ~same;
            }
            return;
        }
        i64 row = first + tile.rank();
        i32 own = row >= 0 && row < n ? level[row] : -1;
        for (u32 open = tile.ballot(own > 0); open;) {
            i32 now = tile.shfl(own, lowest_bit(open));
            u32 same = tile.ballot(own == now);
            take((i64)now, same);
            open &= ~same;
        }
    }
    // Calls visit(level, vertices, word) for the words that a tile sorts at once.
    template <class Tile32, class Visit> DEVICE void visit_chunk(Tile32 tile, i64 chunk, Visit visit) const {
        OwnBits own{world};
        i64 first = own.first_word() + chunk * sorted_words, end = lesser(first + sorted_words, own.end_word());
        for (i64 word = first; word < end; ++word)
            visit_levels(tile, word, [&](i64 at, u32 vertices) { visit(at, vertices, word); });
    }
    DEVICE i64 chunks() const { return (OwnBits{world}.words() + sorted_words - 1) / sorted_words; }
    // Counts the vertices of the first levels; deeper(level, n) by a lane for the others.
    template <class Tile32, class Deeper>
    DEVICE void count_few(Tile32 tile, i64 chunk, u32* counts, Deeper deeper) const {
        tile.sync();
        for (i64 at = tile.rank(); at < few_levels; at += tile.size()) counts[at] = 0;
        tile.sync();
        visit_chunk(tile, chunk, [&](i64 at, u32 vertices, i64) {
            if (tile.rank() > 0) return;
            if (at < few_levels) counts[at] += (u32)popcount(vertices);
            else deeper(at, (i64)popcount(vertices));
        });
        tile.sync();
    }
    // Counts are one place up in `firsts`: begin_levels makes them places, and list moves these on to the next level.
    DEVICE i64* counter(i64 at) const { return firsts + at + 1; }
    DEVICE void do_count(Grid grid, u32* counts) const {
        Tile<lanes> tile;
        for (i64 chunk : grid.items(tile, chunks())) {
            count_few(tile, chunk, counts, [&](i64 at, i64 n) { atomic_add(counter(at), n); });
            for (i64 at = tile.rank(); at < few_levels; at += tile.size())
                if (counts[at]) atomic_add(counter(at), (i64)counts[at]);
        }
    }
    DEVICE void do_begin_levels(Grid grid) const {  // by one tile
        Tile<lanes> tile;
        for (i64 sum : grid.items(tile, 1))  // from 0 on
            for (i64 base = 0; base < levels; base += tile.size()) {
                i64 at = base + tile.rank(), own = at < levels ? load(counter(at)) : 0, upto = tile.scan(own);
                if (at < levels) store(counter(at), sum + upto - own);
                sum += tile.shfl(upto, tile.size() - 1);
            }
    }
    DEVICE void do_list(Grid grid, u32* counts) const {
        Tile<lanes> tile;
        u32* to = listing();
        for (i64 chunk : grid.items(tile, chunks())) {
            // The counts become places.
            count_few(tile, chunk, counts, [](i64, i64) {});
            for (i64 at = tile.rank(); at < few_levels; at += tile.size())
                if (counts[at]) counts[at] = (u32)atomic_add(counter(at), (i64)counts[at]);
            tile.sync();
            visit_chunk(tile, chunk, [&](i64 at, u32 vertices, i64 word) {
                u32 n = (u32)popcount(vertices), place = 0;
                if (tile.rank() == 0) place = at < few_levels ? counts[at] : (u32)atomic_add(counter(at), (i64)n);
                if (tile.rank() == 0 && at < few_levels) counts[at] = place + n;
                place = tile.shfl(place, 0);
                for (int bit = tile.rank(); bit < word_bits; bit += tile.size())
                    if (vertices & bit_of(bit))
                        store(to + place + popcount(vertices & (bit_of(bit) - 1)), (u32)(word * word_bits + bit));
            });
        }
    }

    // ---- sums --------------------------------------------------------------------------------------------------------

    template <class Visit> DEVICE void visit_side(const State& s, Visit visit) const {  // visit(rows, fold)
        u32* bits = world.words(world.rank, near(s.backward, s.level + 1));  // of the level before, or after
        const f64* all = values(world.rank);
        if (s.backward && s.raised) visit(graph, Terms<Brandes, true, false>{*this, bits, all});
        else if (s.backward) visit(graph, Terms<Brandes, true, true>{*this, bits, all});
        else if (s.raised) visit(back, Terms<Brandes, false, false>{*this, bits, all});
        else visit(back, Terms<Brandes, false, true>{*this, bits, all});
    }
    // Writes a vertex's value to all ranks.
    template <bool backward> DEVICE void put(const State& s, i64 row, Big sum) const {
        i64 v = world.lo() + row;
        f64 value;
        i32 power = 0;
        if (backward) {
            // delta(v) = sigma(v) * sum over w in the next level of (1 + delta(w)) / sigma(w)
            f64 paths = values(world.rank)[v], dependency = paths * sum.m;
            value = (1 + dependency) / paths;
            total[row] += dependency;
        } else {
            // sigma(v) = sum over u in the level before of sigma(u), with an exponent of its own
            bool up = sum.m >= step_up;
            value = up ? sum.m * step_down : sum.m, power = sum.power + up;
            if (power) store(world.number(RAISED), (i64)1);
            if (s.level == levels - 1) value = 1 / value;  // which begins the way back
        }
        for (i64 r = 0; r < world.size; ++r) {
            if (!world.reaches(r)) continue;
            store(values(r) + v, value);
            if (power) store(powers(r) + v, power);
        }
    }
    // Marks a level in all ranks' bitmaps: the first vertex of each word in the list writes it.
    DEVICE void mark(const State& s, const u32* list, u32 at, u32 n) const {
        i64 word = list[at] / word_bits;
        if (at > 0 && list[at - 1] / word_bits == word) return;
        u32 bits = 0;
        for (; at < n && list[at] / word_bits == word; ++at) bits |= bit_of(list[at]);
        for (i64 r = 0; r < world.size; ++r)
            if (world.reaches(r)) OwnBits{world}.put(world.words(r, marked(s)), word, bits);
    }
    // `rows` is a copy, which no store can change.
    template <class Fold> APART void do_sum(Grid grid, const State& s, View rows, Fold fold) const {
        Tile<lanes> tile;
        const u32* list = listing() + load(firsts + s.level);
        u32 n = (u32)length(s.level), few = (u32)rows_at_once(grid, tile, n);  // 32 bits, for want of registers
        Items share = grid.items(tile, turns_of(n, few));
        for (u32 i = (u32)share.first; i < (u32)share.last; i += (u32)share.step) {
            u32 at = i * few + tile.rank();
            fetch_row(rows, at, n, [&](i64 next) { return (i64)list[next] - world.lo(); });
            i64 row = (u32)tile.rank() < few && at < n ? (i64)list[at] - world.lo() : -1;
            Big sum = fold_rows(rows, tile, row, fold);
            if (row < 0) continue;
            mark(s, list, at, n);
            if ((i64)rows.degree(row) > HUB_DEGREE) add_tasks(rows, row, tasks, world.number(TASKS));
            else put<Fold::backward>(s, row, sum);
        }
    }
    template <class Fold> APART void do_sum_hubs(Grid grid, const State& s, View rows, Fold fold) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, s.tasks)) {
            Big part = fold_task(rows, tile, tasks[i], fold);
            if (tile.rank() == 0) parts[i] = part.m, part_powers[i] = part.power;
        }
    }
    // The task of a row's first unit adds up the row's parts, which follow it.
    template <class Fold> DEVICE void do_join(Grid grid, const State& s, const View& rows, Fold) const {
        for (i64 i : grid.items(s.tasks)) {
            if ((u32)tasks[i] != 0) continue;
            i64 row = (i64)(tasks[i] >> 32), step = task_units(rows, row),
                end = i + (rows.units(row) + step - 1) / step;
            Big sum{0, 0};
            for (i64 k = i; k < end; ++k) sum = add(sum, {parts[k], part_powers[k]});
            put<Fold::backward>(s, row, sum);
        }
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        switch (s.phase) {
        case sum_rows:
            s.raised |= heard.total(RAISED) > 0;
            s.tasks = heard.own(TASKS);
            if (heard.total(TASKS)) s.phase = sum_hubs;
            else end_level(s);
            break;
        case join_hubs:
            s.raised |= heard.total(RAISED) > 0;
            s.phase = sum_rows;
            end_level(s);
            break;
        case list: s.level = 1; [[fallthrough]];
        default: ++s.phase;
        }
    }
    // The last level has its values for the way back already.
    DEVICE void end_level(State& s) const {
        if (!s.backward && s.level == levels - 1) s.backward = 1;
        s.level += s.backward ? -1 : 1;
        if (s.level == 0) s.phase = finished;
    }
};
