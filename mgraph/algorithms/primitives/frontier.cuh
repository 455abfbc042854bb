// The vertices of a breadth-first search. Each rank has two bitmaps over all vertices of the graph: `found`, the
// vertices that it has reached, and `seen`, those of them that were settled or sent to their owners in earlier
// supersteps. So found & ~seen is new, and each vertex is new once. This rank owns the n vertices from `first` on.
// Bitmaps and lists that ranks exchange are relative to the first vertex of the range that they are about.
#pragma once
#include "kernels/search.cuh"
#include "kernels/bits.cuh"

template <class View>
struct Absorb {  // a tile a chunk of the own range: new vertices get their level and are appended to the next frontier
    static constexpr int lanes = 32;
    View graph;
    i64 first;
    i64 n;
    const u32* found;
    u32* seen;
    u32* fresh;  // out: a bitmap of the own range with the new vertices
    i32* distance;
    i64 level;
    u32* frontier;  // out: the new vertices as a list, in any order
    i64* count;  // out: the number of new vertices, then those of their edges, of tasks (not here), of hubs
    i64* totals;  // in and out: the number of vertices reached at all levels, then that of their edges
    i64* spent;  // the counters of the previous superstep, cleared here for the next one
    i64 counters;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(counters)) spent[c] = 0;
        Tile<lanes> tile;
        i64 words = words_of(n), reached = 0, edges = 0, hubs = 0;
        for (i64 c : grid.items(tile, chunks_of(words))) {
            i64 from = c * chunk_words, to = lesser(from + chunk_words, words), mine = 0;
            for (i64 w = from + tile.rank(); w < to; w += tile.size()) mine += take(w);
            reached += compact(tile, fresh, from, to, mine, count, [&](i64 row, i64 place) {
                distance[row] = (i32)level;
                frontier[place] = (u32)row;
                edges += graph.degree(row);
                hubs += graph.degree(row) > HUB_DEGREE;
            });
        }
        if (hubs) atomic_add(count + 3, hubs);
        edges = tile.sum(edges);
        if (tile.rank() == 0 && reached) {
            atomic_add(count + 1, edges);
            atomic_add(totals, reached);
            atomic_add(totals + 1, edges);
        }
    }
    DEVICE i64 take(i64 w) const {
        i64 at = first + w * word_bits;
        u32 bits = get_word(found, at) & ~get_word(seen, at) & word_mask(n, w);
        fresh[w] = bits;
        if (bits) set_word(seen, at, bits);
        return popcount(bits);
    }
};

struct Pack {  // a tile a chunk of another owner's range: its new vertices as a bitmap, and as a list if shorter
    static constexpr int lanes = 32;
    const i64* starts;  // the first vertex of each owner's range
    const i64* places;  // the first word of each range in bits and list; this rank's own range has no words
    const i64* chunks;  // the first chunk of each range; this rank's own range has no chunks
    i64 owners;
    const u32* found;
    u32* seen;
    u32* bits;
    u32* list;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, chunks[owners])) {
            i64 owner = upper_bound(chunks, 0, owners + 1, c) - 1, first = starts[owner], n = starts[owner + 1] - first;
            i64 words = words_of(n), from = (c - chunks[owner]) * chunk_words, to = lesser(from + chunk_words, words);
            u32* out = list + places[owner];
            u32* fresh = bits + places[owner];
            i64 mine = 0;
            for (i64 w = from + tile.rank(); w < to; w += tile.size()) {
                i64 at = first + w * word_bits;
                u32 now = get_word(found, at) & ~get_word(seen, at) & word_mask(n, w);
                fresh[w] = now;
                if (now) set_word(seen, at, now);
                mine += popcount(now);
            }
            compact(tile, fresh, from, to, mine, counts + owner, [&](i64 vertex, i64 place) {
                if (place < words) out[place] = (u32)vertex;
            });
        }
    }
};

struct MergeList {  // one lane a vertex of a received list; seen may be null
    static constexpr int lanes = 1;
    const u32* list;
    i64 n;
    i64 first;
    u32* found;
    u32* seen;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            set_bit(found, first + list[i]);
            if (seen) set_bit(seen, first + list[i]);
        }
    }
};

struct MergeBits {  // one lane a word of a received bitmap; seen may be null
    static constexpr int lanes = 1;
    const u32* bits;
    i64 n;
    i64 first;
    u32* found;
    u32* seen;
    DEVICE void operator()(Grid grid) const {
        for (i64 w : grid.items(n)) {
            if (bits[w] == 0) continue;
            set_word(found, first + w * word_bits, bits[w]);
            if (seen) set_word(seen, first + w * word_bits, bits[w]);
        }
    }
};

struct CutBits {  // one lane a word: copies the n bits from `first` on to a bitmap that begins at a word
    static constexpr int lanes = 1;
    const u32* bits;
    i64 first;
    i64 n;
    u32* out;
    DEVICE void operator()(Grid grid) const {
        for (i64 w : grid.items(words_of(n))) out[w] = get_word(bits, first + w * word_bits) & word_mask(n, w);
    }
};
