// Combines the weights of repeated edges: the last insertion of an edge gets the sum, minimum or maximum of the weights
// in the stream, back to the last deletion of the edge, or else to its present weight.
#pragma once

template <class View>
struct Combine {  // one lane per operation
    static constexpr int lanes = 1;
    View graph;
    const u64* keys;
    const i8* op;
    f32* weight;
    i64* stuck;  // set to 1 where a sum was to grow by a weight and did not, or left the range of finite numbers
    i64 n;
    i64 how;  // 1: sum, 2: min, 3: max
    i64 lo;  // in an undirected graph the vertex of row 0, since a self-loop's two arcs are one edge; else -1
    DEVICE void operator()(Grid grid) const {
        for (i64 last : grid.items(n)) {
            u64 key = keys[last];
            if (last + 1 < n && keys[last + 1] == key) continue;  // overridden
            i64 first = last;
            while (first >= 0 && keys[first] == key && !deletes(first)) --first;
            if (first == last) continue;  // a deletion
            bool fresh = first >= 0 && keys[first] == key;
            i64 slot = fresh ? -1 : graph.find((i64)(key >> 32), (u32)key);
            i64 step = lo >= 0 && (key >> 32) + (u64)lo == (u32)key ? 2 : 1;
            f32 total = slot >= 0 ? graph.weight(slot) : weight[first + 1];
            for (i64 i = first + 1 + (slot >= 0 ? 0 : step); i <= last; i += step) {
                f32 before = total;
                total = combine(before, weight[i]);
                bool finite = how == 1 && before - before == 0 && weight[i] - weight[i] == 0;
                if (finite && (total == before ? weight[i] != 0 : total - total != 0)) store(stuck, (i64)1);
            }
            weight[last] = total;
        }
    }
    DEVICE bool deletes(i64 i) const { return op && op[i] < 0; }
    DEVICE f32 combine(f32 a, f32 b) const { return how == 1 ? a + b : how == 2 ? lesser(a, b) : greater(a, b); }
};
