// Draws among a row's edges: each gets a random number, a hash of a stream and of its neighbour's id, and the least ones
// are drawn. So what is drawn depends neither on the order in which a structure holds a row, nor on who holds it.
#pragma once
#include "kernels/splitmix.cuh"

DEVICE u64 scramble(u64 z) { return splitmix(1, z); }
DEVICE u64 stream_of(u64 seed, u64 a, u64 b) { return scramble(scramble(scramble(seed) ^ a) ^ b); }
