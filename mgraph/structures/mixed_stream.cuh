// Prepares streams of updates and queries for a structure: makes keys, and stable partitions by class. A class is four
// bits of `table`, by the kind; a tile counts and then distributes one chunk of the operations, in order.
#pragma once
#include "kernels/operation_kinds.cuh"

struct StreamArcs {  // one lane per operation: writes its key and its kind for one structure
    static constexpr int lanes = 1;
    const i8* kinds;
    const u32* src;
    const u32* dst;
    const u32* order;  // the internal id of each user's id; null for the identity
    i64 n;
    i64 stride;  // 2 in an undirected graph: the reverse arc follows each arc, without a query
    i64 by_dst;  // 1 for the structure of the destinations' rows
    u64* keys;
    i8* kinds_out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            i8 kind = kinds[i];
            bool update = kind == op_insert || kind == op_delete, point = kind == ask_edge || kind == ask_weight;
            bool backwards = kind == ask_predecessors && stride == 1;  // a row of the other structure
            u64 a = inside(src[i]), b = update || point ? inside(dst[i]) : 0;
            keys[i * stride] = by_dst && update ? b << 32 | a : a << 32 | b;
            kinds_out[i * stride] = update || backwards == (by_dst != 0) ? kind : no_op;
            if (stride == 1) continue;
            keys[2 * i + 1] = update ? b << 32 | a : a << 32;
            kinds_out[2 * i + 1] = update ? kind : no_op;
        }
    }
    DEVICE u64 inside(u32 id) const { return order ? order[id] : id; }
};

struct Classes {  // stable partition of operations
    const i8* kinds;
    const u32* at;  // index of each operation's kind; null for the identity
    i64 n;
    u64 table;
    i64 chunk;
    i64 chunks;
    i64* ends;  // of each class and chunk: number of the class's operations up to the end of the chunk
    i64* first;  // of each class: its first operation
    DEVICE i8 kind(i64 i) const { return kinds[at ? at[i] : i]; }
    DEVICE int of(i64 i) const { return table >> 4 * kind(i) & 15; }
    DEVICE i64 end(i64 c) const { return lesser(n, (c + 1) * chunk); }
};

// Calls f(i, class, to, next) for every operation of the tile's chunk c: its place in the partition, and that of the
// next operation of class 0, or for an operation of class 0, of class 1.
template <class Tile32, class F> DEVICE void deal_chunk(Tile32 tile, const Classes& by, i64 c, F f) {
    i64 next[n_kinds];
    for (int k = 0; k < n_kinds; ++k) next[k] = by.first[k] + (c ? by.ends[k * by.chunks + c - 1] : 0);
    for (i64 first = c * by.chunk; first < by.end(c); first += tile.size()) {
        i64 i = first + tile.rank(), to = 0, after = 0;
        int own = i < by.end(c) ? by.of(i) : n_kinds;
        for (int k = 0; k < n_kinds; ++k) {
            u32 same = tile.ballot(own == k);
            i64 at = next[k] + popcount(same & ((1u << tile.rank()) - 1));
            if (k == (own == 0)) after = at;
            if (k == own) to = at;
            next[k] += popcount(same);
        }
        if (own < n_kinds) f(i, own, to, after);
    }
}

// Counts the operations by both partitions, one tile per chunk; the last block sums up the counts.
struct CountClasses {
    static constexpr int lanes = 256;
    Classes by_kind;
    Classes by_part;
    u64* arrived;        // 0
    const u64* largest;  // two words for the host; may be null
    i64* mail;  // for the host: operations of each class of `by_kind`, then `largest`; may be null
    DEVICE void operator()(Grid grid) const {
        SHARED(bool, is_last, 1);
        SHARED(i64, sums, n_kinds);
        Block block;
        Tile<32> tile;
        i64 side = block.size() / tile.size(), turns = (by_kind.chunks + side - 1) / side;
        for (i64 t : grid.items(block, turns)) {
            i64 c = t * side + tile.index();
            if (c < by_kind.chunks) count(tile, by_kind, c), count(tile, by_part, c);
            fence();
            block.sync();
            if (block.rank() == 0) *is_last = arrive(arrived) == (u64)turns - 1;
            block.sync();
            if (!*is_last) continue;
            sum_up(block, tile, by_part, sums);
            sum_up(block, tile, by_kind, sums);
            if (!mail) continue;
            for (i64 k = block.rank(); k < n_kinds; k += block.size()) mail[k] = sums[k];
            if (largest)
                for (i64 k = block.rank(); k < 2; k += block.size()) mail[n_kinds + k] = (i64)largest[k];
        }
    }
    DEVICE void count(const Tile<32>& tile, const Classes& by, i64 c) const {
        u32 mine[n_kinds] = {};
        for (i64 i = c * by.chunk + tile.rank(); i < by.end(c); i += tile.size()) {
            int own = by.of(i);
            for (int k = 0; k < n_kinds; ++k) mine[k] += own == k;
        }
        for (int k = 0; k < n_kinds; ++k) {
            u32 sum = tile.sum(mine[k]);
            if (tile.rank() == 0) store(by.ends + k * by.chunks + c, (i64)sum);
        }
    }
    static constexpr int ahead = 8;  // loads in flight per lane
    DEVICE void sum_up(Block block, const Tile<32>& tile, const Classes& by, i64* sums) const {
        block.sync();
        for (int k = tile.index(); k < n_kinds; k += block.size() / tile.size()) {  // one tile per class
            i64* ends = by.ends + k * by.chunks;
            i64 upto = 0;
            for (i64 first = 0; first < by.chunks; first += ahead * tile.size()) {
                i64 some[ahead];
                for (int j = 0; j < ahead; ++j) {
                    i64 c = first + j * tile.size() + tile.rank();
                    some[j] = c < by.chunks ? load(ends + c) : 0;
                }
                for (int j = 0; j < ahead; ++j) {
                    i64 c = first + j * tile.size() + tile.rank(), sum = upto + tile.scan(some[j]);
                    if (c < by.chunks) ends[c] = sum;
                    upto = tile.shfl(sum, tile.size() - 1);
                }
            }
            if (tile.rank() == 0) sums[k] = upto;
        }
        block.sync();
        for (i64 k = block.rank(); k < n_kinds; k += block.size()) {
            i64 before = 0;
            for (i64 j = 0; j < k; ++j) before += sums[j];
            by.first[k] = before;
        }
    }
};

// Splits a sorted run, one tile per chunk, into updates, queries of rows, of edges, and of weights. With queries, as
// many further tiles write the place of each operation in the partition by kinds.
struct SplitRun {
    static constexpr int lanes = 32;
    Classes by;  // in this order
    const u64* keys;
    const f32* weight;
    const u32* place;
    Updates updates;
    u64* rows;     // row << 32 | place
    u32* asked;  // positions in the run of the queries of rows and then of edges
    u32* before;  // of each query of an edge: number of updates before it
    i64 n_rows;
    Classes by_kind;
    u32* slots;
    i64 tiles;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, tiles)) {
            if (c < by.chunks) split(tile, c);
            else deal_chunk(tile, by_kind, c - by.chunks, [&](i64 i, int, i64 at, i64) { slots[i] = (u32)at; });
        }
    }
    DEVICE void split(const Tile<lanes>& tile, i64 c) const {
        deal_chunk(tile, by, c, [&](i64 i, int own, i64 to, i64 after) {
            if (own == 0) put(i, to, after - updates.n);
            i64 q = to - updates.n;
            if (own == 1) rows[q] = (keys[i] & ~(u64)0xffffffffu) | place[i];
            if (own >= 1 && own <= 3) asked[q] = (u32)i;
            if (own == 2 || own == 3) before[q - n_rows] = (u32)after;
        });
    }
    DEVICE void put(i64 i, i64 to, i64 asked_before) const {
        updates.keys[to] = keys[i];
        updates.op[to] = by.kind(i) == op_insert ? 1 : -1;
        if (weight) updates.weight[to] = weight[i];
        updates.place[to] = place[i];
        updates.asked[to] = (u32)asked_before;
    }
};

struct EdgeEnds {  // one lane per query: writes the ends of its edge
    static constexpr int lanes = 1;
    const u64* keys;  // of the run
    const u32* asked;
    i64 n;
    u32* src;
    u32* dst;
    DEVICE void operator()(Grid grid) const {
        for (i64 q : grid.items(n)) src[q] = (u32)(keys[asked[q]] >> 32), dst[q] = (u32)keys[asked[q]];
    }
};
