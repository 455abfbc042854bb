// Draws among a row's edges: each gets a random number, a hash of a stream and of its neighbour's id, and the least ones
// are drawn. So what is drawn depends neither on the order in which a structure holds a row, nor on who holds it.
#pragma once

DEVICE u64 scramble(u64 z) {  // SplitMix64
    z += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
DEVICE u64 stream_of(u64 seed, u64 a, u64 b) { return scramble(scramble(scramble(seed) ^ a) ^ b); }
