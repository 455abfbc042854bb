// Numbers communities by their smallest names, and builds the graph whose vertices they are.
#pragma once
#include "algorithms/primitives/fixed_point.cuh"
#include "kernels/rows.cuh"

struct MarkNames {  // marks smallest names, by which communities are numbered, one lane per community
    static constexpr int lanes = 1;
    const u32* least;
    i64 n;
    u8* marked;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(n))
            if (least[c] != no_label) marked[least[c]] = 1;
    }
};

struct NumberCommunities {  // writes the smallest names by number, one lane per community
    static constexpr int lanes = 1;
    const u32* least;
    const i64* upto;  // number of marked names up to each
    i64 n;
    u32* names;
    DEVICE void operator()(Grid grid) const {
        for (i64 c : grid.items(n))
            if (least[c] != no_label) names[upto[least[c]] - 1] = least[c];
    }
};

struct NumberVertices {  // writes the number of a vertex's community, one lane per vertex
    static constexpr int lanes = 1;
    const u32* labels;
    const u32* least;
    const i64* upto;
    i64 n;
    u32* numbers;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) numbers[v] = (u32)(upto[least[labels[v]]] - 1);
    }
};

struct CommunitiesOfParts {  // writes the number of each part's community, one lane per vertex
    static constexpr int lanes = 1;
    const u32* parts;  // number of each vertex's part
    const u32* numbers;  // number of each vertex's community
    i64 n;
    u32* communities;  // per part; its vertices write the same
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) store(communities + parts[v], numbers[v]);
    }
};

struct Between {  // output of arcs between communities; the lanes of a row take places from its counter
    const u32* numbers;
    i64 first;
    i64 begin;  // first row of this piece
    f64 unit;
    u32* counts;
    const i64* offsets;
    u64* keys;  // null while arcs are only counted
    u64* weights;
    template <class View, class Group> DEVICE void take(const View& graph, Group group, i64 row,
                                                        i64 unit_of_row) const {
        u32 own = numbers[first + row];
        graph.visit(group, row, unit_of_row, [&](u32 id, i64 slot, bool live) {
            u32 other = live ? numbers[id] : own, all = group.ballot(other != own);
            if (all == 0) return false;
            u32 place = group.shfl(group.rank() == 0 ? atomic_add(counts + row, (u32)popcount(all)) : 0u, 0);
            place += popcount(all & ((1u << group.rank()) - 1));
            if (other == own || !keys) return false;
            i64 at = offsets[row] - offsets[begin] + place;
            keys[at] = (u64)own << 32 | other, weights[at] = fixed(graph, slot, unit);
            return false;
        });
    }
};

template <class View>
struct JoinRows {  // writes the arcs of a piece's rows, a row per lane; leaves hubs to JoinHubs
    static constexpr int lanes = 32;
    View graph;
    i64 begin;
    i64 rows;
    Between between;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_all(grid, graph, rows, EveryRow{begin}, tasks, n_tasks,
                  [&](auto group, i64 row, i64 unit) { between.take(graph, group, row, unit); });
    }
};

template <class View>
struct JoinHubs {  // writes the arcs of a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    Between between;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks,
                   [&](auto tile, i64 row, i64 unit) { between.take(graph, tile, row, unit); });
    }
};

// Adds up the arcs between communities without sorting them, on a CPU: each thread has a sum per community.
template <class View>
struct MeasureCommunities {  // counts the vertices and the arcs of each community, one lane per own row
    static constexpr int lanes = 1;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    const u32* numbers;
    i64 n;
    i64* vertices;
    i64* arcs;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) {
            atomic_add(vertices + numbers[row], (i64)1);
            atomic_add(arcs + numbers[row], (i64)graph.degree(row) + (both ? (i64)back.degree(row) : 0));
        }
    }
};

struct GroupRows {  // lists the rows of each community, one lane per own row
    static constexpr int lanes = 1;
    const u32* numbers;
    i64 n;
    i64* places;  // next place of each community
    u32* rows;
    DEVICE void operator()(Grid grid) const {
        for (i64 row : grid.items(n)) rows[atomic_add(places + numbers[row], (i64)1)] = (u32)row;
    }
};

template <class View>
struct AddCommunities {  // adds up the arcs of a range of communities per lane
    static constexpr int lanes = 256;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    const u32* numbers;
    f64 unit;
    const u32* rows;  // by community
    const i64* begins;  // first of each community's rows
    const i64* room;  // first place of each community's arcs
    const i64* ranges;  // first community of each range
    i64 n_ranges;
    i64 communities;
    u64* sums;  // per range and community: 0 before and after
    u32* dst;
    u64* weights;
    i64* counts;  // out: different neighbours of each community
    DEVICE void operator()(Grid grid) const {
        for (i64 range : grid.items(n_ranges))
            for (i64 c = ranges[range]; c < ranges[range + 1]; ++c) counts[c] = add(sums + range * communities, (u32)c);
    }
    DEVICE i64 add(u64* sum, u32 own) const {
        i64 at = room[own], end = at;
        auto read = [&](const View& edges, i64 row) {
            i64 units = edges.degree(row) ? (i64)edges.units(row) : 0;
            for (i64 i = 0; i < units; ++i)
                edges.visit(Tile<1>{}, row, i, [&](u32 id, i64 slot, bool live) {
                    u32 other = live ? numbers[id] : own;
                    if (other == own) return false;
                    if (sum[other] == 0) dst[end++] = other;
                    sum[other] += fixed(edges, slot, unit);
                    return false;
                });
        };
        for (i64 i = begins[own]; i < begins[own + 1]; ++i) {
            read(graph, rows[i]);
            if (both) read(back, rows[i]);
        }
        // An arc of weight 0 is listed each time that it is met; all but the first are dropped with a sum of 0.
        i64 kept = at;
        for (i64 i = at; i < end; ++i) {
            u32 other = dst[i];
            if (sum[other] == 0) continue;
            dst[kept] = other, weights[kept++] = sum[other];
            sum[other] = 0;
        }
        return kept - at;
    }
};

struct CloseUp {  // copies the arcs of a community without gaps, a community per lane
    static constexpr int lanes = 32;
    const i64* room;
    const i64* offsets;
    i64 n;
    const u32* dst;
    const u64* weights;
    u32* to_dst;
    u64* to_weights;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, n))
            for (i64 i = tile.rank(); i < offsets[c + 1] - offsets[c]; i += tile.size())
                to_dst[offsets[c] + i] = dst[room[c] + i], to_weights[offsets[c] + i] = weights[room[c] + i];
    }
};

constexpr i64 chunk_keys = 1024;  // of keys that a tile adds up

struct CountDifferent {  // counts the ascending keys that begin in a chunk, a chunk per tile
    static constexpr int lanes = 32;
    const u64* keys;
    i64 n;
    i64* counts;
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, (n + chunk_keys - 1) / chunk_keys)) {
            i64 sum = 0;
            for (i64 i = c * chunk_keys + tile.rank(); i < lesser((c + 1) * chunk_keys, n); i += tile.size())
                sum += i == 0 || keys[i] != keys[i - 1];
            sum = tile.sum(sum);
            if (tile.rank() == 0) counts[c] = sum;
        }
    }
};

struct AddEqual {  // writes each different key once, with the sum of its weights; a chunk of ascending keys per tile
    static constexpr int lanes = 32;
    const u64* keys;
    const u64* weights;
    const u32* places;  // of each key's weight; null if they are in the order of the keys
    i64 n;
    const i64* before;  // number of different keys that begin before each chunk
    u64* out;
    u64* sums;  // 0 before
    DEVICE void operator()(Grid grid) const {
        Tile<lanes> tile;
        for (i64 c : grid.items(tile, (n + chunk_keys - 1) / chunk_keys)) {
            i64 end = lesser((c + 1) * chunk_keys, n), last = before[c] - 1;  // the key that began last
            u64 carry = 0;  // its sum in this chunk
            for (i64 base = c * chunk_keys; base < end; base += tile.size()) {
                i64 i = base + tile.rank();
                bool live = i < end;
                u64 key = live ? keys[i] : 0, weight = live ? weights[places ? (i64)places[i] : i] : 0;
                bool begins = live && (i == 0 || keys[i - 1] != key), ends = live && (i + 1 == n || keys[i + 1] != key);
                // Add up from the lane where the key begins, or from the lanes before.
                u32 all = tile.ballot(begins), upto = all & ((2u << tile.rank()) - 1);
                u64 sum = tile.scan(weight), first = tile.shfl(sum - weight, upto ? bit_width((u64)upto) - 1 : 0);
                sum = upto ? sum - first : sum + carry;
                i64 at = last + popcount(upto);
                if (begins) out[at] = key;
                // Other chunks add to a key that began before this one, or goes on after it.
                if (ends && at >= before[c]) sums[at] = sum;
                else if (ends || i + 1 == end) atomic_add(sums + at, sum);
                carry = tile.shfl(sum, tile.size() - 1), last += popcount(all);
            }
        }
    }
};
