// Membership: each touched row is read once, and its edges are sought among its run of the batch.
// position[k] of the last of equal keys gets one write at most, because a row holds an edge once.
#pragma once
#include "graphvine_batch.cuh"

constexpr i64 hub_extent = 512, piece_slots = 1024;  // rows of more positions are joined in such pieces

DEVICE bool is_head(const u64* keys, i64 k) { return k == 0 || keys[k] >> 32 != keys[k - 1] >> 32; }

struct CountRows {  // one tile a chunk of keys: how many rows begin there
    static constexpr int lanes = 32;
    const u64* keys;
    i64 n;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, chunks_of(n))) {
            i64 heads = 0, end = lesser((c + 1) * chunk, n);
            for (i64 k = c * chunk + tile.rank(); k < end; k += tile.size()) heads += is_head(keys, k);
            heads = tile.sum(heads);
            if (tile.rank() == 0) counts[c] = heads;
        }
    }
};

struct ListRows {  // one tile a chunk of keys; counts are summed up by now
    static constexpr int lanes = 32;
    const u64* keys;
    i64 n;
    const i64* counts;
    u32* owner;
    u32* first;
    u32* position;
    i64* touched;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, chunks_of(n))) {
            i64 rows = c ? counts[c - 1] : 0, end = lesser((c + 1) * chunk, n);
            for (i64 base = c * chunk; base < end; base += tile.size()) {
                i64 k = base + tile.rank();
                bool head = k < end && is_head(keys, k);
                u32 heads = tile.ballot(head);
                i64 t = rows + popcount(heads & ((2u << tile.rank()) - 1)) - 1;
                if (head) first[t] = (u32)k;
                if (k < end) owner[k] = (u32)t, position[k] = nobody;
                rows += popcount(heads);
            }
            if (end == n && tile.rank() == 0) *touched = rows, first[rows] = (u32)n;
        }
    }
};

struct Run {  // one row's keys, n of them from `first` on
    const u64* keys;
    i64 first, n;
    u64 row, filter;
    template <class T> DEVICE Run(const T& tile, const u64* all, i64 a, i64 b) : keys(all), first(a), n(b - a) {
        row = keys[a] >> 32 << 32, filter = ~(u64)0;
        if (tile.size() > 1 || n > 16) return;
        filter = 0;  // one lane spares itself most searches: a bit for each key
        for (i64 i = 0; i < n; ++i) filter |= (u64)1 << (keys[a + i] & 63);
    }
    DEVICE void meet(u32 id, i64 at, u32* position) const {
        if (!(filter >> (id & 63) & 1) || id == nobody) return;
        const u64 key = row | id, *base = keys + first;
        for (i64 left = n; left > 1;) {  // base: the last key not above, without a branch
            i64 half = left >> 1;
            base += base[half] <= key ? half : 0;
            left -= half;
        }
        if (*base == key) position[base - keys] = (u32)at;
    }
};

struct Join {  // one tile a touched row; the pieces of a long one are left to JoinHubs: t << 32 | piece
    static constexpr int lanes = 8;
    VineView graph;
    const u64* keys;
    const u32* first;
    const i64* touched;
    u64* held;
    u32* position;
    u64* pieces;
    i64* n_pieces;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 rows = *touched;
        for (i64 t : grid.items(tile, rows)) {
            fetch_ahead(t, rows);
            i64 a = first[t], row = (i64)(keys[a] >> 32);
            u64 sentinel = graph.sentinels[row];
            i64 all = LAZY ? (i64)graph.extents[row] : high(sentinel);
            if (tile.rank() == 0) held[t] = sentinel;
            if (all > hub_extent) {
                emit(tile, t, (all + piece_slots - 1) / piece_slots);
                continue;
            }
            Run run(tile, keys, a, (i64)first[t + 1]);
            graph.stretch(tile, (u32)sentinel, all, 0, all, [&](u32 id, i64, i64 at) {
                run.meet(id, at, position);
                return false;
            });
        }
    }
    DEVICE void fetch_ahead(i64 t, i64 rows) const {
        if (t + 16 < rows) prefetch(graph.sentinels + (keys[first[t + 16]] >> 32));
        if (t + 8 < rows) prefetch(graph.slots + graph.slot_of((u32)graph.sentinels[keys[first[t + 8]] >> 32]));
    }
    template <class T> DEVICE void emit(const T& tile, i64 t, i64 n) const {
        i64 to = tile.shfl(tile.rank() == 0 ? atomic_add(n_pieces, n) : (i64)0, 0);
        for (i64 i = tile.rank(); i < n; i += tile.size()) pieces[to + i] = (u64)t << 32 | (u64)i;
    }
};

struct JoinHubs {  // one tile a piece of a long row
    static constexpr int lanes = 32;
    VineView graph;
    const u64* keys;
    const u32* first;
    u32* position;
    const u64* pieces;
    const i64* n_pieces;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_pieces)) {
            i64 t = high(pieces[i]), from = low(pieces[i]) * piece_slots, a = first[t], row = (i64)(keys[a] >> 32);
            i64 all = graph.extent(row), end = lesser(from + piece_slots, all);
            Run run(tile, keys, a, (i64)first[t + 1]);
            graph.stretch(tile, (u32)graph.sentinels[row], all, from, end, [&](u32 id, i64, i64 at) {
                run.meet(id, at, position);
                return false;
            });
        }
    }
};

// --- queries ---

constexpr i64 short_extent = 128;

struct FindShort {  // one lane a query, a tile in step; those about longer rows are listed in `rest`
    static constexpr int lanes = 1;
    VineView graph;
    const u32* src;
    const u32* dst;
    i64 n;
    u8* found;
    u32* rest;
    i64* n_rest;
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        for (i64 c : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 i = c * tile.size() + tile.rank();
            bool waits = i < n && graph.extent(src[i]) > short_extent;
            if (i < n && !waits) found[i] = graph.find(src[i], dst[i]) >= 0;
            u32 all = tile.ballot(waits);
            i64 to = all && tile.rank() == 0 ? atomic_add(n_rest, (i64)popcount(all)) : 0;
            to = tile.shfl(to, 0) + popcount(all & ((1u << tile.rank()) - 1));
            if (waits) rest[to] = (u32)i;
        }
    }
};

struct Answer {  // one lane a sorted query: equal ones share the position of the last
    static constexpr int lanes = 1;
    const u64* keys;
    const u32* position;
    i64 n;
    u8* found;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(n)) {
            i64 last = k;
            if (k + 1 < n && keys[k + 1] == keys[k]) last = lower_bound_near(keys, n, k, keys[k] + 1) - 1;
            found[k] = position[last] != nobody;
        }
    }
};
