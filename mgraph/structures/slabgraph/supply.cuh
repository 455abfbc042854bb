// Slabs during a commit: their supply, the chains, and an edge's slot in a chain.
#pragma once
#include "structures/slabgraph/holes.cuh"

constexpr u32 few_slabs = 8;

// Supply of slabs during one commit. A table of several buckets lies in its hole or at the tail; a single slab comes
// from the end of the free list, or from behind those tables.
struct Supply {
    u32* free;
    u64* holes;
    i64 entries;  // number of hole entries
    i64* state;
    // free slabs, and the tail, before the commit; and the slabs at the tail for tables of several buckets
    i64* status;
    DEVICE u32 single(i64 i) const {
        i64 n = status[free_slabs];
        return i < n ? free[n - 1 - i] : (u32)(status[tail_slab] + status[runs] + i - n);
    }
    DEVICE Table table(const Task& task) const {
        if (task.new_buckets < 2) return {task.new_buckets ? single(task.place) : 0, task.new_buckets};
        return {task.hole == no_slab ? (u32)(status[tail_slab] + task.place) : task.hole, task.new_buckets};
    }
    // frees the i-th slab of this commit
    DEVICE void give(u32 slab, i64 i) const { free[status[free_slabs] + i] = slab; }
    // Places behind those that tasks release.
    DEVICE i64 more(i64 n = 1) const { return status[ones] + atomic_add(status + freed, n); }
    DEVICE i64 kept(int c) const {  // remaining holes of a class
        return greater(state[hole_lengths + c] - status[taken + c], (i64)0);
    }
    // Turns each lane's slabs into a hole, or frees them singly: one slab, a few if hardly any is free, or those
    // without an entry in their class. All lanes of the tile call it.
    template <class T> DEVICE void leave(T tile, Hole hole) const {
        if (!tile.any(hole.slabs > 0)) return;
        bool single = hole.slabs < 2 || (hole.slabs < few_slabs && status[free_slabs] < status[tail_slab] / 256);
        int c = single ? 0 : class_of(hole.slabs);
        i64 at = take_entries(tile, c, status + given) + kept(c);
        bool fits = c > 0 && at < hole_room(c, entries);
        if (fits) holes[hole_entry(c, at)] = entry_of(hole);
        give_each(tile, {hole.first, fits ? 0 : hole.slabs});
    }
    template <class T> DEVICE void give_each(T tile, Hole hole) const {
        if (!tile.any(hole.slabs > 0)) return;
        i64 upto = tile.scan((i64)hole.slabs), all = tile.shfl(upto, tile.size() - 1), at = 0;
        if (tile.rank() == 0) at = more(all), atomic_add(status + unlisted, all);
        at = tile.shfl(at, 0) + upto - hole.slabs;
        for (u32 s = 0; s < hole.slabs && hole.slabs < few_slabs; ++s) give(hole.first + s, at + s);
        for (u32 some = tile.ballot(hole.slabs >= few_slabs); some; some &= some - 1) {
            u32 first = tile.shfl(hole.first, lowest_bit(some)), n = tile.shfl(hole.slabs, lowest_bit(some));
            i64 from = tile.shfl(at, lowest_bit(some));
            for (u32 s = (u32)tile.rank(); s < n; s += (u32)tile.size()) give(first + s, from + s);
        }
    }
};

// An edge that waits for a slot of a slab chained during the commit; `fresh`, if this edge chained it.
struct OVERLAY Late {
    u32 slab, id;
    f32 weight;
    u32 fresh;
};
constexpr u32 is_fresh = 0;  // second word of such a slab until the commit is done

// Reserves a place of a counter for each lane that wants one: an atomic per tile.
template <class T> DEVICE i64 take_places(T tile, bool wants, i64* counter) {
    u32 all = tile.ballot(wants);
    i64 first = 0;
    if (all && tile.rank() == 0) first = atomic_add(counter, (i64)popcount(all));
    return tile.shfl(first, 0) + popcount(all & ((1u << tile.rank()) - 1));
}

struct Slabs {
    u32* rows;
    u32* words;
    f32* weights;
    u32* late;
    DEVICE u32* next(u32 slab) const { return words + (i64)slab * SLAB; }
    // Number of edges that wait for a slot, minus one.
    DEVICE u32* waiting(u32 slab) const { return words + (i64)slab * SLAB + 1; }
    DEVICE Table of_row(i64 row) const { return row_of(rows, row).table; }
    DEVICE void put(i64 slot, f32 weight) const {
        if (WEIGHTED) weights[slot] = weight;
    }
    DEVICE void chain(u32 slab, u32 fresh) const {  // behind the first slab; lock-free against concurrent chaining
        store(waiting(fresh), is_fresh);
        for (u32 after = load(next(slab));;) {
            store(next(fresh), after);
            fence();  // a reader of the link sees the linked slab's content
            u32 seen = atomic_cas(next(slab), after, fresh);
            if (seen == after) return;
            after = seen;
        }
    }
    // Queues edges of lanes that found their chains full: the first chains a slab, and one every slabful after. All
    // lanes of the tile call it: the whole batch's counters take an atomic per tile. (One per edge took half the time
    // of 10M inserts.)
    template <class T> DEVICE void defer(T tile, const Supply& supply, bool waits, u32 slab, u32 id, f32 weight) const {
        if (!tile.any(waits)) return;
        bool links = waits && (atomic_add(waiting(slab), 1u) + 1) % slots_of_slab == 0;
        u32 fresh = no_slab;
        i64 at = take_places(tile, links, supply.status + singles);
        if (links) chain(slab, fresh = supply.single(at));
        at = take_places(tile, waits, supply.status + n_late);
        if (waits) ((Late*)late)[at] = {slab, id, weight, fresh};
    }
    // Claims an empty slot for `id` in one slab, from word `first` on, wrapping around; -1 if it is full. A few words
    // are tried one after another, then all at once.
    DEVICE i64 claim(u32 slab, u32 id, int first) const {
        u32* own = next(slab);
        for (int i = 0; i < 4; ++i, first = first + 1 < SLAB ? first + 1 : header)
            if (load(own + first) == no_edge && atomic_cas(own + first, no_edge, id) == no_edge)
                return (i64)slab * SLAB + first;
        for (u32 empty = empty_in(own); empty;) {
            u32 after = empty & ~0u << first;
            int at = lowest_bit(after ? after : empty);
            if (atomic_cas(own + at, no_edge, id) == no_edge) return (i64)slab * SLAB + at;
            empty &= ~(1u << at);
        }
        return -1;
    }
    DEVICE static u32 empty_in(const u32* own) {  // bitmap, as in L2: all loads first
        u32 bits = 0, four[4];
#pragma unroll
        for (int q = 0; q < quads_of_slab; ++q) {
            load_four(own + 4 * q, four);
            bits |= Quad{four[0], four[1], four[2], four[3]}.empty(q == 0) << 4 * q;
        }
        return bits;
    }
};
