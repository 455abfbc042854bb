// Bitmap of vertices that are being deleted.
#pragma once

constexpr u32 deleted_bits = 8 * sizeof(u32);  // vertices per word
DEVICE u32 deleted_bit(u32 v) { return 1u << v % deleted_bits; }
DEVICE bool is_deleted(const u32* dead, u32 v) { return dead[v / deleted_bits] & deleted_bit(v); }

struct MarkDeleted {  // one lane per vertex; lanes may set bits of the same word
    static constexpr int lanes = 1;
    const u32* vertices;
    i64 n;
    u32* dead;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) atomic_or(dead + vertices[i] / deleted_bits, deleted_bit(vertices[i]));
    }
};
