// The vertices that shares have reached from a teleport to few: these few, and what lies behind as many out-edges as
// there were steps. Each step visits the out-edges of those that joined in the step before.
#pragma once
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"

struct Reached {
    u32* bits;
    u32* rows;  // a list, of the first `most` of them
    i64 most;
    i64* state;  // how many are reached; their in-edges; how many hubs are among them
    template <class View> DEVICE void join(const View& out, const View& in, u32 row) const {
        if (load(state) > most) return;  // too many: nobody asks for more
        if (saw_bit(bits, row) || atomic_or(bits + row / word_bits, bit_of(row)) & bit_of(row)) return;
        i64 place = take_place(state), degree = in.degree(row);
        if (place < most) rows[place] = row;
        atomic_add(state + 1, degree);
        if (greater(degree, (i64)out.degree(row)) > HUB_DEGREE) atomic_add(state + 2, (i64)1);
    }
};

template <class View>
struct Begin {  // one lane a vertex: it joins if walks begin there
    static constexpr int lanes = 1;
    View out;
    View in;
    const f64* teleport;
    i64 n;
    Reached reached;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n))
            if (teleport[row] > 0) reached.join(out, in, (u32)row);
    }
};

template <class View>
struct Reach {  // a tile 32 vertices of the list, from `first` on: their out-neighbours join
    static constexpr int lanes = 32;
    View out;
    View in;
    i64 first;
    i64 n;
    Reached reached;
    DEVICE void operator()(Grid grid) const {
        auto row_at = [&](i64 at) { return (i64)reached.rows[first + at]; };
        visit_all(grid, out, n, row_at, nullptr, nullptr, [&](auto group, i64 row, i64 unit) {
            out.visit(group, row, unit, [&](u32 id, i64, bool live) {
                if (live) reached.join(out, in, id);
                return false;
            });
        });
    }
};
