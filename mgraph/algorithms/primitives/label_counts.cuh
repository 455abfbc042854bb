// Each own vertex adds up, by label, what its edges lead to, and chooses a label. Labels and sums are in hash tables: a
// lane has one of `short_degree` entries, a tile one in shared memory, and a row that does not fit there, `wide`, has
// one in memory with two slots an edge, into which many tiles add what they have added up in shared memory. Sums are
// integers, so that timing changes none.
#pragma once
#include "algorithms/primitives/fixed_point.cuh"
#include "kernels/rows.cuh"
#include "kernels/search.cuh"

constexpr i64 table_slots = 256, most_tabled = 192;  // of a tile's table: its slots, and the edges of rows that use it
constexpr i64 tiles_of_block = 8, chunk_slots = 1024;

struct Best {  // the largest score wins, of equals the smallest label
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

DEVICE u32 spread(u32 x) {  // a bijection, after which labels lie evenly
    x ^= x >> 16, x *= 0x7feb352du;
    x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}
DEVICE u64 spread(u64 x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}
DEVICE u64 ordered(f64 v) {  // ascends with v
    u64 bits = bits_of(v);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
}

// How a vertex chooses: the label of most edges; or, where strengths are given, the community that it gains most from
// joining. The gain is what its edges to the community weigh, less `price` by its own strength and by the community's.
struct Votes {
    const u32* labels;  // of all vertices
    i64 first;  // the vertex of row 0
    f64 unit;
    const i64* strength;  // of all vertices: what their edges weigh; or null
    const i64* sums;  // of strengths by label
    f64 price;
    const u32* names;  // by which turns are dealt, of all vertices; null for their ids
    i64 classes;  // in how many turns the vertices choose; 0 for all at once
    i64 turn;
    u64 seed;
    u32* chosen;  // out: by row; or, where strengths are given,
    u64* moves;  // out: vertex << 32 | community, of those that join another one
    i64* count;
    DEVICE u64 turn_of(i64 row) const {
        u64 name = names ? names[first + row] : (u64)(first + row);
        return spread(name ^ seed) % (u64)classes;
    }
    DEVICE bool open(i64 row) const { return classes == 0 || turn_of(row) == (u64)turn; }
    DEVICE bool counts(i64 row, u32 id) const { return !strength || id != first + row; }
    DEVICE u64 score(i64 row, u32 label, u64 sum) const {
        if (!strength) return sum;
        bool own = labels[first + row] == label;
        i64 mine = strength[first + row], others = sums[label] - (own ? mine : 0);
        f64 gain = (f64)sum - price * (f64)mine * (f64)others;
        return (ordered(gain) & ~1ull) | own;  // of equals the own one
    }
    DEVICE void settle(i64 row, Best best) const {
        if (best.label == no_label) return;
        if (!strength) {
            chosen[row] = best.label;
            return;
        }
        u32 own = labels[first + row];
        if (best.label == own || best.score <= score(row, own, 0)) return;
        moves[atomic_add(count, (i64)1)] = (u64)(first + row) << 32 | best.label;
    }
};

// Whether a table's slot is the label's, to which it is given if it is nobody's.
template <bool alone> DEVICE bool claim(u32* key, u32 label) {
    u32 held = alone ? *key : load(key);
    if (held == no_label) {
        if (alone) *key = held = label;
        else if ((held = atomic_cas(key, no_label, label)) == no_label) held = label;
    }
    return held == label;
}
template <bool alone> DEVICE i64 slot_of(u32* keys, i64 slots, u32 label) {
    i64 at = (i64)((u64)spread(label) * (u64)slots >> 32);
    while (!claim<alone>(keys + at, label)) at = at + 1 < slots ? at + 1 : 0;
    return at;
}

// A table in shared memory. A GPU adds 32 bits there at once, and 64 bits by a loop of compare-and-swap: so sums are in
// two words each.
struct TileTable {
    u32 *keys, *low, *high;
    DEVICE void clear(i64 at) const { keys[at] = no_label, low[at] = high[at] = 0; }
    DEVICE u64 sum(i64 at) const { return (u64)high[at] << 32 | low[at]; }
    template <bool alone> DEVICE void add(i64 at, u64 amount) const {
        u32 more = (u32)amount, before = alone ? low[at] : atomic_add(low + at, more), after = before + more;
        if (alone) low[at] = after;
        u32 above = (u32)(amount >> 32) + (after < before);
        if (above) alone ? high[at] += above : atomic_add(high + at, above);
    }
};
template <class Tile32> DEVICE TileTable table_of(Tile32 tile, u32* words) {  // of a block's words, 3 a slot
    i64 own = tile.index() * table_slots, all = tiles_of_block * table_slots;
    return {words + own, words + all + own, words + 2 * all + own};
}

// put(label, amount) for the edges of a unit.
template <class View, class Group, class Put>
DEVICE void cast(const View& graph, Group group, i64 row, i64 unit, const Votes& votes, Put put) {
    graph.visit(group, row, unit, [&](u32 id, i64 slot, bool live) {
        if (live && votes.counts(row, id)) put(votes.labels[id], fixed(graph, slot, votes.unit));
        return false;
    });
}
template <class View, class Group, class Put>
DEVICE void cast_row(const View& graph, Group group, i64 row, const Votes& votes, Put put) {
    i64 units = graph.degree(row) ? (i64)graph.units(row) : 0;
    for (i64 unit = 0; unit < units; ++unit) cast(graph, group, row, unit, votes, put);
}

template <class View>
struct Vote {  // a lane brings a row; wide ones are left to CastWide
    static constexpr int lanes = 32;
    View graph;
    View back;  // in-edges, which count too where `both` is 1
    i64 both;
    i64 rows;
    Votes votes;
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, words, 3 * tiles_of_block * table_slots);
        Tile<lanes> tile;
        TileTable table = table_of(tile, words);
        for (i64 i : grid.items(tile, (rows + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            i64 degree = row < rows && votes.open(row) ? graph.degree(row) + (both ? back.degree(row) : 0) : 0;
            if (degree > 0 && degree <= short_degree) votes.settle(row, by_lane(row));
            for (u32 rest = tile.ballot(degree > short_degree && degree <= most_tabled); rest; rest &= rest - 1) {
                int lane = lowest_bit(rest);
                i64 next = tile.shfl(row, lane), edges = tile.shfl(degree, lane);
                Best best = by_tile(tile, next, 1ll << bit_width((u64)(edges + edges / 3 - 1)), table);
                if (tile.rank() == 0) votes.settle(next, best);
            }
        }
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
        constexpr bool alone = Tile32::size() == 1;
        for (i64 at = tile.rank(); at < slots; at += tile.size()) table.clear(at);
        tile.sync();
        auto into = [&](u32 found, u64 amount) {
            table.template add<alone>(slot_of<alone>(table.keys, slots, found), amount);
        };
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

struct Turns {  // one lane a wide row: the turn in which it chooses
    static constexpr int lanes = 1;
    Votes votes;
    const u32* wide;
    i64 n;
    u8* turns;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) turns[i] = (u8)votes.turn_of(wide[i]);
    }
};

template <class View>
struct CountTasks {  // one lane a wide row: how many tasks it is cut into
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

template <class View>
struct CastWide {  // a tile a task of a wide row: adds its edges to the row's table
    static constexpr int lanes = 32;
    View graph;
    Votes votes;
    const u32* wide;
    const i64* places;  // where each wide row's table begins
    const i64* task_of;  // the first task of each
    i64 begin;  // the wide rows whose tables there are now
    i64 end;
    i64 tasks;
    u32* keys;
    u64* sums;
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, words, 3 * tiles_of_block * table_slots);
        Tile<lanes> tile;
        TileTable table = table_of(tile, words);
        constexpr bool direct = Tile<lanes>::size() == 1;  // a CPU has no use for a table that is nearer
        if (!direct)
            for (i64 at = tile.rank(); at < table_slots; at += tile.size()) table.clear(at);
        tile.sync();
        for (i64 i : grid.items(tile, tasks)) {
            i64 task = task_of[begin] + i, at = upper_bound(task_of, begin, end + 1, task) - 1, row = wide[at];
            i64 first = places[at] - places[begin], slots = places[at + 1] - places[at];
            auto into_row = [&](u32 found, u64 amount) {
                atomic_add(sums + first + slot_of<false>(keys + first, slots, found), amount);
            };
            auto into = [&](u32 found, u64 amount) {  // a label has one place in the nearer table, or none
                i64 near = (i64)((u64)spread(found) * (u64)table_slots >> 32);
                if (direct || !claim<false>(table.keys + near, found)) return into_row(found, amount);
                table.template add<false>(near, amount);
            };
            visit_task(graph, (u64)row << 32 | (u64)((task - task_of[at]) * task_units(graph, row)),
                       [&](i64 r, i64 unit) {
                           cast(graph, tile, r, unit, votes, into);
                           return false;
                       });
            if (direct) continue;
            tile.sync();
            for (i64 at = tile.rank(); at < table_slots; at += tile.size()) {
                if (table.keys[at] == no_label) continue;
                into_row(table.keys[at], table.sum(at));
                table.clear(at);
            }
            tile.sync();
        }
    }
};

// The tables of wide rows are looked through in chunks. What lies in one chunk of one row is a piece; pieces are numbered
// by the chunks and rows before them, which leaves some numbers out.
struct RankWide {  // a tile a chunk of the tables: the best of each piece
    static constexpr int lanes = 32;
    Votes votes;
    const u32* wide;
    const i64* places;
    i64 begin;
    i64 end;
    const u32* keys;
    const u64* sums;
    u64* scores;  // out: by piece
    u32* labels;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 base = places[begin], all = places[end] - base;
        for (i64 c : grid.items(tile, (all + chunk_slots - 1) / chunk_slots)) {
            i64 from = c * chunk_slots, to = lesser(from + chunk_slots, all);
            for (i64 at = upper_bound(places, begin, end + 1, base + from) - 1; from < to; ++at) {
                i64 last = lesser(to, places[at + 1] - base);
                Best best = rank(tile, wide[at], from, last);
                if (tile.rank() == 0) scores[c + at - begin] = best.score, labels[c + at - begin] = best.label;
                from = last;
            }
        }
    }
    template <class Tile32> DEVICE Best rank(Tile32 tile, i64 row, i64 from, i64 last) const {
        Best best = {0, no_label};
        for (i64 slot = from + tile.rank(); slot < last; slot += tile.size())
            if (keys[slot] != no_label) best.meet(votes.score(row, keys[slot], sums[slot]), keys[slot]);
        return best_of(tile, best);
    }
};

struct SettleWide {  // a tile a wide row: the best of its pieces
    static constexpr int lanes = 32;
    Votes votes;
    const u32* wide;
    const i64* places;
    i64 begin;
    i64 n;
    const u64* scores;
    const u32* labels;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            i64 at = begin + i, first = (places[at] - places[begin]) / chunk_slots,
                last = (places[at + 1] - 1 - places[begin]) / chunk_slots;
            Best best = {0, no_label};
            for (i64 c = first + tile.rank(); c <= last; c += tile.size()) best.meet(scores[c + i], labels[c + i]);
            best = best_of(tile, best);
            if (tile.rank() == 0) votes.settle(wide[at], best);
        }
    }
};
