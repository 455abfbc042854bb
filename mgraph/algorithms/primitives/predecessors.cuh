// Notes about the predecessors of vertices: the minimum of level << 32 | predecessor, or all ones for none.
#pragma once

struct MergeNotes {  // one lane an own vertex: takes the minimum of the own and another rank's note
    static constexpr int lanes = 1;
    const u64* part;
    i64 n;
    u64* notes;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) notes[i] = lesser(notes[i], part[i]);
    }
};

struct Predecessors {  // one lane an own vertex: replaces its note by its predecessor, or -1
    static constexpr int lanes = 1;
    u64* notes;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) notes[i] = notes[i] == ~(u64)0 ? notes[i] : notes[i] & 0xffffffffu;
    }
};
