// A program for tests of gateways: one meeting at which the ranks share what the fields say, and send nothing.
#pragma once
#include "kernels/world.cuh"

struct Sharing {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    i64 bits;
    i64 vertices;
    i64 count;
    i64 wide;
    i64 narrow;
    i64 array;
    i64 width;
    struct State {
        i64 phase = 0, messages = 0;
    };
    DEVICE void begin(State& s) const { s.phase = 1; }
    DEVICE i64 items(const State&, const Heard&) const { return 1; }
    DEVICE bool alone(const State&) const { return false; }
    DEVICE Shared shares(const State&) const {
        Shared shared(bits);
        shared.vertices = vertices, shared.count = count, shared.wide = wide, shared.narrow = narrow;
        shared.array = array, shared.width = width;
        return shared;
    }
    DEVICE Numbers step(Grid, const State&, const Heard&) const { return {}; }
    DEVICE void next(State& s, const Heard& heard) const { s.phase = 0, s.messages = heard.messages(1); }
};
