// GraphVine's queues of free pieces. Batches pop and push by ranks from prefix sums, without atomics.
#pragma once

struct Queues {  // by class: `waiting` pieces in a ring from `head` on, then pieces cut from `fresh` on
    u32* rings;
    i64 length;
    i64 head0;
    i64 head1;
    i64 head2;
    i64 waiting0;
    i64 waiting1;
    i64 waiting2;
    i64 fresh0;
    i64 fresh1;
    i64 fresh2;
    i64 fresh_directories;
    DEVICE static i64 pick(int c, i64 a, i64 b, i64 d) { return c == 0 ? a : c == 1 ? b : d; }
    DEVICE i64 waiting(int c) const { return pick(c, waiting0, waiting1, waiting2); }
    DEVICE u32* entry(int c, i64 i) const {
        i64 at = pick(c, head0, head1, head2) + i;
        return rings + c * length + (at < length ? at : at - length);
    }
    DEVICE u32 pop(int c, i64 rank) const {
        i64 fresh = rank - waiting(c);
        return fresh < 0 ? *entry(c, rank) : (u32)(pick(c, fresh0, fresh1, fresh2) + (fresh << c));
    }
    DEVICE void push(int c, i64 rank, u32 quantum) const { *entry(c, waiting(c) + rank) = quantum; }
};
