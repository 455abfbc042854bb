// Threads that help a CPU kernel's own: they take ranks as long as there are some. Nobody waits for a helper that came late or
// not at all: on busy cores OpenMP's end of a loop did, a time slice of 4 ms for kernels of 0.1.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

struct HelpedJob {
    void (*run)(const void* kernel, long long rank, long long ranks);
    const void* kernel;
    long long ranks, helpers;
};

class Helpers {  // one job at a time; never destroyed, as its threads end with the process
    std::mutex busy, asleep;
    std::condition_variable wake;
    std::atomic<const HelpedJob*> job{nullptr};
    std::atomic<long long> next{0}, most{0}, inside{0}, sleepers{0}, posted{0};
    long long threads = 0;

    static constexpr int spins = 400;  // some 20 us: the time between two kernels of a batch
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        std::this_thread::yield();
#endif
    }
    void take(const HelpedJob& now) {
        for (long long rank; (rank = next.fetch_add(1)) < now.ranks;) now.run(now.kernel, rank, now.ranks);
    }
    void wait_for_another(long long seen) {
        for (int i = 0; i < spins && posted.load() == seen; ++i) pause();
        if (posted.load() != seen) return;
        std::unique_lock<std::mutex> lock(asleep);
        ++sleepers;
        wake.wait(lock, [&] { return posted.load() != seen; });
        --sleepers;
    }
    void help() {
        for (long long seen = 0;; seen = posted.load()) {
            wait_for_another(seen);
            // Who posted the job ends it when nobody is inside; who comes in after that finds none, or the next one. (All atomics
            // are sequentially consistent: of `inside` and `job` at least one side sees what the other wrote.)
            if (inside.fetch_add(1) < most.load())
                if (const HelpedJob* now = job.load()) take(*now);
            inside.fetch_sub(1);
        }
    }
    void hire(long long wanted) {
        try {
            for (; threads < wanted; ++threads) std::thread(&Helpers::help, this).detach();
        } catch (const std::system_error&) {}  // no more threads to be had: fewer help
    }

public:
    // Runs all ranks, with the help of other threads; alone where another kernel has them.
    void run(const HelpedJob& now) {
        std::unique_lock<std::mutex> mine(busy, std::try_to_lock);
        if (!mine) {
            for (long long rank = 0; rank < now.ranks; ++rank) now.run(now.kernel, rank, now.ranks);
            return;
        }
        hire(now.helpers);
        next = 0, most = now.helpers, job = &now;
        ++posted;
        if (sleepers.load()) {
            std::lock_guard<std::mutex> lock(asleep);
            wake.notify_all();
        }
        take(now);
        job = nullptr;
        while (inside.load()) pause();
    }
};

// One for all kernels' libraries of the process: the linker joins what has a name that it can see.
__attribute__((visibility("default"))) inline Helpers& helpers() {
    static Helpers* all = new Helpers;
    return *all;
}
