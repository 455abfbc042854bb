// Bitmaps of vertices: bit v % 32 of word v / 32. Lanes set and read bits of the same word concurrently: every access is
// relaxed.
#pragma once

constexpr i64 word_bits = 8 * sizeof(u32);

DEVICE i64 words_of(i64 n) { return (n + word_bits - 1) / word_bits; }
DEVICE u32 bit_of(i64 v) { return 1u << (u32)((u64)v % word_bits); }
DEVICE bool get_bit(const u32* bits, i64 v) { return load(bits + (u64)v / word_bits) & bit_of(v); }
// May miss a recently set bit.
DEVICE bool saw_bit(const u32* bits, i64 v) { return stale_load(bits + (u64)v / word_bits) & bit_of(v); }
// Of n bits, those in the mask `which`: bit k of the result is that of v[k]. All are read at once.
template <int n, class Read> DEVICE u32 read_bits(const u32* bits, const u32 (&v)[n], u32 which, Read read) {
    u32 words[n], set = 0;
    for (int k = 0; k < n; ++k) words[k] = which >> k & 1 ? read(bits + v[k] / word_bits) : 0;
    for (int k = 0; k < n; ++k) set |= (words[k] >> v[k] % word_bits & 1) << k;
    return set;
}
template <int n> DEVICE u32 get_bits(const u32* bits, const u32 (&v)[n], u32 which) {
    return read_bits(bits, v, which, [](const u32* p) { return load(p); });
}
template <int n> DEVICE u32 saw_bits(const u32* bits, const u32 (&v)[n], u32 which) {
    return read_bits(bits, v, which, [](const u32* p) { return stale_load(p); });
}
DEVICE void set_bit(u32* bits, i64 v) {
    if (!saw_bit(bits, v)) atomic_or(bits + (u64)v / word_bits, bit_of(v));
}
DEVICE bool mark(u32* bits, i64 v) {  // true if this call has set the bit
    return !get_bit(bits, v) && !(atomic_or(bits + (u64)v / word_bits, bit_of(v)) & bit_of(v));
}
DEVICE void unmark(u32* bits, i64 v) { atomic_and(bits + (u64)v / word_bits, ~bit_of(v)); }
