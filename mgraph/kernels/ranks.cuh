// What every way of PageRank's power iteration shares: sums in fixed point, the tally, the first ranks.
// Sums that many tiles add to are 64-bit fixed point, so that they come out the same whatever the order of the adds. All
// ranks together are 1, and an add is rounded to 2^-60: 2^32 edges err by less than 2e-9 in all.
#pragma once

constexpr f64 fixed_one = 1152921504606846976.0;  // 2^60

DEVICE u64 to_fixed(f64 v) { return (u64)(i64)(v * fixed_one + (v < 0 ? -0.5 : 0.5)); }
DEVICE f64 from_fixed(u64 v) { return (f64)(i64)v / fixed_one; }

// What the loop's end and the next iteration need: the L1 change, and the rank that vertices have handed on.
struct Tally {
    f64 change = 0, handed = 0;
    DEVICE void count(f64 was, f64 now) { change += now < was ? was - now : now - was; }
    DEVICE void add_to(u64* cells) {
        Tile<32> tile;
        change = tile.sum(change), handed = tile.sum(handed);
        if (tile.rank() == 0) {
            if (change > 0) atomic_add(cells, to_fixed(change));
            if (handed > 0) atomic_add(cells + 1, to_fixed(handed));
        }
    }
};

template <class View>
struct StartRanks {  // one lane a row: degrees, and first ranks from `start`, or `even` where that ends or is null
    static constexpr int lanes = 1;
    View graph;
    i64 n;
    const f32* start;
    i64 given;
    f64 scale;
    f64 even;
    u32* degrees;
    f32* ranks;
    u64* tally;
    DEVICE void operator()(Grid grid) const {
        Tally all;
        for (i64 row : grid.items(n)) {
            f32 rank = (f32)((row < given ? (f64)start[row] : even) * scale);
            degrees[row] = (u32)graph.degree(row);
            ranks[row] = rank;
            if (degrees[row]) all.handed += rank;
        }
        all.add_to(tally);
    }
};
