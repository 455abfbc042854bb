// SlabGraph, commit: deletions and weights in place, new tables filled, then the other inserts. An insert takes one
// from its chain's room and so learns whether there is a slot; the first who finds none, and one every slabful after,
// chains a slab. No key waits: those for whom a slab was still to come are put in by the kernel after. Lanes race for
// empty slots by compare-and-swap; which edge gets which is left to chance.
#pragma once
#include "outcome.cuh"
#include "slabgraph_supply.cuh"

DEVICE void fetch_ahead(const Slabs& slabs, const Keys& keys, i64 k) {
    if (k + 24 < keys.n) prefetch(slabs.table + keys.row(k + 24));
    if (k + 12 >= keys.n) return;
    Table own = slabs.of_row(keys.row(k + 12));
    if (own.buckets) prefetch(slabs.next(own.slab((u32)keys.keys[k + 12])));
}

struct Change {  // one lane a key: deletions, new weights, and the degrees less the deletions
    static constexpr int lanes = 1;
    Slabs slabs;
    Keys keys;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(keys.n)) {
            fetch_ahead(slabs, keys, k);
            i64 row = keys.row(k), place = keys.place[k];
            u8 is = keys.outcome[k];
            if (keys.first_of_row(k) && keys.deletes(k)) atomic_add(slabs.degrees + row, keys.deletes(k));
            if (keys.last_of_row(k) && keys.deletes(k + 1)) atomic_add(slabs.degrees + row, (u32)-keys.deletes(k + 1));
            if (is == updated) slabs.put(place, keys.weight_of(k));
            if (is != deleted) continue;
            slabs.words[place] = no_edge;
            atomic_add(slabs.room(slabs.of_row(row).slab((u32)keys.keys[k])), 1u);
        }
    }
};

struct Fill {  // one tile a piece: a task's new table gets its new keys, and what its old buckets hold, which are freed
    static constexpr int lanes = TILE;
    Slabs slabs;
    Keys keys;
    Tasks tasks;
    Supply supply;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, tasks.n)) {
            Task task = tasks.task(i);
            Table to = {task.new_buckets ? supply.table(task.new_buckets, task.place) : 0, task.new_buckets};
            i64 number = tasks.number(i), of_keys = number - task.bucket_pieces();
            if (number == 0 && tile.rank() == 0) slabs.table[task.row] = to.word();
            if (of_keys < 0) move_buckets(tile, task, to, number * piece_buckets);
            else if (task.buckets == 0 && task.new_buckets == 1) lay_keys(tile, task, to, of_keys);
            else put_keys(tile, task, to, of_keys);
        }
    }
    DEVICE void put(Table to, u32 id, f32 weight) const {  // a table that only this kernel fills is filled without gaps
        u32 slab = to.slab(id);
        i32 left = free_slots(atomic_add(slabs.room(slab), ~0u));
        if (left <= 0) return slabs.defer(supply, slab, id, weight, left);
        i64 slot = ((i64)slab + 1) * SLAB - left;
        slabs.words[slot] = id;
        slabs.put(slot, weight);
    }
    template <class T> DEVICE void move_buckets(T tile, const Task& task, Table to, i64 from) const {
        for (i64 b = from; b < lesser(from + piece_buckets, (i64)task.buckets); ++b)
            for (u32 slab = task.first + (u32)b; slab != no_slab;) {
                u32 next = *slabs.next(slab);
                move_slab(tile, to, slab);
                if (tile.rank() == 0) supply.give(slab);
                slab = next;
            }
    }
    template <class T> DEVICE void move_slab(T tile, Table to, u32 slab) const {
        u32* words = slabs.next(slab);
        tile.sync();  // all have read its next
        for (int s = tile.rank(); s < SLAB; s += tile.size()) {
            f32 weight = WEIGHTED && s >= header ? slabs.weights[(i64)slab * SLAB + s] : 1.0f;
            if (s >= header && words[s] != no_edge) put(to, words[s], weight);
            words[s] = ~0u;
        }
    }
    template <class T> DEVICE void put_keys(T tile, const Task& task, Table to, i64 piece) const {
        i64 from = task.first_key + piece * piece_keys;
        for (i64 k = from + tile.rank(); k < lesser(from + piece_keys, (i64)task.last_key); k += tile.size())
            if (keys.outcome[k] == inserted) put(to, (u32)keys.keys[k], keys.weight_of(k)), keys.place[k] = filled;
    }
    // Into one slab, in order: nobody to race with.
    template <class T> DEVICE void lay_keys(T tile, const Task& task, Table to, i64 piece) const {
        i64 from = task.first_key + piece * piece_keys, base = (i64)to.first * SLAB + header;
        u32 before = keys.inserts(task.first_key);
        if (piece == 0 && tile.rank() == 0) *slabs.room(to.first) = ~0u - (keys.inserts(task.last_key) - before);
        for (i64 k = from + tile.rank(); k < lesser(from + piece_keys, (i64)task.last_key); k += tile.size()) {
            if (keys.outcome[k] != inserted) continue;
            i64 slot = base + (u32)(keys.inserts(k) - before);
            slabs.words[slot] = (u32)keys.keys[k];
            slabs.put(slot, keys.weight_of(k));
            keys.place[k] = filled;
        }
    }
};

struct Insert {  // one lane a key, a tile in step: the inserts into tables that stay, and all degrees more the inserts
    static constexpr int lanes = 1;
    Slabs slabs;
    Keys keys;
    Supply supply;
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        for (i64 t : grid.items(tile, (keys.n + tile.size() - 1) / tile.size())) {
            i64 k = t * tile.size() + tile.rank();
            fetch_ahead(slabs, keys, k);
            u32 slab = no_slab, id = 0;
            if (k < keys.n) {
                i64 row = keys.row(k);
                id = (u32)keys.keys[k];
                if (keys.outcome[k] == inserted && keys.place[k] != filled) slab = slabs.of_row(row).slab(id);
                if (keys.first_of_row(k) && keys.inserts(k)) atomic_add(slabs.degrees + row, (u32)-keys.inserts(k));
                if (keys.last_of_row(k) && keys.inserts(k + 1)) atomic_add(slabs.degrees + row, keys.inserts(k + 1));
            }
            i32 left = take(tile, slab);
            if (slab != no_slab) put(slab, id, keys.weight_of(k), left);
        }
    }
    // The chain's room before this lane took one from it. Lanes that follow each other into one slab take together.
    template <class T> DEVICE i32 take(T tile, u32 slab) const {
        int rank = tile.rank();
        u32 before = tile.shfl(slab, greater(rank - 1, 0));
        u32 heads = tile.ballot(rank == 0 || before != slab), above = heads >> rank >> 1;
        int head = bit_width(heads & ((2u << rank) - 1)) - 1, end = above ? rank + 1 + lowest_bit(above) : tile.size();
        i32 room = 0;
        if (rank == head && slab != no_slab) room = free_slots(atomic_add(slabs.room(slab), (u32)(rank - end)));
        return tile.shfl(room, head) - (rank - head);
    }
    DEVICE void put(u32 slab, u32 id, f32 weight, i32 left) const {
        i64 slot = -1;  // in a chain without gaps the first try finds one
        if (left > 0) slot = slabs.claim(slab, id, SLAB - lesser(left, slots_of_slab));
        if (slot >= 0) slabs.put(slot, weight);
        else slabs.defer(supply, slab, id, weight, left);
    }
};

struct InsertLate {  // one lane an edge: every slab is chained by now, so there is a slot
    static constexpr int lanes = 1;
    Slabs slabs;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(status[n_late])) {
            Late late = ((const Late*)slabs.late)[i];
            i64 slot = slabs.claim(*slabs.next(late.slab), late.id, header);  // the first slab is full as a rule
            if (slot < 0) slot = slabs.claim(late.slab, late.id, header);
            slabs.put(slot, late.weight);
            if (late.grew) atomic_add(slabs.room(late.slab), (u32)slots_of_slab);
        }
    }
};
