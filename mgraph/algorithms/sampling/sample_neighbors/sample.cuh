// Samples neighbours: lists candidates among the neighbours of each vertex, and chooses those with the smallest draws.
// Candidates of a long row have draws below a bound, so that about `enough` are expected.
// A sampled edge is a key, place << 32 | neighbour: the place of its vertex among the nodes, and a user's id. New
// neighbours become nodes in the order of their first edges.
#pragma once
#include "kernels/buffered_append.cuh"
#include "kernels/random_draws.cuh"

// A row's units are dealt to so many tiles of a GPU: one that read a million edges alone would keep all others waiting.
constexpr i64 row_tiles = 32;
constexpr i64 row_parts = Tile<32>::size() > 1 ? row_tiles : 1;

struct Lottery {
    i64 first;    // the vertex of row 0
    i64 fanout;   // number of neighbours to choose; -1 for all
    i64 enough;   // candidates that are expected in a long row
    i64 room;     // candidates that are kept of it; all of a row that is not longer
    u64 seed;
    const u32* names;  // user's id of each vertex; null if it is the internal id
    DEVICE i64 chosen(i64 candidates) const { return fanout < 0 ? candidates : lesser(candidates, fanout); }
    DEVICE u32 name(u32 id) const { return names ? names[id] : id; }
    DEVICE u64 stream(u32 vertex) const { return stream_of(seed, name(vertex), 0); }
    DEVICE u64 draw(u64 stream, u32 id) const { return scramble(stream ^ name(id)); }
    DEVICE bool is_long(i64 degree) const { return fanout >= 0 && degree > room; }
    DEVICE u64 bound(i64 degree) const { return (u64)((f64)enough / (f64)degree * 18446744073709551616.0); }
};

template <class View>
struct MakeRoom {  // counts the places for each vertex's candidates, one lane per vertex
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
            counts[i] = lottery.is_long(degree) ? lottery.room : degree;
            mine += lottery.chosen(degree);
        }
        i64 all = Tile<32>{}.sum(mine);
        if (Tile<32>{}.rank() == 0) atomic_add(chosen, all);
    }
};

template <class View>
struct TakeCandidates {  // lists candidates of each vertex in any order, a part of a row per tile
    static constexpr int lanes = 32;
    View graph;
    const u32* vertices;
    i64 n;
    Lottery lottery;
    const i64* offsets;
    i64* taken;  // 0 before: the candidates of each vertex, those without a place among them
    u64* draws;
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        for (i64 item : grid.items(tile, n * row_parts)) {  // neighbouring tiles have different rows
            i64 i = item % n, part = item / n, row = (i64)vertices[i] - lottery.first, units = graph.units(row);
            if (part >= units) continue;
            i64 degree = (i64)graph.degree(row);
            bool all = !lottery.is_long(degree);
            u64 bound = all ? 0 : lottery.bound(degree), stream = lottery.stream(vertices[i]);
            for (i64 unit = part; unit < units; unit += row_parts)
                graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                    u64 draw = live ? lottery.draw(stream, id) : 0;
                    take(tile, i, live && (all || draw < bound), draw);
                    return false;
                });
        }
    }
    template <class Tile32> DEVICE void take(Tile32 tile, i64 i, bool takes, u64 draw) const {
        u32 takers = tile.ballot(takes);
        if (!takers) return;
        i64 first = tile.shfl(tile.rank() == 0 ? atomic_add(taken + i, (i64)popcount(takers)) : 0, 0);
        i64 place = offsets[i] + first + popcount(takers & ((1u << tile.rank()) - 1));
        if (takes && place < offsets[i + 1]) draws[place] = draw;
    }
};

template <class View>
struct Choose {  // chooses the smallest draws of each vertex, one tile per vertex
    static constexpr int lanes = 32;
    View graph;
    const u32* vertices;
    const u32* places;  // among the nodes
    i64 n;
    Lottery lottery;
    const i64* offsets;
    const i64* taken;
    const u64* draws;
    i64* listed;  // 0 before
    u64* keys;    // out, in any order
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        for (i64 i : grid.items(tile, n)) {
            i64 row = (i64)vertices[i] - lottery.first, count = taken[i], degree = (i64)graph.degree(row);
            u64 stream = lottery.stream(vertices[i]);
            if (count >= lottery.chosen(degree) && count <= offsets[i + 1] - offsets[i])
                choose(tile, i, stream, count, [&](auto take) {
                    for (i64 at = tile.rank(); at - tile.rank() < count; at += tile.size())
                        take(at < count ? draws[offsets[i] + at] : 0, at < count);
                });
            else  // too few candidates, or too many: hardly ever
                choose(tile, i, stream, degree, [&](auto take) {
                    for (i64 unit = 0; unit < graph.units(row); ++unit)
                        graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                            take(live ? lottery.draw(stream, id) : 0, live);
                            return false;
                        });
                });
        }
    }
    // From `count` draws, for which all lanes of the group together call take(draw, live) in each_draw(take).
    template <class Group, class EachDraw>
    DEVICE void choose(Group group, i64 i, u64 stream, i64 count, EachDraw each_draw) const {
        i64 wanted = lottery.chosen(count);
        bool all = wanted == count;
        u64 end = all ? 0 : end_of(group, count, wanted, each_draw), place = (u64)places[i] << 32;
        i64 to = group.shfl(group.rank() == 0 ? atomic_add(listed, wanted) : 0, 0);
        each_draw([&](u64 draw, bool live) {
            bool takes = live && (all || draw < end);
            u32 takers = group.ballot(takes), before = popcount(takers & ((1u << group.rank()) - 1));
            if (takes) keys[to + before] = place | (u32)(unscramble(draw) ^ stream);
            to += popcount(takers);
        });
    }
    // Returns a number above `wanted` of the draws, which all differ; `wanted` < count. Draws are nearly even, so linear
    // interpolation takes a few steps.
    template <class Group, class EachDraw>
    DEVICE u64 end_of(Group group, i64 count, i64 wanted, EachDraw each_draw) const {
        u64 low = 0, high = ~(u64)0;
        i64 below_low = 0, below_high = count;
        if (wanted == 0) return low;
        while (high - low > 1) {
            f64 share = ((f64)(wanted - below_low) + 0.5) / (f64)(below_high - below_low);
            u64 step = (u64)(lesser(greater(share, 0.0625), 0.9375) * (f64)(high - low));
            u64 middle = low + lesser(greater(step, (u64)1), high - low - 1);
            i64 mine = 0;
            each_draw([&](u64 draw, bool live) { mine += live && draw < middle; });
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
