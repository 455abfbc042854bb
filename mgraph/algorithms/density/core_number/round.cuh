// One round of the removal of vertices, `peel` in cores.cuh: edges of removed rows are taken from their other ends.
#pragma once
#include "algorithms/primitives/programs.cuh"
#include "kernels/buffered_append.cuh"

template <class View> struct Cores;

template <class View>
struct Round {  // one lane's
    static constexpr int lanes = 32;
    static constexpr u32 enough = Finds::most / 3;  // finds that a tile hands on at once
    // On a GPU a tile has less than `enough` before it visits a unit, or a short row of each lane. Units of sorted rows
    // have at most 256 edges.
    static constexpr bool always_fits = View::sorted && Tile<lanes>::size() > 1;
    static_assert(enough + 256 <= Finds::most && short_degree * lanes <= 256);

    const Cores<View>& all;
    const typename Cores<View>::State& s;
    const Heard& heard;
    Finds finds;
    bool single;  // true if no other thread takes edges away
    const World& world = all.world;
    u32 first = (u32)world.lo(), rows = (u32)world.rows();
    i64 listed = world.size == 1 ? 0 : load(all.edges_of(s.turn));  // edges of the listed rows
    bool fits = listed <= world.room;  // into any inbox

    // Takes an edge from an own row; true if that removes it.
    DEVICE bool lower(u32 row) const {
        u32 *edges = all.left + row, level = (u32)s.level;
        if (load(edges) <= level) return false;
        if ((single ? add_nearby(edges, ~0u) : atomic_add(edges, ~0u)) != level + 1) return false;
        all.core[row] = level;
        return true;
    }
    // The same for a vertex of any rank, where all have one array.
    DEVICE bool lower_common(u32 id) const {
        u32 *edges = left_of(id), level = (u32)s.level;
        if (load(edges) <= level || atomic_add(edges, ~0u) != level + 1) return false;
        if (owns(row_of(id))) all.core[row_of(id)] = level;
        return true;
    }
    DEVICE u32* left_of(u32 id) const { return all.left + ((i64)id - (i64)first); }
    DEVICE u32 row_of(u32 id) const { return id - first; }
    DEVICE bool owns(u32 row) const { return row < rows; }  // those before its first one wrap around
    DEVICE void take(u32 id, u32 from) const {
        u32 row = row_of(id);
        if constexpr (one_memory) {
            if (row == from || (all.is_common() ? !lower_common(id) : owns(row) && !lower(row))) return;
        } else {
            if (row == from || (owns(row) && !lower(row))) return;
        }
        if (single && !owns(row)) return send_alone(id);
        if (finds.add(id) || always_fits) return;
        if (owns(row)) enlist(row);
        else world.send(heard, world.owner(id), id);
    }
    // Takes an edge from the other end of each, as `take`. There is room for what is found.
    template <class Group, int n> DEVICE void take_several(Group group, const u32 (&ids)[n], u32 from) const {
        u32 own[n], edges[n];
#pragma unroll
        for (int k = 0; k < n; ++k) {
            u32 row = row_of(ids[k]);
            own[k] = owns(row) && row != from ? row : no_id;
        }
        all.lower_several(s, own, edges);
#pragma unroll
        for (int k = 0; k < n; ++k)
            finds.add_together(group, edges[k] == (u32)s.level + 1 || (ids[k] != no_id && !owns(row_of(ids[k]))),
                               ids[k]);
    }
    DEVICE void send_alone(u32 id) const {
        i64 owner = world.owner(id), place = world.counts()[owner]++;
        if (place < world.room) world.put(heard, owner, place, id);
    }
    DEVICE void enlist(u32 row) const {
        if (all.add_hubs(row, s.turn + 1)) wait(row);
    }
    DEVICE void wait(u32 row) const {  // for the next round
        store(all.listing(s.turn + 1) + take_place(world.number(Cores<View>::LISTED)), row);
        all.count_listed(Tile<1>{}, row, s.turn + 1);
    }
    // A CPU takes the edges away that messages tell of.
    DEVICE void receive(Grid grid) const {
        constexpr i64 ahead = 16;  // messages whose rows' memory has been asked for
        for (i64 r = 0; r < world.size; ++r) {
            i64 n = heard.messages(r);
            for (i64 i : grid.items(n)) {
                if (i + ahead < n) prefetch_to_write(all.left + row_of(world.message(heard, r, i + ahead)));
                u32 row = row_of(world.message(heard, r, i));
                bool removed = all.is_common() || lower(row);
                if (all.is_common()) all.core[row] = s.level;
                if (removed && !finds.add(row + first)) enlist(row);
            }
        }
    }
    // Returns the row of an own vertex, if its thread goes on with it. Otherwise an own vertex goes to the next list,
    // and another to its rank; then -1.
    DEVICE i64 deliver(u32 id, bool goes_on) const {
        u32 row = row_of(id);
        if (!owns(row)) world.send(heard, world.owner(id), id);
        else if (!goes_on) enlist(row);
        else if (all.add_hubs(row, s.turn + 1)) return row;
        return -1;
    }
    // What the tile has found leaves it, if that is `least` or more.
    template <class Tile32> DEVICE void hand_on(Tile32 tile, u32 least) const {
        u32 n = finds.waiting(tile);
        if (n < least) return;
        for (u32 at = 0; at < n; at += tile.size()) {
            u32 id = at + tile.rank() < n ? finds.ids[at + tile.rank()] : no_id;
            bool own = owns(row_of(id)), listed = own && all.add_hubs(row_of(id), s.turn + 1);
            if (own && !listed) finds.ids[at + tile.rank()] = no_id;
            all.count_listed(tile, listed ? (i64)row_of(id) : -1, s.turn + 1);
        }
        send_all(
            tile, world, heard, n, [&](u32 at) { return finds.ids[at]; }, world.number(Cores<View>::LISTED),
            [&](i64 place, u32 id) { store(all.listing(s.turn + 1) + place, row_of(id)); });
        tile.sync();
        finds.clear(tile);
    }
    template <class Group> DEVICE void expand_unit(const View& edges, Group group, i64 row, i64 unit) const {
        if constexpr (Tile<lanes>::size() == 1) {  // a CPU asks for the memory of a few at once
            constexpr int few = 16;
            u32 ids[few];
            int n = 0;
            auto take_all = [&] {
                for (int k = 0; k < n; ++k) take(ids[k], (u32)row);
                n = 0;
            };
            edges.visit(group, row, unit, [&](u32 id, i64, bool live) {
                if (!live) return false;
                prefetch_to_write(left_of(id));
                ids[n++] = id;
                if (n == few) take_all();
                return false;
            });
            take_all();
        } else if constexpr (always_fits) {
            if constexpr (Group::width == lanes) hand_on(group, enough);
            read_ids(edges, group, row, unit, [&](const auto& ids, i64) { take_several(group, ids, (u32)row); });
        } else {
            if constexpr (Group::width == lanes) hand_on(group, enough);
            edges.visit(group, row, unit, [&](u32 id, i64, bool live) {
                if (live) take(id, (u32)row);
                return false;
            });
        }
    }

    DEVICE i64 room() const { return world.room - (fits ? listed : 0); }
    // Returns true if `edges` messages fit into every inbox. More than an inbox can hold are let through: if they
    // go to one rank, the meeting says `overflowed`.
    DEVICE bool reserve(i64 edges) const {
        if constexpr (one_memory)
            if (all.is_common()) return true;
        return edges == 0 || edges > world.room ||
               atomic_add(world.number(Cores<View>::RESERVED), edges) + edges <= room();
    }
    DEVICE bool is_full() const { return world.size > 1 && load(world.number(Cores<View>::RESERVED)) > room(); }
    // Each lane has a row or -1. Rows without room for their messages are listed again.
    template <class Tile32> DEVICE i64 admit(Tile32 tile, i64 row) const {
        if constexpr (one_memory)
            if (all.is_common()) return row;
        u32 sum = row < 0 ? 0 : all.edges_to_visit(row), whole = tile.sum(sum);  // tasks are admitted one by one
        bool fits = true;
        if (whole > world.room / 8) fits = reserve(sum);
        else if (whole > 0) fits = tile.any(tile.rank() == 0 && reserve(whole));
        if (!fits && row >= 0) wait((u32)row);
        return fits ? row : -1;
    }
    // Expands each lane's row, -1 for none. A CPU's thread goes on with the rows that this removes.
    template <class Tile32> DEVICE void expand(Tile32 tile, i64 row) const {
        for (bool listed = true;; listed = false) {
            if (world.size > 1 && !(listed && fits)) row = admit(tile, row);
            all.visit_views([&](const View& edges, int side) {
                // On a GPU the rows before may have left more than short rows of all lanes leave room for.
                if (side || Tile32::size() > 1) hand_on(tile, enough);
                visit_rows(edges, tile, row, nullptr, nullptr,
                           [&](auto group, i64 next, i64 unit) { expand_unit(edges, group, next, unit); });
            });
            if constexpr (Tile32::size() > 1) return;
            u32 n = finds.waiting(tile);
            if (n == 0) return;
            row = deliver(finds.take_last(tile, n, no_id), !is_full());
        }
    }
    // Expands the part of a row's units that begins with `unit`.
    template <class Tile32>
    DEVICE void expand_part(const View& edges, Tile32 tile, i64 row, i64 unit, i64 end, i64 parts) const {
        for (; unit < end; unit += parts) expand_unit(edges, tile, row, unit);
    }
    template <class Tile32>
    DEVICE void expand_task(const View& edges, Tile32 tile, int side, u64 task, u32 part, u32 parts) const {
        i64 row = (i64)(task >> 32), unit = (i64)(u32)task;
        i64 end = lesser(unit + task_units(edges, row), (i64)edges.units(row));
        i64 count = fits ? 0 : count_edges(edges, tile, row, unit, end);
        if (!tile.any(tile.rank() == 0 && reserve(count))) {
            u64* later = all.task_list(side, s.turn + 1);
            if (tile.rank() > 0) return;
            store(later + take_place(world.number(Cores<View>::TASKS + side)), task);
            atomic_add(all.edges_of(s.turn + 1), count);
            return;
        }
        expand_part(edges, tile, row, unit + part, end, parts);
    }
    template <class Tile32>
    DEVICE i64 count_edges(const View& edges, Tile32 tile, i64 row, i64 unit, i64 end) const {
        u32 n = 0;
        for (; unit < end; ++unit)
            edges.visit(tile, row, unit, [&](u32, i64, bool live) {
                n += live;
                return false;
            });
        return tile.sum(n);
    }
    // Returns how many tiles share each of n rows.
    template <class Tile32> DEVICE u32 parts_of(Grid grid, Tile32 tile, i64 n) const {
        if (Tile32::size() == 1 || !fits || n == 0) return 1;
        return (u32)greater(lesser(grid.items(tile, n).step / n, most_parts), (i64)1);
    }
};
