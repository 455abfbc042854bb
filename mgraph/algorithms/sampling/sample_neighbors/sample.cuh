// Samples neighbours: lists candidates among the neighbours of each vertex, and chooses those with the smallest draws.
// A sampled edge is a key, place << 32 | neighbour: the place of its vertex among the nodes, and a user's id. New
// neighbours become nodes in the order of their first edges.
#pragma once
#include "kernels/buffered_append.cuh"
#include "kernels/random_draws.cuh"

// A row's units are dealt to so many tiles of a GPU: one that read a million edges alone would keep all others waiting.
constexpr i64 row_tiles = 32;
constexpr i64 row_parts = Tile<32>::size() > 1 ? row_tiles : 1;

// Visits the edges of n rows part by part: row_at(i), the i-th of them or -1, then for a part with edges begin(i, row),
// visit(tile, id, live) for each of them, and after(tile, i). Neighbouring tiles have different rows.
template <class View, class RowAt, class Begin, class Visit, class After>
DEVICE void visit_parts(Grid grid, const View& graph, i64 n, RowAt row_at, Begin begin, Visit visit, After after) {
    Tile<32> tile;
    for (i64 item : grid.items(tile, n * row_parts)) {
        i64 i = item % n, part = item / n, row = row_at(i), units = row < 0 ? 0 : graph.units(row);
        if (part >= units) continue;
        begin(i, row);
        for (i64 unit = part; unit < units; unit += row_parts)
            graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                visit(tile, id, live);
                return false;
            });
        after(tile, i);
    }
}

struct Lottery {
    i64 first;    // the vertex of row 0
    i64 fanout;   // number of neighbours to choose; -1 for all
    u64 seed;
    const u32* names;  // user's id of each vertex; null if it is the internal id
    DEVICE i64 chosen(i64 candidates) const { return fanout < 0 ? candidates : lesser(candidates, fanout); }
    DEVICE u32 name(u32 id) const { return names ? names[id] : id; }
    DEVICE u64 stream(u32 vertex) const { return stream_of(seed, name(vertex), 0); }
    // Returns the bound of candidates' draws: about twice as many as wanted are below it, and all of a short row.
    DEVICE u64 bound(i64 degree) const {
        i64 enough = 2 * fanout + 32;
        return fanout < 0 || degree <= enough ? ~(u64)0 : (u64)((f64)enough / (f64)degree * 18446744073709551616.0);
    }
};

template <class View>
struct CountCandidates {  // counts the candidates of each vertex with many neighbours, a part of a row per tile
    static constexpr int lanes = 32;
    View graph;
    const u32* vertices;
    i64 n;
    Lottery lottery;
    i64* counts;  // 0 before
    DEVICE void operator()(Grid grid) const {
        u64 bound = 0, stream = 0;
        i64 mine = 0;
        visit_parts(
            grid, graph, n,
            [&](i64 i) -> i64 {
                i64 row = (i64)vertices[i] - lottery.first;
                bound = lottery.bound(graph.degree(row));
                return bound == ~(u64)0 ? -1 : row;
            },
            [&](i64 i, i64) { stream = lottery.stream(vertices[i]), mine = 0; },
            [&](auto, u32 id, bool live) { mine += live && scramble(stream ^ lottery.name(id)) < bound; },
            [&](auto tile, i64 i) {
                i64 all = tile.sum(mine);
                if (tile.rank() == 0 && all) atomic_add(counts + i, all);
            });
    }
};

template <class View>
struct TakeAll {  // takes all neighbours where they are few, or too few are candidates, one lane per vertex
    static constexpr int lanes = 1;
    View graph;
    const u32* vertices;
    i64 n;
    Lottery lottery;
    i64* counts;
    i64* chosen;  // 0 before: the sampled edges of all vertices
    DEVICE void operator()(Grid grid) const {
        i64 mine = 0;
        for (i64 i : grid.items(n)) {
            i64 degree = (i64)graph.degree((i64)vertices[i] - lottery.first);
            if (lottery.bound(degree) == ~(u64)0 || counts[i] < lottery.fanout) counts[i] = degree;
            mine += lottery.chosen(counts[i]);
        }
        i64 all = Tile<32>{}.sum(mine);
        if (Tile<32>{}.rank() == 0 && all) atomic_add(chosen, all);
    }
};

template <class View>
struct TakeCandidates {  // lists the counted candidates of each vertex in any order, a part of a row per tile
    static constexpr int lanes = 32;
    View graph;
    const u32* vertices;
    i64 n;
    Lottery lottery;
    const i64* offsets;
    i64* taken;  // 0 before: the candidates of each vertex that have a place
    u64* draws;
    DEVICE void operator()(Grid grid) const {
        u64 bound = 0, stream = 0;
        i64 vertex = 0;
        visit_parts(
            grid, graph, n, [&](i64 i) { return (i64)vertices[i] - lottery.first; },
            [&](i64 i, i64 row) {
                i64 degree = graph.degree(row);
                vertex = i, stream = lottery.stream(vertices[i]);
                bound = offsets[i + 1] - offsets[i] == degree ? ~(u64)0 : lottery.bound(degree);
            },
            [&](auto tile, u32 id, bool live) {
                u64 draw = live ? scramble(stream ^ lottery.name(id)) : 0;
                bool takes = live && (bound == ~(u64)0 || draw < bound);
                u32 all = tile.ballot(takes);
                if (!all) return;
                i64 first = tile.shfl(tile.rank() == 0 ? atomic_add(taken + vertex, (i64)popcount(all)) : 0, 0);
                if (!takes) return;
                draws[offsets[vertex] + first + popcount(all & ((1u << tile.rank()) - 1))] = draw;
            },
            [&](auto, i64) {});
    }
};

struct Choose {  // chooses the smallest draws of each vertex, one tile per vertex
    static constexpr int lanes = 32;
    const u32* vertices;
    const u32* places;  // among the nodes
    i64 n;
    Lottery lottery;
    const i64* offsets;
    const u64* draws;
    i64* listed;  // 0 before
    u64* keys;    // out, in any order
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        for (i64 i : grid.items(tile, n)) {
            const u64* row = draws + offsets[i];
            i64 count = offsets[i + 1] - offsets[i], wanted = lottery.chosen(count);
            bool all = wanted == count;
            u64 end = all ? 0 : end_of(tile, row, count, wanted);
            u64 stream = lottery.stream(vertices[i]), place = (u64)places[i] << 32;
            i64 to = tile.shfl(tile.rank() == 0 ? atomic_add(listed, wanted) : 0, 0);
            for (i64 first = 0; first < count; first += tile.size()) {
                i64 at = first + tile.rank();
                u64 draw = at < count ? row[at] : 0;
                bool takes = at < count && (all || draw < end);
                u32 takers = tile.ballot(takes);
                if (takes) {
                    u32 id = (u32)(unscramble(draw) ^ stream);
                    keys[to + popcount(takers & ((1u << tile.rank()) - 1))] = place | id;
                }
                to += popcount(takers);
            }
        }
    }
    // Returns a number above `wanted` of the draws, which all differ; `wanted` < count. Draws are nearly even, so linear
    // interpolation takes a few steps.
    template <class Group> DEVICE u64 end_of(Group group, const u64* row, i64 count, i64 wanted) const {
        u64 low = 0, high = ~(u64)0;
        i64 below_low = 0, below_high = count;
        if (wanted == 0) return low;
        while (high - low > 1) {
            f64 share = ((f64)(wanted - below_low) + 0.5) / (f64)(below_high - below_low);
            u64 step = (u64)(lesser(greater(share, 0.0625), 0.9375) * (f64)(high - low));
            u64 middle = low + lesser(greater(step, (u64)1), high - low - 1);
            i64 mine = 0;
            for (i64 at = group.rank(); at < count; at += group.size()) mine += row[at] < middle;
            i64 below = group.sum(mine);
            if (below == wanted) return middle;
            if (below < wanted) low = middle, below_low = below;
            else high = middle, below_high = below;
        }
        return high;
    }
};

// ---- nodes ---------------------------------------------------------------------------------------------------------

struct Nodes {  // hash table: the number of each node and new neighbour
    u64* slots;  // user's id << 32 | number
    i64 mask;
    static constexpr u64 none = ~(u64)0;
    static constexpr u32 waiting = 1u << 31;  // a new neighbour's number: `waiting` | the least place of its vertices
    DEVICE i64 first(u32 id) const { return (i64)mix64(id) & mask; }
    DEVICE u64* find(u32 id) const {  // which is there
        for (i64 at = first(id);; at = (at + 1) & mask)
            if ((u32)(load(slots + at) >> 32) == id) return slots + at;
    }
    DEVICE bool lower(u32 id, u32 number) const {  // true for a new id
        u64 entry = (u64)id << 32 | number;
        for (i64 at = first(id);; at = (at + 1) & mask) {
            u64 present = load(slots + at);
            if (present == none) present = atomic_cas(slots + at, none, entry);
            if (present == none) return true;
            if ((u32)(present >> 32) != id) continue;
            if (entry < present) atomic_min(slots + at, entry);
            return false;
        }
    }
};

struct EnterNodes {  // one lane per node
    static constexpr int lanes = 1;
    Nodes nodes;
    const u32* ids;
    i64 n;
    i64 first;  // the place of the first
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) nodes.lower(ids[i], (u32)(first + i));
    }
};

struct EnterNeighbors {  // lists new neighbours, one lane per edge
    static constexpr int lanes = 1;
    Nodes nodes;
    const u64* keys;
    i64 n;
    u32* listed;
    i64* count;  // 0 before
    DEVICE void operator()(Grid grid) const {
        BufferedAppender list(listed, count);
        for (i64 i : grid.items(n)) {
            u64 key = keys[i];
            if (nodes.lower((u32)key, Nodes::waiting | (u32)(key >> 32))) list.add((u32)key);
        }
    }
};

struct FirstEdges {  // one lane per new neighbour
    static constexpr int lanes = 1;
    Nodes nodes;
    const u32* listed;
    i64 n;
    u64* keys;  // out: of the first edge of each
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 id = listed[i], place = (u32)*nodes.find(id) & ~Nodes::waiting;
            keys[i] = (u64)place << 32 | id;
        }
    }
};

struct PlaceNodes {  // numbers new nodes by their first edges, which are in order; one lane per node
    static constexpr int lanes = 1;
    Nodes nodes;
    const u64* keys;
    i64 n;
    i64 first;
    const u32* order;  // vertex of each user's id; null if they are equal
    u32* ids;
    u32* vertices;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 id = (u32)keys[i];
            ids[i] = id, vertices[i] = order ? order[id] : id;
            store(nodes.find(id), (u64)id << 32 | (u64)(first + i));
        }
    }
};

struct EdgesOfNodes {  // writes the places of both ends, one lane per edge
    static constexpr int lanes = 1;
    Nodes nodes;
    const u64* keys;
    i64 n;
    u32* row;
    u32* col;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) row[i] = (u32)*nodes.find((u32)keys[i]), col[i] = (u32)(keys[i] >> 32);
    }
};
