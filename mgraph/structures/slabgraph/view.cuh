// View of SlabGraph: a row is a hash table of buckets, each a chain of slabs; a unit is a few buckets. A slab is SLAB
// words: the next slab of its chain, a word for commits, and the slots. The first slabs of a row's buckets are
// contiguous. All ones mean no slab and no edge.
#pragma once

constexpr u32 no_slab = ~0u, no_edge = ~0u;
constexpr int header = 2, slots_of_slab = SLAB - header, quads_of_slab = SLAB / 4;
constexpr u32 unit_buckets = 128 / SLAB;  // their first slabs are four loads of a warp

DEVICE u32 mix(u32 x) {  // a bijection that spreads neighbouring ids
    x ^= x >> 16, x *= 0x7feb352du;
    x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}

struct OVERLAY Table {  // a row's first bucket, and its number of buckets
    u32 first, buckets;
    DEVICE u32 slab(u32 id) const { return first + (u32)((u64)mix(id) * buckets >> 32); }
};
struct OVERLAY Row {  // mostly read as a whole: usually in one sector of memory
    Table table;
    u32 degree;
};
DEVICE const Row& row_of(const u32* rows, i64 v) { return ((const Row*)rows)[v]; }
DEVICE Row& row_of(u32* rows, i64 v) { return ((Row*)rows)[v]; }

struct OVERLAY alignas(16) Quad {
    u32 a, b, c, d;
    DEVICE int find(u32 id, bool head) const {  // 0 to 3, or -1; the first quad of a slab begins with the header
        int at = c == id ? 2 : d == id ? 3 : -1;
        return head ? at : a == id ? 0 : b == id ? 1 : at;
    }
    DEVICE u32 empty(bool head) const {  // as bits
        u32 bits = (u32)(c == no_edge) << 2 | (u32)(d == no_edge) << 3;
        return head ? bits : bits | (u32)(a == no_edge) | (u32)(b == no_edge) << 1;
    }
};
DEVICE Quad clear_quad() { return {no_edge, no_edge, no_edge, no_edge}; }
DEVICE const Quad* quads(const u32* slabs, u32 slab) { return (const Quad*)(slabs + (i64)slab * SLAB); }

struct SlabView {
    const u32* rows;
    const u32* slabs;
    const f32* weights;
    static constexpr bool sorted = false;

    DEVICE u32 degree(i64 v) const { return row_of(rows, v).degree; }
    DEVICE i64 units(i64 v) const { return (row_of(rows, v).table.buckets + unit_buckets - 1) / unit_buckets; }
    DEVICE f32 weight(i64 slot) const { return weights ? weights[slot] : 1.0f; }
    template <class T, class F> DEVICE void visit(T tile, i64 v, i64 unit, F f) const {
        Row row = row_of(rows, v);
        u32 from = (u32)unit * unit_buckets;
        buckets(tile, row, from, lesser(from + unit_buckets, row.table.buckets), f);
    }
    template <class T, class F> DEVICE void buckets(T tile, const Row& row, u32 from, u32 to, F f) const {
        if constexpr (T::size() == 1) walk(row, from, to, f);
        else sweep(tile, row.table.first + from, row.table.first + to, f);
    }
    // Visits by one lane: slab by slab, and no further than the last edge of a row in one slab.
    template <class F> DEVICE void walk(const Row& row, u32 from, u32 to, F f) const {
        for (u32 bucket = from; bucket < to; ++bucket)
            for (u32 slab = row.table.first + bucket; slab != no_slab;) {
                const u32* words = slabs + (i64)slab * SLAB;
                u32 next = words[0], left = row.degree <= slots_of_slab && next == no_slab ? row.degree : slots_of_slab;
                for (int at = header; at < SLAB && left > 0; ++at) {
                    u32 id = load_once(words + at);
                    bool live = id != no_edge;
                    if (f(live ? id : 0u, (i64)slab * SLAB + at, live)) return;
                    left -= live;
                }
                slab = next;
            }
    }
    // Visits by a tile, in groups of at most as many lanes as a slab has words: each follows its own chains, with a few
    // loads in flight per lane. Buckets are contiguous, so the groups' first slabs are read as one piece of memory.
    template <class T, class F> DEVICE void sweep(T tile, u32 first, u32 end, F f) const {
        constexpr int group = T::size() < SLAB ? T::size() : SLAB, groups = T::size() / group, loads = SLAB / group;
        constexpr int ahead = loads < 4 ? 4 / loads : 1;  // slabs in flight per group
        int lane = tile.rank() % group;
        for (u32 base = first; base < end; base += ahead * groups) {
            u32 slab[ahead], words[ahead][loads];
            for (int j = 0; j < ahead; ++j) {
                slab[j] = base + j * groups + tile.rank() / group;
                slab[j] = slab[j] < end ? slab[j] : no_slab;
            }
            for (bool more = true; more;) {
                more = false;
                for (int j = 0; j < ahead; ++j)
                    for (int k = 0; k < loads; ++k)
                        words[j][k] =
                            slab[j] == no_slab ? no_edge : load_once(slabs + (i64)slab[j] * SLAB + k * group + lane);
                for (int j = 0; j < ahead; ++j) {
                    if (!tile.any(slab[j] != no_slab)) continue;
                    for (int k = 0; k < loads; ++k) {
                        int at = k * group + lane;
                        bool live = at >= header && words[j][k] != no_edge;
                        if (f(live ? words[j][k] : 0u, (i64)slab[j] * SLAB + at, live)) return;
                    }
                    slab[j] = tile.shfl(words[j][0], tile.rank() - lane);  // the next one, from its first word
                    more |= slab[j] != no_slab;
                }
                more = tile.any(more);
            }
        }
    }
    DEVICE void prefetch_row(i64 v, u32 id) const {
        Table own = row_of(rows, v).table;
        if (own.buckets == 0) return;
        const u32* words = slabs + (i64)own.slab(id) * SLAB;
        for (int s = 0; s < SLAB; s += 16) prefetch(words + s);
    }
    DEVICE int find_in(u32 slab, u32 id, u32& next) const {  // its word in one slab, or -1: all loads first
        const Quad* quad = quads(slabs, slab);
        int at = -1;
#pragma unroll
        for (int q = 0; q < quads_of_slab; ++q) {
            Quad held = quad[q];
            int found = held.find(id, q == 0);
            at = found < 0 ? at : 4 * q + found;
            if (q == 0) next = held.a;
        }
        return at;
    }
    DEVICE u32 empty_in(u32 slab) const {  // its free words, as bits
        u32 bits = 0;
        for (int q = 0; q < quads_of_slab; ++q) bits |= quads(slabs, slab)[q].empty(q == 0) << 4 * q;
        return bits;
    }
    DEVICE i64 find(i64 v, u32 id) const {
        Table own = row_of(rows, v).table;
        if (own.buckets == 0) return -1;
        for (u32 slab = own.slab(id), next; slab != no_slab; slab = next) {
            int at = find_in(slab, id, next);
            if (at >= 0) return (i64)slab * SLAB + at;
        }
        return -1;
    }
};
