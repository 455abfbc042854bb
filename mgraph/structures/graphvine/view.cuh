// View of GraphVine. A row's edges are numbered from 0 (their positions) and lie in blocks of 1 << shift slots; a row
// that fits in a half or a quarter of a block has such a piece. Addresses count quanta, quarters of a block.
// sentinels[v] = degree << 32 | root: the only block, or the directory of the blocks (its room, then their addresses),
// or in a TREE the first block of a complete binary tree, in which block i is a child of block (i - 1) / 2.
#pragma once

#ifndef TREE  // 1: blocks point to their children
#define TREE 0
#endif
#ifndef LAZY  // 1: deleted edges keep their positions, as tombstones
#define LAZY 0
#endif

constexpr u32 nobody = 0xffffffffu;  // tombstone of a deleted edge
constexpr i64 unit_slots = 256;

struct OVERLAY alignas(16) Four {
    u32 id[4];
};

struct VineView {
    const u64* sentinels;
    const u32* extents;  // positions in use with LAZY; else null, the degree
    const u32* slots;
    const f32* weights;
    const u32* children;  // two per block, with TREE
    i64 shift;
    i64 fine;  // 1 if small rows have smaller blocks
    static constexpr bool sorted = false;
    static constexpr int ahead = 4;  // loads in flight per lane

    DEVICE u32 degree(i64 v) const { return (u32)(sentinels[v] >> 32); }
    DEVICE i64 extent(i64 v) const { return LAZY ? extents[v] : degree(v); }
    DEVICE i64 units(i64 v) const { return (extent(v) + unit_slots - 1) / unit_slots; }
    DEVICE f32 weight(i64 slot) const { return weights ? load_once(weights + slot) : 1.0f; }

    DEVICE i64 block_slots() const { return (i64)1 << shift; }
    DEVICE i64 blocks(i64 extent) const { return (extent + block_slots() - 1) >> shift; }
    DEVICE i64 slot_of(u32 quantum) const { return (i64)quantum << (shift - 2); }
    // Returns the class of a row's blocks: 0, 1 or 2 for a quarter, a half or a whole block, of 1 << class quanta.
    DEVICE int size_class(i64 extent) const {
        return !fine || extent > block_slots() / 2 ? 2 : extent > block_slots() / 4;
    }
    // Returns the quanta of a directory of `blocks` blocks: its room, in slots, is a power of two, or a quantum.
    DEVICE i64 directory(i64 blocks) const {
        if (TREE || blocks < 2) return 0;
        i64 quanta = ((i64)1 << bit_width((u64)blocks)) >> (shift - 2);
        return greater(quanta, (i64)1);
    }
    DEVICE const u32* child(u32 block, u64 right) const { return children + (block >> 2) * (u64)2 + right; }
    DEVICE u32 block(u32 root, i64 i) const {  // block i of a row of several blocks
        if (!TREE) return slots[slot_of(root) + 1 + i];
        u64 path = (u64)i + 1;  // below its highest bit: 0 is left, 1 is right
        for (int bit = bit_width(path) - 2; bit >= 0; --bit) root = *child(root, path >> bit & 1);
        return root;
    }
    DEVICE u32 block_of(u32 root, i64 extent, i64 i) const { return extent <= block_slots() ? root : block(root, i); }
    DEVICE i64 place(u32 root, i64 extent, i64 position) const {
        return slot_of(block_of(root, extent, position >> shift)) + (position & (block_slots() - 1));
    }

    template <class T, class F> DEVICE void visit(T tile, i64 v, i64 unit, F f) const {
        u64 sentinel = sentinels[v];
        i64 all = LAZY ? (i64)extents[v] : (i64)(sentinel >> 32);
        i64 first = unit * unit_slots;
        stretch(tile, (u32)sentinel, all, first, lesser(first + unit_slots, all),
                [&](u32 id, i64 slot, i64) { return f(id, slot, id != nobody); });
    }
    // Calls f(id, slot, position) for positions [first, end) until it returns true, with nobody past the end; `first`
    // is a multiple of unit_slots.
    template <class T, class F> DEVICE void stretch(T tile, u32 root, i64 all, i64 first, i64 end, F f) const {
        bool together = ahead * tile.size() <= block_slots();  // then the positions of a step lie in one block
        for (i64 base = first; base < end; base += ahead * tile.size()) {
            i64 slot[ahead], at = base + tile.rank();
            u32 ids[ahead];
            if (together) slot[0] = place(root, all, base) + tile.rank();
            for (int j = 0; j < ahead; ++j) {
                i64 p = at + j * tile.size();
                slot[j] = together ? slot[0] + j * tile.size() : p < end ? place(root, all, p) : 0;
            }
            for (int j = 0; j < ahead; ++j) ids[j] = at + j * tile.size() < end ? load_once(slots + slot[j]) : nobody;
            for (int j = 0; j < ahead && base + j * tile.size() < end; ++j)
                if (f(ids[j], slot[j], at + j * tile.size())) return;
        }
    }
    DEVICE i64 find(i64 v, u32 id) const {  // O(degree), since rows are not sorted
        i64 all = extent(v), found = -1;
        stretch(Tile<1>{}, (u32)sentinels[v], all, 0, all, [&](u32 there, i64 slot, i64) {
            if (there == id) found = slot;
            return found >= 0;
        });
        return found;
    }
};

// Row for reading four edges at a time: positions p to p + 3, p a multiple of 4, lie in one block. One load if pieces
// are aligned to it, as for blocks of 16 edges and more.
struct Row {
    const VineView& graph;
    const u32* blocks;  // its directory, or null for a single block
    u32 root, all, shift, in_block;
    u64 quantum;  // slots
    DEVICE Row(const VineView& view, u32 its_root, i64 extent) : graph(view), root(its_root), all((u32)extent) {
        blocks = extent > view.block_slots() ? view.slots + view.slot_of(root) + 1 : nullptr;
        shift = (u32)view.shift, in_block = (1u << shift) - 1, quantum = (u64)1 << (shift - 2);
    }
    DEVICE const u32* at(u32 p) const {
        if (TREE) return graph.slots + graph.place(root, all, p);
        return graph.slots + quantum * (blocks ? blocks[p >> shift] : root) + (p & in_block);
    }
    DEVICE Four four(u32 p, u32 end) const {  // nobody from `end` on
        Four found = {{nobody, nobody, nobody, nobody}};
        if (p >= end) return found;
        const u32* from = at(p);
        u32 left = end - p;
        if (shift < 4) {
            for (u32 i = 0; i < 4; ++i)
                if (i < left) found.id[i] = from[i];
            return found;
        }
        found = *(const Four*)from;
        for (u32 i = 1; i < 4; ++i) found.id[i] = i < left ? found.id[i] : nobody;
        return found;
    }
};

// Reads four edges from each of these places, all loads in flight; positions from `ends` on are undefined.
template <int N>
DEVICE void read_fours(const VineView& graph, const u32* const (&from)[N], const u32 (&at)[N], const u32 (&ends)[N],
                       Four (&found)[N]) {
    if (graph.shift >= 4) {
        for (int j = 0; j < N; ++j) found[j] = *(const Four*)from[j];
        return;
    }
    for (int j = 0; j < N; ++j)
        for (u32 i = 0; i < 4; ++i) found[j].id[i] = at[j] + i < ends[j] ? from[j][i] : nobody;
}
