// Stream of updates and queries: the kinds of operations, which `mgraph.operations` reads, and the updates.
#pragma once

enum Kind : i8 { op_insert, op_delete, ask_edge, ask_weight, ask_degree, ask_neighbors, ask_predecessors, no_op };
constexpr int n_kinds = 8;

struct Updates {  // in the order of (row, dst, place)
    u64* keys;
    i8* op;  // 1 insert, -1 delete
    f32* weight;
    u32* place;
    u32* asked;  // number of row queries before each update, in this order
    i64 n;
};
