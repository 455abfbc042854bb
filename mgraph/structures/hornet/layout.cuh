// Lays out a new pool for all rows: counts degrees by class and chunk of rows, sums the counts class by class, and
// gives every row the next block of its class. So blocks of a class lie in the order of their rows.
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

struct ChangeDegrees {  // one lane per key: updates the degrees of changed rows, and marks the rows
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

struct FirstDegrees {  // one tile per `piece` rows of an empty structure's first batch: counts keys before each row
    static constexpr int lanes = 32;
    FirstBatch numbers;
    const u64* keys;
    i64 entries;  // rows + 1
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

// Calls step(row, class, number of its class before it in the chunk) for each row with edges, by one tile. The tile's
// counters are chunks apart.
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

struct CountRows {  // one tile per chunk: counts the rows of each class
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

struct PlaceRows {  // one tile per chunk: writes each row's word
    static constexpr int lanes = 32;
    const u32* degrees;
    i64 rows;
    i64 chunks;
    u32* counts;  // of lower classes and earlier chunks; incremented here
    const i64* first;  // of each class: its first array; at the end, the number in use
    const i64* smaller;  // of each class: rows of lower classes; at the end, all
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

struct SetArrays {  // one tile per array of a new pool: sets its kind, and its free blocks
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

struct CopyRows {  // one lane per row: copies unchanged rows; hubs are added to the tasks
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

struct CopyHubs {  // one tile per task
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

struct FillRows {  // one lane per key of the first batch: writes the keys that act
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
