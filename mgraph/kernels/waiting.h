// How a thread of a CPU waits for another process: it polls, then yields its core between polls, then sleeps.
#pragma once
#include <sched.h>
#include <time.h>

constexpr i64 spin_nanoseconds = 20000;  // of polling only

// Of polling and yielding, before a thread sleeps. On hosts with many CPUs, waking it takes 50 us and more, longer than
// most waits. It is late then, so that the other one may sleep at the next meeting, and so on.
inline i64 awake_nanoseconds() {
    constexpr int many = 8;
    static const i64 awake = [] {
        cpu_set_t here;
        return sched_getaffinity(0, sizeof here, &here) || CPU_COUNT(&here) >= many ? (i64)2000000 : (i64)200000;
    }();
    return awake;
}

inline i64 now_nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}
