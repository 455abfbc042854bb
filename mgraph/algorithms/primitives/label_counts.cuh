// Adds up each own vertex's edges by label, and chooses a label. Labels and sums are in hash tables: a lane has a table
// of `short_degree` entries; a tile one in shared memory; a CPU's thread one of its own. A wide row, which does not fit
// there, has one in memory with two slots per edge, into which many tiles add their sums from shared memory. Sums are
// integers, so that timing does not change them.
#pragma once
#include "algorithms/primitives/fixed_point.cuh"
#include "kernels/rows.cuh"
#include "kernels/search.cuh"
#include "kernels/splitmix.cuh"

constexpr i64 table_slots = 256, most_tabled = 192;  // slots of a tile's table; most edges of a row that uses it
constexpr i64 thread_slots = 1 << 16, most_by_thread = 1 << 15;  // the same for a CPU's thread
constexpr i64 tiles_of_block = 8, chunk_slots = 1024;
constexpr i64 most_tiles = 16;  // of a block of a program
static_assert(program_tiles <= most_tiles);
constexpr i64 group_words = 5;  // of a group of wide rows: the first and the last one, slots, and tasks in each view

struct Best {  // the largest score wins; among equals, the smallest label
    u64 score;
    u32 label;
    DEVICE void meet(u64 other_score, u32 other) {
        if (other_score > score || (other_score == score && other < label)) score = other_score, label = other;
    }
};
template <class Group> DEVICE Best best_of(Group group, Best mine) {
    u64 score = group.most(mine.score);
    return {score, ~group.most(mine.score == score ? ~mine.label : 0u)};
}

DEVICE u32 spread(u32 x) {  // hashes a label, bijectively
    x ^= x >> 16, x *= 0x7feb352du;
    x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}
DEVICE u64 spread(u64 x) { return mix64(x); }
DEVICE u64 ordered(f64 v) {  // order-preserving bits of v
    u64 bits = bits_of(v);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// The rule by which a vertex chooses: the most frequent label; or, with strengths, the label with the largest gain. The
// gain is the weight of its edges to the label's vertices, less their expected weight: `price` times the product of the
// strengths, or on a directed graph of out- and in-strengths both ways.
//
// With `bounds`, the refinement of Leiden, labels are parts of communities. Only a vertex that is a part of its own may
// choose, and only a part of its own community, which is well connected to the rest, and which no vertex leaves in this
// turn.
struct Votes {
    const u32* labels;  // per vertex of the graph
    i64 first;  // the vertex of row 0
    f64 unit;
    i64 tabled;  // most edges of a row that is not wide
    const i64* strength;  // per vertex of the graph: weight of its out-edges; or null
    const i64* strength_in;  // of its in-edges; null if they are the same
    const i64* sums;  // sums of strengths per label
    const i64* sums_in;
    f64 price;
    const u32* names;  // names by which turns are dealt, per vertex of the graph; null for ids
    i64 classes;  // number of turns in which vertices choose; 0 for all at once
    i64 turn;
    u64 seed;
    i64 lone;  // a vertex may move to label `lone` + its name, if that is empty; 0 if it may not
    const u32* bounds;  // community per vertex; or null
    const i64* bound_sums;  // sums of strengths per community
    const i64* bound_sums_in;
    const i64* cuts;  // per part: weight of its edges to the rest of its community
    const u8* joined;  // per part: 1 if it has several vertices
    f64 noise;  // with bounds: a gain above 0 grows by less than this, at random
    u32* chosen;  // out, without strengths: label per row
    u64* moves;  // out, with strengths: vertex << 32 | label, for moving vertices
    i64* count;
    template <class View> DEVICE u64 amount(const View& graph, i64 slot) const { return fixed(graph, slot, unit); }
    DEVICE void fetch(u32 label) const {  // before its score
        if (sums) prefetch(sums + label);
    }
    DEVICE u64 turn_of_name(u64 name) const { return spread(name ^ seed) % (u64)classes; }
    DEVICE u64 name_of(i64 row) const { return names ? names[first + row] : (u64)(first + row); }
    DEVICE u64 turn_of(i64 row) const { return turn_of_name(name_of(row)); }
    DEVICE f64 random_share(i64 row, u32 label) const {  // 0 to less than 1
        return spread((u32)name_of(row) ^ label * 0x9E3779B1u ^ (u32)seed) * 0x1p-32;
    }
    DEVICE bool counts(i64 row, u32 id) const {
        return !strength || (id != first + row && (!bounds || bounds[id] == bounds[first + row]));
    }
    DEVICE bool may_choose(i64 row) const { return !bounds || !joined[labels[first + row]]; }
    DEVICE f64 expected(i64 out, i64 in, i64 others_out, i64 others_in) const {
        if (!strength_in) return price * (f64)out * (f64)others_out;
        return price * (f64)out * (f64)others_in + price * (f64)in * (f64)others_out;
    }
    // Returns true if the edges from a part to the rest of its community weigh as much as expected, or more.
    DEVICE bool well_connected(u32 part, u32 community) const {
        i64 out = sums[part], rest = bound_sums[community] - out;
        i64 in = sums_in ? sums_in[part] : 0, rest_in = sums_in ? bound_sums_in[community] - in : 0;
        return (f64)cuts[part] >= expected(out, in, rest, rest_in);
    }
    DEVICE bool may_join(i64 row, u32 part, i64 turn) const {
        return (joined[part] || turn_of_name(part) != (u64)turn) && well_connected(part, bounds[first + row]);
    }
    DEVICE u64 score(i64 row, u32 label, u64 sum) const { return score(row, label, sum, turn); }
    DEVICE u64 score(i64 row, u32 label, u64 sum, i64 turn) const {
        if (!strength) return sum;
        i64 v = first + row;
        bool own = labels[v] == label;
        if (bounds && !own && !may_join(row, label, turn)) return 0;
        i64 out = strength[v], in = strength_in ? strength_in[v] : 0;
        i64 others_out = sums[label] - (own ? out : 0), others_in = strength_in ? sums_in[label] - (own ? in : 0) : 0;
        f64 gain = (f64)sum - expected(out, in, others_out, others_in);
        if (bounds && !own && gain > 0) gain += noise * random_share(row, label);
        return (ordered(gain) & ~1ull) | own;  // among equals, the own label
    }
    DEVICE void settle(i64 row, Best best) const {
        if (best.label == no_label) return;
        if (!strength) {
            chosen[row] = best.label;
            return;
        }
        choose(row, best, turn, moves, count);
    }
    DEVICE void choose(i64 row, Best best, i64 turn, u64* moves, i64* count) const {
        u32 own = labels[first + row];
        if (!may_choose(row)) return;
        best.meet(score(row, own, 0, turn), own);
        if (lone && best.score < (ordered(0.0) & ~1ull)) {  // no label has a gain: alone it is 0
            u32 label = (u32)(lone + name_of(row));
            if (sums[label] == 0 && (!sums_in || sums_in[label] == 0)) best.label = label;
        }
        if (best.label != own) moves[atomic_add(count, (i64)1)] = (u64)(first + row) << 32 | best.label;
    }
};

// The rule of Louvain and Leiden in a turn, whose moves go to a list.
struct TurnVotes {
    Votes all;  // a copy, which no store can change
    i64 turn;
    u64* moves;
    i64* count;
    i64 tabled = all.tabled;
    const u32* labels = all.labels;
    template <class View> DEVICE u64 amount(const View& graph, i64 slot) const { return fixed(graph, slot, all.unit); }
    DEVICE void fetch(u32 label) const { prefetch(all.sums + label); }
    DEVICE bool counts(i64 row, u32 id) const {
        return id != all.first + row && (!all.bounds || all.bounds[id] == all.bounds[all.first + row]);
    }
    DEVICE bool may_choose(i64 row) const { return all.may_choose(row); }
    DEVICE u64 score(i64 row, u32 label, u64 sum) const { return all.score(row, label, sum, turn); }
    DEVICE void settle(i64 row, Best best) const {
        if (best.label != no_label) all.choose(row, best, turn, moves, count);
    }
};

// The rule of label propagation alone: the most frequent label.
struct MostFrequent {
    const u32* labels;  // per vertex of the graph
    u32* chosen;  // out: label per row
    i64 tabled;  // most edges of a row that is not wide
    template <class View> DEVICE u64 amount(const View&, i64) const { return 1; }
    DEVICE void fetch(u32) const {}
    DEVICE bool counts(i64, u32) const { return true; }
    DEVICE bool may_choose(i64) const { return true; }
    DEVICE u64 score(i64, u32, u64 sum) const { return sum; }
    DEVICE void settle(i64 row, Best best) const { chosen[row] = best.label; }
};

// Returns true if a table's slot has this label, after claiming a free slot for it.
DEVICE bool claim(u32* key, u32 label) {
    u32 held = load(key);
    if (held == no_label && (held = atomic_cas(key, no_label, label)) == no_label) held = label;
    return held == label;
}
DEVICE i64 slot_of(u32* keys, i64 slots, u32 label) {
    i64 at = (i64)((u64)spread(label) * (u64)slots >> 32);
    while (!claim(keys + at, label)) at = at + 1 < slots ? at + 1 : 0;
    return at;
}

// A table in shared memory. A GPU has 32-bit adds there, and emulates 64-bit ones by compare-and-swap: so sums take two
// words.
struct TileTable {
    u32 *keys, *low, *high;
    DEVICE void clear(i64 at) const { keys[at] = no_label, low[at] = high[at] = 0; }
    DEVICE u64 sum(i64 at) const { return (u64)high[at] << 32 | low[at]; }
    DEVICE void add(i64 at, u64 amount) const {
        u32 more = (u32)amount, before = atomic_add(low + at, more), after = before + more;
        u32 above = (u32)(amount >> 32) + (after < before);
        if (above) atomic_add(high + at, above);
    }
};
// From the words of a block of so many tiles, 3 per slot.
template <class Tile32> DEVICE TileTable table_of(Tile32 tile, u32* words, i64 tiles) {
    i64 own = tile.index() * table_slots, all = tiles * table_slots;
    return {words + own, words + all + own, words + 2 * all + own};
}

// A table of a CPU's thread. It is empty between rows, with keys of 0, and lists the slots in use, so that a row of many
// edges to few labels costs no more than its edges.
struct ThreadTable {
    static constexpr bool holds = Tile<32>::size() == 1;
    u32 keys[holds ? thread_slots : 1];  // label + 1, or 0
    u32 used[holds ? most_by_thread : 1];
    u64 sums[holds ? thread_slots : 1];
    DEVICE bool add(u32 label, u64 amount, i64& n, int shift) {  // returns true for a new label
        u32 at = (label * 0x9E3779B1u) >> shift, mask = (1u << (32 - shift)) - 1;
        for (; keys[at] != label + 1; at = (at + 1) & mask)
            if (keys[at] == 0) {
                keys[at] = label + 1, sums[at] = amount, used[n++] = at;
                return true;
            }
        sums[at] += amount;
        return false;
    }
};

// Calls put(label, amount) for the edges of a unit.
template <class View, class Group, class Rule, class Put>
DEVICE void cast(const View& graph, Group group, i64 row, i64 unit, const Rule& votes, Put put) {
    graph.visit(group, row, unit, [&](u32 id, i64 slot, bool live) {
        if (live && votes.counts(row, id)) put(votes.labels[id], votes.amount(graph, slot));
        return false;
    });
}
template <class View, class Group, class Rule, class Put>
DEVICE void cast_row(const View& graph, Group group, i64 row, const Rule& votes, Put put) {
    i64 units = graph.degree(row) ? (i64)graph.units(row) : 0;
    for (i64 unit = 0; unit < units; ++unit) cast(graph, group, row, unit, votes, put);
}

// Lets rows vote, a row per lane; leaves wide rows to CastWide. By blocks of `tiles` tiles, whose tables are in `words`.
template <class View, class Rule>
struct Voting {
    static constexpr int ahead = 64;
    const View& graph;
    const View& back;
    bool both;
    const u32* list;
    i64 n;
    Rule votes;
    u32* words;
    i64 tiles;
    DEVICE i64 row_at(i64 at) const { return list ? (i64)list[at] : at; }
    DEVICE i64 edges(i64 row) const { return graph.degree(row) + (both ? back.degree(row) : 0); }
    // A lane calls after(row), or -1, when its row has voted.
    template <class After> DEVICE void run(Grid grid, After after) const {
        Tile<32> tile;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 at = i * tile.size() + tile.rank(), row = at < n ? row_at(at) : -1;
            fetch_row(graph, at, n, [&](i64 later) { return row_at(later); });
            i64 degree = row >= 0 && votes.may_choose(row) ? edges(row) : 0;
            // Short rows by lanes, longer ones by the tile with its table.
            if (degree > 0 && degree <= short_degree) votes.settle(row, by_lane(row));
            if constexpr (ThreadTable::holds) {
                if (degree > short_degree && degree <= votes.tabled) votes.settle(row, by_thread(row, degree));
            } else {
                TileTable table = table_of(tile, words, tiles);
                for (u32 rest = tile.ballot(degree > short_degree && degree <= votes.tabled); rest; rest &= rest - 1) {
                    int lane = lowest_bit(rest);
                    i64 next = tile.shfl(row, lane), m = tile.shfl(degree, lane);
                    Best best = by_tile(tile, next, 1ll << bit_width((u64)(m + m / 3 - 1)), table);
                    if (tile.rank() == 0) votes.settle(next, best);
                }
                tile.sync();
            }
            after(row >= 0 && degree <= votes.tabled ? row : -1);
        }
    }
    DEVICE Best by_thread(i64 row, i64 degree) const {
        SHARED(ThreadTable, tables, 1);
        ThreadTable& table = *tables;
        i64 used = 0;
        int shift = 32 - bit_width((u64)(degree + degree / 3)), read = 0;
        // Read labels in advance: a mispredicted branch of the table would wait for a label that is not in the cache.
        u32 label[ahead];
        u64 amount[ahead];
        auto add = [&] {
            for (int i = 0; i < read; ++i)
                if (table.add(label[i], amount[i], used, shift)) votes.fetch(label[i]);
            read = 0;
        };
        auto put = [&](u32 next, u64 weight) {
            label[read] = next, amount[read++] = weight;
            if (read == ahead) add();
        };
        cast_row(graph, Tile<1>{}, row, votes, put);
        if (both) cast_row(back, Tile<1>{}, row, votes, put);
        add();
        Best best = {0, no_label};
        for (i64 i = 0; i < used; ++i) {
            u32 at = table.used[i], label = table.keys[at] - 1;
            best.meet(votes.score(row, label, table.sums[at]), label);
            table.keys[at] = 0;
        }
        return best;
    }
    DEVICE Best by_lane(i64 row) const {
        u32 label[short_degree];
        u64 sum[short_degree];
        int n = 0;
        auto put = [&](u32 found, u64 amount) {
            int at = 0;
            while (at < n && label[at] != found) ++at;
            if (at == n) label[n] = found, sum[n++] = 0;
            sum[at] += amount;
        };
        cast_row(graph, Tile<1>{}, row, votes, put);
        if (both) cast_row(back, Tile<1>{}, row, votes, put);
        Best best = {0, no_label};
        for (int at = 0; at < n; ++at) best.meet(votes.score(row, label[at], sum[at]), label[at]);
        return best;
    }
    template <class Tile32> DEVICE Best by_tile(Tile32 tile, i64 row, i64 slots, const TileTable& table) const {
        // Clear the table, add up the edges, and find the best label.
        for (i64 at = tile.rank(); at < slots; at += tile.size()) table.clear(at);
        tile.sync();
        auto into = [&](u32 found, u64 amount) { table.add(slot_of(table.keys, slots, found), amount); };
        cast_row(graph, tile, row, votes, into);
        if (both) cast_row(back, tile, row, votes, into);
        tile.sync();
        Best best = {0, no_label};
        for (i64 at = tile.rank(); at < slots; at += tile.size())
            if (table.keys[at] != no_label) best.meet(votes.score(row, table.keys[at], table.sum(at)), table.keys[at]);
        best = best_of(tile, best);
        tile.sync();
        return best;
    }
};

template <class View>
struct Vote {  // lets rows vote, a row per lane; leaves wide rows to CastWide
    static constexpr int lanes = 32;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    const u32* list;  // the rows; null for all
    i64 n;
    Votes votes;
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, words, Tile<lanes>::size() == 1 ? 1 : 3 * tiles_of_block * table_slots);
        Voting<View, Votes>{graph, back, both != 0, list, n, votes, words, tiles_of_block}.run(grid, [](i64) {});
    }
};

constexpr u8 no_turn = 255;

struct Turns {  // computes the turns of listed rows, `no_turn` for rows that are not active; one lane per row
    static constexpr int lanes = 1;
    Votes votes;
    const u32* list;
    const u8* active;  // per row
    i64 n;
    u8* turns;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) turns[i] = active[list[i]] ? (u8)votes.turn_of(list[i]) : no_turn;
    }
};

template <class View>
struct CountTasks {  // counts the tasks of a wide row, one lane per wide row
    static constexpr int lanes = 1;
    View graph;
    const u32* wide;
    i64 n;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            i64 row = wide[i], step = graph.degree(row) ? task_units(graph, row) : 1;
            counts[i] = graph.degree(row) ? ((i64)graph.units(row) + step - 1) / step : 0;
        }
    }
};

struct WideRows {  // with tables now, from `begin` to before `end`
    const u32* rows;
    const i64* places;  // first slot of each wide row's table
    i64 begin;
    i64 end;
    u32* keys;
    u64* sums;
};

// Adds the edges of a wide row's task to the row's table, a task per tile. By blocks of `tiles` tiles, whose nearer tables
// are in `words`.
template <class View, class Rule>
DEVICE void cast_wide(Grid grid, const View& graph, const Rule& votes, const WideRows& wide, const i64* task_of,
                      i64 tasks, u32* words, i64 tiles) {
    Tile<32> tile;
    TileTable table = table_of(tile, words, tiles);
    constexpr bool direct = Tile<32>::size() == 1;  // a CPU does not need a nearer table
    if (!direct)
        for (i64 at = tile.rank(); at < table_slots; at += tile.size()) table.clear(at);
    tile.sync();
    for (i64 i : grid.items(tile, tasks)) {
        i64 task = task_of[wide.begin] + i, at = upper_bound(task_of, wide.begin, wide.end + 1, task) - 1,
            row = wide.rows[at];
        i64 first = wide.places[at] - wide.places[wide.begin], slots = wide.places[at + 1] - wide.places[at];
        auto into_row = [&](u32 found, u64 amount) {
            atomic_add(wide.sums + first + slot_of(wide.keys + first, slots, found), amount);
        };
        auto into = [&](u32 found, u64 amount) {  // a label has a single place in the nearer table
            i64 near = (i64)((u64)spread(found) * (u64)table_slots >> 32);
            if (direct || !claim(table.keys + near, found)) return into_row(found, amount);
            table.add(near, amount);
        };
        // Add up the task, first in shared memory.
        visit_task(graph, (u64)row << 32 | (u64)((task - task_of[at]) * task_units(graph, row)), [&](i64 r, i64 unit) {
            cast(graph, tile, r, unit, votes, into);
            return false;
        });
        if (direct) continue;
        // Flush the nearer table into the row's.
        tile.sync();
        for (i64 at = tile.rank(); at < table_slots; at += tile.size()) {
            if (table.keys[at] == no_label) continue;
            into_row(table.keys[at], table.sum(at));
            table.clear(at);
        }
        tile.sync();
    }
}

template <class View>
struct CastWide {  // adds the edges of a wide row's task to the row's table, a task per tile
    static constexpr int lanes = 32;
    View graph;
    Votes votes;
    const u32* wide;
    const i64* places;  // first slot of each wide row's table
    const i64* task_of;  // first task of each wide row
    i64 begin;  // the wide rows with tables now: begin .. end - 1
    i64 end;
    i64 tasks;
    u32* keys;
    u64* sums;
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, words, 3 * tiles_of_block * table_slots);
        WideRows rows{wide, places, begin, end, keys, sums};
        cast_wide(grid, graph, votes, rows, task_of, tasks, words, tiles_of_block);
    }
};

// The tables of wide rows are searched in chunks. A piece is the part of a row's table in a chunk. Pieces are numbered
// by the chunks and rows before them, which skips some numbers.
template <class Rule, class Tile32>
DEVICE Best best_in(Tile32 tile, const Rule& votes, const WideRows& wide, i64 row, i64 from, i64 last) {
    Best best = {0, no_label};
    for (i64 slot = from + tile.rank(); slot < last; slot += tile.size())
        if (wide.keys[slot] != no_label) best.meet(votes.score(row, wide.keys[slot], wide.sums[slot]), wide.keys[slot]);
    return best_of(tile, best);
}
// Finds the best label of each piece, a chunk of the tables per tile.
template <class Rule>
DEVICE void rank_wide(Grid grid, const Rule& votes, const WideRows& wide, u64* scores, u32* labels) {
    Tile<32> tile;
    i64 base = wide.places[wide.begin], all = wide.places[wide.end] - base;
    for (i64 c : grid.items(tile, (all + chunk_slots - 1) / chunk_slots)) {
        i64 from = c * chunk_slots, to = lesser(from + chunk_slots, all);
        for (i64 at = upper_bound(wide.places, wide.begin, wide.end + 1, base + from) - 1; from < to; ++at) {
            i64 last = lesser(to, wide.places[at + 1] - base), piece = c + at - wide.begin;
            Best best = best_in(tile, votes, wide, wide.rows[at], from, last);
            if (tile.rank() == 0) scores[piece] = best.score, labels[piece] = best.label;
            from = last;
        }
    }
}
// Takes the best of a wide row's pieces, a wide row per tile, of which a lane calls after(row).
template <class Rule, class After>
DEVICE void settle_wide(Grid grid, const Rule& votes, const WideRows& wide, const u64* scores, const u32* labels,
                        After after) {
    Tile<32> tile;
    for (i64 i : grid.items(tile, wide.end - wide.begin)) {
        i64 at = wide.begin + i, base = wide.places[wide.begin], first = (wide.places[at] - base) / chunk_slots,
            last = (wide.places[at + 1] - 1 - base) / chunk_slots;
        Best best = {0, no_label};
        for (i64 c = first + tile.rank(); c <= last; c += tile.size()) best.meet(scores[c + i], labels[c + i]);
        best = best_of(tile, best);
        if (tile.rank() > 0) continue;
        votes.settle(wide.rows[at], best);
        after((i64)wide.rows[at]);
    }
}

struct RankWide {  // finds the best label of each piece, a chunk of the tables per tile
    static constexpr int lanes = 32;
    Votes votes;
    const u32* wide;
    const i64* places;
    i64 begin;
    i64 end;
    u32* keys;
    u64* sums;
    u64* scores;  // out: per piece
    u32* labels;
    DEVICE void operator()(Grid grid) const {
        rank_wide(grid, votes, WideRows{wide, places, begin, end, keys, sums}, scores, labels);
    }
};

struct SettleWide {  // takes the best of a wide row's pieces, a wide row per tile
    static constexpr int lanes = 32;
    Votes votes;
    const u32* wide;
    const i64* places;
    i64 begin;
    i64 n;
    const u64* scores;
    const u32* labels;
    DEVICE void operator()(Grid grid) const {
        settle_wide(grid, votes, WideRows{wide, places, begin, begin + n, nullptr, nullptr}, scores, labels,
                    [](i64) {});
    }
};
