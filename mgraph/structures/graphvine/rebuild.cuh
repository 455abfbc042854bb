// Copies every row to its place in a new pool, one after another, each with its directory before its blocks. One tile
// per piece of the new pool, whatever rows it holds, and one lane per slot. Writes are disjoint.
#pragma once
#include "structures/graphvine/view.cuh"
#include "kernels/search.cuh"

constexpr i64 piece = 1024;  // slots

struct Rebuild {
    static constexpr int lanes = 32;
    VineView graph;
    const i64* places;  // of each row in the new pool, in quanta; ends with the total
    const u32* grown;  // number of positions of each row
    i64 rows;
    i64 shift_out;
    u32* slots_out;
    f32* weights_out;
    u32* children_out;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 quantum = shift_out - 2, end = places[rows] << quantum;
        VineView out = graph;
        out.shift = shift_out;
        for (i64 c : grid.items(tile, (end + piece - 1) / piece)) {
            i64 last = lesser((c + 1) * piece, end);
            i64 low = row_at(c * piece >> quantum, 0, rows), high = row_at((last - 1) >> quantum, low, rows) + 1;
            i64 row = low;
            for (i64 s = c * piece + tile.rank(); s < last; s += tile.size()) {
                if (tile.size() > 1) row = row_at(s >> quantum, low, high);
                else
                    while (places[row + 1] << quantum <= s) ++row;  // a lane meets the rows in order
                fill(out, row, s, s - (places[row] << quantum));
            }
        }
    }
    DEVICE i64 row_at(i64 quantum, i64 low, i64 high) const { return upper_bound(places, low, high, quantum) - 1; }
    DEVICE void fill(const VineView& out, i64 row, i64 slot, i64 at) const {
        i64 after = grown[row], blocks = out.blocks(after), directory = out.directory(blocks) << (shift_out - 2);
        u32 first = (u32)(places[row] + (directory >> (shift_out - 2)));
        if (at < directory) {
            slots_out[slot] = at == 0 ? (u32)(directory - 1) : at <= blocks ? first + (u32)(4 * (at - 1)) : nobody;
            return;
        }
        i64 position = at - directory, before = graph.extent(row);
        bool begins = (position & (out.block_slots() - 1)) == 0;
        if (TREE && blocks > 1 && begins) grow_tree(first, position >> shift_out, blocks);
        if (position >= lesser(before, after)) return;
        i64 from = graph.place((u32)graph.sentinels[row], before, position);
        slots_out[slot] = graph.slots[from];
        if (weights_out) weights_out[slot] = graph.weights[from];
    }
    DEVICE void grow_tree(u32 first, i64 i, i64 blocks) const {
        u64 block = first + (u64)(4 * i);
        for (i64 child = 2 * i + 1; child <= 2 * i + 2 && child < blocks; ++child)
            children_out[(block >> 2) * 2 + (u64)(child - 2 * i - 1)] = first + (u32)(4 * child);
    }
};
