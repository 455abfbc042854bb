// Bitmaps of vertices: bit v % 32 of word v / 32. Lanes set and read bits of the same word concurrently: every access is
// relaxed.
#pragma once

constexpr i64 word_bits = 8 * sizeof(u32);

DEVICE i64 words_of(i64 n) { return (n + word_bits - 1) / word_bits; }
DEVICE u32 bit_of(i64 v) { return 1u << (u32)((u64)v % word_bits); }
DEVICE bool get_bit(const u32* bits, i64 v) { return load(bits + (u64)v / word_bits) & bit_of(v); }
// May miss a recently set bit.
DEVICE bool saw_bit(const u32* bits, i64 v) { return stale_load(bits + (u64)v / word_bits) & bit_of(v); }
DEVICE void set_bit(u32* bits, i64 v) {
    if (!saw_bit(bits, v)) atomic_or(bits + (u64)v / word_bits, bit_of(v));
}
DEVICE bool mark(u32* bits, i64 v) {  // true if this call has set the bit
    return !get_bit(bits, v) && !(atomic_or(bits + (u64)v / word_bits, bit_of(v)) & bit_of(v));
}
DEVICE void unmark(u32* bits, i64 v) { atomic_and(bits + (u64)v / word_bits, ~bit_of(v)); }

constexpr i64 chunk_words = CHUNK_WORDS;  // words that a tile compacts with one atomic

DEVICE i64 chunks_of(i64 words) { return (words + chunk_words - 1) / chunk_words; }

// Lists the set bits of words[from] .. words[to - 1], by a tile: emit(bit, place), ascending within the tile, with
// places from `counter`. `mine` counts the bits in this lane's words from + rank, from + rank + size, ... Returns the
// total.
template <class Tile, class Emit>
DEVICE i64 compact(Tile tile, const u32* words, i64 from, i64 to, i64 mine, i64* counter, Emit emit) {
    i64 total = tile.sum(mine);
    if (total == 0) return 0;
    i64 place = tile.shfl(tile.rank() == 0 ? atomic_add(counter, total) : (i64)0, 0);
    for (i64 base = from; base < to; base += tile.size()) {
        u32 own = base + tile.rank() < to ? words[base + tile.rank()] : 0u;
        for (u32 full = tile.ballot(own != 0); full; full &= full - 1) {
            int lane = lowest_bit(full);
            u32 bits = tile.shfl(own, lane);
            if constexpr (Tile::size() == 1) {
                for (; bits; bits &= bits - 1) emit((base + lane) * word_bits + lowest_bit(bits), place++);
                continue;
            }
            for (i64 b = tile.rank(); b < word_bits; b += tile.size())
                if (bits & bit_of(b)) emit((base + lane) * word_bits + b, place + popcount(bits & (bit_of(b) - 1)));
            place += popcount(bits);
        }
    }
    return total;
}
