// A new pool for all rows: their degrees are counted by class, chunk by chunk of rows, the counts summed up class by
// class, and every row gets the next block of its class. So blocks of a class lie in the order of their rows.
#pragma once
#include "structures/hornet/batch.cuh"
#include "structures/first_batch.cuh"
#include "kernels/rows.cuh"

constexpr i64 chunk_rows = 256;

struct CopyDegrees {  // one lane per row
    static constexpr int lanes = 1;
    HornetView graph;
    i64 rows;
    u32* degrees;
    DEVICE void operator()(Grid grid) const {
        for (i64 r : grid.items(rows)) degrees[r] = graph.degree(r);
    }
};

struct ChangeDegrees {  // one lane per key: of the rows that a batch changes, which are marked
    static constexpr int lanes = 1;
    Batch batch;
    u32* degrees;
    u32* changed;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n)) {
            if (!batch.leads(k) || !batch.end[k]) continue;
            i64 row = batch.row(k);
            degrees[row] += (u32)(batch.inserts_in(k, batch.end[k]) - batch.deletes_in(k, batch.end[k]));
            atomic_or(changed + row / bits_of_word, bit_in_word(row));
        }
    }
};

struct FirstDegrees {  // one tile for `piece` rows of an empty structure's first batch: its keys before each row
    static constexpr int lanes = 32;
    FirstBatch numbers;
    const u64* keys;
    i64 entries;  // one more than rows
    i64 piece;
    i64* starts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, (entries + piece - 1) / piece))
            numbers.rows(tile, keys, c * piece, lesser((c + 1) * piece, entries),
                         [&](i64 r, i64 before) { starts[r] = before; });
    }
};

struct SubtractStarts {  // one lane per row
    static constexpr int lanes = 1;
    const i64* starts;
    i64 rows;
    u32* degrees;
    DEVICE void operator()(Grid grid) const {
        for (i64 r : grid.items(rows)) degrees[r] = (u32)(starts[r + 1] - starts[r]);
    }
};

// By one tile, for each row of a chunk that has edges: step(row, class, how many of its class the chunk has before it).
// The tile's own counters are chunks apart.
template <class T, class Step>
DEVICE void rank_chunk(T tile, const u32* degrees, i64 rows, i64 unit, i64 c, i64 chunks, u32* counters, Step step) {
    i64 last = lesser((c + 1) * chunk_rows, rows);
    for (i64 base = c * chunk_rows; base < last; base += tile.size()) {
        i64 r = base + tile.rank();
        u32 degree = r < last ? degrees[r] : 0;
        int k = degree ? class_of(degree, unit) : -1;
        u32 peers = tile.match(k), lower = peers & ((1u << tile.rank()) - 1);
        u32* counter = counters + greater(k, 0) * chunks + c;
        u32 before = k < 0 ? 0 : *counter;
        tile.sync();
        if (k >= 0 && !lower) *counter = before + (u32)popcount(peers);
        tile.sync();
        if (k >= 0) step(r, k, before + (u32)popcount(lower));
    }
}

struct CountRows {  // one tile per chunk: rows of each class
    static constexpr int lanes = 32;
    const u32* degrees;
    i64 rows;
    i64 unit;
    i64 chunks;
    u32* counts;  // by class, then chunk; zeros
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, chunks))
            rank_chunk(tile, degrees, rows, unit, c, chunks, counts, [](i64, int, u32) {});
    }
};

struct PlaceRows {  // one tile per chunk: each row's word
    static constexpr int lanes = 32;
    const u32* degrees;
    i64 rows;
    i64 chunks;
    u32* counts;          // of classes and chunks before; added to here
    const i64* first;     // of each class: its first array; at the end, those in use
    const i64* smaller;   // of each class: how many rows are of lower ones; at the end, all
    i64 bits;
    i64 unit;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, chunks)) {
            for (i64 r = c * chunk_rows + tile.rank(); r < lesser((c + 1) * chunk_rows, rows); r += tile.size())
                if (!degrees[r]) words[r] = 0;
            rank_chunk(tile, degrees, rows, unit, c, chunks, counts, [&](i64 r, int k, u32 rank) {
                i64 slot = (first[k] << bits) + (((i64)rank - smaller[k]) << k);
                words[r] = (u64)degrees[r] << 32 | (u64)(slot >> unit);
            });
        }
    }
};

struct SetArrays {  // one tile per array of a new pool: its kind, and which of its blocks are free
    static constexpr int lanes = 32;
    Arrays arrays;
    const i64* first;
    const i64* smaller;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 a : grid.items(tile, arrays.count)) {
            i64 k = upper_bound(first, 0, classes, a) - 1, used = 0;
            u32 kind = a < first[classes] ? (u32)k : bare;
            if (kind != bare && k <= arrays.bits)
                used = lesser(arrays.blocks(k), smaller[k + 1] - smaller[k] - (a - first[k]) * arrays.blocks(k));
            else if (kind != bare && (a - first[k]) % arrays.span(k)) kind = rest;
            i64 blocks = kind < classes && k <= arrays.bits ? arrays.blocks(k) : 0, leaves = arrays.leaf_words();
            if (tile.rank() == 0) arrays.kinds[a] = kind, arrays.frees[a] = (u32)(blocks - used);
            for (i64 w = tile.rank(); w < leaves; w += tile.size())
                arrays.leaves[a * leaves + w] = below(blocks - w * bits_of_word) & ~below(used - w * bits_of_word);
            i64 some = used / bits_of_word, all = (blocks + bits_of_word - 1) / bits_of_word;  // words with free blocks
            if (used == blocks) some = all;
            for (i64 w = tile.rank(); w < arrays.node_words(); w += tile.size())
                arrays.nodes[a * arrays.node_words() + w] =
                    below(all - w * bits_of_word) & ~below(some - w * bits_of_word);
        }
    }
    DEVICE u32 below(i64 n) const { return n >= bits_of_word ? ~0u : n > 0 ? (1u << n) - 1 : 0u; }
};

struct Target {  // a new pool
    const u64* rows;
    u32* ids;
    f32* weights;
    i64 unit;
};

template <class Group>
DEVICE void copy_piece(Group group, const HornetView& graph, const Target& to, i64 row, i64 piece) {
    i64 by = ((i64)(u32)to.rows[row] << to.unit) - graph.slot_of(graph.rows[row]);
    graph.visit(group, row, piece, [&](u32 id, i64 slot, bool live) {
        if (live) to.ids[slot + by] = id;
        if (live && to.weights) to.weights[slot + by] = graph.weight(slot);
        return false;
    });
}

struct CopyRows {  // a lane brings a row that the batch leaves as it is; hubs are added to the tasks
    static constexpr int lanes = 32;
    HornetView graph;
    Target to;
    i64 rows;
    const u32* changed;  // may be null
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, (rows + tile.size() - 1) / tile.size())) {
            i64 row = i * tile.size() + tile.rank();
            bool stays = row < rows && !(changed && changed[row / bits_of_word] & bit_in_word(row));
            visit_rows(graph, tile, stays ? row : -1, tasks, n_tasks,
                       [&](auto group, i64 its, i64 piece) { copy_piece(group, graph, to, its, piece); });
        }
    }
};

struct CopyHubs {  // a tile per task
    static constexpr int lanes = 32;
    HornetView graph;
    Target to;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks))
            visit_task(graph, tasks[i], [&](i64 row, i64 piece) {
                copy_piece(tile, graph, to, row, piece);
                return false;
            });
    }
};

struct FillRows {  // one lane per key of the first batch: one that acts goes to its place
    static constexpr int lanes = 1;
    FirstBatch numbers;
    const u64* keys;
    const f32* weight;
    const i64* starts;
    Target to;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(numbers.n)) {
            if (!numbers.act(k)) continue;
            i64 row = (i64)(keys[k] >> 32), slot = ((i64)(u32)to.rows[row] << to.unit) + numbers.of(k) - starts[row];
            to.ids[slot] = (u32)keys[k];
            if (to.weights) to.weights[slot] = weight ? weight[k] : 1.0f;
        }
    }
};
