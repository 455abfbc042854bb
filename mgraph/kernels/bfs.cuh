// The two ways of a breadth-first superstep, each with its hubs' tasks apart: top-down from the frontier along its edges,
// bottom-up from each unvisited vertex against its edges until one comes from a visited vertex.
// Both only set bits of `found`; lanes race to set the same bit, which is benign.
#pragma once
#include "frontier.cuh"
#include "rows.cuh"

template <class View, class Tile> DEVICE void mark(const View& graph, Tile tile, i64 row, i64 unit, u32* found) {
    graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
        if (live) set_bit(found, id);
        return false;
    });
}

template <class View>
struct Expand {  // top-down: a lane brings a vertex of the frontier
    static constexpr int lanes = 32;
    View graph;
    const u32* frontier;
    const i64* count;
    u32* found;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 n = *count;
        for (i64 i : grid.items(tile, (n + tile.size() - 1) / tile.size())) {
            i64 at = i * tile.size() + tile.rank();
            visit_rows(graph, tile, at < n ? (i64)frontier[at] : -1, tasks, n_tasks, [&](auto group, i64 row, i64 unit) {
                mark(graph, group, row, unit, found);
            });
        }
    }
};

template <class View>
struct ExpandHubs {  // top-down: a tile a task
    static constexpr int lanes = 32;
    View graph;
    const u64* tasks;
    const i64* n_tasks;
    u32* found;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks))
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                mark(graph, tile, row, unit, found);
                return false;
            });
    }
};

// Whether an edge of the unit comes from a visited vertex. A tile of one lane gives up after `most` edges; a wider one is
// given more than there are, because its lanes must stop together.
template <class View, class Tile>
DEVICE bool has_parent(const View& graph, Tile tile, i64 row, i64 unit, const u32* seen, i64& most) {
    bool hit = false;
    graph.visit(tile, row, unit, [&](u32 id, i64, bool live) {
        hit = tile.any(live && saw_bit(seen, id));
        return hit || (most -= live) <= 0;
    });
    return hit;
}

template <class View>
struct Pull {  // bottom-up: a tile a word of the own range; a lane tries the first edges of its vertex, the tile the rest
    static constexpr int lanes = 32;
    View graph;  // in-edges
    i64 first;
    i64 n;
    const u32* seen;  // every vertex visited before, on all ranks: not written meanwhile
    u32* found;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 w : grid.items(tile, words_of(n))) {
            u32 open = ~get_word(seen, first + w * word_bits) & word_mask(n, w), hits = 0;
            if (open == 0) continue;
            for (i64 b = 0; b < word_bits; b += tile.size()) {  // once on a GPU, where a tile is a word wide
                i64 bit = b + tile.rank();
                hits |= search(tile, open & bit_of(bit) ? w * word_bits + bit : -1) << b;
            }
            if (tile.rank() == 0 && hits) set_word(found, first + w * word_bits, hits);
        }
    }
    template <class Tile32> DEVICE u32 search(Tile32 tile, i64 row) const {
        i64 degree = row < 0 ? 0 : (i64)graph.degree(row), tries = short_degree;
        bool hit = false;
        if (degree > 0 && (degree <= short_degree || tile.size() > 1)) {
            i64 units = graph.units(row);
            for (i64 unit = 0; unit < units && !hit && tries > 0; ++unit) hit = has_parent(graph, Tile<1>{}, row, unit, seen, tries);
        }
        if (!hit && degree > HUB_DEGREE) add_tasks(graph, row, tasks, n_tasks);
        u32 hits = tile.ballot(hit);
        for (u32 rest = tile.ballot(!hit && degree > short_degree && degree <= HUB_DEGREE); rest; rest &= rest - 1) {
            int lane = lowest_bit(rest);
            i64 next = tile.shfl(row, lane), units = graph.units(next), all = HUB_DEGREE + 1;
            for (i64 unit = 0; unit < units; ++unit)
                if (has_parent(graph, tile, next, unit, seen, all)) {
                    hits |= 1u << lane;
                    break;
                }
        }
        return hits;
    }
};

template <class View>
struct PullHubs {  // bottom-up: a tile a task, unless another tile found the vertex meanwhile
    static constexpr int lanes = 32;
    View graph;  // in-edges
    i64 first;
    const u32* seen;
    u32* found;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 i : grid.items(tile, *n_tasks))
            visit_task(graph, tasks[i], [&](i64 row, i64 unit) {
                i64 all = (i64)graph.degree(row) + 1;
                bool done = tile.any(get_bit(found, first + row));
                if (!done && has_parent(graph, tile, row, unit, seen, all)) {
                    if (tile.rank() == 0) set_bit(found, first + row);
                    done = true;
                }
                return done;
            });
    }
};
