// A program for tests of losses: ranks send messages and meet, and one of them is hit by a signal in a stage. The host
// sends it: a kernel writes the first word of `alarm`, and a thread of its process reads it and answers in the second.
#pragma once
#include "kernels/world.cuh"

struct Losses {
    static constexpr int lanes = 1;
    i64 launch;
    i64 resume;
    World world;
    i64 rounds;
    i64 messages;  // to each other rank in a round
    i64 stage;  // in which `lost` is hit, in round `rounds` / 2
    i64 lost;
    i64* alarm;
    i64 gone;  // offset of a word in a region: 1 once its rank has left the program
    struct State {
        i64 phase = 0, round = 0;
    };
    enum Stage : i64 { nowhere, launching, storing, meeting, leaving };
    static constexpr i64 late = 2000000000;  // nanoseconds; a kernel of a process that is stopped goes on then

    static DEVICE i64 nanoseconds() {
#ifdef __CUDACC__
        return clock64() / clocks_per_nanosecond;
#else
        sched_yield();
        return now_nanoseconds();
#endif
    }
    template <class Done> static DEVICE void wait(i64 most, Done done) {
        for (i64 began = nanoseconds(); !done() && nanoseconds() - began < most;) {}
    }
    DEVICE void hit(i64 where, bool now) const {
        if (stage != where || !now) return;
        store(alarm, (i64)1);
        wait(late, [&] { return load(alarm + 1) != 0; });
    }
    // The first rank is late, until the one that is lost waits for it in the meeting, or has left the program.
    DEVICE void await_meeting(const Heard& heard) const {
        const u64* said = world.slot(world.rank, heard.meetings, lost) + slot_words - 1;
        // The tag counts phases, each of which is a meeting here.
        wait(10 * late, [&] { return has_tag(load(said), heard.meetings + 1); });
    }
    DEVICE void await_end() const {
        wait(10 * late, [&] { return load(world.words(lost, gone)) != 0; });
    }
    DEVICE void begin(State& s) const {
        s.phase = 1;
        hit(launching, world.rank == lost);
    }
    DEVICE i64 items(const State&, const Heard&) const { return 1; }
    DEVICE bool alone(const State&) const { return false; }
    DEVICE i64 shares(const State&) const { return -1; }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        bool half = s.round == rounds / 2;
        for (i64 i : grid.items(1)) {
            if (half && !world.rank && stage == meeting) await_meeting(heard);
            if (half && !world.rank && stage == leaving) await_end();
            hit(meeting, half && !world.rank);
            for (i64 k = 0; k < messages + i; ++k) {
                hit(storing, half && world.rank == lost && k == messages / 2);
                for (i64 r = 0; r < world.size; ++r)
                    if (r != world.rank) world.send(heard, r, (u32)k);
            }
        }
        return {};
    }
    DEVICE void next(State& s, const Heard&) const { s.phase = ++s.round < rounds; }
};
