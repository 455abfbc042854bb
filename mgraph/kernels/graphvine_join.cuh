// Membership: each touched row is read once, and its edges are sought among its run of the batch.
// position[k] gets one write at most, because a row holds an edge once; of equal keys the last one's is always written.
#pragma once
#include "graphvine_view.cuh"
#include "search.cuh"

constexpr i64 hub_extent = 512, piece_slots = 2048;  // rows of more positions are joined in such pieces
constexpr i64 long_run = 512;                        // keys of a row: more have a filter in memory, 32 bits a key
DEVICE u32 bits_of_run(i64 n) { return (u32)lesser(32 * (n - 1), (i64)0xffffffff); }
DEVICE u32 bit_for(u32 id, u32 bits) { return (u32)((u64)(id * 0x9E3779B1u) * bits >> 32); }

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

// One row's keys, n of them from `first` on, met by the row's edges: a few are kept in registers; for more, up to as many
// as there are edges, a hash of each sets a bit in the tile's share of shared memory, so that few edges are sought. A
// long row with a long run finds such bits in memory, behind the run's end.
template <class T> struct Meeting {
    static constexpr int few = 4, most_words = 8 * T::width, fours = T::width == 32 ? 4 : 2;
    T tile;
    const u64* keys;  // of the whole run
    i64 first, n;
    u32* position;
    u32 ids[few], *shared, bits;
    const u32* filter;  // in memory, or null
    DEVICE Meeting(T its, const u64* all, i64 a, const u32* end, i64 edges, u32* out) : tile(its), keys(all), first(a) {
        SHARED(u32, shares, 2048);
        n = end[a] - a, position = out, filter = nullptr, bits = 0;
        if (T::width == 32 && n > long_run) filter = end + a + 1, bits = bits_of_run(n);
        for (int i = 0; i < few; ++i) ids[i] = (u32)keys[a + lesser((i64)i, n - 1)];
        if (filter || n <= few || n > edges || n > most_words * 8) return;
        int width = bit_width((u64)(2 * n - 1));  // of the number of words: some 64 to 128 bits a key
        i64 words = lesser((i64)1 << width, (i64)most_words);
        bits = (u32)words * 32, shared = shares + tile.index() * most_words;
        tile.sync();  // all have done with the row before
        for (i64 i = tile.rank(); i < words; i += tile.size()) shared[i] = 0;
        tile.sync();
        for (i64 i = tile.rank(); i < n; i += tile.size()) {
            u32 bit = bit_for((u32)keys[a + i], bits);
            atomic_or(shared + bit / 32, 1u << bit % 32);
        }
        tile.sync();
    }
    DEVICE bool may_meet(u32 id) const {
        if (n <= few) return id == ids[0] || id == ids[1] || id == ids[2] || id == ids[3];
        u32 bit = bit_for(id, bits);
        return !bits || (filter ? filter[bit / 32] : shared[bit / 32]) >> bit % 32 & 1;
    }
    DEVICE void meet(u32 id, u32 at) const {  // nobody meets no key
        const u64 key = keys[first] >> 32 << 32 | id, *base = keys + first;
        for (i64 left = n; left > 1;) {  // base: the last key not above, without a branch
            i64 half = left >> 1;
            base += base[half] <= key ? half : 0;
            left -= half;
        }
        if (*base == key) position[base - keys] = at;
    }
    // The edges at positions [from, end) of the row.
    DEVICE void edges(const Row& row, u32 from, u32 end) const {
        const u32 step = 4 * (u32)tile.size(), mine = 4 * (u32)tile.rank();
        for (u32 base = from; base < end; base += fours * step) {
            Four held[fours];
            u32 hits = 0;
            for (int j = 0; j < fours; ++j) held[j] = row.four(base + mine + j * step, end);
            for (int j = 0; j < fours; ++j)
                for (int i = 0; i < 4; ++i) hits |= (u32)may_meet(held[j].id[i]) << (4 * j + i);
            for (; hits; hits &= hits - 1) {
                int hit = lowest_bit(hits);
                u32 id = 0;
                for (int j = 0; j < fours; ++j)  // registers have no index
                    for (int i = 0; i < 4; ++i) id = 4 * j + i == hit ? held[j].id[i] : id;
                meet(id, base + mine + (u32)(hit / 4) * step + (u32)(hit % 4));
            }
        }
    }
};

struct Join {  // a warp 32 keys, a tile each row that begins there; pieces of long ones are left to JoinHubs: key << 32 | piece
    static constexpr int lanes = 1;
    VineView graph;
    const u64* keys;
    const u32* owner;
    u32* end;
    i64 n;
    u64* held;
    u32* position;
    u64* pieces;
    i64* n_pieces;
    DEVICE void operator()(Grid grid) const {
        Tile<32> warp;
        Tile<8> tile;
        const int tiles = warp.size() / tile.size();
        for (i64 t : grid.items(warp, (n + warp.size() - 1) / warp.size())) {
            i64 base = t * warp.size(), k = base + warp.rank();
            fetch_ahead(k);
            u32 own = k < n ? owner[k] : nobody;
            bool leads = own == k;
            if (own != nobody) enter(k, own);
            if (leads) fetch(held[k] = graph.sentinels[keys[k] >> 32]);
            u32 rows = warp.ballot(leads);
            for (int i = 0; i < warp.rank() / tile.size(); ++i) rows &= rows - 1;
            while (rows) {  // tiles of a warp take a row each at the same time
                join(tile, base + lowest_bit(rows));
                for (int i = 0; i < tiles; ++i) rows &= rows - 1;
            }
        }
    }
    DEVICE void enter(i64 k, i64 a) const {  // into the filter of a long run
        i64 count = end[a] - a;
        u32 bit = bit_for((u32)keys[k], bits_of_run(count));
        if (count > long_run) atomic_or(end + a + 1 + bit / 32, 1u << bit % 32);
    }
    // The lines where a row lies if the pool was made anew since it grew, all rows of the warp at a time.
    DEVICE void fetch(u64 sentinel) const {
        const u32* begin = graph.slots + graph.slot_of((u32)sentinel);
        i64 all = LAZY ? 0 : (i64)(sentinel >> 32);
        for (i64 s = 0; s < all && all <= hub_extent; s += 32) fetch_line(begin + s);
    }
    DEVICE void fetch_ahead(i64 k) const {
        if (k + 16 < n) prefetch(graph.sentinels + (keys[k + 16] >> 32));
        if (k + 8 < n && owner[k + 8] != nobody)
            prefetch(graph.slots + graph.slot_of((u32)graph.sentinels[keys[k + 8] >> 32]));
    }
    template <class T> DEVICE void join(T tile, i64 a) const {
        i64 row = (i64)(keys[a] >> 32), all = graph.extent(row);
        if (all > hub_extent) return emit(tile, a, (all + piece_slots - 1) / piece_slots);
        if (all == 0) return;
        Meeting<T> run(tile, keys, a, end, all, position);
        run.edges(Row(graph, (u32)graph.sentinels[row], all), 0, (u32)all);
    }
    template <class T> DEVICE void emit(T tile, i64 a, i64 count) const {
        i64 to = tile.shfl(tile.rank() == 0 ? atomic_add(n_pieces, count) : (i64)0, 0);
        for (i64 i = tile.rank(); i < count; i += tile.size()) pieces[to + i] = (u64)a << 32 | (u64)i;
    }
};

struct JoinHubs {  // one tile a piece of a long row
    static constexpr int lanes = 32;
    VineView graph;
    const u64* keys;
    const u32* end;
    u32* position;
    const u64* pieces;
    const i64* n_pieces;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_pieces)) {
            i64 a = (i64)(pieces[i] >> 32), from = (i64)(u32)pieces[i] * piece_slots, row = (i64)(keys[a] >> 32);
            i64 all = graph.extent(row), to = lesser(from + piece_slots, all);
            Meeting<Tile<lanes>> run(tile, keys, a, end, to - from, position);
            run.edges(Row(graph, (u32)graph.sentinels[row], all), (u32)from, (u32)to);
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
