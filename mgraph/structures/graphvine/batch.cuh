// Data common to prepare and commit: the touched rows, and the batch's changes of each.
#pragma once
#include "structures/graphvine/view.cuh"
#include "structures/outcome.cuh"
#include "kernels/search.cuh"

constexpr i64 chunk = 256;  // keys per block, in order; counts are summed by chunk, not by row
constexpr i64 group = 32;   // chunks
DEVICE i64 chunks_of(i64 n) { return (n + chunk - 1) / chunk; }

struct Batch {  // values by row stand at the row's first key, and are undefined at others
    const u64* keys;
    const u32* owner;     // of each key: its row's first key
    const u32* end;       // of each row: one past its last key
    const u64* held;      // of each row: its sentinel before the batch
    const u64* moves;     // of each row: its inserts << 32 | its deletes
    const u32* position;  // of each key: the edge's position in its row, or nobody
    const u8* outcome;    // of each key
    i64 n;
    DEVICE i64 row(i64 k) const { return (i64)(keys[k] >> 32); }
    DEVICE bool leads(i64 k) const { return k < n && owner[k] == k; }
};

DEVICE i64 high(u64 pair) { return (i64)(pair >> 32); }
DEVICE i64 low(u64 pair) { return (i64)(u32)pair; }

// The lanes of a warp whose keys belong to the same row: neighbours, since keys are sorted.
struct Peers {
    u32 all;
    int first, rank;
    DEVICE Peers(Tile<32> warp, u32 owner) : rank(warp.rank()) {
        u32 before = warp.shfl(owner, greater(rank - 1, 0)), leaders = warp.ballot(rank == 0 || before != owner);
        u32 above = leaders >> rank >> 1;
        first = bit_width(leaders & ((2u << rank) - 1)) - 1;
        all = (above ? (2u << rank << lowest_bit(above)) - 1 : ~0u) & ~0u << first;
    }
    DEVICE bool leads() const { return rank == first; }
    // Assigns a place from the row's counter to each lane that wants one; all lanes call it.
    DEVICE i64 places(Tile<32> warp, bool wants, u32* counter) const {
        u32 wanted = warp.ballot(wants) & all, before = 0;
        if (leads() && wanted) before = atomic_add(counter, (u32)popcount(wanted));
        return warp.shfl(before, first) + popcount(wanted & ((1u << rank) - 1));
    }
};

struct Change {  // one touched row: its keys [a, b), and its number of positions before and after
    i64 row, a, b, inserts, deletes, before, after;
    u32 root;  // before
    DEVICE Change(const VineView& graph, const Batch& batch, i64 first) {
        a = first, b = batch.end[a], row = batch.row(a);
        inserts = high(batch.moves[a]), deletes = low(batch.moves[a]);
        u64 sentinel = batch.held[a];
        i64 degree = high(sentinel);
        root = (u32)sentinel;
        before = LAZY ? (i64)graph.extents[row] : degree;
        after = !LAZY ? degree + inserts - deletes : degree + inserts == deletes ? 0 : before + inserts;
    }
    DEVICE i64 tail() const { return greater(before - after, (i64)0); }  // lost positions
};

// Closing a compact row. A row that loses more edges than it gains drops its last positions, its tail; deletions before
// the tail leave holes, filled exactly by inserts and the tail's surviving edges. In other rows all deletions leave
// holes, and the inserts suffice to fill them.
struct Holes {
    u32* at;      // of each row, from its first key's place on: positions of holes, in any order
    u32* listed;  // of each row: the number of its holes
    u32* used;  // of each row: the number of places taken so far
    u8* gone;  // of each row, from its first key's place on: 1 if the edge of the tail is deleted
};

constexpr i64 piece_entries = 1024;  // entries of a row's blocks per tile
enum Counter { pop0, pop1, pop2, directories, push0, push1, push2, filled, counters };

struct Sums {  // needs of rows, by counter: of each chunk, and of all chunks before each group
    u32* of_chunks;
    i64* of_groups;  // initially zeros
    DEVICE static i64 groups(i64 n) { return (chunks_of(n) + group - 1) / group; }
    // Returns the need of all chunks before `c`; all lanes of the tile call it.
    DEVICE u32 before(Tile<32> tile, i64 counter, i64 c, i64 n) const {
        u32 mine = 0;
        for (i64 i = c / group * group + tile.rank(); i < c; i += tile.size())
            mine += of_chunks[counter * chunks_of(n) + i];
        return (u32)of_groups[counter * groups(n) + c / group] + tile.sum(mine);
    }
};

struct Need {  // pieces that a touched row takes from and gives back to the queues
    i64 kept, pops, pushes, directory;
    int from, to;  // classes of its blocks before and after
    DEVICE Need(const VineView& graph, const Change& change) {
        i64 had = graph.blocks(change.before), has = graph.blocks(change.after);
        from = graph.size_class(change.before), to = graph.size_class(change.after);
        kept = from == to ? lesser(had, has) : 0;
        pops = has - kept, pushes = had - kept, directory = 0;
        if (has > 1 && !TREE && (had < 2 || (pops && graph.slots[graph.slot_of(change.root)] < has)))
            directory = graph.directory(has);
    }
    // Estimates the entries to write. A row with very many is cut into pieces for several tiles, except with LAZY,
    // where its extent is overwritten before the pieces could read it.
    DEVICE i64 work(const Change& change) const {
        return pops + pushes + (directory ? kept : 0) + (kept ? 0 : lesser(change.before, change.after));
    }
    DEVICE i64 pieces(const Change& change) const {
        i64 all = work(change);
        return LAZY || all <= 2 * piece_entries ? 0 : (all + piece_entries - 1) / piece_entries;
    }
    DEVICE i64 count(int counter, const Change& change) const {
        if (counter == directories) return directory;
        if (counter == filled) return (change.after > 0) - (change.before > 0);
        return counter < directories ? (counter == pop0 + to ? pops : 0) : (counter == push0 + from ? pushes : 0);
    }
};

struct GraphVinePool {  // arrays that a commit writes
    u32* slots;
    f32* weights;
    u32* children;
    u64* sentinels;
    u32* extents;
    DEVICE void put(i64 slot, u32 id, f32 weight) const {
        slots[slot] = id;
        if (weights) weights[slot] = weight;
    }
    DEVICE void move(i64 to, i64 from) const {
        slots[to] = slots[from];
        if (weights) weights[to] = weights[from];
    }
    DEVICE void hang(u32 parent, i64 i, u32 block) const {  // links block i to its parent
        children[(parent >> 2) * (u64)2 + (u64)((i & 1) == 0)] = block;
    }
};
