// Notes of predecessors: the minimum of level << 32 | predecessor per vertex, or all ones for none.
#pragma once

struct MergePredecessors {  // merges another rank's notes by minimum, one lane per own vertex
    static constexpr int lanes = 1;
    const u64* part;
    i64 n;
    u64* notes;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) notes[i] = lesser(notes[i], part[i]);
    }
};

struct Predecessors {  // replaces a note by the predecessor, or -1, one lane per own vertex
    static constexpr int lanes = 1;
    u64* notes;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) notes[i] = notes[i] == ~(u64)0 ? notes[i] : notes[i] & 0xffffffffu;
    }
};
