// Reserves the blocks of every touched row, before edges are inserted. Pieces are popped and pushed by ranks, without
// atomics (prepare computed the prefix sums), so no two lanes take the same one.
#pragma once
#include "kernels/load_balance.cuh"
#include "structures/graphvine/batch.cuh"
#include "structures/graphvine/queues.cuh"

// Sources and destinations of a row's blocks: ranks in the queues of its classes, and its directory's place.
struct OVERLAY Ranks {
    u32 pop, directory, push;
};
// The entries of the row with first key a that tile `number` of `of` writes, with all tiles striding.
struct OVERLAY Piece {
    u32 a, number, of;
    Ranks ranks;
};

// Entries to write for a row: new blocks, freed blocks, and for a new directory the kept blocks; if none is kept, the
// edges of a small row that moves to a piece of another class.
struct Entries {
    u32 root, root_out, before, kept, pops, pushes, directory, pop, push;
    u32 classes;  // before, and << 2 after
    DEVICE Entries() {}
    DEVICE Entries(const Change& change, const Need& need)
        : root(change.root), root_out(change.root), before((u32)change.before), kept((u32)need.kept),
          pops((u32)need.pops), pushes((u32)need.pushes), directory((u32)need.directory), pop(0), push(0),
          classes((u32)(need.from | need.to << 2)) {}
    DEVICE int from() const { return (int)(classes & 3); }
    DEVICE int to() const { return (int)(classes >> 2); }
    DEVICE Entries shfl(Tile<32> tile, int lane) const {
        Entries its;
        its.root = tile.shfl(root, lane), its.root_out = tile.shfl(root_out, lane),
        its.before = tile.shfl(before, lane);
        its.kept = tile.shfl(kept, lane), its.pops = tile.shfl(pops, lane), its.pushes = tile.shfl(pushes, lane);
        its.pop = tile.shfl(pop, lane), its.push = tile.shfl(push, lane), its.classes = tile.shfl(classes, lane);
        return its;
    }
};

struct Layout {
    VineView graph;
    Batch batch;
    GraphVinePool pool;
    Queues queues;
    u32* roots;
    // Determines the root of the row with first key `a`; one of the lanes that write its entries (`says`) stores it.
    DEVICE void begin(Entries& row, i64 a, const Ranks& ranks, bool says) const {
        u32 has = row.kept + row.pops;
        row.pop = ranks.pop, row.push = ranks.push;
        if (has == 0) row.root_out = 0;
        else if (has == 1 || TREE)
            row.root_out = row.kept ? graph.block_of(row.root, row.before, 0) : queues.pop(row.to(), row.pop);
        else if (row.directory) row.root_out = (u32)queues.fresh_directories + ranks.directory;
        if (!says) return;
        if (row.directory) pool.slots[graph.slot_of(row.root_out)] = (u32)(graph.slot_of(row.directory) - 1);
        i64 degree = high(batch.held[a]) + high(batch.moves[a]) - low(batch.moves[a]);
        pool.sentinels[batch.row(a)] = (u64)degree << 32 | row.root_out;
        roots[a] = row.root_out;
    }
    DEVICE void write(const Entries& row, u32 i) const {
        if (i < row.pops) return place(row, row.kept + i, queues.pop(row.to(), row.pop + i));
        i -= row.pops;
        if (i < row.pushes)
            return queues.push(row.from(), row.push + i, graph.block_of(row.root, row.before, row.kept + i));
        i -= row.pushes;
        if (row.kept) return place(row, i, graph.block_of(row.root, row.before, i));
        pool.move(graph.slot_of(queues.pop(row.to(), row.pop)) + i, graph.place(row.root, row.before, i));
    }
    DEVICE void place(const Entries& row, u32 i, u32 block) const {  // writes block i of the row
        if (row.kept + row.pops == 1) return;  // a single block is the root
        if (!TREE) pool.slots[graph.slot_of(row.root_out) + 1 + i] = block;
        if (!TREE || i == 0) return;
        u32 above = (i - 1) / 2;
        pool.hang(above < row.kept ? graph.block_of(row.root, row.before, above)
                                   : queues.pop(row.to(), row.pop + above - row.kept),
                  i, block);
    }
};

struct ReserveBlocks {  // one block per chunk of keys: one lane per row, then one lane per entry
    static constexpr int lanes = 256;
    Batch batch;
    Queues queues;
    u32* pieces;  // may be null
    VineView graph;
    GraphVinePool pool;
    Sums sums;
    u32* roots;
    i64* n_pieces;
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, next, filled);  // by counter: rank of the next row's pieces
        Block block;
        Tile<32> tile;
        const int tiles = block.size() / tile.size();
        Layout layout = {graph, batch, pool, queues, roots};
        for (i64 c : grid.items(block, chunks_of(batch.n))) {
            for (int i = tile.index(); i < filled; i += tiles) {
                u32 before = sums.before(tile, i, c, batch.n);
                if (tile.rank() == 0) next[i] = before;
            }
            i64 end = lesser((c + 1) * chunk, batch.n);
            for (i64 first = c * chunk; first < end; first += block.size()) step(block, tile, layout, first, next);
        }
    }
    DEVICE void step(Block block, Tile<32> tile, const Layout& layout, i64 first, u32* next) const {
        i64 k = first + block.rank();
        u32 work = 0, cut = 0, counts[filled] = {};
        Entries mine;
        bool moves = batch.leads(k) && batch.moves[k];
        if (moves) {
            Change change(graph, batch, k);
            Need need(graph, change);
            mine = Entries(change, need);
            for (int i = 0; i < filled; ++i) counts[i] = (u32)need.count(i, change);
            cut = pieces ? (u32)need.pieces(change) : 0, work = cut ? 0 : (u32)need.work(change);
            if (LAZY) pool.extents[change.row] = (u32)change.after;
        }
        take_ranks(block, tile, next, counts);
        Ranks ranks = {};
        for (int i = 0; i < filled; ++i) {
            if (moves && i == pop0 + mine.to()) ranks.pop = counts[i];
            if (i == directories) ranks.directory = counts[i];
            if (moves && i == push0 + mine.from()) ranks.push = counts[i];
        }
        if (moves && !cut) layout.begin(mine, k, ranks, true);
        LoadBalance dealt(work);
        for (u32 first = 0; first < dealt.total; first += (u32)tile.size()) {
            u32 entry = first + (u32)tile.rank();
            int lane = dealt.bearer(lesser(entry, dealt.total - 1));
            u32 number = dealt.number(entry, lane);
            Entries its = mine.shfl(tile, lane);
            if (entry < dealt.total) layout.write(its, number);
        }
        for (u32 rest = tile.ballot(cut > 0); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            Ranks its = {tile.shfl(ranks.pop, lane), tile.shfl(ranks.directory, lane), tile.shfl(ranks.push, lane)};
            emit(tile, {tile.shfl((u32)k, lane), 0, tile.shfl(cut, lane), its});
        }
    }
    // Turns each lane's number of pieces of each counter into its first rank there, in the order of the lanes.
    DEVICE void take_ranks(Block block, Tile<32> tile, u32* next, u32 (&counts)[filled]) const {
        SHARED(u32, places, filled * 8);  // by counter and tile
        const int tiles = block.size() / tile.size();
        u32 before[filled];
        for (int i = 0; i < filled; ++i) {
            u32 upto = tile.any(counts[i]) ? tile.scan(counts[i]) : 0;
            if (tile.rank() == tile.size() - 1) places[i * 8 + tile.index()] = upto;
            before[i] = upto - counts[i];
        }
        block.sync();
        for (int i = tile.index(); i < filled; i += tiles) {
            u32 mine = tile.rank() < tiles ? places[i * 8 + tile.rank()] : 0, upto = tile.scan(mine), from = next[i];
            tile.sync();
            if (tile.rank() < tiles) places[i * 8 + tile.rank()] = from + upto - mine;
            if (tile.rank() == tile.size() - 1) next[i] = from + upto;
        }
        block.sync();
        for (int i = 0; i < filled; ++i) counts[i] = places[i * 8 + tile.index()] + before[i];
        block.sync();
    }
    DEVICE void emit(Tile<32> tile, Piece piece) const {
        i64 to = tile.shfl(tile.rank() == 0 ? atomic_add(n_pieces, (i64)piece.of) : (i64)0, 0);
        for (piece.number = (u32)tile.rank(); piece.number < piece.of; piece.number += (u32)tile.size())
            ((Piece*)pieces)[to + piece.number] = piece;
    }
};

struct ReserveBlocksByPiece {  // one tile per piece of a row with very many entries
    static constexpr int lanes = 32;
    Batch batch;
    Queues queues;
    const u32* pieces;
    VineView graph;
    GraphVinePool pool;
    u32* roots;
    const i64* n_pieces;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Layout layout = {graph, batch, pool, queues, roots};
        for (i64 i : grid.items(tile, *n_pieces)) {
            Piece piece = ((const Piece*)pieces)[i];
            Change change(graph, batch, piece.a);
            Need need(graph, change);
            Entries row(change, need);
            u32 rank = piece.number * (u32)tile.size() + (u32)tile.rank(), work = (u32)need.work(change);
            layout.begin(row, piece.a, piece.ranks, rank == 0);
            for (u32 entry = rank; entry < work; entry += piece.of * (u32)tile.size()) layout.write(row, entry);
        }
    }
};
