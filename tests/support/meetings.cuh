// A program for tests of meetings: in every round each rank sends its number and the round's to every other, adds up what
// it has got, and shares a bitmap of its vertices. The own blocks meet first, and again after odd rounds.
#pragma once
#include "kernels/world.cuh"

#if MESSAGE_BITS == 32
using Message = u32;
#elif MESSAGE_BITS == 64
using Message = u64;
#endif

DEVICE Message message_of(i64 number) { return (Message)((u64)number * 0x9e3779b97f4a7c15ull); }  // of all bits

struct Meetings {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    i64 rounds;
    i64 messages;  // that a rank sends to each other in a round
    i64 bitmap;  // its offset in a region
    const i64* ends;  // 1 if the next round is the last, whatever `rounds` is
    struct State {
        i64 phase = 0, round = 0, total = 0, expected = 0, wrong = 0;
    };
    enum Stage : i64 { finished, work, rest };
    DEVICE void begin(State& s) const { s.phase = rounds ? (i64)rest : (i64)finished; }
    DEVICE i64 items(const State&, const Heard&) const { return messages * world.size; }
    DEVICE bool alone(const State& s) const { return s.phase == rest; }
    DEVICE i64 shares(const State&) const { return -1; }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        Numbers mine;
        if (s.phase == rest) return mine;
        for (i64 r = 0; s.round && r < world.size; ++r) {
            if (r != world.rank)
                for (i64 i : grid.items(1)) mine.of[1] += heard.messages(r) != messages + i;
            for (i64 i : grid.items(lesser(heard.messages(r), world.room)))
                mine.of[1] += world.message<Message>(heard, r, i) != message_of((s.round - 1) * world.size + r);
        }
        for (i64 r = 0; r < world.size; ++r)
            if (r != world.rank)
                for (i64 i : grid.items(messages))
                    world.send(heard, r, message_of(s.round * world.size + world.rank + 0 * i));
        for (i64 i : grid.items(1)) mine.of[0] = s.round * (world.rank + 1) + i, mine.of[2] = load(ends);
        return mine;
    }
    DEVICE void next(State& s, const Heard& heard) const {
        if (s.phase == work) {
            s.total += heard.total(0), s.wrong += heard.total(1);
            s.expected += s.round * world.size * (world.size + 1) / 2;
            if (heard.sent() != messages * world.size * (world.size - 1)) ++s.wrong;
            if (heard.any(overflowed) != (world.size > 1 && messages > world.room)) ++s.wrong;
            ++s.round;
        }
        bool rests = s.phase == work && s.round % 2, last = s.round == rounds || heard.total(2);
        s.phase = last ? (i64)finished : rests ? (i64)rest : (i64)work;
    }
};
