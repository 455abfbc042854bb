// Makes a step of random walks, which go to a random neighbour, or stay without any.
#pragma once
#include "kernels/random_draws.cuh"
#include "kernels/search.cuh"

struct Walks {
    const u64* at;  // number << 32 | vertex
    i64 n;
    i64 first;  // the vertex of row 0
    u64 seed;
    i64 step;
    DEVICE u32 vertex(i64 i) const { return (u32)at[i]; }
    DEVICE i64 row(i64 i) const { return (i64)vertex(i) - first; }
    DEVICE u64 stream(i64 i) const { return stream_of(seed, at[i] >> 32, (u64)step); }
};

template <class View>
struct Draw {  // notes the least draw of each walk's neighbours, a part of a row per tile
    static constexpr int lanes = 32;
    View graph;
    Walks walks;
    const u32* names;  // user's id of each vertex; null if it is the internal id
    u64* least;  // all ones before
    DEVICE void operator()(Grid grid) const {
        u64 stream = 0, mine = ~(u64)0;
        visit_parts(
            grid, graph, walks.n,
            [&](i64 i) {
                stream = walks.stream(i), mine = ~(u64)0;
                return walks.row(i);
            },
            [&](auto, u32 id, bool live) {
                if (live) mine = lesser(mine, scramble(stream ^ (names ? names[id] : id)));
            },
            [&](auto tile, i64 i) {
                u64 all = ~tile.most(~mine);
                if (tile.rank() == 0) atomic_min(least + i, all);
            });
    }
};

template <class View>
struct Move {  // writes each walk's number and next vertex to the part of that vertex's owner, one lane per walk
    static constexpr int lanes = 1;
    View graph;
    Walks walks;
    const u64* least;
    const u32* order;  // vertex of each user's id; null if they are equal
    const i64* starts;  // the first vertex of each rank's range, and one past the last
    i64 owners;
    u64* parts;  // out: per owner room for all walks
    i64* counts;  // of each part; 0 before
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(walks.n)) {
            u32 to = walks.vertex(i);
            if (graph.degree(walks.row(i)) > 0) {  // else there was no draw
                u32 name = (u32)(unscramble(least[i]) ^ walks.stream(i));
                to = order ? order[name] : name;
            }
            i64 owner = owners > 1 ? upper_bound(starts, 0, owners, (i64)to) - 1 : 0;
            i64 place = owners > 1 ? take_place(counts + owner) : i;
            parts[owner * walks.n + place] = walks.at[i] >> 32 << 32 | to;
        }
    }
};
