// Values of listed vertices as records, where the host carries what ranks would write to each other: `Shared` of
// kernels/world_common.cuh. A record is narrow << 32 | vertex, then wide; arrays that are not shared are null. Several
// ranks write to one region at the same time, but never to the same element.
#pragma once
#include "kernels/bits.cuh"
#include "kernels/world.cuh"

struct PackValues {
    static constexpr int lanes = 1;
    const u32* vertices;
    i64 n;
    const u64* wide;
    const u32* narrow;
    u64* records;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 v = vertices[i];
            records[2 * i] = (u64)(narrow ? narrow[v] : 0) << 32 | v;
            records[2 * i + 1] = wide ? wide[v] : 0;
        }
    }
};

struct TakeValues {  // takes only vertices from `first` up to `end`, those of the sender
    static constexpr int lanes = 1;
    const u64* records;
    i64 n;
    i64 first;
    i64 end;
    u32* bits;
    u64* wide;
    u32* narrow;
    i64* refused;  // out: 1 + a vertex that is not the sender's
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 v = (u32)records[2 * i];
            if (v < first || v >= end) {
                store(refused, (i64)v + 1);
                continue;
            }
            if (bits) or_everywhere(bits + v / word_bits, bit_of(v));
            if (wide) wide[v] = records[2 * i + 1];
            if (narrow) narrow[v] = (u32)(records[2 * i] >> 32);
        }
    }
};

struct TakeBits {
    static constexpr int lanes = 1;
    const u32* taken;
    i64 n;
    u32* bits;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n))
            if (taken[i]) or_everywhere(bits + i, taken[i]);
    }
};
