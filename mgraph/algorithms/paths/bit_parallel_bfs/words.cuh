// Searches as bits of a word.
#pragma once

constexpr i64 searches = 64;

DEVICE i64 lowest_search(u64 bits) { return bit_width(bits & (~bits + 1)) - 1; }
