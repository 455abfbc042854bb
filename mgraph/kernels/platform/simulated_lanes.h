// Simulates a GPU on the CPU, for tests: blocks of 64 lanes, each a fiber, so tiles are really `W` wide. A waiting lane
// yields to the next. A full round without progress means a divergent tile or barrier, and aborts.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <setjmp.h>
#include <ucontext.h>
#define DEVICE inline
#define SHARED(type, name, n) static thread_local type name[n]
#define SHARED_LARGE(type, name, n) SHARED(type, name, n)
#include "kernels/platform/common.cuh"
#include "kernels/platform/atomics.h"

constexpr int block_lanes = 64, lane_stack = 1 << 17;

struct Barrier {
    int arrived, turn;
};

struct Grid;

// The lanes of a block, reused for all blocks. A switch is a long jump, without a system call.
struct Fibers {
    jmp_buf back, lane[block_lanes];
    char* stacks = (char*)std::malloc((size_t)block_lanes * lane_stack);
    bool done[block_lanes];
    Barrier barrier[block_lanes][8];  // by first lane and log2 of the width
    u64 box[block_lanes];  // each lane's value for its tile
    int now;
    i64 progress = 0;
    void (*run)(const void* kernel, const Grid& grid);
    const void* kernel;
    const Grid* grid;
    Fibers();
    ~Fibers() { std::free(stacks); }
    void yield() {
        if (!_setjmp(lane[now])) _longjmp(back, 1);
    }
    void resume(int l) {
        now = l;
        if (!_setjmp(back)) _longjmp(lane[l], 1);
    }
    void wait(int first, int width) {
        Barrier& b = barrier[first][bit_width((u64)width)];
        int turn = b.turn;
        if (++b.arrived == width) b.arrived = 0, ++b.turn, ++progress;
        else
            while (b.turn == turn) yield();
    }
    void run_block() {
        std::memset(done, 0, sizeof done);
        std::memset(barrier, 0, sizeof barrier);
        for (int running = block_lanes; running;) {
            i64 before = progress;
            running = 0;
            for (int l = 0; l < block_lanes; ++l)
                if (!done[l]) resume(l), running += !done[l];
            if (running && before == progress) std::fprintf(stderr, "divergent lanes at a barrier\n"), std::abort();
        }
    }
};
inline thread_local Fibers* fibers = nullptr;

inline void live() {  // the body of a lane
    for (;;) {
        fibers->yield();
        fibers->run(fibers->kernel, *fibers->grid);
        fibers->done[fibers->now] = true;
        ++fibers->progress;
    }
}
inline Fibers::Fibers() {
    fibers = this;
    for (now = 0; now < block_lanes; ++now) {
        ucontext_t first;
        getcontext(&first);
        first.uc_stack = {stacks + (size_t)now * lane_stack, 0, (size_t)lane_stack};
        makecontext(&first, live, 0);
        if (!_setjmp(back)) setcontext(&first);  // runs until it yields
    }
}

constexpr int in_flight = 1;  // as on a GPU

template <int W, bool warp_converged = false> struct Tile {
    static constexpr int width = W;
    static constexpr int size() { return W; }
    int rank() const { return fibers->now % W; }
    int index() const { return fibers->now / W; }  // in its block
    int base() const { return fibers->now / W * W; }
    void sync() const { warp_converged ? fibers->wait(fibers->now / 32 * 32, 32) : fibers->wait(base(), W); }
    template <class T, class F> auto gather(T v, F read) const {  // read(lane) sees every lane's v
        static_assert(sizeof(T) <= 8, "a lane hands over at most 8 bytes");
        std::memcpy(&fibers->box[fibers->now], &v, sizeof v);
        sync();
        auto result = read([this](int lane) {
            T x;
            std::memcpy(&x, &fibers->box[base() + lane], sizeof x);
            return x;
        });
        sync();
        return result;
    }
    u32 ballot(bool p) const {
        return gather(p, [](auto at) {
            u32 bits = 0;
            for (int l = 0; l < W; ++l) bits |= (u32)at(l) << l;
            return bits;
        });
    }
    bool any(bool p) const { return ballot(p) != 0; }
    template <class T> u32 match(T v) const {
        return gather(v, [=](auto at) {
            u32 bits = 0;
            for (int l = 0; l < W; ++l) bits |= (u32)(at(l) == v) << l;
            return bits;
        });
    }
    template <class T> T shfl(T v, int lane) const {
        return gather(v, [=](auto at) { return at(lane); });
    }
    template <class T> T sum(T v) const {
        return gather(v, [](auto at) {
            T s = at(0);
            for (int l = 1; l < W; ++l) s += at(l);
            return s;
        });
    }
    template <class T> T most(T v) const {
        return gather(v, [](auto at) {
            T m = at(0);
            for (int l = 1; l < W; ++l) m = greater(m, at(l));
            return m;
        });
    }
    template <class T> T scan(T v) const {
        int r = rank();
        return gather(v, [=](auto at) {
            T s = at(0);
            for (int l = 1; l <= r; ++l) s += at(l);
            return s;
        });
    }
};

constexpr int program_tiles = block_lanes / 32;  // tiles of 32 lanes

struct Block {
    int rank() const { return fibers->now; }
    int size() const { return block_lanes; }
    void sync() const { fibers->wait(0, block_lanes); }
};

struct Grid {
    i64 block, blocks;
    bool alone() const { return false; }
    Items items(i64 n) const { return {block * block_lanes + fibers->now, n, blocks * block_lanes}; }
    template <int W> Items items(Tile<W>, i64 n) const {
        return {(block * block_lanes + fibers->now) / W, n, blocks * block_lanes / W};
    }
    Items items(Block, i64 n) const { return {block, n, blocks}; }
    template <int W> Items scattered(Tile<W> tile, i64 n) const { return items(tile, n); }
    void meet(u64*, u64&) const { Block{}.sync(); }  // the only block
};

inline Fibers& own_fibers() {  // this thread's
    static thread_local Fibers own;
    return own;
}

template <class Kernel> void run_blocks(const Kernel& kernel, i64 blocks) {
    Fibers& own = own_fibers();
    own.kernel = &kernel;
    own.run = [](const void* kernel, const Grid& grid) { (*(const Kernel*)kernel)(grid); };
    for (i64 b = 0; b < blocks; ++b) {
        Grid grid{b, blocks};
        own.grid = &grid;
        own.run_block();
    }
}

template <class Kernel> void launch(const Kernel& kernel, i64 items, int) {
    run_blocks(kernel, lesser((items * Kernel::lanes + block_lanes - 1) / block_lanes, (i64)3));
}
template <class Kernel> void launch_persistent(const Kernel& kernel) { run_blocks(kernel, 1); }
