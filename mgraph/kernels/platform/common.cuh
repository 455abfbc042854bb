// The machine as kernels see it, with the same meaning on a GPU and on a CPU. A kernel is a struct of 8-byte fields with
// `operator()(Grid)`: guard, stride loop, step. An item takes `lanes` lanes; more than 256 are a block. `shared` is the
// bytes of a block's SHARED_LARGE array, for more than the 48 KB of SHARED. `resident` blocks of 256 lanes share a
// multiprocessor, which limits their registers. A kernel with `persistent = 1` may call Grid::meet(arrived, goal), a
// barrier of all blocks, after which load() sees all earlier writes. `arrived` points to a word that is 0 before the
// first such kernel; later kernels may use it without clearing it. `goal` is a lane's variable, initially 0. All its
// blocks are resident: as many as fit on a GPU, one on a CPU. A kernel with `draws = 1` draws its items from counters in
// memory: a GPU gets as many blocks as it runs at once.
#pragma once
#ifndef APART  // a function with registers of its own: what a program's phases keep over a loop is not spilled inside
#define APART inline
#endif

using i8 = signed char;
using u8 = unsigned char;
using u16 = unsigned short;
using i32 = int;
using u32 = unsigned int;
using i64 = long long;
using u64 = unsigned long long;
using f32 = float;
using f64 = double;

struct Items {  // for (i64 i : items): the items of one lane, tile or block
    i64 first, last, step;
    struct At {
        i64 i, step;
        DEVICE i64 operator*() const { return i; }
        DEVICE void operator++() { i += step; }
        DEVICE bool operator!=(const At& end) const { return i < end.i; }
    };
    DEVICE At begin() const { return {first, step}; }
    DEVICE At end() const { return {last, step}; }
};

template <class T> DEVICE T lesser(T a, T b) { return b < a ? b : a; }
template <class T> DEVICE T greater(T a, T b) { return a < b ? b : a; }
