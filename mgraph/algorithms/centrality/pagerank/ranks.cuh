// Shared parts of pull and push: sums in fixed point, the tally, the first and the last ranks. Sums to which many tiles
// add are integers, so that they do not depend on the order of the additions. A sum of shares is at most 1, and each
// addition is rounded to 2^-62, so 2^32 edges err by less than 5e-10 in total. If that is not enough, a second word
// holds 31 more bits.
#pragma once

// The divisor of a vertex's rank: its out-degree, or the sum of its out-edges' weights.
#if BY_WEIGHT == 0
using Receivers = u32;
#elif BY_WEIGHT == 1
using Receivers = f64;
#endif
DEVICE f64 divisor(Receivers receivers) { return receivers > 0 ? (f64)receivers : 1.0; }

constexpr i64 fixed_bits = 62, tally_bits = 60, low_bits = 31;  // fractional bits; a tally must hold sums up to 2
constexpr f64 fixed_one = (f64)((u64)1 << fixed_bits);
constexpr f64 tally_one = (f64)((u64)1 << tally_bits);
constexpr f64 low_one = (f64)((u64)1 << low_bits);  // units of the low word per unit of the high word

DEVICE u64 to_fixed(f64 v) { return (u64)(i64)(v * fixed_one + (v < 0 ? -0.5 : 0.5)); }
DEVICE f64 from_fixed(u64 v) { return (f64)(i64)v / fixed_one; }

struct Wide {  // v * one, 0 or more, as high + low / 2^31: all bits of a float64 down to 2^-31 / one
    u64 high, low;
};
DEVICE Wide to_wide(f64 v, f64 one) {
    f64 high = (f64)(i64)(v * one);
    return {(u64)(i64)high, (u64)(i64)((v * one - high) * low_one)};
}

// Sums over the own vertices that decide when to stop, and that the next iteration needs. Each vertex's part becomes an
// integer before it is added, so that the sums do not depend on the lanes. Cells: two words per sum, high and low.
template <bool exact> struct RankSums {
    Wide change{}, handed{}, kept{};  // the L1 change; the mass sent; the mass that was cut off
    DEVICE static void count(Wide& sum, f64 part) {
        if (exact) {
            Wide more = to_wide(part, tally_one);
            sum.high += more.high, sum.low += more.low;
        } else {
            sum.high += (u64)(i64)(part * tally_one + 0.5);
        }
    }
    DEVICE static void add_to(u64* cells, Wide sum) {
        Tile<32> tile;
        u64 high = tile.sum(sum.high), low = exact ? tile.sum(sum.low) : 0;
        if (tile.rank() > 0) return;
        if (high) atomic_add(cells, high);
        if (low) atomic_add(cells + 1, low);
    }
    DEVICE void add_to(u64* cells) const { add_to(cells, change), add_to(cells + 2, handed), add_to(cells + 4, kept); }
};
constexpr i64 tally_cells = 6;

// A sum of a tally as the nearest number: what is below its last bit only tells a half from more than a half.
DEVICE f64 from_tally(u64 high, u64 low) {
    high += low >> low_bits, low &= ((u64)1 << low_bits) - 1;
    int more = (int)lesser((i64)low_bits, (i64)62 - bit_width(high)), rest = (int)low_bits - more;
    u64 words = high << more | low >> rest;
    bool below = low & (((u64)1 << rest) - 1);
    return (f64)(i64)(words | below) / (tally_one * (f64)((u64)1 << more));
}

DEVICE f64 magnitude(f64 v) { return greater(v, -v); }

// The rank of a vertex without shares: an even part, and its parts of two distributions, if there are any.
struct Base {
    f64 even;
    const f64* teleport;
    f64 teleporting;
    const f64* dangling;
    f64 loose;
    DEVICE f64 at(i64 row) const {  // `stale_load` keeps a CPU from masked loads: 100 ns for a null pointer
        f64 base = even;
        if (teleport) base += teleporting * stale_load(teleport + row);
        if (dangling) base += loose * stale_load(dangling + row);
        return base;
    }
};

// Base of each step, like `Base` of teleport.py: parts of the teleport (fresh) and of the mass not sent (loose) go to all
// evenly, and to the vertices of `teleport`; or both to all. Products are rounded as Python rounds them.
struct BaseRule {
    f64 alpha;
    i64 alike;
    f64 fresh_even;
    f64 loose_even;
    f64 fresh_chosen;
    f64 loose_chosen;
    const f64* teleport;
    const f64* dangling;
    DEVICE Base at(f64 handed, i64 vertices) const {  // of a step before which the mass `handed` was sent
        f64 fresh = 1 - alpha, loose = product(alpha, 1 - handed), n = (f64)vertices;
        f64 even =
            alike ? (1 - product(alpha, handed)) / n : (product(fresh, fresh_even) + product(loose, loose_even)) / n;
        f64 chosen = product(fresh, fresh_chosen) + product(loose, loose_chosen);
        return {even, teleport, chosen, dangling, loose};
    }
};
template <class State> DEVICE void keep_base(const Base& base, State& s) {
    s.even = base.even, s.chosen = base.teleporting, s.loose = base.loose;
}

template <class View>
struct OutWeights {  // sums the weights of rows, 32 per tile, one after another
    static constexpr int lanes = 32;
    View graph;
    i64 n;
    f64* sums;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, n)) {
            i64 units = graph.units(i);
            f64 sum = 0;
            for (i64 unit = 0; unit < units; ++unit)
                graph.visit(tile, i, unit, [&](u32, i64 slot, bool live) {
                    if (live) sum += graph.weight(slot);
                    return false;
                });
            sum = tile.sum(sum);
            if (tile.rank() == 0) sums[i] = sum;
        }
    }
};

template <class View>
struct StartRanks {  // sets degree and first rank, from `start` or `even` past its end, one lane per row
    static constexpr int lanes = 1;
    View graph;
    i64 n;
    const f64* start;
    i64 given;
    f64 scale;
    f64 even;
    Receivers* degrees;  // sums of weights are computed before
    f64* ranks;
    u64* tally;
    DEVICE void operator()(Grid grid) const {
        RankSums<true> all;
        for (i64 row : grid.items(n)) {
            f64 rank = (row < given ? start[row] : even) * scale;
            if (!BY_WEIGHT) degrees[row] = (Receivers)graph.degree(row);
            ranks[row] = rank;
            if (degrees[row]) all.count(all.handed, rank);
        }
        all.add_to(tally);
    }
};

struct GiveRanks {  // writes ranks, base + alpha * sum, to the output that is not null, one lane per row
    static constexpr int lanes = 1;
    const f64* sums;
    i64 n;
    Base base;
    f64 alpha;
    f32* single_ranks;
    f64* double_ranks;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) {
            f64 rank = greater(base.at(row) + alpha * sums[row], 0.0);
            if (single_ranks) single_ranks[row] = (f32)rank;
            if (double_ranks) double_ranks[row] = rank;
        }
    }
};
