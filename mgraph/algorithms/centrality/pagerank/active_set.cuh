// Keeps the active set of a personalised PageRank: the few vertices that a teleport reaches in as many steps as were
// made. Each step visits the out-edges of the vertices that joined in the step before.
#pragma once
#include "kernels/bits.cuh"
#include "kernels/rows.cuh"

struct ActiveSet {
    u32* bits;
    u32* rows;  // list of the first `most` of them
    i64 most;
    i64* state;  // numbers of reached vertices, of their in-edges, and of hubs among them
    template <class View> DEVICE void join(const View& out, const View& in, u32 row) const {
        if (load(state) > most) return;  // too many: the caller visits all rows from now on
        if (saw_bit(bits, row) || atomic_or(bits + row / word_bits, bit_of(row)) & bit_of(row)) return;
        i64 place = take_place(state), degree = in.degree(row);
        if (place < most) rows[place] = row;
        atomic_add(state + 1, degree);
        if (greater(degree, (i64)out.degree(row)) > HUB_DEGREE) atomic_add(state + 2, (i64)1);
    }
};

template <class View>
struct Begin {  // adds the vertices where walks begin, one lane per vertex
    static constexpr int lanes = 1;
    View out;
    View back;
    const f64* teleport;
    i64 n;
    ActiveSet reached;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n))
            if (teleport[row] > 0) reached.join(out, back, (u32)row);
    }
};

template <class View>
struct Reach {  // adds the out-neighbours of the list's vertices from `first` on, 32 per tile
    static constexpr int lanes = 32;
    View out;
    View back;
    i64 first;
    i64 n;
    ActiveSet reached;
    DEVICE void operator()(Grid grid) const {
        auto row_at = [&](i64 at) { return (i64)reached.rows[first + at]; };
        visit_all(grid, out, n, row_at, nullptr, nullptr, [&](auto group, i64 row, i64 unit) {
            out.visit(group, row, unit, [&](u32 id, i64, bool live) {
                if (live) reached.join(out, back, id);
                return false;
            });
        });
    }
};
