// The roots that ranks tell each other: those of their own vertices as an array, or those that others lack as pairs.
#pragma once
#include "algorithms/communities/components/link.cuh"
#include "algorithms/communities/components/vertex_groups.cuh"
#include "algorithms/primitives/programs.cuh"

template <class View> struct Forest;

template <class View>
struct RootExchange {
    using All = Forest<View>;
    const All& all;
    const typename All::State& s;
    const World& world = all.world;

    DEVICE void tell_own(Grid grid) const {
        for (i64 i : grid.items(world.rows())) {
            u32 root = load(all.parent + world.lo() + i);
            for (i64 r = 0; r < world.size; ++r)
                if (world.reaches(r)) store(all.told_to(r) + world.lo() + i, root);
        }
    }
    // Links the vertices as they were told. Those that hang on others get a bit: all ranks know that now.
    DEVICE void adopt_own(Grid grid) const {
        Tile<All::lanes> tile;
        u32* bitmap = all.shared_bits(world.rank);
        for (i64 word : grid.items(tile, words_of(all.vertices()))) {
            u32 bits = 0;
            for (int bit = 0; bit < word_bits; bit += tile.size()) {
                i64 v = word * word_bits + bit + tile.rank();
                u32 root = v < all.vertices() ? load(all.spare + v) : (u32)v;
                if (root != (u32)v) link(all.parent, (u32)v, root);
                bits |= tile.ballot(root != (u32)v) << bit;
            }
            if (tile.rank() == 0) store(bitmap + word, load(bitmap + word) | bits);
        }
    }

    // What this rank has joined besides, of a part of the vertices that begins with its own.
    DEVICE void tell(Grid grid, const Heard& heard) const {
        auto work = [&](i64 v, const u32(&root)[vertices_at_once], u32 live) { tell_of(heard, v, root, live); };
        if (!s.parts) {
            all.take_all(grid, s, all.parent, work);
            return;
        }
        i64 n = lesser(world.room, all.vertices() - s.part * world.room);
        i64 first = (world.lo() + s.part * world.room) % all.vertices();
        take_vertices(grid, all.spare, first, lesser(first + n, all.vertices()), work);
        take_vertices(grid, all.spare, 0, first + n - all.vertices(), work);
    }
    DEVICE void tell_of(const Heard& heard, i64 v, const u32 (&root)[vertices_at_once], u32 live) const {
        Tile<All::lanes> tile;
        u32 news = 0, known = live ? all.shared_from(v) : 0;
        for (int k = 0; k < vertices_at_once; ++k) {
            bool tells = !(known >> k & 1) || v + k == s.reference;
            news |= (u32)(tells && root[k] != (u32)(v + k)) << k;
        }
        news &= live;
        if (!tile.any(news)) return;
        for (int k = 0; k < vertices_at_once; ++k) {
            if (!tile.any(news >> k & 1)) continue;
            for (i64 r = 0; r < world.size; ++r)
                if (r != world.rank) send_together(tile, world, heard, news >> k & 1, r, (u64)(v + k) << 32 | root[k]);
        }
    }
    DEVICE void learn(Grid grid, const Heard& heard) const {
        for (i64 r = 0; s.inbox && r < world.size; ++r)
            for (i64 i : grid.items(heard.messages(r))) {
                u64 pair = world.template message<u64>(heard, r, i);
                link(all.parent, (u32)(pair >> 32), (u32)pair);
            }
    }
};
