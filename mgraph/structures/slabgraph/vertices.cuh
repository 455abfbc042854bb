// SlabGraph: deletes vertices in one pass. A deleted row frees its slabs; other rows lose their edges to deleted
// vertices. Rows of many buckets are cut into pieces for load balance. No two tiles change the same bucket.
#pragma once
#include "structures/deleted_set.cuh"
#include "structures/slabgraph/supply.cuh"

struct Sever {  // a tile's work on the buckets [from, to) of a row; edges: number of deleted ones, counted by one lane
    Slabs slabs;
    Supply supply;
    const u32* dead;
    template <class T> DEVICE void buckets(T tile, i64 row, Table own, i64 from, i64 to, i64& edges) const {
        bool dies = is_deleted(dead, (u32)row);
        u32 gone = 0;
        for (u32 slab = own.first + (u32)from; slab != own.first + (u32)to; ++slab)
            gone += dies ? release(tile, slab, own.buckets == 1) : unlink(tile, slab);
        gone = tile.sum(gone);
        if (tile.rank() == 0 && gone) atomic_add(&row_of(slabs.rows, row).degree, (u32)-gone), edges += gone;
    }
    // Frees the slabs of a chain; the first one singly if it is `alone`, otherwise as part of a hole.
    template <class T> DEVICE u32 release(T tile, u32 slab, bool alone) const {
        u32 gone = 0;
        for (bool frees = alone; slab != no_slab; frees = true) {
            u32 next = *slabs.next(slab);
            tile.sync();  // all have read it
            for (int s = tile.rank(); s < SLAB; s += tile.size()) {
                gone += s >= header && slabs.next(slab)[s] != no_edge;
                slabs.next(slab)[s] = ~0u;
            }
            if (tile.rank() == 0 && frees) supply.give(slab, supply.more());
            slab = next;
        }
        return gone;
    }
    template <class T> DEVICE u32 unlink(T tile, u32 first) const {
        u32 gone = 0;
        for (u32 slab = first; slab != no_slab; slab = *slabs.next(slab))
            for (int s = header + tile.rank(); s < SLAB; s += tile.size()) {
                u32* word = slabs.next(slab) + s;
                if (*word == no_edge || !is_deleted(dead, *word)) continue;
                *word = no_edge;
                ++gone;
            }
        return gone;
    }
};

struct SeverRows {  // one tile per row of few buckets; pieces of the others are listed
    static constexpr int lanes = TILE;
    Slabs slabs;
    Supply supply;
    const u32* dead;
    i64 n;
    u64* pieces;
    i64* counts;  // pieces, edges, buckets of deleted rows
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Sever sever = {slabs, supply, dead};
        i64 gone[2] = {};  // edges, buckets
        for (i64 row : grid.items(tile, n)) {
            Table own = slabs.of_row(row);
            if (own.buckets == 0) continue;
            bool dies = is_deleted(dead, (u32)row), leaves = dies && own.buckets > 1 && tile.rank() == 0;
            if (tile.rank() == 0 && dies) gone[1] += own.buckets;
            if (leaves) atomic_add(supply.status + left, (i64)own.buckets);
            supply.leave(tile, {own.first, leaves ? own.buckets : 0});
            if (own.buckets > piece_buckets) {
                if (tile.rank() == 0) list(row, own);
                continue;
            }
            sever.buckets(tile, row, own, 0, own.buckets, gone[0]);
            if (tile.rank() == 0 && dies) row_of(slabs.rows, row).table = {0, 0};
        }
        add_by_block(gone, counts + 1);
    }
    DEVICE void list(i64 row, Table own) const {
        i64 n_pieces = (own.buckets + piece_buckets - 1) / piece_buckets, at = atomic_add(counts, n_pieces);
        for (i64 p = 0; p < n_pieces; ++p) pieces[at + p] = (u64)row << 32 | (u64)p;
    }
};

struct SeverPieces {  // one tile per piece
    static constexpr int lanes = TILE;
    Slabs slabs;
    Supply supply;
    const u32* dead;
    const u64* pieces;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Sever sever = {slabs, supply, dead};
        i64 edges[1] = {};
        for (i64 i : grid.items(tile, counts[0])) {
            i64 row = (i64)(pieces[i] >> 32), from = (i64)(u32)pieces[i] * piece_buckets;
            Table own = slabs.of_row(row);
            sever.buckets(tile, row, own, from, lesser(from + piece_buckets, (i64)own.buckets), edges[0]);
        }
        add_by_block(edges, counts + 1);
    }
};

struct DropTables {  // one lane per vertex: removes its table, once the pieces are done
    static constexpr int lanes = 1;
    const u32* vertices;
    i64 n;
    u32* rows;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {  // ids may repeat
            Table& own = row_of(rows, vertices[i]).table;
            store(&own.first, 0u), store(&own.buckets, 0u);
        }
    }
};
