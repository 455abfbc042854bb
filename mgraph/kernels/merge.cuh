// Merges two sorted runs stably, by merge path (Odeh, Green, Mwassi, Shmueli, Birk, IPDPSW 2012): a tile finds where its
// piece of the output cuts both runs, its lanes cut the piece again, and each lane merges its part alone. Writes are
// disjoint.
#pragma once

struct Side {  // a sorted run; op, weight and place may be null, on both sides alike
    const u64* keys;
    const i8* op;
    const f32* weight;
    const u32* place;
    i64 n;
};

// Returns how many of a[0, na) precede merged position `d` of a and b; of equal keys those of `a` come first.
DEVICE i64 taken(const u64* a, i64 na, const u64* b, i64 nb, i64 d) {
    i64 low = greater((i64)0, d - nb), high = lesser(d, na);
    while (low < high) {
        i64 i = low + ((high - low) >> 1);
        if (a[i] <= b[d - 1 - i]) low = i + 1;
        else high = i;
    }
    return low;
}

struct Merge {  // one tile per piece
    static constexpr int lanes = 32;
    Side first;
    Side second;
    i64 piece;
    u64 base;  // subtracted from every key
    u64* keys;
    i8* op;
    f32* weight;
    u32* place;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 total = first.n + second.n;
        for (i64 p : grid.items(tile, (total + piece - 1) / piece)) {
            i64 from = p * piece, to = lesser(from + piece, total);
            i64 a = taken(first.keys, first.n, second.keys, second.n, from), b = from - a;
            i64 a_end = taken(first.keys, first.n, second.keys, second.n, to), b_end = to - a_end;
            i64 share = (to - from + tile.size() - 1) / tile.size();
            i64 skip = lesser(tile.rank() * share, to - from), stop = lesser(skip + share, to - from);
            i64 i = taken(first.keys + a, a_end - a, second.keys + b, b_end - b, skip);
            merge(from + skip, from + stop, a + i, a_end, b + skip - i, b_end);
        }
    }
    DEVICE void merge(i64 k, i64 stop, i64 i, i64 i_end, i64 j, i64 j_end) const {
        while (k < stop && i < i_end && j < j_end) {
            u64 x = first.keys[i], y = second.keys[j];
            bool later = y < x;
            keys[k] = (later ? y : x) - base;
            if (op) op[k] = later ? second.op[j] : first.op[i];
            if (weight) weight[k] = later ? second.weight[j] : first.weight[i];
            if (place) place[k] = later ? second.place[j] : first.place[i];
            ++k, i += !later, j += later;
        }
        for (; k < stop && i < i_end; ++k, ++i) put(k, first, i);
        for (; k < stop; ++k, ++j) put(k, second, j);
    }
    DEVICE void put(i64 k, const Side& from, i64 i) const {
        keys[k] = from.keys[i] - base;
        if (op) op[k] = from.op[i];
        if (weight) weight[k] = from.weight[i];
        if (place) place[k] = from.place[i];
    }
};
