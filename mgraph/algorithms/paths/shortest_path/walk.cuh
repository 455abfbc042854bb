// Walks back along predecessors from the own vertex `at`. found: the first vertex of another range, or -1, and the
// number of own vertices on the path.
#pragma once

struct WalkBack {  // one lane
    static constexpr int lanes = 1;
    const i64* predecessors;
    i64 first;
    i64 n;
    i64 at;
    u32* path;
    i64* found;
    DEVICE void operator()(Grid grid) const {
        for (i64 one : grid.items(1)) {
            i64 v = at, length = one;
            for (; v >= first && v < first + n && length < n; v = predecessors[v - first]) path[length++] = (u32)v;
            found[0] = v, found[1] = length;
        }
    }
};
