// Membership: each touched row is read once, and its edges are sought among its run of the batch.
// position[k] gets one write at most, because a row holds an edge once; of equal keys the last one's is always written.
#pragma once
#include "deal.cuh"
#include "graphvine_view.cuh"
#include "search.cuh"

constexpr i64 hub_extent = 512, stretch_slots = 1024;  // rows of more positions are joined in such stretches
constexpr i64 long_run = 512;                          // keys of a row: more have a filter in memory
DEVICE u32 bits_of_run(i64 n) { return (u32)lesser(32 * n, (i64)0xffffffff); }
DEVICE u32 bit_for(u32 id, u32 bits, u32 row = 0) { return (u32)((u64)(id * 0x9E3779B1u + row * 0x85EBCA6Bu) * bits >> 32); }

// A tile's keys, one a lane, and the rows that they are of. A row may begin before them and end behind.
struct Share {
    Tile<32> tile;
    i32 first, k, n;  // the tile's first key, the lane's, how many there are: less than 2^31
    u64 key = 0;
    i32 own = 0, end = 0;  // the keys of the lane's row; none past n
    DEVICE Share(const u64* keys, i64 its_first, i64 all) : first((i32)its_first), k(first + tile.rank()), n((i32)all) {
        const i32 size = tile.size(), back = k - size;
        const bool on = k < n - size;
        if (k < n) key = keys[k];
        u64 row = key >> 32, top = tile.shfl(row, 0), bottom = tile.shfl(row, size - 1);
        bool begins = k < n && (k == 0 || keys[k - 1] >> 32 != row);
        u32 leaders = tile.ballot(begins), upto = leaders & ((2u << tile.rank()) - 1), above = leaders >> tile.rank() >> 1;
        u32 others = tile.ballot(back < 0 || keys[back] >> 32 != top);  // among as many keys before
        i32 came = first - size + bit_width(others);
        if (!(leaders & 1) && !others) came = (i32)lower_bound_near(keys, n, first - size, top << 32);
        others = tile.ballot(!on || keys[k + size] >> 32 != bottom);  // and behind
        i32 goes = first + lesser(n - first, size + lowest_bit(others));
        if (!others) goes = (i32)lower_bound_near(keys, n, first + 2 * size, (bottom + 1) << 32);
        if (k >= n) return;
        own = upto ? first + bit_width(upto) - 1 : came;
        end = above ? k + 1 + lowest_bit(above) : goes;
    }
    DEVICE bool leads() const { return k < n && own == k; }
    DEVICE i32 run() const { return end - own; }
};

template <class T, int N> DEVICE T pick(const T (&from)[N], int i) {  // registers have no index
    T it = from[0];
#pragma unroll
    for (int j = 1; j < N; ++j) it = j == i ? from[j] : it;
    return it;
}

// A bit for each of a tile's keys, in its share of shared memory: few edges that are no key's find one set.
struct Filter {
    static constexpr int words = Tile<32>::size() > 8 ? 8 * Tile<32>::size() : 64;
    Tile<32> tile;
    u32* share;
    DEVICE Filter() {
        SHARED(Four, shares, 512);
        share = (u32*)(shares + tile.index() * words / 4);
        tile.sync();  // all have done with the keys before
        for (int i = tile.rank(); i < words / 4; i += tile.size()) ((Four*)share)[i] = {};
        tile.sync();
    }
    DEVICE void add(u32 id, u32 row) const {
        u32 bit = bit_for(id, 32 * words, row);
        atomic_or(share + bit / 32, 1u << bit % 32);
    }
    DEVICE bool has(u32 id, u32 row) const {
        u32 bit = bit_for(id, 32 * words, row);
        return share[bit / 32] >> bit % 32 & 1;
    }
};

// The keys of one row, n of them from `first` on: an edge that may be one of them is sought.
struct Sought {
    const u64* keys;
    u32* position;
    i64 first, n;
    DEVICE void meet(u32 id, u32 at) const {
        const u64* base = keys + first;
        for (i64 left = n; left > 1;) {  // base: the last key not above, without a branch
            i64 half = left >> 1;
            base += (u32)base[half] <= id ? half : 0;
            left -= half;
        }
        if ((u32)*base == id) position[base - keys] = at;
    }
    template <int N, class F> DEVICE void meet(const Four (&held)[N], int which, u32 at, u32 end, F may_meet) const {
        for (u32 i = 0; i < 4; ++i) {
            u32 id = held[0].id[i];
#pragma unroll
            for (int j = 1; j < N; ++j) id = j == which ? held[j].id[i] : id;
            if (at + i < end && may_meet(id)) meet(id, at + i);
        }
    }
};

struct alignas(16) Stretch {  // positions [from, end) of a row of so many, and the row's keys: `run` of them from `first` on
    u32 first, run, root, all, from, end, unused[2];
};

struct Fresh {  // what later kernels need of rows, at their first keys, and of keys: zeros; may be null
    u64* moves;
    u32* used;
    u32* listed;
    u8* gone;
};

// A warp 32 keys: it finds their rows, and its lanes join by fours the edges of those that begin there. Long rows are left
// to JoinHubs, and long runs, which have a filter in memory.
struct Join {
    static constexpr int lanes = 1;
    static constexpr int fours = 4;
    const u64* keys;
    i64 n;
    VineView graph;
    i64 rows;
    i64 vertices;
    i64* unknown;  // how many keys have an id that is not there
    u32* owner;    // nobody, where a row is not there
    u32* end;
    u64* held;
    u32* position;
    u32* filters;  // zeros, where a long run has 32 bits a key
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
            bool known = k < n && row < rows, long_one = share.run() > long_run;
            strange += k < n && !(known && (i64)(u32)share.key < vertices);
            begin(share, known, long_one);
            u32 all = 0;
            u64 sentinel = 0;
            if (share.leads() && known) {
                held[k] = sentinel = graph.sentinels[row];
                all = LAZY ? graph.extents[row] : (u32)(sentinel >> 32);
            }
            bool left = all > hub_extent || (all && long_one);
            emit(warp, left, {(u32)k, (u32)share.run(), (u32)sentinel, all});
            join(share, long_one, (u32)sentinel, left ? 0 : all);
        }
        strange = warp.sum(strange);
        if (strange && warp.rank() == 0) atomic_add(unknown, strange);
    }
    // No edge is found so far: who begins a row says so for all keys of a run that is not long.
    DEVICE void begin(const Share& share, bool known, bool long_one) const {
        i64 k = share.k;
        if (k >= n) return;
        owner[k] = known ? (u32)share.own : nobody;
        if (fresh.gone) fresh.gone[k] = 0;
        if (share.own >= share.first || long_one) position[k] = nobody;
        if (long_one) enter(share);
        if (!share.leads()) return;
        end[k] = (u32)share.end;
        if (fresh.moves) fresh.moves[k] = 0, fresh.used[k] = 0;
        if (fresh.listed) fresh.listed[k] = 0;
    }
    DEVICE void enter(const Share& share) const {
        u32 bit = bit_for((u32)share.key, bits_of_run(share.run()));
        atomic_or(filters + share.own + bit / 32, 1u << bit % 32);
    }
    DEVICE void fetch_ahead(i64 k) const {
        if (k + 16 < n) prefetch(graph.sentinels + lesser(keys[k + 16] >> 32, (u64)rows));
        if (k + 8 < n && (i64)(keys[k + 8] >> 32) < rows)
            prefetch(graph.slots + graph.slot_of((u32)graph.sentinels[keys[k + 8] >> 32]));
    }
    DEVICE void emit(Tile<32> warp, bool left, Stretch its) const {
        i64 many = left ? ((i64)its.all + stretch_slots - 1) / stretch_slots : 0, sum = warp.sum(many);
        if (sum == 0) return;
        i64 to = warp.shfl(warp.rank() == 0 ? atomic_add(n_stretches, sum) : (i64)0, 0);
        for (u32 rest = warp.ballot(left); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            i64 count = warp.shfl(many, lane);
            Stretch s = {warp.shfl(its.first, lane), warp.shfl(its.run, lane), warp.shfl(its.root, lane), warp.shfl(its.all, lane)};
            for (i64 i = warp.rank(); i < count; i += warp.size()) {
                s.from = (u32)(i * stretch_slots), s.end = (u32)lesser((i + 1) * stretch_slots, (i64)s.all);
                ((Stretch*)stretches)[to + i] = s;
            }
            to += count;
        }
    }
    // The edges of the rows that begin here; a lane that begins one brings its root and how many positions are to be joined.
    DEVICE void join(const Share& share, bool long_one, u32 root, u32 all) const {
        Tile<32> warp;
        const u32 first = (u32)share.first;
        Filter filter;
        if (share.k < n && share.own >= share.first) filter.add((u32)share.key, (u32)share.own);
        finish_last(share, long_one, filter);
        warp.sync();
        Dealt dealt((all + 3) / 4);
        for (u32 base = 0; base < dealt.total; base += fours * (u32)warp.size()) {
            u32 row[fours], at[fours], ends[fours];
            const u32* from[fours];
            Four found[fours];
            for (int j = 0; j < fours; ++j) {
                u32 four = base + (u32)(j * warp.size() + warp.rank()), some = lesser(four, dealt.total - 1);
                int lane = dealt.bearer(some);
                u32 its = warp.shfl(all, lane);
                row[j] = first + (u32)lane, at[j] = 4 * dealt.number(some, lane), ends[j] = four == some ? its : 0;
                from[j] = Row(graph, warp.shfl(root, lane), its).at(at[j]);
            }
            read_fours(graph, from, at, ends, found);
            u32 hits = 0;  // those with an edge that may be sought, lanes' one after another: searches of all lanes in step
            for (int j = 0; j < fours; ++j) {
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
        }
    }
    // The keys behind the tile's of a row that begins in it.
    DEVICE void finish_last(const Share& share, bool long_one, const Filter& filter) const {
        int lane = share.tile.size() - 1;
        i32 own = share.tile.shfl(share.own, lane), upto = share.tile.shfl(share.end, lane);
        if (own < share.first || share.tile.shfl((u32)long_one, lane)) return;
        for (i32 i = share.k + share.tile.size(); i < upto; i += share.tile.size()) {
            filter.add((u32)keys[i], (u32)own);
            position[i] = nobody;
        }
    }
};

struct JoinHubs {  // one tile a stretch of a long row: its edges by fours, all under way at once
    static constexpr int lanes = 32;
    static constexpr int fours = stretch_slots / 4 / lanes, few = 4;
    const u64* keys;
    VineView graph;
    u32* position;
    const u32* filters;
    const u64* stretches;
    const i64* n_stretches;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        Items items = grid.items(tile, *n_stretches);
        const Stretch* all = (const Stretch*)stretches;
        Stretch next = all[items.first < items.last ? items.first : 0];
        for (i64 i : items) {
            Stretch s = next;
            if (i + items.step < items.last) next = all[i + items.step];  // under way while this one is joined
            Row row(graph, s.root, s.all);
            Four found[fours];
            read(row, s, s.from, found);
            if (s.run <= few) {
                u32 ids[few];
                for (u32 j = 0; j < few; ++j) ids[j] = (u32)keys[s.first + lesser(j, s.run - 1)];
                join(row, s, found, [&](u32 id) { return id == ids[0] || id == ids[1] || id == ids[2] || id == ids[3]; });
            } else if (s.run > long_run) {
                const u32 bits = bits_of_run(s.run), *its = filters + s.first;
                join(row, s, found, [&](u32 id) { return its[bit_for(id, bits) / 32] >> bit_for(id, bits) % 32 & 1; });
            } else {
                Filter own;
                for (u32 k = (u32)tile.rank(); k < s.run; k += (u32)tile.size()) own.add((u32)keys[s.first + k], 0);
                tile.sync();
                join(row, s, found, [&](u32 id) { return own.has(id, 0); });
            }
        }
    }
    DEVICE static u32 at(u32 base, int j) { return base + 4 * (u32)(j * Tile<lanes>::size() + Tile<lanes>{}.rank()); }
    DEVICE void read(const Row& row, const Stretch& s, u32 base, Four (&found)[fours]) const {
        const u32* from[fours];
        u32 ats[fours], ends[fours];
        for (int j = 0; j < fours; ++j) {
            ats[j] = lesser(at(base, j), (s.end - 1) & ~3u), ends[j] = s.end;
            from[j] = row.at(ats[j]);
        }
        read_fours(graph, from, ats, ends, found);
    }
    template <class F> DEVICE void join(const Row& row, const Stretch& s, Four (&found)[fours], F may_meet) const {
        Sought run = {keys, position, s.first, s.run};
        for (u32 base = s.from;;) {
            u32 hits = 0;
            for (int j = 0; j < fours; ++j) {
                bool any = false;
                for (int i = 0; i < 4; ++i) any |= may_meet(found[j].id[i]);
                hits |= (u32)any << j;
            }
            for (; hits; hits &= hits - 1) run.meet(found, lowest_bit(hits), at(base, lowest_bit(hits)), s.end, may_meet);
            base += 4 * fours * (u32)Tile<lanes>::size();  // on a GPU that is all of it
            if (base >= s.end) return;
            read(row, s, base, found);
        }
    }
};

// --- queries ---

constexpr i64 short_extent = 128;

struct FindShort {  // one lane a query, a tile in step; those about longer rows are listed in `rest`
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

struct Answer {  // one lane a sorted query: equal ones share the position of the last
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
