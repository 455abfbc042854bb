// A program for tests of losses, on CPUs: ranks send messages and meet, and one of them is hit by a signal in a stage.
#pragma once
#include <signal.h>

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
    i64 process;  // of `lost`
    i64 signal;
    i64 gone;  // offset of a word in a region: 1 once its rank has left the program
    struct State {
        i64 phase = 0, round = 0;
    };
    enum Stage : i64 { nowhere, launching, storing, meeting, leaving };

    void hit(i64 where, bool now) const {
        if (stage == where && now) kill((pid_t)process, (int)signal);
    }
    // The first rank is late, until the one that is lost sleeps in the meeting, or has left it.
    void wait(const u32* word) const {
        for (i64 began = now_nanoseconds(); !load(word) && now_nanoseconds() - began < 60000000000;) sched_yield();
    }
    void begin(State& s) const {
        s.phase = 1;
        hit(launching, world.rank == lost);
    }
    i64 items(const State&, const Heard&) const { return 1; }
    bool alone(const State&) const { return false; }
    i64 shares(const State&) const { return -1; }
    Numbers step(Grid grid, const State& s, const Heard& heard) const {
        bool half = s.round == rounds / 2;
        for (i64 i : grid.items(1)) {
            if (half && !world.rank && stage == meeting) wait(world.words(lost, bell_offset) + 1);
            if (half && !world.rank && stage == leaving) wait(world.words(lost, gone));
            hit(meeting, half && !world.rank);
            for (i64 k = 0; k < messages + i; ++k) {
                hit(storing, half && world.rank == lost && k == messages / 2);
                for (i64 r = 0; r < world.size; ++r)
                    if (r != world.rank) world.send(heard, r, (u32)k);
            }
        }
        return {};
    }
    void next(State& s, const Heard&) const { s.phase = ++s.round < rounds; }
};
