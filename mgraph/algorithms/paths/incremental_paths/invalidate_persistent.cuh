// Rounds of suspects without the host, on a single rank.
#pragma once
#include "algorithms/paths/incremental_paths/tree_state.cuh"

// Checks suspects and their children without the host, on a single rank: roads have long chains of few suspects.
// Each block takes some suspects and continues to their children independently, with its own lists. If a block has much
// to do while most are idle, all lists are dealt out again, as after `steps` steps. A vertex that was found supported
// while its support was cut is a suspect again: its support is cut before it is listed, and it is unlisted before its
// support is looked at. It leaves when none are left, when they are more than `few`, when more than `most` edges were
// visited, and after `turns` turns.
template <class View>
struct InvalidatePersistent {
    static constexpr int lanes = 32;
    static constexpr int persistent = 1;
    static constexpr i64 room = 1024;  // of each of a block's lists
    static constexpr i64 much = 128;
    View graph;  // the in-edges
    View onward;  // the out-edges
    TreeState tree;
    u32* other;  // a second list, as long
    i64 few;
    i64 most;
    i64 turns;
    i64 steps;
    i64 same;  // 1 if in-edges and out-edges are the same
    u64* arrived;
    struct Own {  // a block's lists in memory that its lanes share: those of even and odd steps, and what it has cut
        u32* lists;
        u32* gone;
        u32* counts;  // of three steps in rotation; of what was cut; whether to stop
        i64* place;
        DEVICE u32* count(i64 step) const { return counts + step % 3; }
        DEVICE u32* gone_count() const { return counts + 3; }
        DEVICE u32* stop() const { return counts + 4; }
        DEVICE u32* list(i64 step) const { return lists + (step & 1) * room; }
        DEVICE i64 size(i64 step) const { return lesser((i64)load(count(step)), room); }
    };
    DEVICE u32* list(i64 turn) const { return turn & 1 ? other : tree.suspects; }
    // Of three turns in rotation: the suspects that it begins with, the edges visited before, the blocks that are done.
    DEVICE i64* counts(i64 turn) const { return tree.state + r_turns + turn % 3 * 3; }
    DEVICE void operator()(Grid grid) const {
        SHARED(u32, lists, 2 * room);
        SHARED(u32, gone, room);
        SHARED(u32, own_counts, 8);
        SHARED(i64, place, 1);
        const Own own{lists, gone, own_counts, place};
        Tile<lanes> tile;
        u64 goal = 0;
        i64 turn = 0, count = load(tree.state + r_suspects), visited = load(tree.state + r_edges);
        for (; count > 0 && count <= few && visited <= most && turn < turns; ++turn) {
            i64 edges = 0, blocks = grid.items(Block{}, count).step, part = (count + blocks - 1) / blocks;
            part = greater(lesser(part, room / 2), (i64)1);
            for (i64 one : grid.items(3)) store(counts(turn + 2) + one, (i64)0);
            for (i64 i : grid.items(Block{}, (count + part - 1) / part))
                edges += invalidate_from(own, i * part, lesser(count, (i + 1) * part), turn, blocks);
            if (Block{}.rank() == 0) atomic_add(counts(turn + 1) + 2, (i64)1);
            edges = tile.sum(edges);
            if (tile.rank() == 0 && edges) atomic_add(counts(turn + 1) + 1, edges);
            grid.meet(arrived, goal);
            count = load(counts(turn + 1)), visited += load(counts(turn + 1) + 1);
        }
        if (turn & 1)
            for (i64 i : grid.items(count)) store(tree.suspects + i, load(other + i));
        grid.meet(arrived, goal);  // all have read the counts
        for (i64 one : grid.items(9)) store(tree.state + r_turns + one, (i64)0);
        for (i64 one : grid.items(1)) {
            store(tree.state + r_suspects + one, count);
            store(tree.state + r_edges + one, visited);
        }
    }
    // A block continues from the suspects at begin .. end - 1; those that are left are listed for the next turn.
    DEVICE i64 invalidate_from(const Own& own, i64 begin, i64 end, i64 turn, i64 blocks) const {
        Block block;
        i64 edges = 0, step = 0;
        bool stop = false;
        if (block.rank() == 0) {
            for (i64 i = 0; i < 8; ++i) store(own.counts + i, 0u);
            store(own.count(0), (u32)(end - begin));
        }
        for (i64 i = block.rank(); i < end - begin; i += block.size()) {
            u32 v = load(list(turn) + begin + i);
            tree.unlist(v);
            store(own.list(0) + i, v);
        }
        fence();
        block.sync();
        for (; step < steps; ++step) {
            i64 n = own.size(step);
            if (n == 0 || stop) break;
            i64 all_idle = block.rank() == 0 && n > much ? load(counts(turn + 1) + 2) : 0;
            if (block.rank() == 0) store(own.count(step + 2), 0u);
            const u32* list = own.list(step);
            visit_in_block(
                graph, (int)n, [&](int i) { return (u32)(load(list + i) - tree.first); },
                [&](auto group, int i, u32, int) { check(own, group, load(list + i), step + 1, turn, edges); });
            if (block.rank() == 0 && 2 * all_idle > blocks) store(own.stop(), 1u);
            block.sync();
            stop = load(own.stop());
            bool full = load(own.gone_count()) > room / 2;
            block.sync();  // all lanes have read the same
            if (full) put_gone(own);
        }
        for (i64 i = block.rank(), n = own.size(step); i < n; i += block.size())
            keep(load(own.list(step) + i), turn + 1);
        put_gone(own);
        return edges;
    }
    DEVICE void keep(u32 v, i64 turn) const {
        if (tree.lists(v)) store(list(turn) + take_place(counts(turn)), v);
    }
    DEVICE void put_gone(const Own& own) const {
        Block block;
        i64 n = lesser((i64)load(own.gone_count()), room);
        if (block.rank() == 0) store(own.place, atomic_add(tree.state + r_cut, n));
        block.sync();
        for (i64 i = block.rank(); i < n; i += block.size()) store(tree.gone + load(own.place) + i, load(own.gone + i));
        if (block.rank() == 0) store(own.gone_count(), 0u);
        block.sync();
    }
    DEVICE void add(const Own& own, u32 v, i64 step, i64 turn) const {
        i64 n = atomic_add(own.count(step), 1u);
        if (n < room) return store(own.list(step) + n, v);
        fence();
        keep(v, turn + 1);
    }
    // A group looks for support of a suspect. Without any, it is cut, and those that it supported are suspects.
    template <class Group>
    DEVICE void check(const Own& own, Group group, u32 v, i64 step, i64 turn, i64& edges) const {
        bool once = same && group.size() == narrow, held = false, several = false;
        u32 root = nobodys;
        i64 child = -1, begin = 0, ends[2] = {-1, -1}, slots[2];
        if (once)
            visit_edges(graph, tree, group, v, edges, [&](u32 u, i64 slot, bool live) {
                if (!live) return false;
                several |= ends[1] >= 0;
                ends[1] = ends[0], slots[1] = slots[0];
                ends[0] = u, slots[0] = slot;
                return false;
            });
        once = once && !group.any(several);
        if (once) {
            i64 begins[2];
            bool gone[2];
            u32 roots[2];
            f32 weights[2];
            Word lengths[2];
            for (int k = 0; k < 2; ++k) {
                if (ends[k] < 0) continue;
                gone[k] = get_bit(tree.cut, ends[k]), weights[k] = graph.weight(slots[k]);
                begins[k] = begin_of(graph, ends[k] - tree.first), lengths[k] = tree.length[ends[k]];
                if (tree.root) roots[k] = load(tree.root + ends[k]);
            }
            for (int k = 0; k < 2; ++k) {
                if (ends[k] < 0) continue;
                if (gone[k]) {
                    if (tree.root && tree.holds(ends[k], v, weights[k])) root = roots[k];
                } else if (lengths[k] < tree.length[v]) {
                    held |= tree.leads(ends[k], v, weights[k]);
                } else if (!tree.rooted(ends[k]) && tree.leads(v, ends[k], weights[k])) {
                    several |= child >= 0;
                    child = ends[k], begin = begins[k];
                }
            }
        } else {
            held = supported(graph, tree, group, v, root, edges);
        }
        if (group.any(held)) return;
        if (tree.root) root = root_of(group, root, v);
        if (child >= 0) fetch_from(graph, begin);
        if (group.rank() == 0 && tree.root) store(tree.root + v, root);
        bool first = group.rank() == 0 && !(atomic_or(tree.cut + v / word_bits, bit_of(v)) & bit_of(v));
        if (first) {
            i64 n = atomic_add(own.gone_count(), 1u);
            if (n < room) store(own.gone + n, v);
            else store(tree.gone + take_place(tree.state + r_cut), v);
        }
        if (!group.any(first)) return;
        if (once && !group.any(several)) {
            if (child >= 0) add(own, (u32)child, step, turn);
        } else {
            visit_children(onward, tree, group, v, edges, [&](u32 id) { add(own, id, step, turn); });
        }
    }
};
