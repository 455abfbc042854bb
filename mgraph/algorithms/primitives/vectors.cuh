// Weighted sums of vectors, their scalar products and their sizes, in one pass. Adds in float64.
#pragma once
#include "kernels/bits.cuh"

#if VALUE_BITS == 32
using Value = f32;
#elif VALUE_BITS == 64
using Value = f64;
#endif

enum Measure { m_nothing, m_products, m_absolute };

struct Vectors {  // up to three, with a factor each; null for none
    const Value* first;
    const Value* second;
    const Value* third;
    f64 a;
    f64 b;
    f64 c;
    DEVICE f64 sum(i64 i) const {
        return (first ? a * first[i] : 0) + (second ? b * second[i] : 0) + (third ? c * third[i] : 0);
    }
};

// out = the weighted sum of the vectors, `least` or more. Adds up its products with another vector, or its absolute
// values, a chunk per tile.
struct Combine {
    static constexpr int lanes = 32;
    static constexpr i64 chunk = 2048;
    Vectors of;
    f64 least;
    Value* out;  // null to store nothing; may be one of the vectors
    i64 measure;
    const Value* by;  // null for the sum itself
    i64 n;
    f64* parts;  // out, per chunk
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 at : grid.items(tile, (n + chunk - 1) / chunk)) {
            f64 total = 0;
            for (i64 i = at * chunk + tile.rank(); i < lesser(at * chunk + chunk, n); i += tile.size()) {
                f64 value = greater(of.sum(i), least);
                if (measure == m_absolute) total += value < 0 ? -value : value;
                if (measure == m_products) total += value * (by ? (f64)by[i] : value);
                if (out) out[i] = (Value)value;
            }
            if (measure == m_nothing) continue;
            total = tile.sum(total);
            if (tile.rank() == 0) parts[at] = total;
        }
    }
};
