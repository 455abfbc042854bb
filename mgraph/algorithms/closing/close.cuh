// Closing edges: each kept edge from u to v, with the vertices w to which both keep an edge.
#pragma once
#include "kernels/search.cuh"

constexpr i64 alone = 8;  // vertices of the shorter row up to which a lane closes an edge by itself
constexpr bool merges = Tile<32>::size() == 1;  // a CPU reads both rows where one is up to 16 times as long

struct Part {  // rows of one rank's kept edges, from the vertex `first` on
    const i64* offsets;
    const u32* ids;
    const u8* twice;  // null in an undirected graph
    i64 first;
    i64 rows;
    DEVICE u32 arcs(i64 slot) const { return twice ? 1u + twice[slot] : 1u; }
};

// Each lane brings an edge of `part`, from u to v: close(group, edge, row of u, row of v) where v is an own vertex and both
// rows have edges, by one lane or by the tile.
template <class Close>
DEVICE void close_edges(Grid grid, const Part& part, const Part& own, i64 edges, Close close) {
    Tile<32> tile;
    i64 row = 0;
    for (i64 i : grid.items(tile, (edges + tile.size() - 1) / tile.size())) {
        i64 edge = i * tile.size() + tile.rank(), v = edge < edges ? (i64)part.ids[edge] - own.first : -1, least = 0;
        if (v >= 0 && v < own.rows && own.offsets[v] < own.offsets[v + 1]) {
            row = lower_bound_near(part.offsets, part.rows + 1, row, edge + 1) - 1;
            least = lesser(part.offsets[row + 1] - part.offsets[row], own.offsets[v + 1] - own.offsets[v]);
        }
        if (least > 0 && least <= alone) close(Tile<1>{}, edge, row, v);
        for (u32 rest = tile.ballot(least > alone); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            close(tile, tile.shfl(edge, lane), tile.shfl(row, lane), tile.shfl(v, lane));
        }
    }
}

template <class Hit> DEVICE void merge_rows(const u32* a, i64 n, const u32* b, i64 m, Hit hit) {
    for (i64 i = 0, j = 0; i < n && j < m;) {
        u32 x = a[i], y = b[j];
        if (x == y) hit(i, j);
        i += x <= y, j += y <= x;
    }
}

// The group's lanes share the shorter row, and look for what they find there in the longer one.
template <class Group, class Hit>
DEVICE void seek_row(Group group, const u32* shorter, i64 n, const u32* longer, i64 most, Hit hit) {
    i64 hint = 0;
    for (i64 k = group.rank(); k < n; k += group.size()) {
        hint = lower_bound_near(longer, most, hint, shorter[k]);
        if (hint == most) return;
        if (longer[hint] == shorter[k]) hit(k, hint);
    }
}

// hit(edge of part, edge of own) for each vertex that both rows have.
template <class Group, class Hit>
DEVICE void each_common(Group group, const Part& part, const Part& own, i64 row, i64 v, Hit hit) {
    i64 at_u = part.offsets[row], at_v = own.offsets[v];
    i64 n_u = part.offsets[row + 1] - at_u, n_v = own.offsets[v + 1] - at_v;
    const u32 *ids_u = part.ids + at_u, *ids_v = own.ids + at_v;
    auto both = [&](i64 in_u, i64 in_v) { hit(at_u + in_u, at_v + in_v); };
    if (merges && greater(n_u, n_v) <= 16 * lesser(n_u, n_v)) merge_rows(ids_u, n_u, ids_v, n_v, both);
    else if (n_u <= n_v) seek_row(group, ids_u, n_u, ids_v, n_v, both);
    else seek_row(group, ids_v, n_v, ids_u, n_u, [&](i64 in_v, i64 in_u) { both(in_u, in_v); });
}
