// SlabGraph, commit: deletions and weights in place, new tables, then the other inserts. Lanes race for empty slots by
// compare-and-swap; which edge gets which slot is arbitrary. An edge that finds its chain full counts itself there: the
// first, and one every slabful after, chains a slab, and the next kernel inserts all of them. No lane waits for
// another.
#pragma once
#include "structures/outcome.cuh"
#include "structures/slabgraph/supply.cuh"

// Adds the counts of the warp's lanes to their rows' degrees. All lanes of the warp call it.
DEVICE void add_degrees(Tile<32> warp, u32* rows, u64 row, bool counts, i32 each) {
    u32 own = lanes_of_row(warp, row), all = warp.ballot(counts) & own;
    if (all && lowest_bit(own) == warp.rank()) reduce_add(&row_of(rows, (i64)row).degree, (u32)(popcount(all) * each));
}

struct Change {  // one lane per key, warps converged: deletes, sets weights, and lowers degrees
    static constexpr int lanes = 1;
    Keys keys;
    Slabs slabs;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        for (i64 w : grid.items(warp, warps(keys.n))) {
            i64 k = w * warp.size() + warp.rank(), ahead = k + 16;
            if (ahead < keys.n && keys.outcome[ahead] == deleted) prefetch(slabs.words + keys.place[ahead]);
            u8 is = k < keys.n ? keys.outcome[k] : overridden;
            if (is == updated) slabs.put(keys.place[k], keys.weight_of(k));
            if (is == deleted) or_into_owned_word(slabs.words + keys.place[k], no_edge);
            add_degrees(warp, slabs.rows, k < keys.n ? keys.keys[k] >> 32 : ~(u64)0, is == deleted, -1);
        }
    }
};

// One tile per piece: fills a task's new table with its new keys, and with its old buckets, which are freed.
struct Fill {
    static constexpr int lanes = TILE, resident = 5;
    Keys keys;
    i64 n;
    Tasks tasks;
    Slabs slabs;
    Supply supply;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            Task task = tasks.task(i);
            Table to = supply.table(task);
            i64 number = tasks.number(i), of_keys = number - task.bucket_pieces();
            if (number == 0 && tile.rank() == 0) row_of(slabs.rows, task.row).table = to;
            if (of_keys < 0) move_buckets(tile, task, to, number * piece_buckets);
            else if (task.buckets == 0 && task.new_buckets == 1 && task.key_pieces() == 1) lay_keys(tile, task, to);
            else put_keys(tile, task, to, of_keys);
        }
        leave_all(grid, (n * tile.size() + Tile<32>::size() - 1) / Tile<32>::size());
    }
    // Frees the slabs of old tables of several buckets, which are cleared meanwhile, and the remainders of holes. By
    // warps behind those of the pieces, which do not wait for it.
    DEVICE void leave_all(Grid grid, i64 busy) const {
        Tile<32> warp;
        i64 many = supply.status[n_tasks];
        for (i64 w : grid.items(warp, busy + warps(many))) {
            if (w < busy) continue;
            i64 i = (w - busy) * warp.size() + warp.rank();
            Task task = i < many ? task_at(tasks.tasks, i) : Task{};
            supply.leave(warp, {task.first, task.buckets > 1 ? task.buckets : 0});
            supply.leave(warp, {task.hole + task.new_buckets, task.rest});
        }
    }
    template <class T> DEVICE void move_buckets(T tile, const Task& task, Table to, i64 from) const {
        for (i64 b = from; b < lesser(from + piece_buckets, (i64)task.buckets); ++b)
            for (u32 slab = task.first + (u32)b; slab != no_slab;) {
                u32 next = *slabs.next(slab);
                tile.sync();  // all have read it
                for (int q = tile.rank(); q < quads_of_slab; q += tile.size()) move_quad(tile, to, slab, q);
                bool first = slab == task.first + (u32)b;
                if (tile.rank() == 0 && !(first && task.buckets > 1))
                    supply.give(slab, first ? task.freed : supply.more());
                slab = next;
            }
    }
    template <class T> DEVICE void move_quad(T tile, Table to, u32 slab, int q) const {
        Quad* own = (Quad*)slabs.next(slab) + q;
        Quad held = *own;
        f32 weight[4] = {1.0f, 1.0f, 1.0f, 1.0f};
        for (int j = 0; WEIGHTED && j < 4; ++j) weight[j] = slabs.weights[(i64)slab * SLAB + 4 * q + j];
        *own = clear_quad();
        if (q == 0) held.a = held.b = no_edge;
        put(tile, to, {held.a, held.b, held.c, held.d}, weight);
    }
    // Inserts some edges per lane (or no_edge): issues the atomics of all before it reads the first result.
    template <class T, int N> DEVICE void put(T tile, Table to, const u32 (&id)[N], const f32 (&weight)[N]) const {
        u32 slab[N], seen[N];
        int word[N];
#pragma unroll
        for (int j = 0; j < N; ++j) {  // random slots collide less
            slab[j] = to.slab(id[j]), word[j] = header + (int)((id[j] * 0x9E3779B1u >> 16) * slots_of_slab >> 16);
            seen[j] = id[j] == no_edge ? no_edge : atomic_cas(slabs.next(slab[j]) + word[j], no_edge, id[j]);
        }
#pragma unroll
        for (int j = 0; j < N; ++j) {
            i64 slot = (i64)slab[j] * SLAB + word[j];
            if (seen[j] != no_edge) slot = slabs.claim(slab[j], id[j], word[j]);
            if (id[j] != no_edge && slot >= 0) slabs.put(slot, weight[j]);
            slabs.defer(tile, supply, id[j] != no_edge && slot < 0, slab[j], id[j], weight[j]);
        }
    }
    template <class T> DEVICE void put_keys(T tile, const Task& task, Table to, i64 piece) const {
        i64 from = task.first_key + piece * piece_keys;
        for (i64 base = from; base < lesser(from + piece_keys, (i64)task.last_key); base += tile.size()) {
            i64 k = base + tile.rank();
            bool mine = k < (i64)task.last_key && keys.outcome[k] == inserted;
            put(tile, to, {mine ? (u32)keys.keys[k] : no_edge}, {mine ? keys.weight_of(k) : 1.0f});
            if (mine) keys.place[k] = filled;
        }
    }
    // Writes into one slab, in order and without a race.
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

// Returns a place as far as it is still valid. changed: 1, after deletions, `full` chains may have room; 2, the pool
// moved: no place is valid.
DEVICE i64 place_now(i64 place, i64 changed) {
    return place == filled ? filled : changed == 2 || (changed && place == full) ? absent : place;
}

struct Insert {  // one lane per key, warps converged: inserts into kept tables, and raises degrees by all inserts
    static constexpr int lanes = 1;
    Keys keys;
    i64 changed;
    Slabs slabs;
    // bitmap, a word per warp of keys: their slot was taken, or they have none (a counter took twice as long)
    u32* hard;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        for (i64 w : grid.items(warp, warps(keys.n))) {
            i64 k = w * warp.size() + warp.rank();
            fetch_ahead(k + 16);
            bool mine = k < keys.n && keys.outcome[k] == inserted;
            u64 key = k < keys.n ? keys.keys[k] : ~(u64)0;
            add_degrees(warp, slabs.rows, key >> 32, mine, 1);
            i64 place = mine ? place_now(keys.place[k], changed) : filled;
            bool done = place == filled || put((u32)key, place);
            if (place >= loose && done) slabs.put(slot_of(place), keys.weight_of(k));
            u32 some = warp.ballot(!done);
            if (warp.rank() == 0) hard[w] = some;
        }
    }
    DEVICE void fetch_ahead(i64 k) const {
        if (changed == 2 || k >= keys.n || keys.place[k] < loose) return;
        prefetch(slabs.words + slot_of(keys.place[k]));
    }
    DEVICE bool put(u32 id, i64 place) const {
        if (place >= sure) return and_into_owned_word(slabs.words + slot_of(place), id), true;  // a slot of all ones
        return place >= loose && atomic_cas(slabs.words + slot_of(place), no_edge, id) == no_edge;
    }
};

// A separate kernel, since each of these takes several dependent loads, for which the rest of its warp would wait.
struct InsertHard {  // one lane per mark, warps converged: takes another slot of the chain, or queues the edge
    static constexpr int lanes = 1;
    Keys keys;
    i64 changed;
    Slabs slabs;
    Supply supply;
    const u32* hard;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        for (i64 t : grid.items(warp, Marks::turns(keys.n))) {
            Marks marks(warp, hard, keys.n, t);
            for (i32 i = warp.rank(), end = marks.steps() * warp.size(); i < end; i += warp.size()) {
                i64 k = marks.key(warp, i);
                bool mine = i < marks.all;
                u32 id = mine ? (u32)keys.keys[k] : 0, first = mine ? slabs.of_row(keys.row(k)).slab(id) : 0;
                i64 slot = mine ? find(id, first, place_now(keys.place[k], changed)) : 0;
                f32 weight = mine ? keys.weight_of(k) : 1.0f;
                if (mine && slot >= 0) slabs.put(slot, weight);
                slabs.defer(warp, supply, slot < 0, first, id, weight);
            }
        }
    }
    DEVICE i64 find(u32 id, u32 first, i64 place) const {  // returns its slot, or -1
        if (place == full) return -1;
        i64 slot = -1;
        if (place >= loose) slot = slabs.claim((u32)(slot_of(place) / SLAB), id, (int)(slot_of(place) % SLAB));
        return slot < 0 ? seek(first, id) : slot;
    }
    // Searches a slot in the chain as it was before the commit: slots of fresh slabs are reserved for waiting edges.
    DEVICE i64 seek(u32 first, u32 id) const {
        for (u32 slab = first; slab != no_slab; slab = load(slabs.next(slab)), fence()) {
            i64 slot = slab == first || load(slabs.waiting(slab)) != is_fresh ? slabs.claim(slab, id, header) : -1;
            if (slot >= 0) return slot;
        }
        return -1;
    }
};

struct Finish {  // one lane per waiting edge, and per slab that moves from the free list's end into a gap
    static constexpr int lanes = 1;
    Slabs slabs;
    Supply supply;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(supply.status[n_late])) put(((const Late*)slabs.late)[i]);
        settle(grid);
        for (i64 i : grid.items((i64)2 * hole_classes))  // by lanes with little other work
            if (i >= hole_classes) count_holes((int)(i - hole_classes));
    }
    DEVICE void put(Late late) const {  // every slab is chained by now, so a slot exists
        i64 slot = -1;  // fresh slabs follow the first one
        for (u32 slab = *slabs.next(late.slab); slot < 0; slab = *slabs.next(slab))
            slot = slabs.claim(slab, late.id, header);
        slabs.put(slot, late.weight);
        store(slabs.waiting(late.slab), ~0u);
        if (late.fresh != no_slab) store(slabs.waiting(late.fresh), ~0u);
    }
    DEVICE void settle(Grid grid) const {
        const i64* status = supply.status;
        i64 n = status[free_slabs], used = status[singles], back = status[ones] + status[freed];
        i64 gap = lesser(used, n), kept = n - gap;
        for (i64 i : grid.items(greater((i64)1, lesser(gap, back)))) {
            if (i < lesser(gap, back)) supply.free[kept + i] = supply.free[n + back - 1 - i];
            if (i > 0) continue;
            supply.state[0] = kept + back;
            supply.state[1] = status[tail_slab] + status[runs] + used - gap;
            supply.state[2] = status[hole_slabs] - status[reused] + status[left] - status[unlisted];
        }
    }
    DEVICE void count_holes(int c) const {
        if (c > 0)
            supply.state[hole_lengths + c] =
                lesser(supply.kept(c) + supply.status[given + c], hole_room(c, supply.entries));
    }
};
