// Lists of a near-far search on this rank, and the vertices that its lanes find. This rank owns the n vertices from
// `first` on. Lengths only fall, by atomics.
#pragma once
#include "algorithms/paths/near_far/lengths.cuh"
#include "kernels/buffered_append.cuh"
#include "kernels/bits.cuh"
#include "kernels/search.cuh"

// The words of `state`. Near lists and their marks are those of even and odd turns; far lists alike. Three counters of
// near vertices, and three of hubs' tasks, are used in turn: while one is read, one is added to and one is cleared.
enum State {
    s_turn,
    s_far_turn,
    s_limit,
    s_least,
    s_near = s_least + 2,
    s_far = s_near + 3,
    s_tasks = s_far + 2,
    s_edges = s_tasks + 3,
    s_idle,
    s_out = s_idle + 2
};

DEVICE bool mark(u32* bits, i64 v) {
    return !get_bit(bits, v) && !(atomic_or(bits + v / word_bits, bit_of(v)) & bit_of(v));
}
DEVICE void unmark(u32* bits, i64 v) { atomic_and(bits + v / word_bits, ~bit_of(v)); }

struct NearFarLists {
    Word* length;  // per vertex of the graph: of the shortest path that this rank has found
    i64 first;
    i64 n;
    u32* lists;  // own rows: two near lists, two far lists, of n each
    u32* marks;  // bitmaps of own rows: the members of each near list
    u32* held;  // a bitmap of all vertices: own ones in the far list, others in the list for their owner
    const i64* starts;  // the first vertex of each owner's range
    const i64* places;  // the first place of each owner in `out`
    i64 owners;
    u32* out;
    i64* state;
    DEVICE u32* near(i64 turn) const { return lists + (turn & 1) * n; }
    DEVICE u32* far(i64 turn) const { return lists + (2 + (turn & 1)) * n; }
    DEVICE u32* marked(i64 turn) const { return marks + (turn & 1) * (words_of(n) + 1); }
    DEVICE i64* near_count(i64 turn) const { return state + s_near + turn % 3; }
    DEVICE i64* far_count(i64 turn) const { return state + s_far + (turn & 1); }
    DEVICE i64* task_count(i64 turn) const { return state + s_tasks + turn % 3; }
    DEVICE i64* idle(i64 turn) const { return state + s_idle + (turn & 1); }
    DEVICE u64* least(i64 far_turn) const { return (u64*)state + s_least + (far_turn & 1); }
    DEVICE BufferedAppender to_near(i64 turn) const { return {near(turn), near_count(turn)}; }
    DEVICE BufferedAppender to_far(i64 turn) const { return {far(turn), far_count(turn)}; }
    DEVICE void to_owner(u32 id) const {
        if (!mark(held, id)) return;
        i64 owner = upper_bound(starts, 0, owners + 1, (i64)id) - 1;
        store(out + places[owner] + take_place(state + s_out + owner), id);
    }
    // The row at a place of the near list, which is no longer marked: every row of a word of marks is in this list.
    DEVICE i64 take(i64 at, i64 turn) const {
        u32 row = load(near(turn) + at);
        store(marked(turn) + row / word_bits, 0u);
        return row;
    }
};

// Vertices that a lane finds in a turn: vertices that are near in the next one, and far ones.
struct Relaxation {
    const NearFarLists& s;
    BufferedAppender near, far;
    u32* marked;
    DEVICE Relaxation(const NearFarLists& s, i64 turn, i64 far_turn)
        : s(s), near(s.to_near(turn)), far(s.to_far(far_turn)), marked(s.marked(turn)) {}
    DEVICE i64 first() const { return s.first; }
    DEVICE Word length(i64 row) const { return load(s.length + s.first + row); }
    DEVICE void add_near(u32 row) {
        if (mark(marked, row)) near.add(row);
    }
    // Takes a path to `id`. True if it is an own vertex that is near now. Other vertices are listed.
    DEVICE bool takes(u32 id, Word word, u64 limit) {
        if (!(word < stale_load(s.length + id)) || !(word < atomic_min(s.length + id, word))) return false;
        i64 row = (i64)id - s.first;
        if (row < 0 || row >= s.n) s.to_owner(id);
        else if (word < limit) return true;
        else if (mark(s.held, id)) far.add((u32)row);
        return false;
    }
    DEVICE void add(u32 id, Word word, u64 limit) {
        if (takes(id, word, limit)) add_near((u32)((i64)id - s.first));
    }
};
