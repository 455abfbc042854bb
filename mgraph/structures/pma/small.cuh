// pma: small batches, whose launches take longer than their work. One kernel prepares, one writes, and one does both.
#pragma once
#include "structures/pma/prepare.cuh"
#include "structures/pma/leaf.cuh"
#include "structures/pma/rows.cuh"

// Runs Locate, PickLeaves, Climb and Select in one launch, for a batch whose launches take longer than its work. The
// status is 0 at the start, and again after its copy to the mailbox.
struct Prepare {
    static constexpr int lanes = 256;
    static constexpr int persistent = 1;
    const u64* keys;
    const i8* op;
    i64 n;
    PmaView graph;
    i64 rows;
    i64 vertices;
    i64* located;
    u8* outcome;
    u32* before;
    u64* chunks;
    i64 shift;
    Leaves leaves;
    WindowTree levels;
    Starts start;
    u32* leaf_list;
    u64* crowded;
    u32* few_list;
    u32* block_list;
    u32* wide_list;
    u32* row_list;
    i64* status;
    u64* arrived;  // as Locate's
    u64* met;
    i64* mailbox;
    DEVICE void operator()(Grid grid) const {
        u64 goal = 0;
        choose(grid, goal);
        report(grid);
    }
    DEVICE void choose(Grid grid, u64& goal) const {
        Batch batch{keys, located, before, chunks, shift, n};
        Locate{keys, op, n, graph, rows, vertices, located, outcome, before, chunks, shift, arrived, status}(grid);
        grid.meet(met, goal);
        PickLeaves{batch, leaves, levels, start, rows, leaf_list, crowded, status}(grid);
        grid.meet(met, goal);
        if (load(status + crowded_leaves)) {
            Climb{batch, leaves, levels, crowded, status}(grid);
            grid.meet(met, goal);
            Select{batch,    0,          leaves,    levels,   crowded, start,   rows,
                   few_list, block_list, wide_list, row_list, status,  nullptr, nullptr}
                .choose(grid, [](i64) {});
            grid.meet(met, goal);
        }
    }
    DEVICE void report(Grid grid) const {
        Block block;
        for ([[maybe_unused]] i64 one : grid.items(block, 1)) {
            for (i64 i = block.rank(); i < status_words; i += block.size()) {
                mailbox[i] = load(status + i);
                store(status + i, (i64)0);
            }
            if (block.rank() == 0) store(arrived, (u64)0);
        }
    }
};

// Runs MergeLeaves and UpdateRows in one launch, like Prepare.
struct WriteLeaves {
    static constexpr int lanes = 256;
    static constexpr int persistent = 1;
    const u64* keys;
    i64 n;
    const f32* weight;
    i64 windows;
    const i64* located;
    const u32* before;
    const u64* chunks;
    i64 shift;
    WindowTree levels;
    const u32* first_keys;
    Leaves leaves;
    Array array;
    Starts start;
    u32* degrees;
    i64 rows;
    u64* met;
    DEVICE void operator()(Grid grid) const {
        u64 goal = 0;
        write(grid, goal);
    }
    DEVICE void write(Grid grid, u64& goal) const {
        Batch batch{keys, located, before, chunks, shift, n};
        if (windows) MergeLeaves{batch, levels, weight, first_keys, windows, leaves, array}(grid);
        grid.meet(met, goal);
        UpdateRows{batch, levels, first_keys, windows, leaves, start, degrees, rows}(grid);
    }
};

// Runs Prepare and WriteLeaves in one launch. It writes nothing if an id is unknown, a window has several leaves, or an
// edge gets a new weight; the mailbox has the status in any case.
struct Apply {
    static constexpr int lanes = 256;
    static constexpr int persistent = 1;
    const u64* keys;
    const i8* op;
    i64 n;
    const f32* weight;
    PmaView graph;
    i64 rows;
    i64 vertices;
    i64* located;
    u8* outcome;
    u32* before;
    u64* chunks;
    i64 shift;
    Leaves leaves;
    WindowTree levels;
    Starts start;
    Array array;
    u32* degrees;
    u32* leaf_list;
    u64* crowded;
    u32* few_list;
    u32* block_list;
    u32* wide_list;
    u32* row_list;
    i64* status;
    u64* arrived;
    u64* met;
    i64* mailbox;
    DEVICE void operator()(Grid grid) const {
        Prepare prepare{keys,     op,         n,         graph,    rows,   vertices, located,   outcome,
                        before,   chunks,     shift,     leaves,   levels, start,    leaf_list, crowded,
                        few_list, block_list, wide_list, row_list, status, arrived,  met,       mailbox};
        u64 goal = 0;
        prepare.choose(grid, goal);
        i64 windows = load(status + leaf_windows);
        bool plain = !load(status + crowded_leaves) && !load(status + unknown) && !(WEIGHTED && load(status + updates));
        grid.meet(met, goal);
        if (plain)
            WriteLeaves{keys,   n,         weight, windows, located, before,  chunks, shift,
                        levels, leaf_list, leaves, array,   start,   degrees, rows,   met}
                .write(grid, goal);
        prepare.report(grid);
    }
};
