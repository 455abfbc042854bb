// Items that a lane takes at once: it waits for memory most of the time. A group of vertices is a vertex and those
// behind it, whose words lie side by side.
#pragma once
#include "kernels/rows.cuh"
#include "kernels/world.cuh"

// On a GPU; a lane of a CPU takes one.
constexpr int rows_read_at_once = Tile<32>::size() > 1 ? 4 : 1;
constexpr int vertices_at_once = Tile<32>::size() > 1 ? 8 : 1;

// The words of neighbouring vertices, from an address that is a multiple of their bytes.
DEVICE void load_several(const u32* p, u32 (&v)[vertices_at_once]) {
    if constexpr (vertices_at_once % 4 == 0) {
        for (int k = 0; k < vertices_at_once; k += 4) load_four(p + k, (u32(&)[4])v[k]);
    } else {
        for (int k = 0; k < vertices_at_once; ++k) v[k] = stale_load(p + k);
    }
}
// Stores a word at those of neighbouring places that have a bit.
DEVICE void store_several(u32* p, u32 places, u32 word) {
    if constexpr (vertices_at_once % 4 == 0) {
        u32 four[4] = {word, word, word, word};
        if (places == (1u << vertices_at_once) - 1) {
            for (int k = 0; k < vertices_at_once; k += 4) store_four(p + k, four);
            return;
        }
    }
    for (int k = 0; k < vertices_at_once; ++k)
        if (places >> k & 1) store(p + k, word);
}

DEVICE u32 bits_in_range(i64 v, i64 first, i64 last) {  // of v and those behind it: which are in the range
    u32 live = 0;
    for (int k = 0; k < vertices_at_once; ++k) live |= (u32)(v + k >= first && v + k < last) << k;
    return live;
}

// Calls work(first, step): a lane has `count` of n items, from `first` in steps; some may be n or more.
template <int count, class Work> DEVICE void take_several(Grid grid, i64 n, Work work) {
    i64 step = (n + count - 1) / count;
    for (i64 i : grid.items(step)) work(i, step);
}
// Calls work(v, up, live) for vertices from `first` to `last`: v and those behind it in steps of a tile's lanes, their
// parents, and bits for those in the range. Where paths lead to neighbouring words, so do those of neighbouring lanes.
template <class Work>
DEVICE void take_paths(Grid grid, const u32* trees, i64 first, i64 last, Work work) {
    Tile<32> tile;
    constexpr int n = vertices_at_once, whole = n * tile.size();
    for (i64 i : grid.items(tile, first < last ? (last - first + whole - 1) / whole : 0)) {
        i64 v = first + i * whole + tile.rank();
        u32 live = 0, up[n] = {};
        for (int k = 0; k < n; ++k) live |= (u32)(v + k * tile.size() < last) << k;
        for (int k = 0; k < n; ++k)
            if (live >> k & 1) up[k] = stale_load(trees + v + k * tile.size());
        work(v, up, live);
    }
}
// Calls work(v, up, live) for groups of vertices from `first` to `last`: v and those behind it, their parents, and
// bits for those in the range. All lanes of a tile call it equally often.
template <class Work>
DEVICE void take_vertices(Grid grid, const u32* trees, i64 first, i64 last, Work work) {
    constexpr int n = vertices_at_once, lanes = 32;
    i64 begin = first / n * n, groups = first < last ? (last - begin + n - 1) / n : 0;
    for (i64 i : grid.items((groups + lanes - 1) / lanes * lanes)) {
        i64 v = begin + i * n;
        u32 live = bits_in_range(v, first, last), up[n] = {};
        if (live == (1u << n) - 1) load_several(trees + v, up);
        else
            for (int k = 0; k < n; ++k)
                if (live >> k & 1) up[k] = stale_load(trees + v + k);
        work(v, up, live);
    }
}
