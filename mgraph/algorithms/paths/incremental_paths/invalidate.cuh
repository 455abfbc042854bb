// Rounds of suspects, on any number of ranks: those without support are cut, and their children are suspects.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"

constexpr u32 settled = ~(u32)0;

// Cuts an own suspect that no edge supports.
template <class View, class Tile32>
DEVICE void check_suspect(const View& graph, const TreeState& tree, Tile32 tile, i64 at, i64& edges) {
    u32 suspect = load(tree.suspects + at);
    if (suspect == settled) return;
    u32 root = nobodys;
    // InvalidatePersistent lists a suspect for its next turn, and may cut the suspect before that.
    bool cut = get_bit(tree.cut, suspect);
    bool held = cut || supported(graph, tree, tile, suspect, root, edges);
    tile.sync();
    if (tree.root && !held) root = root_of(tile, root, suspect);
    if (tile.rank() > 0) return;
    tree.unlist(suspect);
    store(tree.suspects + at, settled);
    if (held) return;
    if (tree.root) store(tree.root + suspect, root);
    set_bit(tree.cut, suspect);
    store(tree.gone + take_place(tree.state + r_cut), suspect);
}

template <class View>
struct CheckSuspects {  // one tile per suspect
    static constexpr int lanes = 32;
    View graph;  // the in-edges of own vertices
    TreeState tree;
    i64 count;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, count)) check_suspect(graph, tree, tile, i, edges);
        count_visited(tree, tile, edges);
    }
};

template <class View>
struct SuspectChildren {  // one tile per own cut vertex
    static constexpr int lanes = 32;
    View graph;
    TreeState tree;
    i64 begin;
    i64 end;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        i64 edges = 0;
        for (i64 i : grid.items(tile, end - begin))
            visit_children(graph, tree, tile, tree.gone[begin + i], edges, [&](u32 v) { tree.suspect(v); });
        count_visited(tree, tile, edges);
    }
};

struct ReceiveSuspects {  // one lane per vertex of another rank's list: an own vertex becomes a suspect here
    static constexpr int lanes = 1;
    TreeState tree;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n))
            if (tree.owns(list[i]) && !get_bit(tree.cut, list[i])) tree.suspect(list[i]);
    }
};

struct Unlist {  // one lane per suspect: clears its mark
    static constexpr int lanes = 1;
    TreeState tree;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) tree.unlist(list[i]);
    }
};

struct MarkInvalid {  // one lane per vertex that its owner has cut
    static constexpr int lanes = 1;
    TreeState tree;
    const u32* list;
    i64 n;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) set_bit(tree.cut, list[i]);
    }
};
