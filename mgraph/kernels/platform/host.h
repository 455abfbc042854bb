// The CPU: a tile is one lane, a block one thread, and a rank of the grid a contiguous range of items. A few threads
// draw the ranks.
#pragma once
#ifndef DEVICE  // defined by the tests' builds: with each call inlined, compilation takes two to three times as long
#define DEVICE inline __attribute__((always_inline))
#endif
#define SHARED(type, name, n) static thread_local type name[n]
#define SHARED_LARGE(type, name, n) SHARED(type, name, n)
#include "kernels/platform/common.cuh"
#include "kernels/platform/atomics.h"
#include "kernels/platform/helpers.h"

constexpr int in_flight = 32;  // concurrent searches per lane, whose loads overlap

template <int W, bool warp_converged = false> struct Tile {
    static constexpr int width = W;
    static constexpr int size() { return 1; }
    int rank() const { return 0; }
    int index() const { return 0; }  // in its block
    u32 ballot(bool p) const { return p; }
    bool any(bool p) const { return p; }
    template <class T> u32 match(T) const { return 1; }
    template <class T> T shfl(T v, int) const { return v; }
    template <class T> T sum(T v) const { return v; }
    template <class T> T most(T v) const { return v; }
    template <class T> T scan(T v) const { return v; }
    void sync() const {}
};

constexpr int program_tiles = 1;

struct Block {
    int rank() const { return 0; }
    int size() const { return 1; }
    void sync() const {}
};

struct Grid {
    i64 rank, ranks;
    bool alone() const { return ranks == 1; }  // whether no other thread has a part of the work
    Items items(i64 n) const { return {(i64)((__int128)n * rank / ranks), (i64)((__int128)n * (rank + 1) / ranks), 1}; }
    template <int W> Items items(Tile<W>, i64 n) const { return items(n); }
    Items items(Block, i64 n) const { return items(n); }
    template <int W> Items scattered(Tile<W>, i64 n) const { return items(n); }
#ifdef MGRAPH_OWN_THREADS
    pthread_barrier_t* door = nullptr;
    void meet(u64*, u64&) const { pthread_barrier_wait(door); }
#else
    void meet(u64*, u64&) const {}  // the only block
#endif
};

#ifdef MGRAPH_OWN_THREADS
// For ThreadSanitizer: neighbouring ranks, however short, run on different threads, so that it sees every race. A
// persistent kernel has several blocks.
template <class Kernel> struct Member {
    const Kernel* kernel;
    i64 first, step, ranks;
    pthread_barrier_t* door;
    pthread_t id;
    static void* start(void* member) {
        const Member& own = *(const Member*)member;
        for (i64 r = own.first; r < own.ranks; r += own.step) (*own.kernel)(Grid{r, own.ranks, own.door});
        return nullptr;
    }
};

template <class Kernel> void run_team(const Kernel& kernel, i64 ranks, i64 size, pthread_barrier_t* door) {
    Member<Kernel>* team = new Member<Kernel>[size];
    for (i64 t = 0; t < size; ++t) {
        team[t] = {&kernel, t, size, ranks, door, {}};
        if (pthread_create(&team[t].id, nullptr, Member<Kernel>::start, &team[t])) __builtin_abort();
    }
    for (i64 t = 0; t < size; ++t) pthread_join(team[t].id, nullptr);
    delete[] team;
}

template <class Kernel> void launch_persistent(const Kernel& kernel) {
    constexpr i64 blocks = 3;
    pthread_barrier_t door;
    pthread_barrier_init(&door, nullptr, blocks);
    run_team(kernel, blocks, blocks, &door);
    pthread_barrier_destroy(&door);
}
#else
template <class Kernel> void launch_persistent(const Kernel& kernel) { kernel(Grid{0, 1}); }
#endif

// With -n threads, n of the background.
template <class Kernel> void launch(const Kernel& kernel, i64 items, int signed_threads) {
    const i64 threads = signed_threads < 0 ? -(i64)signed_threads : (i64)signed_threads;
#ifdef MGRAPH_OWN_THREADS
    i64 ranks = lesser(items, threads * 8);
    run_team(kernel, ranks, lesser(ranks, threads), nullptr);
#else
    i64 grain = greater(1, 256 / Kernel::lanes);  // minimum of items per thread
    i64 ranks = lesser(greater(items / grain, (i64)1), threads * 8);
    if (ranks < 4 || threads == 1) return kernel(Grid{0, 1});  // too little work to wake helpers
    auto run = [](const void* kernel, i64 rank, i64 ranks) { (*(const Kernel*)kernel)(Grid{rank, ranks}); };
    Helpers& helpers = signed_threads < 0 ? mgraph::background_helpers : mgraph::helpers;
    helpers.run({run, &kernel, ranks, lesser(ranks, threads) - 1});
#endif
}
