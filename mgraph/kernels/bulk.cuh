// Large arrays of the host, copied and scanned by several threads.
#pragma once

struct CopyBytes {  // one lane per byte
    static constexpr int lanes = 1;
    u8* to;
    const u8* of;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        u8* target = to;  // not a field, which bytes that are written might be
        const u8* source = of;
        for (i64 i : grid.items(n)) target[i] = source[i];
    }
};

struct Largest {  // one lane per id
    static constexpr int lanes = 1;
    const u32* ids;
    i64 n;
    u64* largest;  // and of what is there
    DEVICE void operator()(Grid grid) const {
        u32 most = 0;
        for (i64 i : grid.items(n)) most = greater(most, ids[i]);
        most = Tile<32>{}.most(most);
        if (most > load(largest)) atomic_max(largest, (u64)most);
    }
};
