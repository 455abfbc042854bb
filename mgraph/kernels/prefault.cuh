// Maps pages of host memory now instead of on their first write.
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
