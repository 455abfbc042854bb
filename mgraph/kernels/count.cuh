// Counters with one atomic per block instead of one per thread.
#pragma once

// Adds the block's sum of mine[j] to to[j]. All threads of the block call it.
template <int N> DEVICE void add_by_block(const i64 (&mine)[N], i64* to) {
    SHARED(i64, sums, N);
    Block block;
    Tile<32> tile;
    for (int j = block.rank(); j < N; j += block.size()) sums[j] = 0;
    block.sync();
    for (int j = 0; j < N; ++j) {
        i64 sum = tile.sum(mine[j]);
        if (tile.rank() == 0 && sum) atomic_add(sums + j, sum);
    }
    block.sync();
    for (int j = block.rank(); j < N; j += block.size())
        if (sums[j]) atomic_add(to + j, sums[j]);
}

// Reserves places: mine[j], this thread's number of items for counter j, becomes its first place. All threads call it.
template <int N> DEVICE void append_by_block(i64 (&mine)[N], i64* counters) {
    SHARED(i64, before, N * 8);
    Block block;
    Tile<32> tile;
    int tiles = block.size() / tile.size();
    i64 wanted[N];
    bool any = tile.any(mine[0] != 0);  // a thread with items has some for the first counter
    for (int j = 0; j < N; ++j) {
        wanted[j] = mine[j];
        if (any) mine[j] = tile.scan(mine[j]);
        if (tile.rank() == tile.size() - 1) before[j * 8 + tile.index()] = mine[j];
    }
    block.sync();
    for (int j = block.rank(); j < N; j += block.size()) {
        i64 sum = 0;
        for (int t = 0; t < tiles; ++t) sum += before[j * 8 + t];
        i64 place = sum ? atomic_add(counters + j, sum) : 0;
        for (int t = 0; t < tiles; ++t) sum = before[j * 8 + t], before[j * 8 + t] = place, place += sum;
    }
    block.sync();
    for (int j = 0; j < N; ++j) mine[j] += before[j * 8 + tile.index()] - wanted[j];
    block.sync();
}
