// pma, commit: the keys of a window that a tile merges, one per lane, with all tiles of a warp converged.
#pragma once
#include "structures/pma/window.cuh"

template <class Tile> struct TileKeys {  // keys of a window of `slots` slots from `slot` on
    static constexpr int lanes = Tile::size(), far = 1 << 30;
    const Batch& batch;
    const Tile& tile;
    i64 slot;
    u32 first;
    int after;  // keys located from here on are behind the window
    // this lane's first key: its place in the window << 2 | its move + 1; far if it is not in the window
    int at;
    u64 key;
    int upto = 0;  // shift of the keys up to it
    // At the end of the array keys may be located behind its last slot.
    DEVICE TileKeys(const Batch& batch, const Tile& tile, u32 first, i64 slot, int slots, bool is_last)
        : batch(batch), tile(tile), slot(slot), first(first), after((slots + is_last) << 2),
          at(located(first + tile.rank())), key(load(first + tile.rank())) {}
    DEVICE int located(u32 k) const {
        return k < batch.n ? (int)lesser(batch.located[k] - Batch::at_slot(slot), (i64)far) : far;
    }
    DEVICE u64 load(u32 k) const { return k < batch.n ? batch.keys[k] : 0; }
    // Calls step(k, place, move, shift including it, item) for each key, one per lane and round. Returns the total
    // shift.
    template <class F> DEVICE int each(F step) {
        ::Tile<32> warp;
        int net = 0, now = at;
        u64 its = key;
        for (u32 k = first + tile.rank();;) {
            int by = now < after ? Batch::by(now) : 0, sum = net + tile.scan(by);
            if (k < first + lanes) upto = sum;
            step(k, now >> 2, by, sum, (u32)its);
            net = tile.shfl(sum, lanes - 1);
            if (!warp.any(tile.rank() == lanes - 1 && now < after)) return net;
            k += lanes, now = located(k), its = load(k);
        }
    }
    DEVICE int moved_before(i64 row, u32 last) const {  // shift of the keys before `last` in rows before this one
        int many = (int)(last - first), below = 0;
        if (many > lanes) return batch.net32(lower_bound(batch.keys, first, last, (u64)row << 32)) - batch.net32(first);
        for (int step = lanes; step; step /= 2) {
            u32 its = tile.shfl((u32)(key >> 32), (below + step - 1) & (lanes - 1));
            if (below + step <= many && its < (u32)row) below += step;
        }
        int sum = tile.shfl(upto, below ? below - 1 : 0);
        return below ? sum : 0;
    }
};
