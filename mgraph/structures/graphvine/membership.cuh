// Joins each touched row with its keys of the batch, in one read of the row. position[k] is written at most once,
// because a row holds an edge once; of equal keys the last one's is always written.
#pragma once
#include "kernels/load_balance.cuh"
#include "structures/graphvine/run.cuh"

constexpr i64 hub_extent = 128, stretch_slots = 512;  // rows with more positions are joined in such stretches

// Positions [from, end) of a row, and its keys: `run` of them from `first` on.
struct OVERLAY alignas(16) Stretch {
    u32 first, run, root, all, from, end, unused[2];
};

struct Fresh {  // arrays to zero for later kernels, by rows at their first keys, or by keys; may be null
    u64* moves;
    u32* used;
    u32* listed;
    u8* gone;
};

// A warp takes 32 keys and finds their rows; its lanes join the edges of the rows that begin there, four at a time.
// FindKeysOfHubs joins long rows, and rows with long runs of keys, which get a filter in memory.
struct FindKeys {
    static constexpr int lanes = 1;
    const u64* keys;
    i64 n;
    VineView graph;
    i64 rows;
    i64 vertices;
    i64* unknown;  // number of keys with ids out of range
    i64* long_runs;  // not 0 if any exist
    u32* owner;  // nobody if the row does not exist
    u32* end;
    u64* held;
    u32* position;
    u32* filters;  // zeros, except for long runs, with 32 bits per key
    Fresh fresh;
    u64* stretches;
    i64* n_stretches;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        i64 strange = 0;
        for (i64 t : grid.items(warp, (n + warp.size() - 1) / warp.size())) {
            fetch_ahead(t * warp.size());
            Share share(keys, t * warp.size(), n);
            i64 k = share.k, row = (i64)(share.key >> 32);
            bool known = k < n && row < rows;
            u64 sentinel = known ? graph.sentinels[row] : 0;
            u32 all = LAZY && known ? graph.extents[row] : (u32)(sentinel >> 32);
            share.find_rows(keys);
            bool long_one = share.run() > long_run;
            strange += k < n && !(known && (i64)(u32)share.key < vertices);
            begin(share, known, long_one, all);
            if (!share.leads()) all = 0;
            else if (known) held[k] = sentinel;
            bool left = all > hub_extent || (all && long_one);
            u32 sum = warp.sum(left ? stretches_of(all) : 0), to = 0;
            // in flight while others are joined
            if (sum && warp.rank() == 0) to = (u32)atomic_add(n_stretches, (i64)sum);
            join(share, long_one, (u32)sentinel, left ? 0 : all);
            if (sum) emit(warp, left, {(u32)k, (u32)share.run(), (u32)sentinel, all}, to);
        }
        strange = warp.sum(strange);
        if (strange && warp.rank() == 0) atomic_add(unknown, strange);
    }
    // Marks keys as not found. A warp does so for all keys of the rows that begin in it, also those behind its own
    // (finish_last); for a long run, each warp for its own keys.
    DEVICE void begin(const Share& share, bool known, bool long_one, bool has_edges) const {
        i64 k = share.k;
        if (k >= n) return;
        owner[k] = known ? (u32)share.own : nobody;
        if (fresh.gone) fresh.gone[k] = 0;
        if (share.own >= share.first || long_one) position[k] = nobody;
        if (long_one && has_edges) enter(share);
        if (!share.leads()) return;
        end[k] = (u32)share.end;
        if (fresh.moves) fresh.moves[k] = 0, fresh.used[k] = 0;
        if (fresh.listed) fresh.listed[k] = 0;
    }
    DEVICE void enter(const Share& share) const {
        if (share.leads()) store(long_runs, (i64)1);
        u32 bit = bit_for((u32)share.key, bits_of_run(share.run()));
        atomic_or(filters + share.own + bit / 32, 1u << bit % 32);
    }
    DEVICE void fetch_ahead(i64 k) const {
        if (k + 16 < n) prefetch(graph.sentinels + lesser(keys[k + 16] >> 32, (u64)rows));
        if (k + 8 < n && (i64)(keys[k + 8] >> 32) < rows)
            prefetch(graph.slots + graph.slot_of((u32)graph.sentinels[keys[k + 8] >> 32]));
    }
    DEVICE static u32 stretches_of(u32 all) { return (u32)(((i64)all + stretch_slots - 1) / stretch_slots); }
    DEVICE void emit(Tile<32> warp, bool left, Stretch its, u32 to) const {
        to = warp.shfl(to, 0);
        for (u32 rest = warp.ballot(left); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            Stretch s = {warp.shfl(its.first, lane), warp.shfl(its.run, lane), warp.shfl(its.root, lane),
                         warp.shfl(its.all, lane)};
            for (u32 i = (u32)warp.rank(); i < stretches_of(s.all); i += (u32)warp.size()) {
                s.from = i * (u32)stretch_slots, s.end = (u32)lesser((i64)(i + 1) * stretch_slots, (i64)s.all);
                ((Stretch*)stretches)[to + i] = s;
            }
            to += stretches_of(s.all);
        }
    }
    // Joins the edges of the rows that begin here; a lane that begins a row has its root and its number of positions to
    // join.
    DEVICE void join(const Share& share, bool long_one, u32 root, u32 all) const {
        Tile<32> warp;
        const u32 first = (u32)share.first;
        finish_last(share, long_one, [&](i32 i, i32) { position[i] = nobody; });
        LoadBalance dealt((all + 3) / 4);
        if (dealt.total == 0) return;
        Filter filter;
        if (share.k < n && share.own >= share.first) filter.add((u32)share.key, (u32)share.own);
        finish_last(share, long_one, [&](i32 i, i32 own) { filter.add((u32)keys[i], (u32)own); });
        warp.sync();
        for (u32 base = 0; base < dealt.total;) {
            if (dealt.total - base > 2 * (u32)warp.size()) base += deal<4>(filter, dealt, base, first, root, all);
            else base += deal<2>(filter, dealt, base, first, root, all);
        }
    }
    // Joins N fours per lane, all in flight; returns their number.
    template <int N> DEVICE u32 deal(const Filter& filter, const LoadBalance& dealt, u32 base, u32 first, u32 root,
                                     u32 all) const {
        Tile<32> warp;
        u32 row[N], at[N], ends[N];
        const u32* from[N];
        Four found[N];
        for (int j = 0; j < N; ++j) {
            u32 four = base + (u32)(j * warp.size() + warp.rank()), some = lesser(four, dealt.total - 1);
            int lane = dealt.bearer(some);
            u32 its = warp.shfl(all, lane);
            row[j] = first + (u32)lane, at[j] = 4 * dealt.number(some, lane), ends[j] = four == some ? its : 0;
            from[j] = Row(graph, warp.shfl(root, lane), its).at(at[j]);
        }
        read_fours(graph, from, at, ends, found);
        u32 hits = 0;  // candidate edges: lanes process them one after another, converged
        for (int j = 0; j < N; ++j) {
            bool any = false;
            for (int i = 0; i < 4; ++i) any |= filter.has(found[j].id[i], row[j]);
            hits |= (u32)any << j;
        }
        for (; hits; hits &= hits - 1) {
            int j = lowest_bit(hits);
            u32 a = pick(row, j);
            Sought run = {keys, position, a, end[a] - a};
            run.meet(found, j, pick(at, j), pick(ends, j), [&](u32 there) { return filter.has(there, a); });
        }
        return N * (u32)warp.size();
    }
    // Calls finish(key, its row's first key) for the keys behind the tile's own whose row begins in the tile.
    template <class F> DEVICE void finish_last(const Share& share, bool long_one, F finish) const {
        int lane = share.tile.size() - 1;
        i32 own = share.tile.shfl(share.own, lane), upto = share.tile.shfl(share.end, lane);
        if (own < share.first || share.tile.shfl((u32)long_one, lane)) return;
        for (i32 i = share.k + share.tile.size(); i < upto; i += share.tile.size()) finish(i, own);
    }
};

struct FindKeysOfHubs {  // one tile per stretch of a long row: joins its edges by fours, all in flight
    static constexpr int lanes = 32;
    static constexpr u32 few = 4;
    const u64* keys;
    VineView graph;
    u32* position;
    const u32* filters;
    const u64* stretches;
    const i64* n_stretches;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(Tile<lanes>{}, *n_stretches)) {
            Stretch s = ((const Stretch*)stretches)[i];
            u32 edges = s.end - s.from;
            if (edges > stretch_slots / 2) join<stretch_slots / 4 / lanes>(s);
            else if (edges > stretch_slots / 4) join<stretch_slots / 8 / lanes>(s);
            else join<stretch_slots / 16 / lanes>(s);
        }
    }
    template <int N> DEVICE void join(const Stretch& s) const {
        Tile<lanes> tile;
        Four found[N];
        read(s, s.from, found);
        if (s.run <= few) {
            u32 ids[few];
            for (u32 j = 0; j < few; ++j) ids[j] = (u32)keys[s.first + lesser(j, s.run - 1)];
            meet(s, found, [&](u32 id) { return id == ids[0] || id == ids[1] || id == ids[2] || id == ids[3]; });
        } else if (s.run > long_run) {
            const u32 bits = bits_of_run(s.run), *its = filters + s.first;
            meet(s, found, [&](u32 id) { return its[bit_for(id, bits) / 32] >> bit_for(id, bits) % 32 & 1; });
        } else {
            Filter own;
            for (u32 k = (u32)tile.rank(); k < s.run; k += (u32)tile.size()) own.add((u32)keys[s.first + k], 0);
            tile.sync();
            meet(s, found, [&](u32 id) { return own.has(id, 0); });
        }
    }
    DEVICE static u32 at(u32 base, int j) { return base + 4 * (u32)(j * Tile<lanes>::size() + Tile<lanes>{}.rank()); }
    template <int N> DEVICE void read(const Stretch& s, u32 base, Four (&found)[N]) const {
        Row row(graph, s.root, s.all);
        const u32* from[N];
        u32 ats[N], ends[N];
        for (int j = 0; j < N; ++j) {
            ats[j] = lesser(at(base, j), (s.end - 1) & ~3u), ends[j] = s.end;
            from[j] = row.at(ats[j]);
        }
        read_fours(graph, from, ats, ends, found);
    }
    template <int N, class F> DEVICE void meet(const Stretch& s, Four (&found)[N], F may_meet) const {
        Sought run = {keys, position, s.first, s.run};
        for (u32 base = s.from;;) {
            u32 hits = 0;
            for (int j = 0; j < N; ++j) {
                bool any = false;
                for (int i = 0; i < 4; ++i) any |= may_meet(found[j].id[i]);
                hits |= (u32)any << j;
            }
            for (; hits; hits &= hits - 1)
                run.meet(found, lowest_bit(hits), at(base, lowest_bit(hits)), s.end, may_meet);
            base += 4 * N * (u32)Tile<lanes>::size();  // on a GPU the first round covers all
            if (base >= s.end) return;
            read(s, base, found);
        }
    }
};

// --- queries ---

constexpr i64 short_extent = 128;

struct FindShort {  // one lane per query, tiles converged; queries of longer rows are listed in `rest`
    static constexpr int lanes = 1;
    VineView graph;
    const u32* src;
    const u32* dst;
    i64 n;
    u8* found;
    u32* rest;
    i64* n_rest;
    DEVICE void operator()(Grid grid) const {
        Tile<32> tile;
        for (i64 c : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 i = c * tile.size() + tile.rank();
            bool waits = i < n && graph.extent(src[i]) > short_extent;
            if (i < n && !waits) found[i] = graph.find(src[i], dst[i]) >= 0;
            u32 all = tile.ballot(waits);
            i64 to = all && tile.rank() == 0 ? atomic_add(n_rest, (i64)popcount(all)) : 0;
            to = tile.shfl(to, 0) + popcount(all & ((1u << tile.rank()) - 1));
            if (waits) rest[to] = (u32)i;
        }
    }
};

struct Answer {  // one lane per sorted query: equal queries share the position of the last
    static constexpr int lanes = 1;
    const u64* keys;
    const u32* position;
    i64 n;
    u8* found;
    DEVICE void operator()(Grid grid) const {
        for (i64 k : grid.items(n)) {
            i64 last = k;
            if (k + 1 < n && keys[k + 1] == keys[k]) last = lower_bound_near(keys, n, k, keys[k] + 1) - 1;
            found[k] = position[last] != nobody;
        }
    }
};
