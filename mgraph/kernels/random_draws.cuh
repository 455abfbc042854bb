// Random draws among a row's edges: each edge gets a hash of a stream and its neighbour's id, and the least are drawn.
// So a draw depends neither on the structure's order of a row nor on its owner.
#pragma once
#include "kernels/splitmix.cuh"

DEVICE u64 scramble(u64 z) { return splitmix(1, z); }
DEVICE u64 unscramble(u64 z) { return unmix64(z) - splitmix_step; }
DEVICE u64 stream_of(u64 seed, u64 a, u64 b) { return scramble(scramble(scramble(seed) ^ a) ^ b); }

// A row's units are dealt to so many tiles of a GPU: one that read a million edges alone would keep all others waiting.
constexpr i64 row_tiles = 32;
constexpr i64 row_parts = Tile<32>::size() > 1 ? row_tiles : 1;

// Visits the edges of n rows part by part: row_at(i), the i-th of them or -1, then visit(tile, id, live) for the part's
// edges, then after(tile, i). Neighbouring tiles have different rows.
template <class View, class RowAt, class Visit, class After>
DEVICE void visit_parts(Grid grid, const View& graph, i64 n, RowAt row_at, Visit visit, After after) {
    Tile<32> tile;
    for (i64 item : grid.items(tile, n * row_parts)) {
        i64 i = item % n, part = item / n, row = row_at(i), units = row < 0 ? 0 : graph.units(row);
        for (i64 unit = part; unit < units; unit += row_parts)
            graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
                visit(tile, id, live);
                return false;
            });
        if (part < units) after(tile, i);
    }
}
