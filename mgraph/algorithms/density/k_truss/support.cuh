// Counts the triangles of each kept edge; `triangles.cuh` defines which edges are kept.
#pragma once
#include "algorithms/density/edge_triangles.cuh"

struct Support {  // one edge per lane, from u of any rank to v: each triangle counts for its three edges
    static constexpr int lanes = 32;
    Part lower;  // the rows of u; its offsets begin with 0
    Part upper;  // the rows of v: all own rows
    i64 edges;
    u32* theirs;  // per edge of `lower`
    u32* mine;    // per own edge
    DEVICE void operator()(Grid grid) const {
        with_places(lower, upper, [&](auto places) {
            close_edges(grid, lower, upper, edges, [&](i64 edge, i64 row, i64 v) {
                u32 found = 0;
                each_common(lower, upper, row, v, places, [&](i64 at_u, i64 at_v) {
                    reduce_add(theirs + at_u, 1u), reduce_add(mine + at_v, 1u);
                    ++found;
                });
                if (found) reduce_add(theirs + edge, found);
            });
        });
    }
};
