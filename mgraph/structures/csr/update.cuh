// Updates a CSR, rows one after another in one array, in one pass over old slots and keys, cut into equal pieces by
// merge path: key k precedes item at(k), so all items between two keys move equally far. shift[k] is the number of
// slots that the first k keys add (inserts minus deletes). Writes are disjoint.
#pragma once
#include "structures/first_batch.cuh"

struct CsrLocate {  // one lane per key: finds its place and outcome, its shift, and the four counts
    static constexpr int lanes = 1;
    const i64* offsets;
    const u32* dst;
    const u64* keys;
    const i8* op;
    i64 n;
    i64* place;
    u8* outcome;
    i64* shift;
    i64* counts;  // inserted, updated, deleted, missing
    DEVICE void operator()(Grid grid) const {
        i64 found[5] = {};
        for (i64 k : grid.items(n)) {
            u8 is = look_up(k);
            outcome[k] = is;
            shift[k + 1] = (is == inserted) - (is == deleted);
            ++found[is];
        }
        Tile<32> tile;
        for (int c = 0; c < 4; ++c) {
            i64 sum = tile.sum(found[c + 1]);
            if (tile.rank() == 0 && sum) atomic_add(counts + c, sum);
        }
    }
    DEVICE u8 look_up(i64 k) const {
        i64 row = (i64)(keys[k] >> 32), last = offsets[row + 1];
        u32 id = (u32)keys[k];
        i64 at = lower_bound(dst, offsets[row], last, id);
        place[k] = at;
        if (k + 1 < n && keys[k + 1] == keys[k]) return overridden;  // of equal keys the last acts
        bool there = at < last && dst[at] == id;
        return !op || op[k] > 0 ? (there ? updated : inserted) : (there ? deleted : missing);
    }
};

// Returns how many keys precede merged position `d` of items and keys: the first k with at(k) + k >= d.
template <class At> DEVICE i64 keys_before(i64 d, i64 n, At at) {
    i64 low = 0, high = lesser(n, d);
    while (low < high) {
        i64 k = low + ((high - low) >> 1);
        if (at(k) + k < d) low = k + 1;
        else high = k;
    }
    return low;
}

// Visits piece `c` of `items` items and `n` keys: step(k, first, last) for the items with the same k keys before them.
template <class At, class Step> DEVICE void stretches(i64 c, i64 piece, i64 items, i64 n, At at, Step step) {
    i64 from = c * piece, to = lesser(from + piece, items + n);
    i64 k = keys_before(from, n, at), end = keys_before(to, n, at), first = from - k, last = to - end;
    for (; k < end; ++k) {
        i64 next = at(k);
        if (first < next) step(k, first, next);
        first = next;
    }
    if (first < last) step(k, first, last);
}

// Copies by a whole tile; four loads before four stores, so a lane has several loads in flight.
template <class Tile, class T> DEVICE void copy(Tile tile, T* to, const T* from, i64 n) {
    i64 i = tile.rank(), w = tile.size();
    for (; i + 3 * w < n; i += 4 * w) {
        T a = load_once(from + i), b = load_once(from + i + w), c = load_once(from + i + 2 * w),
          d = load_once(from + i + 3 * w);
        to[i] = a, to[i + w] = b, to[i + 2 * w] = c, to[i + 3 * w] = d;
    }
    for (; i < n; i += w) to[i] = load_once(from + i);
}

struct CsrMove {  // one tile per piece: moves surviving edges to their new places
    static constexpr int lanes = 32;
    const i64* place;
    const i64* shift;
    i64 n;
    i64 edges;
    i64 piece;
    const u32* dst;
    const f32* weights;
    u32* dst_out;
    f32* weights_out;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, (edges + n + piece - 1) / piece))
            stretches(
                c, piece, edges, n, [&](i64 k) { return place[k]; },
                [&](i64 k, i64 first, i64 last) {
                    bool gone = k && place[k - 1] == first && shift[k] < shift[k - 1];
                    i64 q = first + gone, to = q + shift[k];
                    copy(tile, dst_out + to, dst + q, last - q);
                    if (weights) copy(tile, weights_out + to, weights + q, last - q);
                });
    }
};

struct CsrOffsets {  // one tile per piece: moves offset r by the shifts of the keys of rows before r
    static constexpr int lanes = 32;
    const u64* keys;
    const i64* shift;
    i64 n;
    i64 entries;
    i64 piece;
    const i64* offsets;
    i64* offsets_out;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        auto row_end = [&](i64 k) { return (i64)(keys[k] >> 32) + 1; };
        for (i64 c : grid.items(tile, (entries + n + piece - 1) / piece))
            stretches(c, piece, entries, n, row_end, [&](i64 k, i64 first, i64 last) {
                i64 by = shift[k];
                for (i64 r = first + tile.rank(); r < last; r += tile.size())
                    offsets_out[r] = load_once(offsets + r) + by;
            });
    }
};

struct CsrPlace {  // one lane per key: writes inserts to their new places
    static constexpr int lanes = 1;
    const u64* keys;
    const u8* outcome;
    const f32* weight;
    const i64* place;
    const i64* shift;
    i64 n;
    u32* dst_out;
    f32* weights_out;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(n)) {
            if (outcome[k] != inserted && outcome[k] != updated) continue;
            i64 to = place[k] + shift[k];
            dst_out[to] = (u32)keys[k];
            if (weights_out) weights_out[to] = weight ? weight[k] : 1.0f;
        }
    }
};

struct CsrFill {  // one lane per key of the first batch: writes the keys that act, at their numbers
    static constexpr int lanes = 1;
    FirstBatch numbers;
    const u64* keys;
    const f32* weight;
    u32* dst_out;
    f32* weights_out;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(numbers.n)) {
            if (!numbers.act(k)) continue;
            i64 to = numbers.of(k);
            dst_out[to] = (u32)keys[k];
            if (weights_out) weights_out[to] = weight ? weight[k] : 1.0f;
        }
    }
};

struct CsrFillOffsets {  // one tile per `piece` offsets
    static constexpr int lanes = 32;
    FirstBatch numbers;
    const u64* keys;
    i64 entries;
    i64 piece;
    i64* offsets_out;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, (entries + piece - 1) / piece))
            numbers.rows(tile, keys, c * piece, lesser((c + 1) * piece, entries),
                         [&](i64 r, i64 before) { offsets_out[r] = before; });
    }
};
