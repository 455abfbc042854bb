// Host memory taken from the system now, and not when it is first written.
#pragma once

struct Prefault {  // one lane per page
    static constexpr int lanes = 1;
    u8* bytes;
    i64 n;
    i64 page;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items((n + page - 1) / page)) bytes[i * page] = 0;
    }
};
