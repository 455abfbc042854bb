// S. Vigna's SplitMix64: a bijection of 64-bit numbers in which each bit depends on all input bits, and its random
// sequence. mgraph/splitmix.py has the same in Python.
#pragma once

constexpr u64 splitmix_step = 0x9E3779B97F4A7C15ull;

DEVICE u64 mix64(u64 z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
DEVICE u64 unmix64(u64 z) {  // what mix64 makes z of
    z = (z ^ (z >> 31) ^ (z >> 62)) * 0x319642B2D24D8EC3ull;
    z = (z ^ (z >> 27) ^ (z >> 54)) * 0x96DE1B173F119089ull;
    return z ^ (z >> 30) ^ (z >> 60);
}
DEVICE u64 splitmix(u64 counter, u64 start) { return mix64(counter * splitmix_step + start); }
