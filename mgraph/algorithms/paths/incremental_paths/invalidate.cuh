// Rounds of suspects, on any number of ranks: those without support are cut, and their children are suspects.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"

constexpr u32 settled = ~(u32)0;

// A suspect that is an own vertex is cut if no edge of these supports it, and no `last` says that there are more edges.
template <class View, class Tile32>
DEVICE void check_suspect(const View& graph, const Known& known, Tile32 tile, i64 at, bool last, i64& edges) {
    u32 suspect = load(known.suspects + at);
    if (suspect == settled) return;
    u32 root = nobodys;
    bool cut = get_bit(known.cut, suspect);  // CutOff lists a suspect for its next turn, and may cut it before that
    bool held = cut || supported(graph, known, tile, suspect, root, edges);
    tile.sync();
    if (known.root && !held) root = root_of(tile, root, suspect);
    if (tile.rank() > 0 || (!held && !last)) return;
    known.unlist(suspect);
    store(known.suspects + at, settled);
    if (held) return;
    if (known.root) store(known.root + suspect, root);
    set_bit(known.cut, suspect);
    store(known.gone + take_place(known.state + r_cut), suspect);
}

template <class View>
struct Check {  // a tile a suspect
    static constexpr int lanes = 32;
    View graph;  // the in-edges of own vertices
    Known known;
    i64 count;
    i64 last;  // 0 if there are more in another structure, in which to look for support
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, count)) check_suspect(graph, known, tile, i, last, edges);
        count_visited(known, tile, edges);
    }
};

template <class View>
struct Children {  // a tile an own vertex that was cut
    static constexpr int lanes = 32;
    View graph;
    Known known;
    i64 begin;
    i64 end;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, end - begin))
            visit_children(graph, known, tile, known.gone[begin + i], edges, [&](u32 v) { known.suspect(v); });
        count_visited(known, tile, edges);
    }
};

struct TakeSuspects {  // one lane a vertex of another rank's list: an own one is a suspect here
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n))
            if (known.owns(list[i]) && !get_bit(known.cut, list[i])) known.suspect(list[i]);
    }
};

struct Unlist {  // one lane a suspect: it is one no longer
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) known.unlist(list[i]);
    }
};

struct MarkCut {  // one lane a vertex that its owner has cut
    static constexpr int lanes = 1;
    Known known;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) set_bit(known.cut, list[i]);
    }
};
