// Random draws among a row's edges: each edge gets a hash of a stream and its neighbour's id, and the least are drawn.
// So a draw depends neither on the structure's order of a row nor on its owner.
#pragma once
#include "kernels/splitmix.cuh"

DEVICE u64 scramble(u64 z) { return splitmix(1, z); }
DEVICE u64 unscramble(u64 z) { return unmix64(z) - splitmix_step; }
DEVICE u64 stream_of(u64 seed, u64 a, u64 b) { return scramble(scramble(scramble(seed) ^ a) ^ b); }
