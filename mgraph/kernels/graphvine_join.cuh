// Membership: each touched row is read once, and its edges are sought among its run of the batch.
// position[k] gets one write at most, because a row holds an edge once; of equal keys the last one's is always written.
#pragma once
#include "graphvine_view.cuh"
#include "search.cuh"

constexpr i64 hub_extent = 512, stretch_slots = 1024;  // rows of more positions are joined in such stretches
constexpr i64 long_run = 512;                          // keys of a row: more have a filter in memory, 32 bits a key
DEVICE u32 bits_of_run(i64 n) { return (u32)lesser(32 * (n - 1), (i64)0xffffffff); }
DEVICE u32 bit_for(u32 id, u32 bits, u32 row = 0) { return (u32)((u64)(id * 0x9E3779B1u + row * 0x85EBCA6Bu) * bits >> 32); }

struct ListRows {  // one lane a key, a warp in step: what a batch needs of rows, and no edge found so far
    static constexpr int lanes = 1;
    const u64* keys;
    i64 n;
    i64 rows;
    i64 vertices;
    i64* unknown;  // how many keys have an id that is not there
    u32* owner;    // nobody, where a row is not there
    u32* end;      // of rows; at the places of their other keys zeros, for filters
    u32* position;
    u64* moves;    // this and the rest: zeros; may be null
    u32* listed;
    u32* used;
    u8* gone;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        i64 first = 0, strange = 0;
        for (i64 t : grid.items(warp, (n + warp.size() - 1) / warp.size())) {
            i64 k = t * warp.size() + warp.rank();
            u64 row = k < n ? keys[k] >> 32 : ~(u64)0;
            bool leads = k < n && (k == 0 || keys[k - 1] >> 32 != row);
            u32 upto = warp.ballot(leads) & ((2u << warp.rank()) - 1);
            if (leads) first = k;
            else if (!upto && k < n && keys[first] >> 32 != row) first = lower_bound_near(keys, n, k, row << 32);
            if (upto) first = k - warp.rank() + bit_width(upto) - 1;
            if (k >= n) continue;
            owner[k] = (i64)row < rows ? (u32)first : nobody, position[k] = nobody;
            strange += (i64)row >= rows || (i64)(u32)keys[k] >= vertices;
            if (gone) gone[k] = 0;
            if (k + 1 == n || keys[k + 1] >> 32 != row) end[first] = (u32)k + 1;
            if (!leads) end[k] = 0;
            if (leads && moves) moves[k] = 0, used[k] = 0;
            if (leads && listed) listed[k] = 0;
        }
        strange = warp.sum(strange);
        if (strange && warp.rank() == 0) atomic_add(unknown, strange);
    }
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

struct Join {  // a warp 32 keys, its lanes the edges of the rows that begin there, by fours; long rows are left to JoinHubs
    static constexpr int lanes = 1;
    static constexpr int fours = 4;
    const u64* keys;
    i64 n;
    VineView graph;
    const u32* owner;
    u32* end;
    u64* held;
    u32* position;
    u64* stretches;
    i64* n_stretches;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        for (i64 t : grid.items(warp, (n + warp.size() - 1) / warp.size())) {
            i64 k = t * warp.size() + warp.rank();
            fetch_ahead(k);
            u32 own = k < n ? owner[k] : nobody, run = own != nobody ? end[own] - own : 0, all = 0;
            u64 key = k < n ? keys[k] : 0, sentinel = 0;
            if (own == k) {
                held[k] = sentinel = graph.sentinels[key >> 32];
                all = LAZY ? graph.extents[key >> 32] : (u32)(sentinel >> 32);
            }
            if (run > long_run) enter(own, run, (u32)key);
            bool is_long = all > hub_extent || (all && run > long_run);
            emit(warp, is_long, {(u32)k, run, (u32)sentinel, all});
            join(warp, (u32)(t * warp.size()), own, run, (u32)key, (u32)sentinel, is_long ? 0 : all);
        }
    }
    DEVICE void enter(u32 a, u32 run, u32 id) const {  // into the filter of a long run
        u32 bit = bit_for(id, bits_of_run(run));
        atomic_or(end + a + 1 + bit / 32, 1u << bit % 32);
    }
    DEVICE void fetch_ahead(i64 k) const {
        if (k + 16 < n) prefetch(graph.sentinels + (keys[k + 16] >> 32));
        if (k + 8 < n && owner[k + 8] != nobody)
            prefetch(graph.slots + graph.slot_of((u32)graph.sentinels[keys[k + 8] >> 32]));
    }
    DEVICE void emit(Tile<32> warp, bool is_long, Stretch its) const {
        i64 many = is_long ? ((i64)its.all + stretch_slots - 1) / stretch_slots : 0, sum = warp.sum(many);
        if (sum == 0) return;
        i64 to = warp.shfl(warp.rank() == 0 ? atomic_add(n_stretches, sum) : (i64)0, 0);
        for (u32 rest = warp.ballot(is_long); rest; rest &= rest - 1) {
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
    // What each lane brings: its key, of the row of first key `own`, and where the row begins here its root and positions.
    DEVICE void join(Tile<32> warp, u32 first, u32 own, u32 run, u32 id, u32 root, u32 all) const {
        u32 mine = (all + 3) / 4, upto = warp.scan(mine), total = warp.shfl(upto, warp.size() - 1);
        if (total == 0) return;
        Filter filter;
        if (own != nobody && own >= first) filter.add(id, own);
        u32 last = warp.shfl(own, warp.size() - 1), last_run = warp.shfl(run, warp.size() - 1);
        if (last != nobody && last >= first && last_run <= long_run)
            for (u32 i = first + (u32)(warp.size() + warp.rank()); i < last + last_run; i += (u32)warp.size())
                filter.add((u32)keys[i], last);
        warp.sync();
        for (u32 base = 0; base < total; base += fours * (u32)warp.size()) {
            u32 row[fours], at[fours], ends[fours];
            const u32* from[fours];
            Four found[fours];
            for (int j = 0; j < fours; ++j) {
                u32 four = base + (u32)(j * warp.size() + warp.rank()), some = lesser(four, total - 1);
                int lane = bearer(warp, upto, some);
                u32 its = warp.shfl(all, lane);
                row[j] = first + (u32)lane, at[j] = 4 * (some - warp.shfl(upto - mine, lane)), ends[j] = four == some ? its : 0;
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
    DEVICE static int bearer(Tile<32> warp, u32 upto, u32 four) {  // the lane whose row has it
        int lane = 0;
        for (int step = warp.size() / 2; step; step /= 2) lane += warp.shfl(upto, lane + step - 1) <= four ? step : 0;
        return lane;
    }
};

struct JoinHubs {  // one tile a stretch of a long row: its edges by fours, all under way at once
    static constexpr int lanes = 32;
    static constexpr int fours = stretch_slots / 4 / lanes, few = 4;
    const u64* keys;
    VineView graph;
    const u32* end;
    u32* position;
    const u64* stretches;
    const i64* n_stretches;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_stretches)) {
            Stretch s = ((const Stretch*)stretches)[i];
            Row row(graph, s.root, s.all);
            Four found[fours];
            read(row, s, s.from, found);
            if (s.run <= few) {
                u32 ids[few];
                for (u32 j = 0; j < few; ++j) ids[j] = (u32)keys[s.first + lesser(j, s.run - 1)];
                join(row, s, found, [&](u32 id) { return id == ids[0] || id == ids[1] || id == ids[2] || id == ids[3]; });
            } else if (s.run > long_run) {  // which has a filter in memory, behind its end
                u32 bits = bits_of_run(s.run);
                const u32* filter = end + s.first + 1;
                join(row, s, found, [&](u32 id) { return filter[bit_for(id, bits) / 32] >> bit_for(id, bits) % 32 & 1; });
            } else {
                Filter filter;
                for (u32 k = (u32)tile.rank(); k < s.run; k += (u32)tile.size()) filter.add((u32)keys[s.first + k], 0);
                tile.sync();
                join(row, s, found, [&](u32 id) { return filter.has(id, 0); });
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
