// What preparing and committing a batch share: the touched rows, and what the batch does to each of them.
#pragma once
#include "graphvine_view.cuh"
#include "outcome.cuh"
#include "search.cuh"

constexpr i64 chunk = 128;  // keys, or touched rows, that a tile takes in order: counts by chunk are scanned, not rows
DEVICE i64 chunks_of(i64 n) { return (n + chunk - 1) / chunk; }

struct Batch {  // key k is of touched row `owner[k]`, whose keys are first[t] .. first[t + 1] - 1
    const u64* keys;
    const u32* owner;
    const u32* first;
    const u64* held;      // each touched row's sentinel before the batch
    const i64* touched;   // how many rows
    const u32* position;  // of the edge in its row; nobody: it is not there
    const u8* outcome;
    const u64* moves;     // inserts before key k << 32 | deletes before it
    i64 n;
    DEVICE i64 row(i64 t) const { return (i64)(keys[first[t]] >> 32); }
};

DEVICE i64 high(u64 pair) { return (i64)(pair >> 32); }
DEVICE i64 low(u64 pair) { return (i64)(u32)pair; }

struct Change {  // of one touched row: its keys [a, b), and how many positions it uses before and after
    i64 row, a, b, inserts, deletes, before, after;
    u32 root;  // before
    DEVICE Change(const VineView& graph, const Batch& batch, i64 t) {
        a = batch.first[t], b = batch.first[t + 1];
        row = (i64)(batch.keys[a] >> 32);
        u64 moves = batch.moves[b] - batch.moves[a];
        inserts = high(moves), deletes = low(moves);
        u64 sentinel = batch.held[t];
        i64 degree = high(sentinel);
        root = (u32)sentinel;
        before = LAZY ? (i64)graph.extents[row] : degree;
        after = !LAZY ? degree + inserts - deletes : degree + inserts == deletes ? 0 : before + inserts;
    }
    DEVICE i64 tail() const { return greater(before - after, (i64)0); }  // positions that it loses, where none are kept
};

enum Counter { pop0, pop1, pop2, directories, push0, push1, push2, filled, counters };

struct Need {  // what a touched row takes from the queues and gives back
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
    DEVICE i64 count(int counter, const Change& change) const {
        if (counter == directories) return directory;
        if (counter == filled) return (change.after > 0) - (change.before > 0);
        return counter < directories ? (counter == pop0 + to ? pops : 0) : (counter == push0 + from ? pushes : 0);
    }
};

struct Pool {  // what a commit writes
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
    DEVICE void hang(u32 parent, i64 i, u32 block) const {  // block i below its parent
        children[(parent >> 2) * (u64)2 + (u64)((i & 1) == 0)] = block;
    }
};
