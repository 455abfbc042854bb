// Relaxed atomics, bit counts and prefetches of the host's compiler, under the names that kernels use.
#pragma once

// Marks a struct that is laid over an array of words by a cast, so its accesses alias the words'. (-fno-strict-aliasing
// does so for all types: PageRank took 6 to 9% longer.)
#define OVERLAY [[gnu::may_alias]]

template <class T> DEVICE T load(const T* p) {
    T v;
    __atomic_load(p, &v, __ATOMIC_RELAXED);
    return v;
}
DEVICE void load_four(const u32* p, u32 (&v)[4]) {
    for (int i = 0; i < 4; ++i) v[i] = load(p + i);
}
template <class T> DEVICE T stale_load(const T* p) { return load(p); }  // on a GPU it may be stale
template <class T> DEVICE void store(T* p, T v) { __atomic_store(p, &v, __ATOMIC_RELAXED); }
template <class T> DEVICE T load_once(const T* p) { return *p; }
template <class T> DEVICE T atomic_cas(T* p, T expected, T v) {
    __atomic_compare_exchange(p, &expected, &v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
template <class T, class F> DEVICE T atomic_update(T* p, F next) {  // returns the previous value
    T old = load(p);
    for (T v = next(old); !__atomic_compare_exchange(p, &old, &v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
         v = next(old)) {}
    return old;
}
template <class T> DEVICE T atomic_add(T* p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEVICE u32 add_nearby(u32* p, u32 v) {  // for a word of a tile's shared memory, or of one thread of a CPU
    u32 before = *p;
    *p = before + v;
    return before;
}
DEVICE i64 take_place(i64* counter) { return atomic_add(counter, (i64)1); }
// The last to arrive sees all earlier writes.
template <class T> DEVICE T arrive(T* p, T v = 1) { return __atomic_fetch_add(p, v, __ATOMIC_ACQ_REL); }
DEVICE f32 atomic_add(f32* p, f32 v) {
    return atomic_update(p, [=](f32 old) { return old + v; });
}
DEVICE f64 atomic_add(f64* p, f64 v) {
    return atomic_update(p, [=](f64 old) { return old + v; });
}
template <class T> DEVICE T atomic_or(T* p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); }
template <class T> DEVICE T atomic_and(T* p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); }
template <class T> DEVICE T atomic_min(T* p, T v) {
    return atomic_update(p, [=](T old) { return lesser(old, v); });
}
template <class T> DEVICE T atomic_max(T* p, T v) {
    return atomic_update(p, [=](T old) { return greater(old, v); });
}
DEVICE void reduce_add(u32* p, u32 v) { __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
// Not atomic: for words that only their owner writes in this kernel.
DEVICE void and_into_owned_word(u32* p, u32 v) { store(p, load(p) & v); }
DEVICE void or_into_owned_word(u32* p, u32 v) { store(p, load(p) | v); }
DEVICE void copy_bytes(void* to, const void* from, i64 n) { __builtin_memcpy(to, from, n); }
DEVICE void fence() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
DEVICE u32 bits_of(f32 v) {
    u32 bits;
    __builtin_memcpy(&bits, &v, sizeof v);
    return bits;
}
DEVICE u64 bits_of(f64 v) {
    u64 bits;
    __builtin_memcpy(&bits, &v, sizeof v);
    return bits;
}
DEVICE f32 float_of(u32 bits) {
    f32 v;
    __builtin_memcpy(&v, &bits, sizeof v);
    return v;
}
DEVICE f64 float_of(u64 bits) {
    f64 v;
    __builtin_memcpy(&v, &bits, sizeof v);
    return v;
}
DEVICE f64 product(f64 a, f64 b) {  // rounded: no addition is fused with it
    u64 bits = bits_of(a * b);
    asm("" : "+r"(bits));
    return float_of(bits);
}
DEVICE int popcount(u32 v) { return __builtin_popcount(v); }
DEVICE int lowest_bit(u32 v) { return v ? __builtin_ctz(v) : -1; }
DEVICE int bit_width(u64 v) { return v ? 64 - __builtin_clzll(v) : 0; }
DEVICE void fetch_line(const void*) {}  // only on a GPU
DEVICE void prefetch(const void* p) { __builtin_prefetch(p); }
DEVICE void prefetch_to_write(const void* p) { __builtin_prefetch(p, 1); }
