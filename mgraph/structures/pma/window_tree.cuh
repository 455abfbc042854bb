// Bounds of windows by level, and marks of the windows of two or more leaves that a batch rewrites. A level is a power
// of two of leaves; node (level, leaf >> level).
#pragma once
#include "structures/pma/window.cuh"

struct WindowTree {  // bounds of each level's full window, and bitmap of windows
    const i64* least;
    const i64* most;
    i64 height;
    u32* marked;
    u64* used;
    i64* sums;  // items + 1, by node, of levels above group_level; 0 until counted
    DEVICE bool holds(i64 level, i64 leaves, i64 n) const {  // true if n items in `leaves` leaves are within bounds
        i64 full = (i64)1 << level;
        return (least[level] * leaves + full - 1) / full <= n && n <= most[level] * leaves / full;
    }
    DEVICE u64 node(i64 level, i64 leaf) const { return ((u64)1 << (height - level)) + (u64)(leaf >> level); }
    DEVICE bool mark(i64 level, i64 leaf) const {  // true if this call marked it
        u64 at = node(level, leaf);
        u32 bit = 1u << (at & 31);
        if (!(load(used) >> level & 1)) atomic_or(used, (u64)1 << level);
        return !(load(marked + (at >> 5)) & bit) && !(atomic_or(marked + (at >> 5), bit) & bit);
    }
    DEVICE bool is_marked(i64 level, i64 leaf) const {
        return marked[node(level, leaf) >> 5] >> (node(level, leaf) & 31) & 1;
    }
    // Returns true if a wider window covers this one, once all are marked. The lanes of a tile check different levels.
    template <class Tile> DEVICE bool covered(const Tile& tile, i64 level, i64 leaf) const {
        u64 above = *used >> (level + 1);
        if (!above) return false;
        bool is = false;
        for (i64 up = tile.rank(); above >> up; up += tile.size())
            if (above >> up & 1) is = is || is_marked(level + 1 + up, leaf);
        return tile.any(is);
    }
};

// Returns the lanes of the stretch that `lane` begins, from bits of all beginnings; 0 if it begins none.
DEVICE u32 stretch(u32 begins, int lane) {
    u32 from = ~0u << lane, behind = begins & from << 1;
    return begins >> lane & 1 ? from & (behind ? (behind & (0u - behind)) - 1 : ~0u) : 0;
}
