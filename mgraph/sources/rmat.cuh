// Generates edges of a recursive-matrix graph, one lane per edge. Its random bits hash its number and the seed.
#pragma once
#include "kernels/splitmix.cuh"

// Generates `n` edges. At each level 16 random bits are compared with low, middle and high to choose the quadrant.
struct RmatEdges {
    static constexpr int lanes = 1;
    i64 first;
    i64 n;
    i64 scale;
    i64 low;
    i64 middle;
    i64 high;
    u64 start;    // of the hashes that give the edges' bits
    u64 shuffle;  // of the hashes that give the permutation
    i64 shuffled;
    u32* src;
    u32* dst;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 row = 0, column = 0;
            u64 bits = 0;
            for (i64 level = 0; level < scale; ++level) {
                if (level % 4 == 0) bits = splitmix((u64)(first + i) * 16 + level / 4, start);
                i64 draw = bits >> 16 * (level % 4) & 0xffff;
                row = row << 1 | (draw >= middle);
                column = column << 1 | ((draw >= low) ^ (draw >= middle) ^ (draw >= high));
            }
            src[i] = shuffled ? shuffle_id(row) : row;
            dst[i] = shuffled ? shuffle_id(column) : column;
        }
    }
    DEVICE u32 shuffle_id(u32 id) const {  // a permutation, since odd multiplications and xor-shifts are invertible
        u32 mask = (u32)((1ull << scale) - 1);
        for (u64 turn = 0; turn < 4; ++turn) {
            u64 key = splitmix(turn, shuffle);
            id = (id * ((u32)key | 1) + (u32)(key >> 32)) & mask;
            id ^= id >> (scale + 1) / 2;
        }
        return id;
    }
};
