// The first trees of a forest: each vertex hangs on a neighbour, or as it did in an earlier forest, and the first
// neighbours of rows are linked.
#pragma once
#include "algorithms/communities/components/link.cuh"
#include "algorithms/communities/components/vertex_groups.cuh"
#include "algorithms/primitives/programs.cuh"
#include "kernels/bits.cuh"
#include "kernels/world.cuh"

constexpr i64 sampled_first = 32;  // a row of so many is sampled before the others
constexpr i64 sampled_of_patches = 4;  // neighbours that are linked of a sampled row of kept links

template <class View> struct Forest;

template <class View>
struct FirstTrees {
    using All = Forest<View>;
    const All& all;
    const typename All::State& s;
    const World& world = all.world;

    // A run without links passes a constant, null, as `arcs`.
    DEVICE void plant(Grid grid, const View& edges, u32* trees, u64* arcs) const {
        i64 first = world.lo();
        take_several<rows_read_at_once>(grid, s.active, [&](i64 from, i64 step) {
            i64 row[rows_read_at_once];
            u64 arc[rows_read_at_once];
            u32 ids[rows_read_at_once][sampled];
            for (int k = 0; k < rows_read_at_once; ++k) {
                i64 next = from + k * step;
                arc[k] = arcs && all.kept && next < s.active ? all.kept[first + next] : unlinked;
                row[k] = next < s.active && arc[k] == unlinked ? next : -1;
            }
            first_neighbours(edges, s.active, row, ids);
            for (int k = 0; k < rows_read_at_once; ++k) {
                i64 next = from + k * step, v = first + next;
                if (next >= s.active) break;
                u32 up = lesser((u32)v, lesser(ids[k][0], ids[k][1]));
                if (!all.kept) all.labels[next] = (i64)arc_of(ids[k][0], ids[k][1]);
                plant_one(trees, arcs, v, up, arc[k]);
            }
        });
        if constexpr (one_memory)
            if (all.is_common()) {  // the other own vertices
                for (i64 row : grid.items(world.rows() - s.active)) {
                    i64 v = first + s.active + row;
                    plant_one(trees, arcs, v, (u32)v, unlinked);
                }
                return;
            }
        for (i64 i : grid.items(all.vertices() - s.active)) {  // the others
            i64 v = i < first ? i : i + s.active;
            plant_one(trees, arcs, v, (u32)v, arcs && all.kept ? all.kept[v] : unlinked);
        }
        if (world.size > 1)
            for (i64 i : grid.items(words_of(all.vertices()) + 1)) store(all.shared_bits(world.rank) + i, 0u);
    }
    DEVICE void plant_one(u32* trees, u64* arcs, i64 v, u32 up, u64 arc) const {
        if (arc != unlinked) up = hung_on(arc, v);
        trees[v] = up;
        i64 row = v - world.lo();
        if (row >= 0 && row < all.planted_rows(world.rank))
            for (i64 r = 0; r < world.size; ++r)
                if (r != world.rank) store(all.told_to(r) + v, up);
        if (arcs) arcs[v] = up == (u32)v ? unlinked : arc != unlinked ? arc : arc_of(v, up);
    }
    DEVICE void adopt(Grid grid) const {
        for (i64 r = 0; r < world.size; ++r) {
            if (r == world.rank) continue;
            for (i64 i : grid.items(all.planted_rows(r)))
                store(all.parent + world.start(r) + i, load(all.spare + world.start(r) + i));
        }
    }
    // Joins the neighbours that `plant` has noted: of the first rows, then of the others.
    DEVICE void sample(Grid grid, u32* trees, u64* arcs) const {
        i64 lo = world.lo(), few = s.active / sampled_first;
        i64 first = s.phase == All::sample ? few : 0, rows = (s.phase == All::sample ? s.active : few) - first;
        take_several<rows_read_at_once>(grid, rows, [&](i64 from, i64 step) {
            u32 ids[rows_read_at_once][sampled], near[rows_read_at_once], up[rows_read_at_once][sampled];
            for (int k = 0; k < rows_read_at_once; ++k) {
                u64 pair = from + k * step < rows ? (u64)all.labels[first + from + k * step] : arc_of(no_id, no_id);
                ids[k][0] = (u32)(pair >> 32), ids[k][1] = (u32)pair;
            }
            for (int k = 0; k < rows_read_at_once; ++k)
                near[k] = ids[k][0] == no_id ? 0 : stale_load(trees + lo + first + from + k * step);
            for (int k = 0; k < rows_read_at_once; ++k)
                for (int j = 0; j < sampled; ++j)
                    up[k][j] = ids[k][j] == no_id ? near[k] : stale_load(trees + ids[k][j]);
            u32 open = 0;  // a bit for each pair that is not in one tree
            for (int k = 0; k < rows_read_at_once; ++k)
                for (int j = 0; j < sampled; ++j) open |= (u32)(up[k][j] != near[k]) << (k * sampled + j);
            for (; open; open &= open - 1) {  // the lanes of a warp link at the same time, whichever pairs these are
                u32 one = 0, other = 0;
                u64 arc = unlinked;
                for (int k = 0; k < rows_read_at_once; ++k)
                    for (int j = 0; j < sampled; ++j) {
                        if (lowest_bit(open) != k * (int)sampled + j) continue;
                        one = near[k], other = up[k][j];
                        if (arcs) arc = arc_of(lo + first + from + k * step, ids[k][j]);
                    }
                link(trees, one, other, arcs, arc);
            }
        });
    }
    // Links the patches of an earlier forest: by its other arcs, and by sampled rows, so that most are in one tree.
    DEVICE void link_patches(Grid grid, const View& edges, u32* trees) const {
        i64 first = world.lo(), count = world.rows() / all.stride;
        for (i64 v : grid.items(all.vertices())) {
            u64 arc = all.kept[v];
            if (arc != unlinked && hung_on(arc, v) == (u32)v) link(trees, (u32)(arc >> 32), (u32)arc, all.links, arc);
        }
        auto row_at = [&](i64 i) { return i * all.stride; };
        for (i64 i : grid.items(count)) {
            fetch_row(edges, i, count, row_at);
            i64 v = first + row_at(i);
            u32 near = (u32)v, up = hung_on(all.kept[v], v);
            auto link_to = [&](u32 id) {
                if (id != up) near = link(trees, near, id, all.links, arc_of(v, id));
            };
            visit_sample(edges, row_at(i), link_to, sampled_of_patches);
        }
    }
};
