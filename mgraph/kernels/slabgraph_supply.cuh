// Slabs as commits write them: where the next one comes from, the chains, and an edge's slot in a chain.
#pragma once
#include "slabgraph_table.cuh"

struct Supply {  // of slabs, during one commit: the free ones from their list's end, then those from the tail on
    u32* free;
    const i64* state;  // how many are free, and the tail, before the commit
    i64* status;
    i64 run_slabs;     // at the tail, for tables of several buckets
    DEVICE u32 single(i64 i) const {
        i64 n = state[0];
        return i < n ? free[n - 1 - i] : (u32)(state[1] + run_slabs + i - n);
    }
    DEVICE u32 take() const { return single(atomic_add(status + singles, (i64)1)); }
    DEVICE u32 table(u32 buckets, u32 place) const { return buckets == 1 ? single(place) : (u32)(state[1] + place); }
    DEVICE void give(u32 slab) const { free[state[0] + atomic_add(status + freed, (i64)1)] = slab; }
};

struct Late {  // an edge that waits for a slot of a slab that is chained during the commit, perhaps by itself: fresh
    u32 slab, id;
    f32 weight;
    u32 fresh;
};
constexpr u32 is_fresh = 0;  // in the second word of such a slab until the commit is done

struct Slabs {
    u64* table;
    u32* degrees;
    u32* words;
    f32* weights;
    u32* late;
    DEVICE u32* next(u32 slab) const { return words + (i64)slab * SLAB; }
    DEVICE u32* waiting(u32 slab) const { return words + (i64)slab * SLAB + 1; }  // edges for slots to come, less one
    DEVICE Table of_row(i64 row) const { return table_of(table[row]); }
    DEVICE void put(i64 slot, f32 weight) const {
        if (WEIGHTED) weights[slot] = weight;
    }
    DEVICE void chain(u32 slab, u32 fresh) const {  // behind the first slab; lock-free against others that chain here
        store(waiting(fresh), is_fresh);
        for (u32 after = load(next(slab));;) {
            store(next(fresh), after);
            fence();  // who sees the link sees what it leads to
            u32 seen = atomic_cas(next(slab), after, fresh);
            if (seen == after) return;
            after = seen;
        }
    }
    // An edge that found its chain full: the first chains a slab, and one every slabful after.
    DEVICE void defer(const Supply& supply, u32 slab, u32 id, f32 weight) const {
        u32 fresh = no_slab;
        if ((atomic_add(waiting(slab), 1u) + 1) % slots_of_slab == 0) chain(slab, fresh = supply.take());
        ((Late*)late)[atomic_add(supply.status + n_late, (i64)1)] = {slab, id, weight, fresh};
    }
    // An empty slot for `id` in one slab, sought from word `first` on and round; -1 where there is none.
    DEVICE i64 claim(u32 slab, u32 id, int first) const {
        u32* own = next(slab);
        for (int i = 0, at = first; i < slots_of_slab; ++i, at = at + 1 < SLAB ? at + 1 : header)
            if (load(own + at) == no_edge && atomic_cas(own + at, no_edge, id) == no_edge) return (i64)slab * SLAB + at;
        return -1;
    }
};

struct Settle {  // one lane a slab that leaves the list's end for a gap in it; the supply's state after the commit
    static constexpr int lanes = 1;
    Supply supply;
    i64* state_out;
    DEVICE void operator()(Grid grid) const {
        i64 n = supply.state[0], taken = supply.status[singles], back = supply.status[freed];
        i64 gap = lesser(taken, n), kept = n - gap;
        for (i64 i : grid.items(greater((i64)1, lesser(gap, back)))) {
            if (i < lesser(gap, back)) supply.free[kept + i] = supply.free[n + back - 1 - i];
            if (i > 0) continue;
            state_out[0] = kept + back;
            state_out[1] = supply.state[1] + supply.run_slabs + taken - gap;
        }
    }
};
