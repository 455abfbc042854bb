// Closes edges: finds for each kept edge from u to v the vertices w to which both keep an edge.
#pragma once
#include "kernels/search.cuh"

// Groups of 32 edges per tile, taken one after another: the row of an edge is searched from that of the last.
constexpr i64 turns_at_once = Tile<32>::size() == 1 ? 1 : 8;

struct Part {  // rows of a rank's kept edges, from the vertex `first` on
    const i64* offsets;
    const u32* ids;
    const u8* twice;  // null in an undirected graph
    i64 first;
    i64 rows;
    DEVICE u32 arcs(i64 slot) const { return twice ? 1u + twice[slot] : 1u; }
};

// Calls close(edge, row of u, row of v) for each edge of `lower`, from u to v, whose v keeps edges in `upper`; one edge
// per lane. Most lanes of a tile have edges from the same u, and read its row together.
template <class Close>
DEVICE void close_edges(Grid grid, const Part& lower, const Part& upper, i64 edges, Close close) {
    Tile<32> tile;
    i64 row = 0, most = (edges + tile.size() - 1) / tile.size();
    i64 turns = greater(lesser(most / grid.items(tile, most).step, turns_at_once), (i64)1);
    for (i64 i : grid.items(tile, (most + turns - 1) / turns))
        for (i64 turn = i * turns; turn < lesser(most, (i + 1) * turns); ++turn) {
            i64 edge = turn * tile.size() + tile.rank(), v = edge < edges ? (i64)lower.ids[edge] - upper.first : -1;
            if (v < 0 || v >= upper.rows || upper.offsets[v] == upper.offsets[v + 1]) continue;
            row = lower_bound_near(lower.offsets, lower.rows + 1, row, edge + 1) - 1;
            close(edge, row, v);
        }
}

// Hash table of the places of the vertices of u's row, by the low bits of their ids. A CPU's thread builds it once for
// all edges from u; a GPU does not use it. The hubs of several ranks have neighbouring ids with the same low bits, and
// would be in one long run. So if there are `several`, blocks of ids are shifted, which takes a lookup longer.
template <bool several> struct Places {
    static constexpr bool used = Tile<32>::size() == 1;
    static constexpr i64 size = used ? 8192 : 1, most = size / 4;  // fits into L1; longer rows do without
    static constexpr u32 block = 8192, apart = 2731;
    const u32* ids = nullptr;
    i64 n = 0;
    u16 places[size] = {};  // from 1 on
    DEVICE u16& of(u32 id) {
        u32 at = several ? id + id / block * apart : id;
        while (places[at % size] && ids[places[at % size] - 1] != id) ++at;
        return places[at % size];
    }
    DEVICE bool take(const u32* row, i64 length) {
        if (row == ids) return true;
        if (length > most) return false;
        for (i64 i = n; i--;) of(ids[i]) = 0;  // in reverse, so that no search meets a gap
        ids = row, n = length;
        for (i64 i = 0; i < n; ++i) of(ids[i]) = (u16)(i + 1);
        return true;
    }
};

// Calls work(places) with a table for these rows.
template <class Work> DEVICE void with_places(const Part& lower, const Part& upper, Work work) {
    bool one_rank = lower.ids == upper.ids && lower.rows == upper.rows;
    if (Tile<32>::size() > 1 || one_rank) work(Places<false>{});
    else work(Places<true>{});
}

// Intersects two rows: searches the vertices of the shorter one in the longer one.
template <class Hit> DEVICE void seek_row(const u32* shorter, i64 n, const u32* longer, i64 most, Hit hit) {
    i64 hint = 0;
    for (i64 k = 0; k < n; ++k) {
        hint = lower_bound_near(longer, most, hint, shorter[k]);
        if (hint == most) return;
        if (longer[hint] == shorter[k]) hit(k, hint);
    }
}

// Calls hit(edge of lower, edge of upper) for each vertex that both rows have.
template <bool several, class Hit>
DEVICE void each_common(const Part& lower, const Part& upper, i64 row, i64 v, Places<several>& places, Hit hit) {
    i64 at_u = lower.offsets[row], at_v = upper.offsets[v];
    i64 n_u = lower.offsets[row + 1] - at_u, n_v = upper.offsets[v + 1] - at_v;
    const u32 *ids_u = lower.ids + at_u, *ids_v = upper.ids + at_v;
    auto both = [&](i64 in_u, i64 in_v) { hit(at_u + in_u, at_v + in_v); };
    if (places.used && n_v <= 16 * n_u && places.take(ids_u, n_u)) {
        for (i64 in_v = 0; in_v < n_v; ++in_v)
            if (i64 place = places.of(ids_v[in_v])) both(place - 1, in_v);
    } else if (n_u <= n_v) seek_row(ids_u, n_u, ids_v, n_v, both);
    else seek_row(ids_v, n_v, ids_u, n_u, [&](i64 in_v, i64 in_u) { both(in_u, in_v); });
}
