// Hornet, commit: sets weights first, then the new words of changed rows, and merges these rows with their keys: short
// ones at once, huge ones in pieces.
#pragma once
#include "structures/hornet/view.cuh"
#include "structures/hornet/merge_rows.cuh"

struct SetWeights {  // one lane per key: new weights of edges that exist, before anything moves
    static constexpr int lanes = 1;
    Batch batch;
    HornetView graph;
    const f32* weight;
    f32* weights;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(batch.n))
            if (batch.outcome[k] == updated)
                weights[graph.slot_of(graph.rows[batch.row(k)]) + batch.place[k]] = weight ? weight[k] : 1.0f;
    }
};

// Huge rows are merged in pieces of their edges and keys. A row that stays in its block is copied to `ids` first.
struct Saved {
    const u32* list;  // first keys, in descending order from here
    i64* spots;  // of each huge row: offset of its copy; -1: it moves to another block
    u64* tasks;  // index of the row in the list << 32 | piece
    u32* ids;
    f32* weights;
};

struct ListPieces {  // one tile per huge row
    static constexpr int lanes = 32;
    Batch batch;
    i64 n;
    Saved saved_rows;
    Slots slots;
    Words words;
    Arrays arrays;
    i64* at;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            u32 a = saved_rows.list[-i];
            i64 all = 0, to = 0;
            if (tile.rank() == 0) {
                set_row(batch, words, arrays, at, a);
                Merger<Tile<1>> row({}, batch, slots, words.rows, nullptr, a);
                saved_rows.spots[i] = row.stays() ? atomic_add(at + next_saved, row.edges) : -1;
                all = pieces_of(row.edges) + pieces_of(row.b - row.a), to = atomic_add(at + next_piece, all);
            }
            all = tile.shfl(all, 0), to = tile.shfl(to, 0);
            for (i64 p = tile.rank(); p < all; p += tile.size()) saved_rows.tasks[to + p] = (u64)i << 32 | (u64)p;
        }
    }
};

// Merges all changed rows. Blocks draw the longest work first: pieces to copy, rows for a block, pieces to merge; then
// each warp draws rows for 32 lanes, and finally rows for 8. The merge of a piece waits for copies, which were drawn
// before.
struct Merge {
    static constexpr int lanes = 256, draws = 1, resident = 4;
    static_assert(rows_by_warps == lanes / 32 && rows_by_few_lanes == lanes / 8, "a block has so many tiles");
    static constexpr int turn_rows = 8;  // per tile and draw
    Batch batch;
    const f32* weight;
    Lists lists;
    i64 few;
    i64 some;
    i64 many;
    i64 pieces;
    i64 copies;
    Saved saved_rows;
    Slots slots;
    Words words;
    Arrays arrays;
    i64* at;
    DEVICE void operator()(Grid) const {
        SHARED(u64, acts, lanes);
        SHARED(Row, headers, lanes);
        SHARED(i64, drawn, 1);
        Block block;
        for (i64 all = copies + many + pieces; all;) {
            block.sync();
            if (block.rank() == 0) *drawn = atomic_add(at + next_block, (i64)1);
            block.sync();
            i64 t = *drawn;
            if (t >= all) break;
            if (t < copies) copy_piece(block, t);
            else if (t < copies + many) merge_rows(block, lists.many + (t - copies), 1, acts, headers);
            else merge_piece(block, t - copies - many);
        }
        draw_rows(Tile<32>(), lists.some, some, at + next_some, acts, headers);
        draw_rows(Tile<8, true>(), lists.few, few, at + next_few, acts, headers);
    }
    // Merges the rows of a list, each set by a lane.
    template <class Group>
    DEVICE void merge_rows(Group group, const u32* list, int n, u64* acts, Row* headers) const {
        if constexpr (alone) {
            for (int i = 0; i < n; ++i) {
                Row row = set_row(batch, words, arrays, at, list[i]);
                merge_in_steps(Merger<Group>(group, batch, slots, words.rows, weight, row.a));
            }
        } else {
            constexpr bool short_rows = Side<Group>::lanes == 8;
            RowMerger<Group> walker{group, batch, slots, weight, acts};
            group.sync();
            if (group.rank() < n) headers[group.rank()] = set_row(batch, words, arrays, at, list[group.rank()]);
            group.sync();
            Key next = n > 0 ? walker.key(headers[0].a) : Key{};
            for (int i = 0; short_rows ? Tile<32>().any(i < n) : i < n; ++i) {
                Key own = next;
                if (i + 1 < n) next = walker.key(headers[i + 1].a);
                if constexpr (short_rows) walker.merge_at_once(headers[i], i < n, own);
                else walker.merge(headers[i], own);
            }
        }
    }
    // Gives each tile of a warp some of the rows that the warp draws.
    template <class Tiles>
    DEVICE void draw_rows(Tiles tile, const u32* list, i64 n, i64* next, u64* acts, Row* headers) const {
        Tile<32> warp;
        int tiles = warp.size() / tile.size(), own = tile.index() % tiles * turn_rows;
        int lane = tile.index() * tile.size();
        for (i64 t = n ? draw(warp, next) : n; t * tiles * turn_rows < n;) {
            i64 after = draw(warp, next), first = t * tiles * turn_rows + own;
            merge_rows(tile, list + first, (int)lesser(n - first, (i64)turn_rows), acts + lane, headers + lane);
            warp.sync();
            t = after;
        }
    }
    DEVICE static i64 draw(Tile<32> warp, i64* next) {
        i64 mine = warp.rank() == 0 ? atomic_add(next, (i64)1) : 0;
        return warp.shfl(mine, 0);
    }
    DEVICE void copy_piece(Block block, i64 t) const {
        i64 first = (i64)(u32)saved_rows.tasks[t] * piece_edges, i = (i64)(saved_rows.tasks[t] >> 32);
        i64 spot = saved_rows.spots[i];
        Merger<Block> row(block, batch, slots, words.rows, nullptr, saved_rows.list[-i]);
        i64 last = spot < 0 ? 0 : lesser(first + piece_edges, row.edges);
        for (i64 p = first + block.rank(); p < last; p += block.size()) {
            saved_rows.ids[spot + p] = slots.ids[row.from + p];
            if (slots.weights) saved_rows.weights[spot + p] = slots.weights[row.from + p];
        }
        block.sync();
        if (block.rank() == 0) arrive((u64*)at + copied);
    }
    DEVICE void merge_piece(Block block, i64 t) const {
        if (block.rank() == 0)
            while ((i64)arrive((u64*)at + copied, (u64)0) < copies) {}
        block.sync();
        i64 i = (i64)(saved_rows.tasks[t] >> 32), piece = (i64)(u32)saved_rows.tasks[t], spot = saved_rows.spots[i];
        Merger<Block> row(block, batch, slots, words.rows, weight, saved_rows.list[-i]);
        i64 of_edges = pieces_of(row.edges), first = row.a + (piece - of_edges) * piece_edges;
        const u32* ids = spot < 0 ? slots.ids : saved_rows.ids;
        const f32* weights = spot < 0 ? slots.weights : saved_rows.weights;
        i64 base = spot < 0 ? row.from : spot, begin = piece * piece_edges;
        if (piece < of_edges) row.merge_into_another(ids, weights, base, begin, lesser(begin + piece_edges, row.edges));
        else row.insert(first, lesser(first + piece_edges, row.b));
    }
};
