// Merges a row in windows of as many keys as the group has lanes. Shared memory lists the acting keys of a window, each
// with the shift of the edges behind it. So the edges' new places need no search in device memory, and all lanes of a
// step read their edges concurrently.
#pragma once
#include "structures/hornet/rows.cuh"

struct Key {
    int is, place;  // outcome and place
    u32 id;
};
DEVICE Key read_key(const Batch& batch, i64 k) {  // reads key k, or the last one
    k = lesser(k, batch.n - 1);
    return {batch.outcome[k], (int)batch.place[k], (u32)batch.keys[k]};
}

struct Window {
    int inserts, deletes;  // before it; on the way back behind it
    int many, by;  // number of acting keys; shift of the edges before them
};

// Inclusive prefix sum, and total in `all`, of inserts << 16 | deletes. `mine` is that of one key.
template <int W, bool warp_converged> DEVICE u32 add_up(Tile<W, warp_converged> tile, u32 mine, u32& all) {
    u32 in = tile.ballot(mine >> 16), out = tile.ballot(mine & 1), upto = (2u << tile.rank()) - 1;
    all = (u32)popcount(in) << 16 | (u32)popcount(out);
    return (u32)popcount(in & upto) << 16 | (u32)popcount(out & upto);
}
DEVICE u32 add_up(Block block, u32 mine, u32& all) { return scan(block, mine, all); }

template <class Group> struct Side {  // reads neighbouring edges, one per lane
    static constexpr int lanes = Group::width;
};
template <> struct Side<Block> {
    static constexpr int lanes = Tile<32>::size();
};

template <class Group> struct RowMerger {
    static constexpr int side = Side<Group>::lanes;
    static constexpr int together = 8;  // edges in flight per lane
    static constexpr int nowhere = -2147483647 - 1;
    Group group;
    const Batch& batch;
    const Slots& slots;
    const f32* weight;
    u64* acts;  // in shared memory, one per lane: place << 32 | shift of the edges from there on
    DEVICE int width() const { return group.size() * together; }
    DEVICE Key key(u32 first) const { return read_key(batch, (i64)first + group.rank()); }
    DEVICE bool live(u32 first, u32 end) const { return first + (u32)group.rank() < end; }
    DEVICE int first_act() const { return (int)(acts[0] >> 32); }

    // Merges a row; `own` is key(row.a).
    DEVICE void merge(const Row& row, Key own) const {
        if (!row.has()) return;
        if ((u32)row.held != (u32)row.word || slots.ids != slots.ids_out) return forth<merging>(row, own);
        if (row.deletes()) forth<closing>(row, own);
        if (row.inserts) back(row, own);
    }
    // Goes through the windows forwards: to another block, or for the deletes in its own.
    template <Pass pass> DEVICE void forth(const Row& row, Key own) const {
        Window window = {0, 0, 0, 0};
        int edge = pass == merging ? 0 : -1;  // the first edge not moved yet; -1: before the first delete
        for (u32 k = row.a; k < row.b; k += (u32)group.size()) {
            u32 after = k + (u32)group.size();
            if (k > row.a) own = key(k);
            int end = after < row.b ? (int)batch.place[after] : row.edges(),
                to = list<pass>(window, own, live(k, row.b));
            if (edge < 0 && window.many) edge = first_act() + 1;
            for (; edge >= 0 && edge < end; edge = lesser(edge + width(), end))
                step<pass>(row, window, edge, lesser(edge + width(), end));
            if (pass == merging && live(k, row.b)) insert(row, k, own, to);
        }
    }
    // Goes through the windows backwards: inserts in its own block, after the deletes.
    DEVICE void back(const Row& row, Key own) const {
        Window window = {row.inserts, row.deletes(), 0, 0};
        int end = row.edges() - row.deletes();
        for (u32 high = row.b; high > row.a;) {
            u32 k = high - lesser(high - row.a, (u32)group.size());
            if (k > row.a || high < row.b) own = key(k);
            int to = list<opening>(window, own, live(k, high)), start = window.many ? first_act() : end;
            for (; end > start; end = greater(end - width(), start))
                step<opening>(row, window, greater(end - width(), start), end);
            if (live(k, high)) insert(row, k, own, to);
            high = k;
        }
    }
    DEVICE void insert(const Row& row, u32 first, Key own, int to) const {
        if (own.is != inserted) return;
        i64 slot = ((i64)(u32)row.word << slots.unit_out) + to;
        slots.ids_out[slot] = own.id;
        if (slots.weights_out) slots.weights_out[slot] = weight ? weight[first + (u32)group.rank()] : 1.0f;
    }
    // Lists the acting keys of a window; returns the destination of the lane's own key.
    template <Pass pass> DEVICE int list(Window& window, Key own, bool live) const {
        u32 mine = live ? (u32)(own.is == inserted) << 16 | (u32)(own.is == deleted) : 0, all;
        group.sync();  // all have read the previous window
        u32 before = add_up(group, mine, all) - mine;
        auto count = [](u32 both) {
            return (int)((pass != closing ? both >> 16 : 0) + (pass != opening ? both & 0xffffu : 0));
        };
        auto move = [](int in, int out) { return (pass != closing ? in : 0) - (pass != opening ? out : 0); };
        auto advance = [&](int by) {
            window.inserts += by * (int)(all >> 16), window.deletes += by * (int)(all & 0xffffu);
        };
        if (pass == opening) advance(-1);
        int in = window.inserts + (int)(before >> 16), out = window.deletes + (int)(before & 0xffffu);
        window.many = count(all), window.by = move(window.inserts, window.deletes);
        int place = own.place - (pass == opening ? out : 0);
        int by = move(in + (int)(mine >> 16), out + (int)(mine & 1));
        if (count(mine)) acts[count(before)] = (u64)(u32)place << 32 | (u32)by;
        if (pass != opening) advance(1);
        group.sync();
        return own.place + in - out;
    }
    // Moves the edges [first, end), at most width(), which are in flight while their places are computed.
    template <Pass pass> DEVICE void step(const Row& row, const Window& window, int first, int end) const {
        int begin = first + group.rank() / side * side * together, own = begin + group.rank() % side;
        int last = lesser(begin + side * together, end), low = 0, by = window.by, moved[together];
        i64 from = ((i64)(u32)row.held << slots.unit) + own, to = ((i64)(u32)row.word << slots.unit_out) + own;
        u32 ids[together];
        read(slots.ids + from, ids, last - own);
        for (int high = window.many; low < high;) {
            int middle = (low + high) / 2;
            if ((int)(acts[middle] >> 32) < begin + (pass == opening)) low = middle + 1;
            else high = middle;
        }
        if (low) by = (int)(u32)acts[low - 1];
        bool same = low == window.many || (int)(acts[low] >> 32) >= last;  // all edges have the same shift
        if (!same) {
#pragma unroll
            for (int j = 0; j < together; ++j) moved[j] = by;
            apply<pass>(low, window.many, by, own, last, moved);
        }
        if (pass != merging) group.sync();  // all are read before any is overwritten
        write(slots.ids_out + to, ids, last - own, same, by, moved);
        if (!slots.weights) return;
        f32 weights[together];
        read(slots.weights + from, weights, last - own);
        if (pass != merging) group.sync();
        write(slots.weights_out + to, weights, last - own, same, by, moved);
    }
    template <class T> DEVICE void read(const T* from, T (&held)[together], int most) const {
#pragma unroll
        for (int j = 0; j < together; ++j)
            if (j * side < most) held[j] = from[j * side];
    }
    template <class T>
    DEVICE void write(T* to, const T (&held)[together], int most, bool same, int by,
                      const int (&moved)[together]) const {
        if (same) {
            to += by;
#pragma unroll
            for (int j = 0; j < together; ++j)
                if (j * side < most) to[j * side] = held[j];
        } else {
#pragma unroll
            for (int j = 0; j < together; ++j)
                if (j * side < most && moved[j] != nowhere) to[j * side + moved[j]] = held[j];
        }
    }
    // Applies the acts from `low` on to edges up to `last`; edges before each act shift by `by`.
    template <Pass pass>
    DEVICE void apply(int low, int many, int by, int own, int last, int (&moved)[together]) const {
        for (; low < many; ++low) {
            u64 act = acts[low];
            int place = (int)(act >> 32), next = (int)(u32)act;
            if (place >= last) break;
#pragma unroll
            for (int j = 0; j < together; ++j) {
                int edge = own + j * side;
                if (edge >= place) moved[j] = pass != opening && next < by && edge == place ? nowhere : next;
            }
            by = next;
        }
    }
    // Merges a row of at most `together` edges per lane, all read before any is written. Tiles of a warp are converged,
    // also those without a row.
    DEVICE void merge_at_once(const Row& row, bool has_row, Key own) const {
        has_row = has_row && row.has();
        i64 from = ((i64)(u32)row.held << slots.unit) + group.rank();
        i64 to = ((i64)(u32)row.word << slots.unit_out) + group.rank();
        int edges = has_row ? row.edges() - group.rank() : 0, moved[together];
        bool stays = from == to && slots.ids == slots.ids_out;
        u32 ids[together];
        f32 weights[together];
#pragma unroll
        for (int j = 0; j < together; ++j) {
            moved[j] = 0;
            if (j * side < edges) ids[j] = slots.ids[from + j * side];
            if (j * side < edges && slots.weights) weights[j] = slots.weights[from + j * side];
        }
        Window window = {0, 0, 0, 0};
        u32 k = has_row ? row.a : 0, b = has_row ? row.b : 0;  // undefined in lanes without a row
        for (bool first = true; first || Tile<32>().any(k < b); first = false) {
            if (!first) own = key(k);
            int place = list<merging>(window, own, live(k, b));
            apply<merging>(0, window.many, window.by, group.rank(), row.edges(), moved);
            if (live(k, b)) insert(row, k, own, place);
            k += (u32)group.size();
        }
#pragma unroll
        for (int j = 0; j < together; ++j) {
            if (j * side >= edges || moved[j] == nowhere || (stays && !moved[j])) continue;
            slots.ids_out[to + j * side + moved[j]] = ids[j];
            if (slots.weights) slots.weights_out[to + j * side + moved[j]] = weights[j];
        }
    }
};
