// Reduces EDGE over the neighbours of each row. EDGE is an expression in `value`, `weight`, `u` and `v`, compiled from
// the user's. REDUCE is a `Reduction`. Computes in float64; VALUE_BITS and RESULT are the types of input and output.
#pragma once
#include "kernels/rows.cuh"
#include "kernels/search.cuh"

enum Reduction { sums, least, most, counts };

#if VALUE_BITS == 32
using Value = f32;
#elif VALUE_BITS == 64
using Value = f64;
#endif
#if RESULT == 0
using Result = i64;
#elif RESULT == 32
using Result = f32;
#elif RESULT == 64
using Result = f64;
#endif

#ifdef __CUDACC__
#define MATH(name) ::name
#else
#define MATH(name) __builtin_##name
#endif

// Functions for EDGE, with Python's meaning for floats; a division by 0 gives inf or NaN.
DEVICE f64 remainder_of(f64 a, f64 b) {
    f64 rest = MATH(fmod)(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
DEVICE f64 quotient_of(f64 a, f64 b) {
    if (b == 0) return a / b;
    f64 whole = (a - remainder_of(a, b)) / b, floor = MATH(floor)(whole);
    return whole - floor > 0.5 ? floor + 1 : floor;
}
DEVICE f64 first_if(f64 a, f64 b) { return a != 0 ? a : b; }  // a or b
DEVICE f64 last_if(f64 a, f64 b) { return a != 0 ? b : a; }  // a and b

DEVICE f64 nothing_of(int reduction) {
    f64 infinite = float_of((u64)0x7ff << 52);
    return reduction == least ? infinite : reduction == most ? -infinite : 0;
}
DEVICE f64 joined(f64 a, f64 b) { return REDUCE == least ? lesser(a, b) : REDUCE == most ? greater(a, b) : a + b; }
template <class Group> DEVICE f64 joined_over(Group group, f64 part) {
    return REDUCE == least ? -group.most(-part) : REDUCE == most ? group.most(part) : group.sum(part);
}

struct Vertices {
    const Value* values;  // per vertex of the graph
    const u32* names;  // user's id of each; null if it is the internal id
    i64 first;  // the vertex of row 0
    DEVICE f64 name(i64 id) const { return names ? (f64)names[id] : (f64)id; }
};

template <class View> struct Reduce {  // the fold of a row
    const View& graph;
    const Vertices& of;
    DEVICE f64 nothing() const { return nothing_of(REDUCE); }
    template <int n> DEVICE u32 chosen(const u32 (&)[n], u32 which) const { return which; }
    DEVICE f64 term(i64 row, u32 id, i64 slot) const {
        [[maybe_unused]] f64 value = of.values[id], weight = graph.weight(slot), u = of.name(id),
                             v = of.name(of.first + row);
        f64 edge = EDGE;
        return REDUCE == counts ? (f64)(edge != 0) : edge;
    }
    DEVICE f64 with(f64 part, f64 term) const { return joined(part, term); }
    template <class Group> DEVICE f64 over(Group group, f64 part) const { return joined_over(group, part); }
};

template <class View>
struct GatherRows {  // reduces 32 rows per tile; leaves hubs to GatherHubs
    static constexpr int lanes = 32;
    View graph;
    i64 n;
    Vertices of;
    Result* out;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            f64 all = fold_rows(graph, tile, row < n ? row : -1, Reduce<View>{graph, of});
            if (row < n) out[row] = (Result)all;
        }
    }
};

template <class View>
struct GatherHubs {  // reduces a hub's task per tile, in the order of `turns`
    static constexpr int lanes = 32;
    View graph;
    const u64* tasks;
    const i64* turns;
    i64 n;
    Vertices of;
    f64* parts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            f64 part = fold_task(graph, tile, tasks[turns[i]], Reduce<View>{graph, of});
            if (tile.rank() == 0) parts[turns[i]] = part;
        }
    }
};

struct JoinHubs {  // one tile per task: the tile of a hub's first task joins the hub's parts, in order
    static constexpr int lanes = 32;
    const u64* tasks;  // ascending
    i64 n;
    const f64* parts;
    Result* out;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            u64 row = tasks[i] >> 32;
            if (i > 0 && tasks[i - 1] >> 32 == row) continue;
            i64 end = lower_bound_near(tasks, n, i, first_key_of((i64)row + 1));
            f64 part = nothing_of(REDUCE);
            for (i64 at = i + tile.rank(); at < end; at += tile.size()) part = joined(part, parts[at]);
            part = joined_over(tile, part);
            if (tile.rank() == 0) out[row] = (Result)part;
        }
    }
};
