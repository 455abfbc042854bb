// Copies and scans large host arrays by several threads.
#pragma once

struct CopyBytes {  // one lane per byte
    static constexpr int lanes = 1;
    u8* to;
    const u8* of;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        Items own = grid.items(n);
        if (own.step == 1) return copy_bytes(to + own.first, of + own.first, own.last - own.first);
        for (i64 i : own) to[i] = of[i];
    }
};

struct WidenIds {  // one lane per id
    static constexpr int lanes = 1;
    i64* to;
    const u32* of;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        i64* target = to;
        const u32* source = of;
        for (i64 i : grid.items(n)) target[i] = source[i];
    }
};

struct GatherWords {  // one lane per place
    static constexpr int lanes = 1;
    u32* to;
    const u32* of;
    const u32* places;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) to[i] = of[places[i]];
    }
};

struct GatherLongs {  // one lane per place
    static constexpr int lanes = 1;
    u64* to;
    const u64* of;
    const u32* places;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) to[i] = of[places[i]];
    }
};

struct Largest {  // one lane per id
    static constexpr int lanes = 1;
    const u32* ids;
    i64 n;
    u64* largest;  // maximum with the present value
    DEVICE void operator()(Grid grid) const {
        u32 most = 0;
        for (i64 i : grid.items(n)) most = greater(most, ids[i]);
        most = Tile<32>{}.most(most);
        if (most > load(largest)) atomic_max(largest, (u64)most);
    }
};
