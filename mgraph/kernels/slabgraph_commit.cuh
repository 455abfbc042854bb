// SlabGraph, commit: deletions and weights in place, new tables filled, then the other inserts. An insert takes one
// from its chain's room and so learns whether there is a slot; the first who finds none, and one every slabful after,
// chains a slab. No key waits: those for whom a slab was still to come are put in by the kernel after. Lanes race for
// empty slots by compare-and-swap; which edge gets which is left to chance.
#pragma once
#include "outcome.cuh"
#include "slabgraph_supply.cuh"

struct Change {  // one lane a key: deletions, new weights, and the degrees less the deletions
    static constexpr int lanes = 1;
    Slabs slabs;
    Keys keys;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(keys.n)) {
            if (k + 16 < keys.n && keys.place[k + 16] >= 0) prefetch(slabs.words + slot_of(keys.place[k + 16]));
            i64 place = keys.place[k], slot = slot_of(place);
            u8 is = keys.outcome[k];
            if (keys.first_of_row(k) && (u32)keys.moves[k]) slabs.degrees[keys.row(k)] -= (u32)keys.moves[k];
            if (is == updated) slabs.put(slot, keys.weight_of(k));
            if (is != deleted) continue;
            slabs.words[slot] = no_edge;
            u32 first = place < behind ? (u32)(slot / SLAB) : slabs.of_row(keys.row(k)).slab((u32)keys.keys[k]);
            atomic_add(slabs.room(first), 1u);
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
            else if (task.buckets == 0 && task.new_buckets == 1 && task.key_pieces() == 1) lay_keys(tile, task, to);
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
    template <class T> DEVICE void lay_keys(T tile, const Task& task, Table to) const {
        i64 slot = (i64)to.first * SLAB + header;
        u32 laid = 0;
        for (i64 base = task.first_key; base < task.last_key; base += tile.size()) {
            i64 k = base + tile.rank();
            bool mine = k < task.last_key && keys.outcome[k] == inserted;
            u32 all = tile.ballot(mine);
            if (mine) {
                i64 own = slot + laid + popcount(all & ((1u << tile.rank()) - 1));
                slabs.words[own] = (u32)keys.keys[k];
                slabs.put(own, keys.weight_of(k));
                keys.place[k] = filled;
            }
            laid += popcount(all);
        }
        if (tile.rank() == 0) *slabs.room(to.first) = ~0u - laid;
    }
};

struct Insert {  // one lane a key, a tile in step: the inserts into tables that stay, and all degrees more the inserts
    static constexpr int lanes = 1;
    Slabs slabs;
    Keys keys;
    Supply supply;
    i64 moved;  // the pool, since places were found
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        for (i64 t : grid.items(tile, (keys.n + tile.size() - 1) / tile.size())) {
            i64 k = t * tile.size() + tile.rank();
            if (k + 16 < keys.n && !moved && keys.place[k + 16] < absent) prefetch(slabs.next(first_slab(k + 16)));
            u32 slab = no_slab, id = 0;
            if (k < keys.n) {
                id = (u32)keys.keys[k];
                if (keys.outcome[k] == inserted && keys.place[k] != filled) slab = first_slab(k);
                if (keys.first_of_row(k)) add_degree(keys.row(k), (u32)(keys.moves[k] >> 32));
            }
            i32 left = take(tile, slab);
            if (slab != no_slab) put(slab, id, keys.weight_of(k), left);
        }
    }
    DEVICE u32 first_slab(i64 k) const {
        return moved ? slabs.of_row(keys.row(k)).slab((u32)keys.keys[k]) : (u32)(absent - 1 - keys.place[k]);
    }
    DEVICE void add_degree(i64 row, u32 more) const {
        if (more) slabs.degrees[row] += more;
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
