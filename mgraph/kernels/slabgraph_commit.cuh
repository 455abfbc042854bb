// SlabGraph, commit: deletions and weights in place, new tables filled, then the other inserts. Lanes race for empty slots
// by compare-and-swap; which edge gets which is left to chance. An edge that finds its chain full counts itself there: the
// first, and one every slabful after, chains a slab, and the kernel after puts all of them in. No lane waits for another.
#pragma once
#include "outcome.cuh"
#include "slabgraph_supply.cuh"

struct Change {  // one lane a key: deletions, new weights, and the degrees less the deletions
    static constexpr int lanes = 1;
    Slabs slabs;
    Keys keys;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(keys.n)) {
            if (k + 16 < keys.n && keys.place[k + 16] >= 0) prefetch(slabs.words + keys.place[k + 16]);
            if (keys.first_of_row(k) && (u32)keys.moves[k]) slabs.degrees[keys.row(k)] -= (u32)keys.moves[k];
            u8 is = keys.outcome[k];
            if (is == updated) slabs.put(keys.place[k], keys.weight_of(k));
            if (is == deleted) slabs.words[keys.place[k]] = no_edge;
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
    DEVICE void put(Table to, u32 id, f32 weight) const {
        u32 slab = to.slab(id), start = (id * 0x9E3779B1u >> 16) * slots_of_slab >> 16;  // anywhere: fewer collide
        i64 slot = slabs.claim(slab, id, header + (int)start);
        if (slot >= 0) slabs.put(slot, weight);
        else slabs.defer(supply, slab, id, weight);
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
    }
};

struct Insert {  // one lane a key: the inserts into tables that stay, and all degrees more the inserts
    static constexpr int lanes = 1;
    Slabs slabs;
    Keys keys;
    Supply supply;
    i64 moved;  // the pool, since places were found
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(keys.n)) {
            if (!moved && k + 16 < keys.n && keys.place[k + 16] < absent)
                prefetch(slabs.words + free_place(keys.place[k + 16]));
            if (keys.first_of_row(k) && keys.moves[k] >> 32) slabs.degrees[keys.row(k)] += (u32)(keys.moves[k] >> 32);
            if (keys.outcome[k] == inserted && keys.place[k] != filled) put(k, (u32)keys.keys[k]);
        }
    }
    DEVICE void put(i64 k, u32 id) const {
        i64 slot = moved || keys.place[k] == absent ? -1 : free_place(keys.place[k]);
        if (slot >= 0 && alone(k)) slabs.words[slot] = id;
        else if (slot >= 0 && atomic_cas(slabs.words + slot, no_edge, id) != no_edge)  // another took it
            slot = slabs.claim((u32)(slot / SLAB), id, (int)(slot % SLAB));
        if (slot < 0) slot = seek(slabs.of_row(keys.row(k)).slab(id), id);
        if (slot >= 0) slabs.put(slot, keys.weight_of(k));
        else slabs.defer(supply, slabs.of_row(keys.row(k)).slab(id), id, keys.weight_of(k));
    }
    DEVICE bool alone(i64 k) const {
        return keys.first_of_row(k) && (k + 1 == keys.n || keys.row(k + 1) != keys.row(k));
    }
    // A slot in the chain as it was before the commit: those of fresh slabs are counted already.
    DEVICE i64 seek(u32 first, u32 id) const {
        for (u32 slab = first; slab != no_slab; slab = load(slabs.next(slab)), fence()) {
            i64 slot = slab == first || load(slabs.waiting(slab)) != is_fresh ? slabs.claim(slab, id, header) : -1;
            if (slot >= 0) return slot;
        }
        return -1;
    }
};

struct InsertLate {  // one lane an edge: every slab is chained by now, so there is a slot
    static constexpr int lanes = 1;
    Slabs slabs;
    i64* status;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(status[n_late])) {
            Late late = ((const Late*)slabs.late)[i];
            i64 slot = -1;  // fresh slabs come right behind the first
            for (u32 slab = *slabs.next(late.slab); slot < 0; slab = *slabs.next(slab))
                slot = slabs.claim(slab, late.id, header);
            slabs.put(slot, late.weight);
            store(slabs.waiting(late.slab), ~0u);
            if (late.fresh != no_slab) store(slabs.waiting(late.fresh), ~0u);
        }
    }
};
