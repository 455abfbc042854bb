// GraphVine: deletes vertices in one pass over all rows. A deleted row frees its blocks; other rows lose their edges to
// deleted vertices, in place, and free unused blocks and parts of small blocks. One tile per row, or one block per long
// row. Places in the rings come from atomics; pieces that find their ring full stay unused until the pool is rebuilt,
// as do outgrown directories.
#pragma once
#include "structures/deleted_set.cuh"
#include "structures/graphvine/batch.cuh"
#include "structures/graphvine/queues.cuh"

constexpr i64 long_extent = 1024;

enum Severed { pushed, edges_gone = 3, rows_emptied, quanta_gone, long_rows };

struct Few {  // a tile, with the same interface as Many has for a block
    Tile<8> tile;
    DEVICE i64 size() const { return tile.size(); }
    DEVICE i64 rank() const { return tile.rank(); }
    DEVICE void sync() const { tile.sync(); }
    DEVICE i64 share(i64 of_first) const { return tile.shfl(of_first, 0); }
    DEVICE i64 before(i64 mine, i64& all) const {  // exclusive prefix sum; `all` gets the total
        i64 upto = tile.scan(mine);
        all = tile.shfl(upto, tile.size() - 1);
        return upto - mine;
    }
};

struct Many {
    Block block;
    Tile<32> tile;
    DEVICE i64 size() const { return block.size(); }
    DEVICE i64 rank() const { return block.rank(); }
    DEVICE void sync() const { block.sync(); }
    DEVICE i64 share(i64 of_first) const {
        SHARED(i64, given, 1);
        if (rank() == 0) given[0] = of_first;
        sync();
        i64 shared = given[0];
        sync();
        return shared;
    }
    DEVICE i64 before(i64 mine, i64& all) const {
        SHARED(i64, sums, 8);
        i64 upto = tile.scan(mine), lower = 0;
        if (tile.rank() == tile.size() - 1) sums[tile.index()] = upto;
        sync();
        all = 0;
        for (int t = 0; t < block.size() / tile.size(); ++t) lower += t < tile.index() ? sums[t] : 0, all += sums[t];
        sync();
        return lower + upto - mine;
    }
};

struct Sever {
    VineView graph;
    GraphVinePool pool;
    Queues queues;
    const u32* dead;
    i64* counts;
    // sums: deleted edges, rows and quanta, counted by the first lane.
    template <class G> DEVICE void row(G group, i64 row, i64 (&sums)[3]) const {
        u64 sentinel = graph.sentinels[row];
        i64 degree = high(sentinel), before = LAZY ? (i64)graph.extents[row] : degree;
        i64 left = is_deleted(dead, (u32)row) ? 0 : keep(group, (u32)sentinel, before, degree);
        if (left == degree) return;
        i64 after = LAZY && left ? before : left;
        u32 root = give_back(group, (u32)sentinel, before, after);
        if (group.rank()) return;
        pool.sentinels[row] = (u64)left << 32 | root;
        if (LAZY) pool.extents[row] = (u32)after;
        sums[0] += degree - left, sums[1] += after == 0, sums[2] += quanta(before) - quanta(after);
    }
    DEVICE i64 quanta(i64 extent) const { return graph.blocks(extent) << graph.size_class(extent); }
    DEVICE bool stays(u32 id) const { return id != nobody && !is_deleted(dead, id); }
    // Moves surviving edges to the front, in order, or with LAZY leaves tombstones. Returns the number of survivors.
    template <class G> DEVICE i64 keep(G group, u32 root, i64 all, i64 degree) const {
        i64 kept = 0;
        Row row(graph, root, all);
        for (i64 base = 0; base < all; base += 4 * group.size()) {
            i64 p = base + 4 * group.rank(), mine = 0, those = 0;
            Four held = row.four((u32)p, (u32)all);
            for (int i = 0; i < 4; ++i) mine += stays(held.id[i]);
            f32 weights[4] = {};
            if (!LAZY && pool.weights) {
                for (int i = 0; i < 4; ++i)
                    if (p + i < all) weights[i] = pool.weights[graph.place(root, all, p + i)];
                group.sync();  // all have read before any writes
            }
            i64 to = kept + group.before(mine, those);
            kept += those;
            if (LAZY) bury(held, root, all, p);
            else if (to != p || mine < 4)
                for (int i = 0; i < 4; ++i)
                    if (stays(held.id[i])) move(root, all, to++, p + i, held.id[i], weights[i]);
        }
        return kept;
    }
    DEVICE void bury(const Four& held, u32 root, i64 all, i64 p) const {
        for (int i = 0; i < 4; ++i)
            if (held.id[i] != nobody && !stays(held.id[i])) pool.slots[graph.place(root, all, p + i)] = nobody;
    }
    DEVICE void move(u32 root, i64 all, i64 to, i64 from, u32 id, f32 weight) const {
        if (to != from) pool.put(graph.place(root, all, to), id, weight);
    }
    // Frees the blocks beyond `after` positions, and the unused part of a small row's block. Returns the new root.
    template <class G> DEVICE u32 give_back(G group, u32 root, i64 before, i64 after) const {
        i64 had = graph.blocks(before), has = graph.blocks(after);
        int from = graph.size_class(before), to = graph.size_class(after);
        u32 first = graph.block_of(root, before, 0);
        push(group, from, had - has, [&](i64 i) { return graph.block_of(root, before, has + i); });
        for (int c = to; has == 1 && c < from; ++c) push(group, c, 1, [&](i64) { return first + (1u << c); });
        return has > 1 ? root : has ? first : 0;
    }
    template <class G, class F> DEVICE void push(G group, int c, i64 n, F piece) const {
        if (n == 0) return;
        i64 at = group.share(group.rank() == 0 ? atomic_add(counts + pushed + c, n) : 0) + queues.waiting(c);
        for (i64 i = group.rank(); i < lesser(n, queues.length - at); i += group.size())
            *queues.entry(c, at + i) = piece(i);
    }
};

DEVICE void add_up(const i64 (&sums)[3], i64* counts) {
    Tile<32> tile;
    for (int i = 0; i < 3; ++i) {
        i64 sum = tile.sum(sums[i]);
        if (sum && tile.rank() == 0) atomic_add(counts + edges_gone + i, sum);
    }
}

struct SeverRows {  // a warp loads 32 rows, a tile takes each row with edges; long ones are listed
    static constexpr int lanes = 1;
    VineView graph;
    GraphVinePool pool;
    Queues queues;
    const u32* dead;
    i64 n;
    u32* hubs;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        Few group;
        Sever sever = {graph, pool, queues, dead, counts};
        const int tiles = (int)(warp.size() / group.size());
        i64 sums[3] = {};
        for (i64 t : grid.items(warp, (n + warp.size() - 1) / warp.size())) {
            i64 base = t * warp.size(), all = bring(base + warp.rank());
            u32 rows = warp.ballot(all > 0);
            for (int i = 0; i < warp.rank() / group.size(); ++i) rows &= rows - 1;
            while (rows) {  // each tile of a warp takes a row at the same time
                sever.row(group, base + lowest_bit(rows), sums);
                for (int i = 0; i < tiles; ++i) rows &= rows - 1;
            }
        }
        add_up(sums, counts);
    }
    // Returns the number of positions to read; 0 for a long row, which is listed.
    DEVICE i64 bring(i64 row) const {
        i64 all = row < n ? graph.extent(row) : 0;
        if (all == 0) return 0;
        const u32* begin = graph.slots + graph.slot_of((u32)graph.sentinels[row]);
        prefetch(begin), fetch_line(begin);
        if (all <= long_extent) return all;
        hubs[atomic_add(counts + long_rows, (i64)1)] = (u32)row;
        return 0;
    }
};

struct SeverHubs {  // one block per long row
    static constexpr int lanes = 256;
    VineView graph;
    GraphVinePool pool;
    Queues queues;
    const u32* dead;
    const u32* hubs;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Many group;
        Sever sever = {graph, pool, queues, dead, counts};
        i64 sums[3] = {};
        for (i64 i : grid.items(group.block, counts[long_rows])) sever.row(group, hubs[i], sums);
        add_up(sums, counts);
    }
};
