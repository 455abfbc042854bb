// Adds up each own vertex's edges by label, and chooses a label. Labels and sums are in hash tables: a lane has a table
// of `short_degree` entries; a tile one in shared memory; a CPU's thread one of its own. A wide row, which does not fit
// there, has one in memory with two slots per edge, into which many tiles add their sums from shared memory. Sums are
// integers, so that timing does not change them.
#pragma once
#include "algorithms/primitives/fixed_point.cuh"
#include "kernels/rows.cuh"
#include "kernels/search.cuh"

constexpr i64 table_slots = 256, most_tabled = 192;  // slots of a tile's table; most edges of a row that uses it
constexpr i64 thread_slots = 1 << 16, most_by_thread = 1 << 15;  // the same for a CPU's thread
constexpr i64 chunk_slots = 1024;
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
// From the words of a block's tiles, 3 per slot.
template <class Tile32> DEVICE TileTable table_of(Tile32 tile, u32* words) {
    i64 own = tile.index() * table_slots, all = program_tiles * table_slots;
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
// The same for a row that is not wide. The labels of several neighbours are read before the first is put, since a lane
// that puts one waits for it. Wide rows gain nothing by that: their tables are in memory.
template <class View, class Group, class Rule, class Put>
DEVICE void cast_row(const View& graph, Group group, i64 row, const Rule& votes, Put put) {
    auto take = [&](const auto& ids, i64 slot) {
        constexpr int n = sizeof(ids) / sizeof(u32);
        u32 labels[n];
        for (int j = 0; j < n; ++j)
            labels[j] = ids[j] != no_id && votes.counts(row, ids[j]) ? votes.labels[ids[j]] : no_label;
        for (int j = 0; j < n; ++j)
            if (labels[j] != no_label) put(labels[j], votes.amount(graph, slot + j * group.size()));
    };
    i64 units = graph.degree(row) ? (i64)graph.units(row) : 0;
    for (i64 unit = 0; unit < units; ++unit) read_ids(graph, group, row, unit, take);
}

// Lets rows vote, a row per lane; leaves wide rows to `cast_wide`. The tables of a block's tiles are in `words`.
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
    DEVICE i64 row_at(i64 at) const { return list ? (i64)list[at] : at; }
    DEVICE i64 edges(i64 row) const { return graph.degree(row) + (both ? back.degree(row) : 0); }
    // A lane calls after(row), or -1, when its row has voted.
    template <class After> DEVICE void run(Grid grid, After after) const {
        Tile<32> tile;
        i64 few = rows_at_once(grid, tile, n);
        for (i64 i : grid.items(tile, turns_of(n, few))) {
            i64 at = i * few + tile.rank(), row = tile.rank() < few && at < n ? row_at(at) : -1;
            fetch_row(graph, at, n, [&](i64 later) { return row_at(later); });
            i64 degree = row >= 0 && votes.may_choose(row) ? edges(row) : 0;
            // Short rows by lanes, longer ones by the tile with its table.
            if (degree > 0 && degree <= short_degree) votes.settle(row, by_lane(row));
            if constexpr (ThreadTable::holds) {
                if (degree > short_degree && degree <= votes.tabled) votes.settle(row, by_thread(row, degree));
            } else {
                TileTable table = table_of(tile, words);
                bool tabled = degree > short_degree && degree <= votes.tabled;
                u32 own = (u32)row, slots = tabled ? 1u << bit_width((u64)(degree + degree / 3 - 1)) : 0;
                for (u32 rest = tile.ballot(slots); rest; rest &= rest - 1) {
                    int lane = lowest_bit(rest);
                    u32 next = tile.shfl(own, lane);
                    Best best = by_tile(tile, next, tile.shfl(slots, lane), table);
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
    template <class Tile32> DEVICE Best by_tile(Tile32 tile, u32 row, u32 slots, const TileTable& table) const {
        // Clear the table, add up the edges, and find the best label.
        for (u32 at = tile.rank(); at < slots; at += tile.size()) table.clear(at);
        tile.sync();
        auto into = [&](u32 found, u64 amount) { table.add(slot_of(table.keys, slots, found), amount); };
        cast_row(graph, tile, row, votes, into);
        if (both) cast_row(back, tile, row, votes, into);
        tile.sync();
        Best best = {0, no_label};
        for (u32 at = tile.rank(); at < slots; at += tile.size())
            if (table.keys[at] != no_label) best.meet(votes.score(row, table.keys[at], table.sum(at)), table.keys[at]);
        best = best_of(tile, best);
        tile.sync();
        return best;
    }
};

// Deals rows to turns by a counting sort: first those that are not wide, by turn, then the wide ones, by turn.
constexpr i64 deal_chunk = 1024, most_classes = 256;  // rows per tile; a turn has two classes, of rows and of wide rows
constexpr u8 no_class = 255;

struct Dealing {
    const u32* list;  // the rows; null for all
    i64 n;
    i64 turns;
    i64 tabled;  // longer rows are wide
    u8* classes;  // of each listed row
    i64* counts;  // of each class in each chunk
    i64* slots;  // of the tables of each turn's wide rows
    i64* edges;  // of all rows that have a turn, and twice those of the widest one
    DEVICE i64 chunks() const { return (n + deal_chunk - 1) / deal_chunk; }
    DEVICE i64 row(i64 i) const { return list ? (i64)list[i] : i; }
    template <class Visit> DEVICE void visit(i64 chunk, Visit visit_item) const {
        Tile<32> tile;
        for (i64 i = chunk * deal_chunk + tile.rank(); i < lesser((chunk + 1) * deal_chunk, n); i += tile.size())
            visit_item(i);
    }
};
constexpr i64 class_words =
    (Tile<32>::size() == 1 ? 1 : 8) * most_classes;  // a word per class for each tile of a block

// Counts the rows of each class, a chunk per tile. turn_of(row) is negative for rows that do not vote.
template <class View, class TurnOf>
DEVICE void count_classes(Grid grid, const View& graph, const View& back, bool both, const Dealing& deal,
                          TurnOf turn_of) {
    SHARED(u32, words, class_words);
    Tile<32> tile;
    u32* counts = words + tile.index() * most_classes;
    i64 edges = 0, most = 0;
    for (i64 c : grid.items(tile, deal.chunks())) {
        for (i64 at = tile.rank(); at < 2 * deal.turns; at += tile.size()) counts[at] = 0;
        tile.sync();
        deal.visit(c, [&](i64 i) {
            i64 row = deal.row(i), turn = turn_of(row), of = no_class,
                degree = turn < 0 ? 0 : (i64)graph.degree(row) + (both ? (i64)back.degree(row) : 0);
            if (degree > 0) {
                edges += degree, of = turn;
                if (degree > deal.tabled) {
                    of += deal.turns, most = greater(most, 2 * degree);
                    atomic_add(deal.slots + turn, 2 * degree);
                }
                atomic_add(counts + of, 1u);
            }
            deal.classes[i] = (u8)of;
        });
        tile.sync();
        for (i64 at = tile.rank(); at < 2 * deal.turns; at += tile.size())
            deal.counts[at * deal.chunks() + c] = counts[at];
        tile.sync();
    }
    edges = tile.sum(edges), most = tile.most(most);
    if (tile.rank() == 0 && edges) atomic_add(deal.edges, edges);
    if (tile.rank() == 0 && most) atomic_max(deal.edges + 1, most);
}

template <class View>
struct CountOneTurn {  // all rows have the only turn
    static constexpr int lanes = 32;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    Dealing deal;
    DEVICE void operator()(Grid grid) const {
        count_classes(grid, graph, back, both != 0, deal, [](i64) { return (i64)0; });
    }
};

struct DealRows {  // places the rows of each class behind those of earlier chunks, a chunk per tile
    static constexpr int lanes = 32;
    Dealing deal;
    const i64* before;  // rows of earlier classes and chunks; at the end of all
    u32* dealt;
    i64* marks;  // out: where each class begins, and the last one ends
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, words, class_words);
        Tile<32> tile;
        u32* next = words + tile.index() * most_classes;
        i64 chunks = deal.chunks();
        for (i64 c : grid.items(tile, chunks)) {
            for (i64 at = tile.rank(); at < 2 * deal.turns; at += tile.size()) next[at] = (u32)before[at * chunks + c];
            tile.sync();
            deal.visit(c, [&](i64 i) {
                u8 of = deal.classes[i];
                if (of != no_class) dealt[atomic_add(next + of, 1u)] = (u32)deal.row(i);
            });
            tile.sync();
        }
        for (i64 at : grid.items(2 * deal.turns + 1)) marks[at] = before[at * chunks];
    }
};

template <class View>
struct MeasureWide {  // measures wide rows, one lane per row: slots, then tasks in each view
    static constexpr int lanes = 1;
    View graph;
    View back;
    i64 both;
    const u32* wide;
    i64 n;
    i64* sizes;
    DEVICE i64 tasks(const View& rows, i64 row) const {
        i64 step = rows.degree(row) ? task_units(rows, row) : 1;
        return rows.degree(row) ? ((i64)rows.units(row) + step - 1) / step : 0;
    }
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            i64 row = wide[i];
            sizes[i] = 2 * ((i64)graph.degree(row) + (both ? (i64)back.degree(row) : 0));
            sizes[n + i] = tasks(graph, row);
            if (both) sizes[2 * n + i] = tasks(back, row);
        }
    }
};

struct CutGroups {  // describes groups of wide rows that begin at given slots, one lane per group
    static constexpr int lanes = 1;
    const i64* places;  // first slot of each wide row; then its first tasks
    i64 wide;
    i64 both;
    const i64* begins;  // slots at which groups begin, and the last one ends
    i64 n;
    i64* groups;
    DEVICE void operator()(Grid grid) const {
        for (i64 g : grid.items(n)) {
            i64 begin = lower_bound(places, 0, wide, begins[g]), end = lower_bound(places, 0, wide, begins[g + 1]);
            i64* group = groups + g * group_words;
            group[0] = begin, group[1] = end;
            for (i64 column = 0; column < 3; ++column) {
                const i64* sizes = places + column * wide;
                group[2 + column] = column < 2 || both ? sizes[end] - sizes[begin] : 0;
            }
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

// Adds the edges of a wide row's task to the row's table, a task per tile, or a part of one. The nearer tables of a block's tiles are in
// `words`.
template <class View, class Rule>
DEVICE void cast_wide(Grid grid, const View& graph, const Rule& votes, const WideRows& wide, const i64* task_of,
                      i64 tasks, u32* words) {
    Tile<32> tile;
    TileTable table = table_of(tile, words);
    constexpr bool direct = Tile<32>::size() == 1;  // a CPU does not need a nearer table
    if (!direct)
        for (i64 at = tile.rank(); at < table_slots; at += tile.size()) table.clear(at);
    tile.sync();
    i64 parts = parts_of_tasks(grid, tile, tasks);
    for (i64 i : grid.items(tile, tasks * parts)) {
        i64 task = task_of[wide.begin] + i / parts, at = upper_bound(task_of, wide.begin, wide.end + 1, task) - 1,
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
        i64 step = task_units(graph, row), unit = (task - task_of[at]) * step;
        i64 end = lesser(unit + step, (i64)graph.units(row));
        for (unit += i % parts; unit < end; unit += parts) cast(graph, tile, row, unit, votes, into);
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
