// Random draws of gapbs and libstdc++ with std::mt19937 (M. Matsumoto, T. Nishimura, ACM TOMACS 8(1), 1998), whose
// outputs are called words here. A block has a twister of its own, in shared memory.
#pragma once

constexpr i64 state_words = 624, far_word = 397, most_levels = 27;
constexpr u32 biased = 0xfffffffeu;  // 255 divides the number of words below; other words are drawn again

struct Twister {
    u32* state;  // two halves: the present words and the words before
    i64 turn = 0;
    template <class Block> DEVICE Twister(Block block, u32* state, u32 seed) : state(state) {
        block.sync();
        if (block.rank() == 0) {
            state[0] = seed;
            for (u32 i = 1; i < state_words; ++i) state[i] = 1812433253u * (state[i - 1] ^ state[i - 1] >> 30) + i;
        }
        block.sync();
    }
    template <class Block> DEVICE void next(Block block) {  // the next 624 words
        const u32* old = state + turn * state_words;
        turn = 1 - turn;
        u32* fresh = state + turn * state_words;
        constexpr i64 part = state_words - far_word;  // words of a part depend on words of earlier parts only
        for (i64 from = 0; from < state_words; from += part) {
            for (i64 k = from + block.rank(), end = lesser(from + part, state_words); k < end; k += block.size()) {
                u32 below = k + 1 < state_words ? old[k + 1] : fresh[0], y = (old[k] & ~0u << 31) | (below & ~0u >> 1);
                fresh[k] = (k < part ? old[k + far_word] : fresh[k - part]) ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0u);
            }
            block.sync();
        }
    }
    DEVICE u32 word(i64 i) const {
        u32 y = state[turn * state_words + i];
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c5680u;
        y ^= y << 15 & 0xefc60000u;
        return y ^ y >> 18;
    }
};

struct DrawEdges {  // draws 2^18 edges per block: (lesser end, greater end, weight - 1) in a word each
    static constexpr int lanes = 256;
    i64 scale;
    i64 edges;  // in all
    i64 of_block;  // edges per block
    i64 first;  // number of the first block; the seeds of the twisters follow
    i64 seed;
    const u32* ids;  // the id of each vertex of kron; null for urand
    u8* weights;  // out: per edge, less 1
    u64* keys;  // out
    u8* again;  // out: per block, 1 if a weight must be drawn again
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, state, 2 * state_words);
        SHARED(u8, drawn, state_words * most_levels);
        Block block;
        for (i64 b : grid.items(block, (edges + of_block - 1) / of_block)) {
            i64 begin = b * of_block, n = lesser(of_block, edges - begin);
            Twister words(block, state, (u32)(seed + first + b));
            i64 at_once = ids ? state_words : state_words / 2;
            for (i64 done = 0; done < n; done += at_once)
                ids ? kron(block, words, drawn, b, done, n) : urand(block, words, b, done, n);
        }
    }
    template <class Block> DEVICE void weigh(Block block, const Twister& words, i64 b, i64 at, i64 n) const {
        for (i64 i = block.rank(); i < state_words && at + i < n; i += block.size()) {
            u32 word = words.word(i);
            weights[b * of_block + at + i] = (u8)(word % 255);
            if (word >= biased) again[b] = 1;
        }
    }
    DEVICE void put(i64 edge, u32 u, u32 v) const {
        keys[edge] = ((u64)lesser(u, v) << scale | greater(u, v)) << 8 | weights[edge];
    }
    // A word per level, as a float between 0 and 1, chooses a quadrant: .57, .19, .19 and .05.
    template <class Block> DEVICE void kron(Block block, Twister& words, u8* drawn, i64 b, i64 done, i64 n) const {
        constexpr f32 a = 0.57f, ab = 0.57f + 0.19f, abc = ab + 0.19f;
        // Draw the quadrants of all levels, a word per edge and level.
        for (i64 level = 0; level < scale; ++level) {
            words.next(block);
            weigh(block, words, b, done * scale + level * state_words, n);
            for (i64 i = block.rank(); i < state_words; i += block.size()) {
                f32 point = lesser((f32)words.word(i) / 4294967296.0f, 0.99999994f);
                bool low = point >= ab, right = (point > a && !low) || point > abc;
                drawn[level * state_words + i] = (u8)(low | right << 1);
            }
        }
        block.sync();
        // Join the bits of each edge's quadrants.
        for (i64 e = block.rank(); e < state_words && done + e < n; e += block.size()) {
            u32 u = 0, v = 0;
            for (i64 level = 0; level < scale; ++level) {
                u32 bits = drawn[e * scale + level];
                u = u << 1 | (bits & 1), v = v << 1 | bits >> 1;
            }
            put(b * of_block + done + e, ids[u], ids[v]);
        }
        block.sync();
    }
    template <class Block> DEVICE void urand(Block block, Twister& words, i64 b, i64 done, i64 n) const {
        u32 mask = (u32)((1ull << scale) - 1);
        words.next(block);
        weigh(block, words, b, 2 * done, n);
        block.sync();
        for (i64 e = block.rank(); 2 * e < state_words && done + e < n; e += block.size())
            put(b * of_block + done + e, words.word(2 * e) & mask, words.word(2 * e + 1) & mask);
    }
};

struct DrawSwaps {  // one block: draws places[k], a random number up to k, like std::uniform_int_distribution
    static constexpr int lanes = 256;
    i64 n;
    i64 seed;
    i64* places;
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, state, 2 * state_words);
        SHARED(u32, refused, 1);
        Block block;
        for (i64 only : grid.items(block, 1)) {
            Twister words(block, state, (u32)(seed + only));
            for (i64 k = 1; k < n;) {
                words.next(block);
                for (i64 at = 0; at < state_words && k < n;) {  // a rejected word moves all that follow
                    i64 most = lesser(lesser((i64)block.size(), state_words - at), n - k);
                    if (block.rank() == 0) refused[0] = (u32)most;
                    block.sync();
                    bool mine = block.rank() < most;
                    u32 size = (u32)(k + block.rank() + 1);
                    u64 product = mine ? (u64)words.word(at + block.rank()) * size : 0;
                    if (mine && (u32)product < (0u - size) % size) atomic_min(refused, (u32)block.rank());
                    block.sync();
                    i64 taken = load(refused);
                    if (block.rank() < taken) places[k + block.rank()] = (i64)(product >> 32);
                    k += taken, at += taken + (taken < most);
                    block.sync();
                }
            }
        }
    }
};
