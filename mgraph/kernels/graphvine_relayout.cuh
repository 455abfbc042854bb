// GraphVine: every touched row gets the blocks that it will use, before edges are inserted (the tree fixed first).
// Pieces are popped and pushed by rank, without atomics (prepare summed the counts up): no two lanes take or write one.
#pragma once
#include "graphvine_batch.cuh"
#include "graphvine_queues.cuh"

// Where a row's blocks come from and go to: ranks in the queues of its classes, and its directory's place.
struct Ranks {
    i64 pop, directory, push;
};
struct Piece {  // `number` of `of` of the row of first key a
    i64 a, number, of;
    Ranks ranks;
};

struct Layout {  // what `size` lanes do for a row together
    VineView graph;
    Batch batch;
    Pool pool;
    Queues queues;
    // Gives the row of first key `a` its blocks.
    DEVICE void lay(i64 a, Ranks ranks, i64 size, i64 rank) const {
        Change change(graph, batch, a);
        Need need(graph, change);
        u32 root = change.root, root_out = 0;
        i64 had = graph.blocks(change.before), has = graph.blocks(change.after);
        if (need.kept == 0) carry(size, rank, change, root, queues.pop(need.to, ranks.pop));
        for (i64 i = need.kept + rank; i < had; i += size)
            queues.push(need.from, ranks.push + i - need.kept, graph.block_of(root, change.before, i));
        if (has == 1 || (has && TREE))
            root_out = need.kept ? graph.block_of(root, change.before, 0) : queues.pop(need.to, ranks.pop);
        else if (has)
            root_out = need.directory ? (u32)(queues.fresh_directories + ranks.directory) : root;
        if (has > 1 && TREE) hang(size, rank, need, root, change.before, has, ranks.pop);
        else if (has > 1) list(size, rank, need, root, root_out, change.before, has, ranks.pop);
        if (rank) return;
        pool.sentinels[change.row] = (u64)(high(batch.held[a]) + change.inserts - change.deletes) << 32 | root_out;
    }
    // A small row to a piece of another class.
    DEVICE void carry(i64 size, i64 rank, const Change& change, u32 root, u32 first) const {
        for (i64 p = rank; p < lesser(change.before, change.after); p += size)
            pool.move(graph.slot_of(first) + p, graph.place(root, change.before, p));
    }
    // The blocks into the directory, the old ones too where it is a new one.
    DEVICE void list(i64 size, i64 rank, const Need& need, u32 root, u32 root_out, i64 before, i64 has, i64 pop) const {
        u32* out = pool.slots + graph.slot_of(root_out);
        if (need.directory && rank == 0) out[0] = (u32)(graph.slot_of((u32)need.directory) - 1);
        if (need.directory)
            for (i64 i = rank; i < need.kept; i += size) out[1 + i] = graph.block_of(root, before, i);
        for (i64 i = need.kept + rank; i < has; i += size) out[1 + i] = queues.pop(need.to, pop + i - need.kept);
    }
    // The new blocks into the tree.
    DEVICE void hang(i64 size, i64 rank, const Need& need, u32 root, i64 before, i64 has, i64 pop) const {
        for (i64 i = greater(need.kept, (i64)1) + rank; i < has; i += size) {
            i64 above = (i - 1) / 2;
            bool old = above < need.kept;
            u32 parent = old ? graph.block_of(root, before, above) : queues.pop(need.to, pop + above - need.kept);
            pool.hang(parent, i, queues.pop(need.to, pop + i - need.kept));
        }
    }
};

struct Relayout {  // one tile a chunk of keys, a lane a row; the tile together where a row has much to do
    static constexpr int lanes = 32;
    Batch batch;
    Queues queues;
    i64* pieces;  // may be null
    VineView graph;
    Pool pool;
    Sums sums;
    i64* n_pieces;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Layout layout = {graph, batch, pool, queues};
        i64 chunks = chunks_of(batch.n);
        for (i64 c : grid.items(tile, chunks)) {
            i64 at[filled];
            for (int i = 0; i < filled; ++i) at[i] = sums.before(tile, i, c, batch.n);
            i64 end = lesser((c + 1) * chunk, batch.n);
            for (i64 base = c * chunk; base < end; base += tile.size()) step(tile, layout, base, at);
        }
    }
    template <class T> DEVICE void step(const T& tile, const Layout& layout, i64 base, i64* at) const {
        i64 k = base + tile.rank(), work = 0, cut = 0, after = 0;
        bool moves = batch.leads(k) && batch.moves[k];
        u32 mine[filled] = {};
        int from = 0, to = 0;
        if (moves) {
            Change change(graph, batch, k);
            Need need(graph, change);
            for (int i = 0; i < filled; ++i) mine[i] = (u32)need.count(i, change);
            from = need.from, to = need.to, work = need.work(change);
            cut = pieces ? need.pieces(change) : 0, after = change.after;
        }
        Ranks ranks = {};
        bool any = tile.any(work > 0);
        for (int i = 0; i < filled; ++i) {  // a bound that is known: registers have no index
            if (!any) continue;
            u32 upto = tile.scan(mine[i]);
            i64 rank = at[i] + (upto - mine[i]);
            if (i == pop0 + to) ranks.pop = rank;
            if (i == directories) ranks.directory = rank;
            if (i == push0 + from) ranks.push = rank;
            at[i] += tile.shfl(upto, tile.size() - 1);
        }
        bool heavy = work > 8;
        if (moves && !heavy) layout.lay(k, ranks, 1, 0);
        for (u32 rest = tile.ballot(heavy); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            Ranks its = {tile.shfl(ranks.pop, lane), tile.shfl(ranks.directory, lane), tile.shfl(ranks.push, lane)};
            i64 of = tile.shfl(cut, lane);
            if (of) emit(tile, {base + lane, 0, of, its});
            else layout.lay(base + lane, its, tile.size(), tile.rank());
        }
        if (LAZY) tile.sync();  // all lanes have read the rows' extents
        if (LAZY && moves) pool.extents[batch.row(k)] = (u32)after;
    }
    template <class T> DEVICE void emit(const T& tile, Piece piece) const {
        i64 to = tile.shfl(tile.rank() == 0 ? atomic_add(n_pieces, piece.of) : (i64)0, 0);
        for (piece.number = tile.rank(); piece.number < piece.of; piece.number += tile.size())
            ((Piece*)pieces)[to + piece.number] = piece;
    }
};

struct RelayoutPieces {  // one tile a piece of a row that has very much to do
    static constexpr int lanes = 32;
    Batch batch;
    Queues queues;
    const i64* pieces;
    VineView graph;
    Pool pool;
    const i64* n_pieces;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Layout layout = {graph, batch, pool, queues};
        for (i64 i : grid.items(tile, *n_pieces)) {
            Piece piece = ((const Piece*)pieces)[i];
            layout.lay(piece.a, piece.ranks, piece.of * tile.size(), piece.number * tile.size() + tile.rank());
        }
    }
};
