// Prefix sums of words, in place: first within chunks, one block each; then each chunk adds the sum before it.
#pragma once
#include "kernels/scan.cuh"

constexpr i64 chunk_words = 4096;

struct SumChunks {  // one block per chunk; the last block sums up the chunks
    static constexpr int lanes = 256;
    u64* words;
    i64 n;
    u64* before;   // of each chunk: the sum of those before it
    u64* arrived;  // 0
    DEVICE void operator()(Grid grid) const {
        SHARED(bool, is_last, 1);
        Block block;
        i64 chunks = (n + chunk_words - 1) / chunk_words;
        for (i64 c : grid.items(block, chunks)) {
            u64 sum = sum_up<4>(block, words, c * chunk_words, lesser(n, (c + 1) * chunk_words), true);
            if (block.rank() == 0) {
                store(before + c, sum);
                *is_last = arrive(arrived) == (u64)chunks - 1;
            }
            block.sync();
            if (*is_last) sum_up<1>(block, before, 0, chunks, false);
            block.sync();
        }
    }
    // Prefix sums of words [first, end), inclusive or exclusive; returns the total.
    template <int some> DEVICE u64 sum_up(Block block, u64* its, i64 first, i64 end, bool with) const {
        u64 sum = 0;
        for (i64 at = first; at < end; at += some * block.size()) {
            u64 word[some], mine = 0, all;
            for (int j = 0; j < some; ++j) {
                i64 i = at + some * block.rank() + j;
                word[j] = i < end ? load(its + i) : 0, mine += word[j];
            }
            u64 upto = sum + scan(block, mine, all) - mine;
            for (int j = 0; j < some; ++j) {
                i64 i = at + some * block.rank() + j;
                if (i < end) its[i] = with ? upto + word[j] : upto;
                upto += word[j];
            }
            sum += all;
        }
        return sum;
    }
};

struct Sums {  // prefix sums as SumChunks leaves them
    const u64* words;
    const u64* before;
    DEVICE u64 upto(i64 i) const { return words[i] + before[i / chunk_words]; }
};

struct AddBefore {  // one lane per word
    static constexpr int lanes = 1;
    u64* words;
    i64 n;
    const u64* before;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) words[i] += before[i / chunk_words];
    }
};
