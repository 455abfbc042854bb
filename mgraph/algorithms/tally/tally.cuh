// Each own vertex adds up, by label, what its edges lead to, and chooses a label. Labels and sums are in hash tables: a
// lane has one of `short_degree` entries, a tile one in shared memory, and a row that does not fit there, `wide`, has
// one in memory with two slots an edge, into which many tiles add. Sums are integers, so that timing changes none.
#pragma once
#include "algorithms/tally/fixed.cuh"
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
    DEVICE bool open(i64 row) const {
        if (classes == 0) return true;
        u64 name = names ? names[first + row] : (u64)(first + row);
        return spread(name ^ seed) % (u64)classes == (u64)turn;
    }
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

template <bool alone> DEVICE void put(u32* keys, u64* sums, i64 slots, u32 label, u64 amount) {
    i64 at = (i64)((u64)spread(label) * (u64)slots >> 32);
    for (;; at = at + 1 < slots ? at + 1 : 0) {
        u32 held = alone ? keys[at] : load(keys + at);
        if (held == no_label) {
            if (alone) keys[at] = held = label;
            else if ((held = atomic_cas(keys + at, no_label, label)) == no_label) held = label;
        }
        if (held != label) continue;
        if (alone) sums[at] += amount;
        else atomic_add(sums + at, amount);
        return;
    }
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
        SHARED(u32, keys, tiles_of_block * table_slots);
        SHARED(u64, sums, tiles_of_block * table_slots);
        Tile<lanes> tile;
        i64 own = tile.index() * table_slots;
        for (i64 i : grid.items(tile, (rows + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            i64 degree = row < rows && votes.open(row) ? graph.degree(row) + (both ? back.degree(row) : 0) : 0;
            if (degree > 0 && degree <= short_degree) votes.settle(row, by_lane(row));
            for (u32 rest = tile.ballot(degree > short_degree && degree <= most_tabled); rest; rest &= rest - 1) {
                int lane = lowest_bit(rest);
                i64 next = tile.shfl(row, lane), edges = tile.shfl(degree, lane);
                Best best = by_tile(tile, next, 1ll << bit_width((u64)(edges + edges / 3 - 1)), keys + own, sums + own);
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
    template <class Tile32> DEVICE Best by_tile(Tile32 tile, i64 row, i64 slots, u32* keys, u64* sums) const {
        for (i64 at = tile.rank(); at < slots; at += tile.size()) keys[at] = no_label, sums[at] = 0;
        tile.sync();
        auto into = [&](u32 found, u64 amount) { put<Tile32::size() == 1>(keys, sums, slots, found, amount); };
        cast_row(graph, tile, row, votes, into);
        if (both) cast_row(back, tile, row, votes, into);
        tile.sync();
        Best best = {0, no_label};
        for (i64 at = tile.rank(); at < slots; at += tile.size())
            if (keys[at] != no_label) best.meet(votes.score(row, keys[at], sums[at]), keys[at]);
        best = best_of(tile, best);
        tile.sync();
        return best;
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
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, tasks)) {
            i64 task = task_of[begin] + i, at = upper_bound(task_of, begin, end + 1, task) - 1, row = wide[at];
            if (!votes.open(row)) continue;
            i64 table = places[at] - places[begin], slots = places[at + 1] - places[at];
            auto into = [&](u32 found, u64 amount) { put<false>(keys + table, sums + table, slots, found, amount); };
            visit_task(graph, (u64)row << 32 | (u64)((task - task_of[at]) * task_units(graph, row)),
                       [&](i64 r, i64 unit) {
                           cast(graph, tile, r, unit, votes, into);
                           return false;
                       });
        }
    }
};

struct RankWide {  // a tile a chunk of the tables: the largest score of each row, and then the least label that has it
    static constexpr int lanes = 32;
    Votes votes;
    const u32* wide;
    const i64* places;
    i64 begin;
    i64 end;
    const u32* keys;
    const u64* sums;
    i64 naming;
    u64* scores;
    u32* names;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 base = places[begin], all = places[end] - base;
        for (i64 c : grid.items(tile, (all + chunk_slots - 1) / chunk_slots)) {
            i64 from = c * chunk_slots, to = lesser(from + chunk_slots, all);
            for (i64 at = upper_bound(places, begin, end + 1, base + from) - 1; from < to; ++at) {
                i64 last = lesser(to, places[at + 1] - base);
                if (votes.open(wide[at])) rank(tile, at, from, last);
                from = last;
            }
        }
    }
    template <class Tile32> DEVICE void rank(Tile32 tile, i64 at, i64 from, i64 last) const {
        u64 top = naming ? scores[at - begin] : 0;
        Best best = {0, no_label};
        for (i64 slot = from + tile.rank(); slot < last; slot += tile.size()) {
            if (keys[slot] == no_label) continue;
            u64 score = votes.score(wide[at], keys[slot], sums[slot]);
            if (!naming || score == top) best.meet(score, keys[slot]);
        }
        best = best_of(tile, best);
        if (tile.rank() || best.label == no_label) return;
        if (naming) atomic_min(names + (at - begin), best.label);
        else atomic_max(scores + (at - begin), best.score);
    }
};

struct SettleWide {  // one lane a wide row
    static constexpr int lanes = 1;
    Votes votes;
    const u32* wide;
    i64 begin;
    i64 n;
    const u64* scores;
    const u32* names;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n))
            if (votes.open(wide[begin + i])) votes.settle(wide[begin + i], {scores[i], names[i]});
    }
};
