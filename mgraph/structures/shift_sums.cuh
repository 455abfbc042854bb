// Prefix sums of a batch's moves, inserts << 32 | deletes: within each chunk of 1 << shift keys, as inserts << 16 |
// deletes, and over the chunks.
#pragma once
#include "kernels/scan.cuh"

DEVICE u64 shifts_before(const u32* before, const u64* chunks, i64 shift, i64 k) {
    return chunks[k >> shift] + ((u64)(before[k] >> 16) << 32 | (before[k] & 0xffffu));
}

// Prefix sums of a block's round over its chunk, one lane per key: `move` is 1 << 16 for an insert and 1 for a delete,
// and `moved` sums the chunk's keys before the round. All lanes of the block call it.
struct ChunkShifts {
    u32 moved = 0;
    DEVICE u32 before(Block block, u32 move) {
        u32 all, upto = scan(block, move, all), sum = moved + upto - move;
        moved += all;
        return sum;
    }
    // Ends a chunk, of `many`. The last block sums up the chunks, and passes the total to done().
    template <class F> DEVICE void close(Block block, u64* chunks, u64* arrived, i64 chunk, i64 many, F done) const {
        SHARED(bool, is_last, 1);
        if (block.rank() == 0) {
            store(chunks + chunk, (u64)(moved >> 16) << 32 | (moved & 0xffffu));
            *is_last = arrive(arrived) == (u64)many - 1;
        }
        block.sync();
        constexpr int some = 4;  // neighbouring chunks per lane, for fewer rounds, since all other blocks are done
        u64 sum = 0;
        for (i64 first = 0; *is_last && first < many; first += some * block.size()) {
            u64 its[some], mine = 0, all;
            for (int j = 0; j < some; ++j) {
                i64 c = first + some * block.rank() + j;
                its[j] = c < many ? load(chunks + c) : 0, mine += its[j];
            }
            u64 upto = sum + scan(block, mine, all) - mine;
            for (int j = 0; j < some; upto += its[j++]) {
                i64 c = first + some * block.rank() + j;
                if (c < many) chunks[c] = upto;
            }
            sum += all;
        }
        if (*is_last && block.rank() == 0) done(sum);
        block.sync();
    }
};
