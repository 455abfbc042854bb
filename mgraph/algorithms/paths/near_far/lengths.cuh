// Lengths of paths: words whose order as integers is that of the paths, so that an atomic minimum keeps the shortest.
// LENGTHS: 32 and 64 are the bits of floats of 0 or more, and 0 is hops << 32 | source.
#pragma once

#if LENGTHS == 32
using Word = u32;
using Shown = u32;  // as results have them
#elif LENGTHS == 64
using Word = u64;
using Shown = u64;
#elif LENGTHS == 0
using Word = u64;
using Shown = i32;  // hops alone
#endif

constexpr bool hops = LENGTHS == 0;

DEVICE Word longer(Word length, f64 more) {  // a path with one more edge; more than every length if it overflows
    if (hops) return (Word)(length + ((u64)1 << 32));
    if (LENGTHS == 32) return (Word)bits_of(float_of((u32)length) + (f32)more);
    return (Word)bits_of(float_of((u64)length) + more);
}
DEVICE f64 real_of(Word length) {
    if (hops) return (f64)((u64)length >> 32);
    return LENGTHS == 32 ? (f64)float_of((u32)length) : float_of((u64)length);
}
DEVICE u64 next_limit(Word least, f64 delta) {
    if (hops) return (u64)least + ((u64)greater(delta, 1.0) << 32);
    return greater((u64)longer(least, delta), (u64)least + 1);
}
