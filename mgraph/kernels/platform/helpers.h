// Helper threads of CPU kernels: they draw ranks while any are left. No kernel waits for a helper that is late or never
// comes: on busy cores OpenMP's barrier waited a time slice of 4 ms for kernels of 0.1 ms.
#pragma once
#include <new>
#include <pthread.h>  // C++'s headers of threads would take a third of a program's compilation
#include <sched.h>

// A sequentially consistent value; the header <atomic> would take a sixth of a program's compilation.
template <class T> class Atomic {
    T value = 0;

public:
    T load() const { return __atomic_load_n(&value, __ATOMIC_SEQ_CST); }
    void operator=(T x) { __atomic_store_n(&value, x, __ATOMIC_SEQ_CST); }
    T fetch_add(T n) { return __atomic_fetch_add(&value, n, __ATOMIC_SEQ_CST); }
};

struct HelpedJob {
    void (*run)(const void* kernel, long long rank, long long ranks);
    const void* kernel;
    long long ranks, helpers;
};

class Helpers {  // one job at a time; no destructor, since its threads end with the process
    pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER, asleep = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
    Atomic<const HelpedJob*> job;
    Atomic<long long> next, most, inside, sleepers, posted;
    long long threads = 0;

    static constexpr int spins = 400;  // about 20 us: the time between two kernels of a batch
    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#else
        sched_yield();
#endif
    }
    void take(const HelpedJob& now) {
        for (long long rank; (rank = next.fetch_add(1)) < now.ranks;) now.run(now.kernel, rank, now.ranks);
    }
    void wait_for_another(long long seen) {
        for (int i = 0; i < spins && posted.load() == seen; ++i) pause();
        if (posted.load() != seen) return;
        pthread_mutex_lock(&asleep);
        sleepers.fetch_add(1);
        while (posted.load() == seen) pthread_cond_wait(&wake, &asleep);
        sleepers.fetch_add(-1);
        pthread_mutex_unlock(&asleep);
    }
    void help() {
        for (long long seen = 0;; seen = posted.load()) {
            wait_for_another(seen);
            // The poster of a job ends it when no helper is inside; a helper that enters later sees no job, or the
            // next one. (All atomics are sequentially consistent: of `inside` and `job` at least one side sees the
            // other's write.)
            if (inside.fetch_add(1) < most.load())
                if (const HelpedJob* now = job.load()) take(*now);
            inside.fetch_add(-1);
        }
    }
    static void* start(void* all) {
        ((Helpers*)all)->help();
        return nullptr;
    }
    void hire(long long wanted) {
        for (pthread_t id; threads < wanted; ++threads) {
            if (pthread_create(&id, nullptr, start, this)) return;  // no more threads: continue with fewer helpers
            pthread_detach(id);
        }
    }

public:
    // Runs all ranks with the helpers, or alone while another kernel uses them.
    void run(const HelpedJob& now) {
        if (pthread_mutex_trylock(&busy)) {
            for (long long rank = 0; rank < now.ranks; ++rank) now.run(now.kernel, rank, now.ranks);
            return;
        }
        hire(now.helpers);
        next = 0, most = now.helpers, job = &now;
        posted.fetch_add(1);
        if (sleepers.load()) {
            pthread_mutex_lock(&asleep);
            pthread_cond_broadcast(&wake);
            pthread_mutex_unlock(&asleep);
        }
        take(now);
        job = nullptr;
        while (inside.load()) pause();
        pthread_mutex_unlock(&busy);
    }
};

namespace mgraph {  // visible symbols, which the linker merges over all kernel libraries of the process

// Copies of graphs have helpers of their own, so that their long kernels leave the graph its helpers.
__attribute__((visibility("default"))) inline Helpers helpers, background_helpers;

// A forked child has a copy of the state without the parent's threads, and with locks that no thread will open. It
// starts with a new state, and creates helpers at its first kernel.
__attribute__((visibility("default"))) inline const int reset_in_children =
    pthread_atfork(nullptr, nullptr, [] { new (&helpers) Helpers, new (&background_helpers) Helpers; });

}  // namespace mgraph
