// Shortest paths by a near and a far list. Lengths only fall, by atomics. A vertex whose length fell is listed again:
// near if it is below the limit, else far; a vertex of another rank, in the list for its owner. Rows of near vertices
// are read until there are none. Then the limit rises, and far vertices below it become near. This rank owns the n
// vertices from `first` on.
#pragma once
#include "algorithms/paths/near_far/settle.cuh"
#include "algorithms/paths/near_far/spread.cuh"

struct Begin {  // one lane a source: its length, on every rank, and its owner's near list
    static constexpr int lanes = 1;
    Search search;
    u64 limit;
    const u32* sources;
    const u64* words;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 one : grid.items(1)) {
            store((u64*)search.state + s_limit + one, limit);
            store(search.least(0), ~(u64)0), store(search.least(1), ~(u64)0);
        }
        Finds finds(search, 0, 0);
        for (i64 i : grid.items(n)) {
            i64 row = (i64)sources[i] - search.first;
            atomic_min(search.length + sources[i], (Word)words[i]);
            if (row >= 0 && row < search.n) finds.add_near((u32)row);
        }
    }
};

struct PackOut {  // one lane a vertex of the list for an owner: its id and length in one word, or in two
    static constexpr int lanes = 1;
    Search search;
    const u32* list;
    i64 n;
    u64* words;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u64 id = list[i], length = search.length[id];
            unmark(search.held, (i64)id);
            if (LENGTHS == 32) words[i] = id << 32 | length;
            else words[2 * i] = id, words[2 * i + 1] = length;
        }
    }
};

struct TakeIn {  // one lane a vertex that another rank has sent
    static constexpr int lanes = 1;
    Search search;
    const u64* words;
    i64 n;
    i64 turn;
    i64 far_turn;
    u64 limit;
    DEVICE void operator()(Grid grid) const {
        Finds finds(search, turn, far_turn);
        for (i64 i : grid.items(n)) {
            u64 id = LENGTHS == 32 ? words[i] >> 32 : words[2 * i];
            u64 length = LENGTHS == 32 ? words[i] & 0xffffffffu : words[2 * i + 1];
            finds.add((u32)id, (Word)length, limit);
        }
    }
};
