// Sweeps that take time with the active vertices: these are listed, and so are the vertices that have moved. The sum of
// the products of strengths, of which the quality consists, follows the labels that changed, exactly.
#pragma once
#include "algorithms/communities/multilevel/local_moving.cuh"
#include "algorithms/communities/multilevel/votes.cuh"
#include "algorithms/primitives/edge_delta.cuh"

// Words that kernels add to, and the host reads and clears.
enum Total : i64 {
    inside_more,
    all_more,
    refused,
    low_word,
    middle_word,
    high_word,
    n_noted,
    n_apart,
    fates,
    n_totals
};
// `refused` is the sum of the present weights of changed arcs, in units of 2**32. From `too_large` on, sums may wrap, and
// look as if they were exact. A weight that is negative, not finite, or too large by itself counts as that much.
constexpr i64 too_large = 1 << 30;

DEVICE u32 moved_of(u64 pair) { return (u32)(pair >> 32); }  // a pair is a moved vertex << 32 | its label before

// A sum of products of numbers less than 2**62, in three words: units of 1, 2**32 and 2**64.
struct ProductWords {
    static constexpr u64 word = 0xffffffffu;
    i64 low = 0, middle = 0, high = 0;
    DEVICE void add(i64 a, i64 b, i64 sign) {
        u64 ah = (u64)a >> 32, al = (u64)a & word, bh = (u64)b >> 32, bl = (u64)b & word;
        u64 across = ah * bl + al * bh, below = al * bl;
        low += sign * (i64)(below & word);
        middle += sign * (i64)((below >> 32) + (across & word));
        high += sign * (i64)(ah * bh + (across >> 32));
    }
    DEVICE void add_to(i64* totals) const {
        if (low) atomic_add(totals + low_word, low);
        if (middle) atomic_add(totals + middle_word, middle);
        if (high) atomic_add(totals + high_word, high);
    }
};

// The sums of strengths of each label, and those that are in the sum of products.
struct Products {
    const i64* sums;
    const i64* sums_in;  // null if they are the same
    i64* counted;
    i64* counted_in;
    i64* totals;
    // Counts a label as it is now. The first lane that comes to it leaves -1, so that others see that it is done; `close`
    // follows in another launch.
    DEVICE void settle(u32 label) const {
        i64 was = load(counted + label), now = sums[label], now_in = sums_in ? sums_in[label] : now;
        if (was == -1 || (was == now && (!sums_in || load(counted_in + label) == now_in))) return;
        if (atomic_cas((u64*)counted + label, (u64)was, ~0ull) != (u64)was) return;
        ProductWords more;
        more.add(now, now_in, 1), more.add(was, sums_in ? load(counted_in + label) : was, -1);
        more.add_to(totals);
    }
    DEVICE void close(u32 label) const {
        store(counted + label, sums[label]);
        if (sums_in) store(counted_in + label, sums_in[label]);
    }
};

struct CountProducts {  // counts all labels, of which none is counted yet; a chunk of labels per tile
    static constexpr int lanes = 32;
    static constexpr i64 chunk = 1024;
    Products products;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, (n + chunk - 1) / chunk)) {
            ProductWords mine;
            for (i64 i = c * chunk + tile.rank(); i < lesser(c * chunk + chunk, n); i += tile.size()) {
                i64 sum = products.sums[i];
                mine.add(sum, products.sums_in ? products.sums_in[i] : sum, 1);
                products.close((u32)i);
            }
            mine.low = tile.sum(mine.low), mine.middle = tile.sum(mine.middle), mine.high = tile.sum(mine.high);
            if (tile.rank() == 0) mine.add_to(products.totals);
        }
    }
};

struct SettleLabels {  // counts the labels of changed arcs as they are now, one lane per end
    static constexpr int lanes = 1;
    EdgeDelta changes;
    const u32* labels;
    i64 closing;  // 1 in the second launch
    Products products;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(2 * changes.n)) {
            u32 label = labels[i & 1 ? changes.dst(i >> 1) : changes.src(i >> 1)];
            if (closing) products.close(label);
            else products.settle(label);
        }
    }
};

// The vertices that have moved since communities were last divided, each once. Some may have moved back.
struct Noted {
    u32* list;
    u8* is;  // per vertex of the graph: 1 if it is listed
    i64 n;  // of `list`, before this launch
    i64* totals;
    DEVICE void note(u32 v) const {
        if (is[v]) return;
        is[v] = 1;
        list[n + take_place(totals + n_noted)] = v;
    }
};

struct SettleMoves {  // notes moved vertices, and counts their labels as they are now; one lane per moved vertex
    static constexpr int lanes = 1;
    const u64* pairs;  // of different vertices
    i64 n;
    const u32* labels;
    i64 closing;  // 1 in the second launch
    Products products;
    Noted noted;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 v = moved_of(pairs[i]), was = (u32)pairs[i], now = labels[v];
            if (was == now) continue;
            if (closing) {
                products.close(was), products.close(now);
            } else {
                products.settle(was), products.settle(now);
                noted.note(v);
            }
        }
    }
};

struct MoveBack {  // undoes a sweep, one lane per moved vertex
    static constexpr int lanes = 1;
    u64* pairs;  // out: with the labels that the sweep gave them
    i64 n;
    Labels moving;
    u32* turned;  // labels before a turn
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 v = moved_of(pairs[i]), was = (u32)pairs[i];
            pairs[i] = (u64)v << 32 | moving.of[v];
            moving.move(v, was);
            turned[v] = was;
        }
    }
};

struct ListMarked {  // lists own rows with marks, and removes all marks; a lane per 8 marks
    static constexpr int lanes = 1;
    u64* marks;  // a byte per vertex of the graph
    i64 n;  // words of marks
    i64 first;  // the own rows
    i64 rows;
    u32* list;
    i64* count;
    DEVICE void operator()(Grid grid) const {
        for (i64 word : grid.items(n)) {
            u64 marked = marks[word];
            if (!marked) continue;
            marks[word] = 0;
            for (i64 row = 8 * word - first; marked; marked >>= 8, ++row)
                if (marked & 255 && row >= 0 && row < rows) store(list + take_place(count), (u32)row);
        }
    }
};

template <class View>
struct CountDegrees {  // adds up the edges of listed rows, and writes those of each; one lane per row
    static constexpr int lanes = 1;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    const u32* rows;
    i64 n;
    i64* degrees;  // null for the sum alone
    i64* sum;
    DEVICE void operator()(Grid grid) const {
        i64 all = 0;
        for (i64 i : grid.items(n)) {
            i64 degree = graph.degree(rows[i]) + (both ? back.degree(rows[i]) : 0);
            if (degrees) degrees[i] = degree;
            all += degree;
        }
        if (all) atomic_add(sum, all);
    }
};

struct ListMoves {  // lists those of the active rows that have moved, one lane per row
    static constexpr int lanes = 1;
    const u32* rows;
    const u32* was;  // the label of each before
    i64 n;
    i64 first;
    const u32* labels;
    u64* pairs;
    i64* count;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u64 v = (u64)(first + rows[i]);
            if (labels[v] != was[i]) pairs[take_place(count)] = v << 32 | was[i];
        }
    }
};

struct Catch {  // brings copies of the labels up to date where vertices have moved, one lane per noted vertex
    static constexpr int lanes = 1;
    const u32* list;
    i64 n;
    const u32* labels;
    u32* before;
    u32* turned;
    u8* noted;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 v = list[i];
            before[v] = turned[v] = labels[v], noted[v] = 0;
        }
    }
};

struct NameVertices {  // writes a result: each own vertex's label, and the name of its community; one lane per vertex
    static constexpr int lanes = 1;
    const u32* labels;  // of own vertices
    const i64* names;  // per label
    i64 n;
    i64* label_of;  // out; or null
    i64* name_of;  // out
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            u32 label = labels[i];
            if (label_of) label_of[i] = label;
            name_of[i] = names[label];
        }
    }
};
