// The parts of communities: a vertex that is still a part of its own may join another part of its community.
#pragma once
#include "algorithms/primitives/label_counts.cuh"

struct Separate {  // marks own vertices that may join a part: alone, and well connected; one lane per own vertex
    static constexpr int lanes = 1;
    Votes votes;
    i64 n;
    u8* active;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) {
            i64 v = votes.first + row;
            u32 part = votes.labels[v], own = votes.names ? votes.names[v] : (u32)v;
            active[row] = part == own && votes.may_choose(row) && votes.cuts[part] > 0 &&
                          votes.well_connected(part, votes.bounds[v]);
        }
    }
};

struct ChangesOf {  // reads the changes of moved rows, one lane per move
    static constexpr int lanes = 1;
    const u64* moves;
    i64 n;
    i64 first;
    i64* changes;  // per row; 0 after it
    i64* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            i64 row = (i64)(moves[i] >> 32) - first;
            out[i] = changes[row], changes[row] = 0;
        }
    }
};

// Adds the weight of a moved vertex to the rest of its community to that of its part, with the change by the move.
struct JoinCuts {  // one lane per move
    static constexpr int lanes = 1;
    const u64* moves;
    i64 n;
    const u32* names;  // null for ids
    const i64* changes;  // per move
    i64* cuts;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 v = (u32)(moves[i] >> 32);
            atomic_add(cuts + (u32)moves[i], cuts[names ? names[v] : v] + changes[i]);
        }
    }
};
