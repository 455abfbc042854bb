// The GPU: a tile is `W` neighbouring lanes of a warp, a block is a thread block, items go round robin.
#pragma once
#define DEVICE __device__ __forceinline__
#define APART __device__ __noinline__
#define OVERLAY  // only for the host: nvcc has no such attribute
#define SHARED(type, name, n) __shared__ type name[n]
#define SHARED_LARGE(type, name, n) extern __shared__ type name[]  // one per kernel, of `shared` bytes
#include "kernels/platform/common.cuh"

template <class T> DEVICE T load(const T* p) { return *(const volatile T*)p; }
template <class T> DEVICE T stale_load(const T* p) { return *p; }  // may be stale: from L1
DEVICE void load_four(const u32* p, u32 (&v)[4]) {  // from 16 aligned bytes, past L1
    uint4 all = __ldcg((const uint4*)p);
    v[0] = all.x, v[1] = all.y, v[2] = all.z, v[3] = all.w;
}
template <class T> DEVICE void store(T* p, T v) { *(volatile T*)p = v; }
template <class T> DEVICE T load_once(const T* p) { return __ldcs(p); }  // evict first: keeps L2 for reused data
template <class T> DEVICE T atomic_add(T* p, T v) { return atomicAdd(p, v); }
DEVICE i64 atomic_add(i64* p, i64 v) { return (i64)atomicAdd((u64*)p, (u64)v); }
// Adds 1; converged lanes share an atomic, like cooperative_groups::coalesced_threads(). __activemask() returns the
// lanes that execute it together. No branch follows before __match_any_sync, so each of them calls it with the same
// mask, and it converges them again if they have diverged meanwhile. The same holds for `same` and __shfl_sync. A lane
// outside the mask is in another group, with its own mask and atomic: the grouping determines only the number of
// atomics.
DEVICE i64 take_place(i64* counter) {
    u32 same = __match_any_sync(__activemask(), (u64)counter), lane = threadIdx.x & 31;
    int leader = __ffs((int)same) - 1;
    i64 first = (int)lane == leader ? atomic_add(counter, (i64)__popc(same)) : 0;
    return __shfl_sync(same, first, leader) + __popc(same & ((1u << lane) - 1));
}
DEVICE u64 arrive(u64* p, u64 v = 1) {  // the last to arrive sees all earlier writes
    __threadfence();
    u64 before = atomicAdd(p, v);
    __threadfence();
    return before;
}
// For a word in a tile's shared memory, or private to a CPU's thread.
DEVICE u32 add_nearby(u32* p, u32 v) { return atomicAdd(p, v); }
template <class T> DEVICE T atomic_or(T* p, T v) { return atomicOr(p, v); }
template <class T> DEVICE T atomic_and(T* p, T v) { return atomicAnd(p, v); }
template <class T> DEVICE T atomic_min(T* p, T v) { return atomicMin(p, v); }
template <class T> DEVICE T atomic_max(T* p, T v) { return atomicMax(p, v); }
template <class T> DEVICE T atomic_cas(T* p, T expected, T v) { return atomicCAS(p, expected, v); }
// Atomics that return nothing.
DEVICE void reduce_add(u32* p, u32 v) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// For words that only their owner writes in this kernel. For an uncached word an atomic is faster than a store, which
// leaves a partial sector in L2 that must be filled before its eviction.
DEVICE void and_into_owned_word(u32* p, u32 v) {
    asm volatile("red.relaxed.gpu.global.and.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE void or_into_owned_word(u32* p, u32 v) {
    asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE void copy_bytes(void* to, const void* from, i64 n) { memcpy(to, from, (size_t)n); }
DEVICE void fence() { __threadfence(); }
DEVICE void fetch_line(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }  // of 128 bytes
DEVICE void prefetch(const void*) {}  // a GPU hides latency by other warps
DEVICE void prefetch_to_write(const void*) {}
DEVICE u32 bits_of(f32 v) { return __float_as_uint(v); }
DEVICE u64 bits_of(f64 v) { return (u64)__double_as_longlong(v); }
DEVICE f32 float_of(u32 bits) { return __uint_as_float(bits); }
DEVICE f64 float_of(u64 bits) { return __longlong_as_double((i64)bits); }
DEVICE f64 product(f64 a, f64 b) { return __dmul_rn(a, b); }  // rounded: no addition is fused with it
DEVICE int popcount(u32 v) { return __popc(v); }
DEVICE int lowest_bit(u32 v) { return __ffs((int)v) - 1; }
DEVICE int bit_width(u64 v) { return 64 - __clzll((i64)v); }

// A word of all blocks: it counts their barriers above its low 24 bits, which return to 0 after each, so it need not be
// cleared. What a block adds to arrive:
DEVICE u64 arrival() { return blockIdx.x ? 1 : ((u64)1 << 24) - (gridDim.x - 1); }
// Arrives at a barrier, and waits until the word counts `goal` of them: what all wrote before is then seen. One lane of
// each block calls it.
DEVICE void meet_blocks(u64* arrived, u64 goal) {
    u64 there;
    asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(arrived), "l"(arrival()) : "memory");
    do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(there) : "l"(arrived) : "memory");
    while (there >> 24 < goal);
}

constexpr int in_flight = 1;  // concurrent searches per lane: other warps hide the latency

// `warp_converged`: all tiles of the warp run converged, so no exchange checks the participating lanes. A tile of one
// lane exchanges nothing: instructions for single lanes would serialize the warp.
template <int W, bool warp_converged = false> struct Tile {
    static constexpr int width = W;
    static constexpr bool alone = W == 1;
    static constexpr DEVICE int size() { return W; }
    DEVICE int rank() const { return threadIdx.x & (W - 1); }
    DEVICE int index() const { return threadIdx.x / W; }  // in its block
    DEVICE u32 base() const { return (threadIdx.x & 31) & ~(W - 1); }
    DEVICE u32 own() const { return W == 32 ? 0xffffffffu : ((1u << (W & 31)) - 1) << base(); }
    DEVICE u32 mask() const { return warp_converged ? 0xffffffffu : own(); }
    DEVICE u32 ballot(bool p) const { return alone ? (u32)p : (__ballot_sync(mask(), p) & own()) >> base(); }
    DEVICE bool any(bool p) const { return alone ? p : warp_converged ? ballot(p) : __any_sync(mask(), p); }
    // Returns the lanes with the same value.
    template <class T> DEVICE u32 match(T v) const {
        return alone ? 1u : (__match_any_sync(mask(), v) & own()) >> base();
    }
    template <class T> DEVICE T shfl(T v, int lane) const { return alone ? v : __shfl_sync(mask(), v, lane, W); }
    template <class T> DEVICE T sum(T v) const {
        for (int step = W / 2; step; step /= 2) v += __shfl_xor_sync(mask(), v, step, W);
        return v;
    }
    template <class T> DEVICE T most(T v) const {
        for (int step = W / 2; step; step /= 2) v = greater(v, __shfl_xor_sync(mask(), v, step, W));
        return v;
    }
    template <class T> DEVICE T scan(T v) const {  // inclusive
        for (int step = 1; step < W; step *= 2) {
            T below = __shfl_up_sync(mask(), v, step, W);
            if (rank() >= step) v += below;
        }
        return v;
    }
    DEVICE void sync() const {
        if (!alone) __syncwarp(mask());
    }
};

constexpr int program_tiles = 16;  // tiles of 32 lanes in a block of a program that ranks run together

struct Block {
    DEVICE int rank() const { return threadIdx.x; }
    DEVICE int size() const { return blockDim.x; }
    DEVICE void sync() const { __syncthreads(); }
};

struct Grid {
    u32 thread = threadIdx.x;  // a program hides from the compiler that this is the same in all phases
    static constexpr DEVICE bool alone() { return false; }
    DEVICE Items items(i64 n) const { return {(i64)blockIdx.x * blockDim.x + thread, n, (i64)gridDim.x * blockDim.x}; }
    template <int W> DEVICE Items items(Tile<W>, i64 n) const {
        return {((i64)blockIdx.x * blockDim.x + thread) / W, n, (i64)gridDim.x * blockDim.x / W};
    }
    DEVICE Items items(Block, i64 n) const { return {(i64)blockIdx.x, n, (i64)gridDim.x}; }
    // Neighbouring items go to different multiprocessors.
    template <int W> DEVICE Items scattered(Tile<W>, i64 n) const {
        return {(i64)(thread / W) * gridDim.x + blockIdx.x, n, (i64)gridDim.x * blockDim.x / W};
    }
    DEVICE void meet(u64* arrived, u64& goal) const {
        __syncthreads();
        if (gridDim.x == 1) return;  // all are here
        if (threadIdx.x == 0) {
            if (goal == 0) goal = load(arrived) >> 24;  // no meeting ends without this block
            meet_blocks(arrived, ++goal);
        }
        __syncthreads();
    }
};
