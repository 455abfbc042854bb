// Weighted sums of vectors, their scalar products and their distances. Adds in float64, a chunk of rows per tile.
#pragma once
#include "kernels/bits.cuh"

#if VALUE_BITS == 32
using Value = f32;
#elif VALUE_BITS == 64
using Value = f64;
#endif

constexpr i64 chunk = 2048;

// Adds up what `of` returns for each row.
template <class Of> DEVICE void add_up(Grid grid, i64 n, f64* parts, Of of) {
    Tile<32> tile;
    for (i64 at : grid.items(tile, (n + chunk - 1) / chunk)) {
        f64 total = 0;
        i64 end = lesser(at * chunk + chunk, n);
        for (i64 i = at * chunk + tile.rank(); i < end; i += tile.size()) total += of(i);
        total = tile.sum(total);
        if (tile.rank() == 0) parts[at] = total;
    }
}

// out = a x + b y + c z, `least` or more; adds up its squares. Pointers are tested outside of the loop: inside of it, a
// CPU loads with masks, and a masked load of a null pointer takes 20 ns.
struct Add {
    static constexpr int lanes = 32;
    const Value* x;
    const Value* y;  // null for one term
    const Value* z;  // null for two
    f64 a;
    f64 b;
    f64 c;
    f64 least;
    Value* out;  // may be one of the others
    i64 n;
    f64* parts;
    DEVICE void operator()(Grid grid) const {
        if (z) sum<3>(grid);
        else if (y) sum<2>(grid);
        else sum<1>(grid);
    }
    template <int terms> DEVICE void sum(Grid grid) const {
        add_up(grid, n, parts, [&](i64 i) {
            f64 value = a * x[i];
            if constexpr (terms > 1) value += b * y[i];
            if constexpr (terms > 2) value += c * z[i];
            value = greater(value, least);
            out[i] = (Value)value;
            return value * value;
        });
    }
};

struct Multiply {  // adds up the products of two vectors
    static constexpr int lanes = 32;
    const Value* x;
    const Value* y;
    i64 n;
    f64* parts;
    DEVICE void operator()(Grid grid) const {
        add_up(grid, n, parts, [&](i64 i) { return (f64)x[i] * (f64)y[i]; });
    }
};

struct Compare {  // adds up the absolute differences of two vectors
    static constexpr int lanes = 32;
    const Value* x;
    const Value* y;
    i64 n;
    f64* parts;
    DEVICE void operator()(Grid grid) const {
        add_up(grid, n, parts, [&](i64 i) {
            f64 difference = (f64)x[i] - (f64)y[i];
            return difference < 0 ? -difference : difference;
        });
    }
};
