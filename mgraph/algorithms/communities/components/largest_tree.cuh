// The largest tree of a forest, by votes of samples, and its vertices, which all ranks learn.
#pragma once
#include "algorithms/communities/components/link.cuh"
#include "algorithms/communities/components/vertex_groups.cuh"
#include "algorithms/primitives/programs.cuh"

constexpr u32 samples = 64;  // own vertices whose roots are compared to find the largest tree
constexpr u32 large = 8;  // it is skipped if it has at least 1 / large of them
constexpr u64 few = 4;  // the ranks tell their own roots if at least 1 / few of the sampled are outside of it
constexpr i64 no_vertex = (i64)1 << 62;

template <class View> struct Forest;

template <class View>
struct LargestTree {
    using All = Forest<View>;
    const All& all;
    const typename All::State& s;
    const World& world = all.world;

    // A tile counts the votes of the sampled vertices for their roots, and says the root of the largest tree.
    DEVICE void vote(Grid grid, Numbers& mine) const {
        Tile<All::lanes> tile;
        u64 rows = (u64)s.active;
        u32 n = (u32)lesser((u64)samples, rows), lane = tile.rank();
        auto at = [&](u32 i) { return (u32)(world.lo() + (rows < samples ? i : i * rows / samples)); };
        auto sample = [&](u32 i) { return i < n ? stale_load(all.parent + at(i)) : no_id; };
        for (i64 one : grid.items(tile, 1)) {
            u64 most = (u64)one;
            u32 hung = 0;
            for (u32 i = 0; i < n; i += tile.size()) {
                u32 root = sample(i + lane), votes = 0;
                hung += root != no_id && root != at(i + lane);
                for (u32 j = 0; j < n; j += tile.size()) {
                    u32 other = sample(j + lane);
                    for (int k = 0; k < tile.size(); ++k) votes += tile.shfl(other, k) == root;
                }
                if (root != no_id && votes * large >= n) most = greater(most, (u64)votes << 32 | root);
            }
            most = tile.most(most);
            hung = tile.sum(hung);
            if (tile.rank()) continue;
            store(all.largest, most);
            store(all.largest + 1, (most >> 32) * few < (u64)hung * (few - 1) ? rows : 0);
            mine.of[All::REFERENCE] = most ? (i64)(u32)most : no_vertex;
            mine.of[All::ACTIVE] = s.active;
        }
    }
    DEVICE void agree(Grid grid, const Heard& heard, Numbers& mine) const {
        for (i64 r : grid.items(world.size)) store(all.active + r, heard.number(r, All::ACTIVE));
        for (i64 i : grid.items(1)) {
            mine.of[All::REFERENCE] = own_root() + i;
            mine.of[All::JOINED] = joined_trees(heard);
            mine.of[All::ACTIVE] = s.active;
            mine.of[All::OUTSIDE] = (i64)load(all.largest + 1);
        }
    }
    DEVICE i64 own_root() const {  // of the largest tree of this rank, or no_vertex
        u64 votes = load(all.largest);
        return votes ? (i64)(u32)votes : no_vertex;
    }
    // The ranks whose largest trees are one with this rank's, as far as this rank knows: bits.
    DEVICE i64 joined_trees(const Heard& heard) const {
        i64 root = own_root();
        u64 ranks = 0;
        for (i64 r = 0; root != no_vertex && r < world.size; ++r) {
            i64 other = heard.number(r, All::REFERENCE);
            if (other != no_vertex && (i64)root_of(all.parent, (u32)other) == root) ranks |= (u64)1 << r;
        }
        return (i64)ranks;
    }
    // The ranks whose largest trees are one with the reference's, by the numbers of all ranks: bits.
    DEVICE u64 agreeing(const Heard& heard) const {
        u64 ranks = 0;
        for (i64 r = 0; r < world.size; ++r) ranks |= (u64)(heard.number(r, All::REFERENCE) == s.reference) << r;
        for (u64 before = 0; ranks != before;) {
            before = ranks;
            for (i64 r = 0; r < world.size; ++r) {
                u64 joined = (u64)heard.number(r, All::JOINED);
                if (joined & ranks) ranks |= joined;
            }
        }
        return ranks;
    }
    // A rank's rows are outside of the reference's tree if its largest tree is, or if many of them are outside of that.
    DEVICE bool many_are_outside(const Heard& heard, u64 ranks) const {
        u64 outside = 0;
        for (i64 r = 0; r < world.size; ++r) {
            bool other = !(ranks >> r & 1) && heard.number(r, All::REFERENCE) != no_vertex;
            outside += heard.number(r, other ? All::ACTIVE : All::OUTSIDE);
        }
        return outside && outside * few >= (u64)heard.total(All::ACTIVE);
    }
    DEVICE void share(Grid grid) const {
        OwnBits own{world};
        if (!s.agrees) return;
        u32 root = (u32)own_root();
        for (i64 i : grid.items(words_of(world.lo() + s.active) - own.first_word())) {
            i64 word = own.first_word() + i;
            const u32* up = all.parent + word * word_bits;
            u32 open = own(word), bits = 0;
            for (int bit = 0; bit < word_bits; bit += vertices_at_once) {
                u32 near[vertices_at_once];
                if (open == ~0u) load_several(up + bit, near);
                else
                    for (int k = 0; k < vertices_at_once; ++k)
                        near[k] = open >> (bit + k) & 1 ? stale_load(up + bit + k) : ~root;
                for (int k = 0; k < vertices_at_once; ++k) bits |= (u32)(near[k] == root) << (bit + k);
            }
            for (i64 r = 0; r < world.size; ++r)
                if (world.reaches(r)) own.put(all.shared_bits(r), word, bits);
        }
    }
    DEVICE void join(Grid grid) const {
        if (s.reference == no_vertex) return;
        u32 root = stale_load(all.parent + s.reference);
        all.take_all(grid, s, all.parent, [&](i64 v, const u32(&up)[vertices_at_once], u32 live) {
            u32 shared = live ? live & all.shared_from(v) : 0, news = 0;
            for (int k = 0; k < vertices_at_once; ++k) news |= (u32)(up[k] != root) << k;
            news &= shared;
            // All links of this phase lead to the reference's tree, so a root needs no atomic.
            for (int k = 0; k < vertices_at_once; ++k)
                if (news >> k & 1 && up[k] != (u32)(v + k))
                    link(all.parent, (u32)(v + k), (u32)s.reference), news ^= 1u << k;
            store_several(all.parent + v, news, root);
        });
    }
};
