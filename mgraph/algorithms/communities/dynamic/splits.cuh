// Divides communities that lost an edge or a member into their connected components, and names those by their least
// members.
//
// Most such communities are still connected, or lost a few vertices, and a search from a few vertices shows that
// (`search.cuh`). The components of the others are found by a concurrent union-find over the edges inside of them.
#pragma once
#include "algorithms/communities/components/link.cuh"
#include "algorithms/communities/dynamic/live.cuh"
#include "algorithms/communities/dynamic/search.cuh"
#include "algorithms/communities/multilevel/local_moving.cuh"
#include "algorithms/primitives/fixed_point.cuh"

// Marks the communities that a vertex left or joined, and those of the ends of lost edges; one lane per noted vertex and
// changed arc.
struct Touch {
    static constexpr int lanes = 1;
    Search search;
    EdgeDelta changes;
    const u32* names;  // null for ids
    u8* renamed;  // per label: 1 where the least member may be another one
    u32* ends;  // out: two labels of each lane's; `no_id` for none
    DEVICE void touch(i64 i, u32 a, u32 b) const {
        store(search.touched + a, (u8)in_doubt), store(search.touched + b, (u8)in_doubt);
        ends[2 * i] = a, ends[2 * i + 1] = b;
    }
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(search.n_moved + changes.n)) {
            ends[2 * i] = ends[2 * i + 1] = no_id;
            if (i >= search.n_moved) {
                i64 arc = i - search.n_moved;
                if (search.loses(changes, arc))
                    touch(i, search.labels[changes.src(arc)], search.labels[changes.dst(arc)]);
                continue;
            }
            u32 v = search.moved[i], name = names ? names[v] : v, left = search.before[v], joined = search.labels[v];
            if (left == joined) continue;
            touch(i, left, joined);
            if (name == left) store(renamed + left, (u8)1);
            if (name < joined) store(renamed + joined, (u8)1);  // also where a vertex is alone
        }
    }
};

// Finds out whether members have to be looked at, one lane per touched label: 4 is set for communities in doubt, 2 for
// divided ones, and 1 for others with another least member.
struct FindFates {
    static constexpr int lanes = 1;
    const u32* ends;
    i64 n;
    const u8* touched;
    const u8* renamed;
    i64* totals;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) {
            if (ends[i] == no_id || !(touched[ends[i]] || renamed[ends[i]])) continue;
            i64 fate = touched[ends[i]];
            atomic_or((u64*)totals + fates, fate == in_doubt ? 4ull : fate == divided ? 2ull : 1ull);
        }
    }
};

struct ListMembers {  // lists the members of communities whose members have to be looked at, one lane per vertex
    static constexpr int lanes = 1;
    const u32* labels;
    i64 n;
    const u8* touched;
    const u8* renamed;
    u64* pairs;  // the vertex << 32 | its label
    i64* count;
    DEVICE void operator()(Grid grid) const {
        for (i64 v : grid.items(n)) {
            u32 label = labels[v];
            if (touched[label] || renamed[label]) pairs[take_place(count)] = (u64)v << 32 | label;
        }
    }
};

struct ClearTouched {  // one lane per touched label
    static constexpr int lanes = 1;
    const u32* ends;
    i64 n;
    u8* touched;
    u8* renamed;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n))
            if (ends[i] != no_id) store(touched + ends[i], (u8)0), store(renamed + ends[i], (u8)0);
    }
};

// The members of communities that are divided, or whose least member may be another one.
struct Members {
    const u32* list;
    i64 n;
    const u32* labels;
    const u8* touched;  // per label: its `Fate`
    u32* parent;  // of components of communities in doubt
    i64 first;  // the own rows
    i64 rows;
    DEVICE u8 fate(u32 v) const { return touched[labels[v]]; }
    DEVICE i64 operator()(i64 i) const {  // the own row to read, or -1
        i64 row = (i64)list[i] - first;
        return row >= 0 && row < rows && fate(list[i]) == in_doubt ? row : -1;
    }
};

struct BeginMembers {  // makes each member a component of its own, one lane per member
    static constexpr int lanes = 1;
    Members members;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(members.n)) members.parent[members.list[i]] = members.list[i];
    }
};

template <class View, class Group>
DEVICE void join_members(const View& graph, Group group, i64 row, i64 unit_of_row, const Members& members, f64 unit) {
    u32 v = (u32)(members.first + row), own = members.labels[v], near = v;
    graph.visit(group, row, unit_of_row, [&](u32 id, i64 slot, bool live) {
        if (live && members.labels[id] == own && fixed(graph, slot, unit) > 0) near = link(members.parent, near, id);
        return false;
    });
}

template <class View>
struct JoinMembers {  // joins the neighbours in a community, a row per lane; leaves hubs to JoinHubMembers
    static constexpr int lanes = 32;
    View graph;
    Members members;
    f64 unit;
    u64* tasks;
    i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_all(grid, graph, members.n, members, tasks, n_tasks, [&](auto group, i64 row, i64 unit_of_row) {
            join_members(graph, group, row, unit_of_row, members, unit);
        });
    }
};

template <class View>
struct JoinHubMembers {  // joins a hub's task per tile
    static constexpr int lanes = 32;
    View graph;
    Members members;
    f64 unit;
    const u64* tasks;
    const i64* n_tasks;
    DEVICE void operator()(Grid grid) const {
        visit_hubs(grid, graph, tasks, *n_tasks, [&](auto tile, i64 row, i64 unit_of_row) {
            join_members(graph, tile, row, unit_of_row, members, unit);
        });
    }
};

struct LinkPairs {  // joins the pairs that another rank has joined, one lane per pair
    static constexpr int lanes = 1;
    const u64* pairs;
    i64 n;
    u32* parent;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(n)) link(parent, (u32)(pairs[i] >> 32), (u32)pairs[i]);
    }
};

struct Compress {  // the root becomes each member's parent, one lane per member
    static constexpr int lanes = 1;
    Members members;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(members.n)) compress(members.parent, members.list[i]);
    }
};

// The groups of members that become communities: those of a label, or the parts of a divided one.
struct Groups {
    const u32* names;  // null for ids
    i64 n;  // vertices of the graph
    u32* least;  // [3 n]: the least name of each group, by label, and by 2 n + root
    u32* whole;  // [2 n]: the same of each label, also of a divided one; null where none is
    DEVICE u32 name(u32 v) const { return names ? names[v] : v; }
    DEVICE i64 of(u32 v, const Members& members, const Search& search) const {
        u8 fate = members.fate(v);
        if (fate == in_doubt) return 2 * n + (i64)members.parent[v];
        if (fate == divided && search.exhausted(v)) return 2 * n + (i64)search.root(search.set[v] - 1);
        return members.labels[v];
    }
};

struct BeginGroups {  // forgets the least names, one lane per member
    static constexpr int lanes = 1;
    Groups groups;
    Members members;
    Search search;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(members.n)) {
            u32 v = members.list[i];
            store(groups.least + groups.of(v, members, search), no_id);
            if (groups.whole) store(groups.whole + members.labels[v], no_id);
        }
    }
};

struct LeastMembers {  // computes the least name of each group, one lane per member
    static constexpr int lanes = 1;
    Groups groups;
    Members members;
    Search search;
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(members.n)) {
            u32 v = members.list[i];
            note_name(groups.least + groups.of(v, members, search), 0, groups.name(v));
            if (groups.whole) note_name(groups.whole + members.labels[v], 0, groups.name(v));
        }
    }
};

struct NameByLeast {  // labels each member by the least name of its group, one lane per member
    static constexpr int lanes = 1;
    Groups groups;
    Members members;
    Search search;
    Labels moving;
    u8* apart;  // out: 1 for members that are not in the component of their community's least member; or null
    i64* totals;  // out: their number
    DEVICE void operator()(Grid grid) const {
        for (i64 i : grid.items(members.n)) {
            u32 v = members.list[i], own = members.labels[v], name = groups.least[groups.of(v, members, search)];
            if (groups.whole && apart && name != groups.whole[own]) apart[v] = 1, take_place(totals + n_apart);
            if (name != own) moving.move(v, name);
        }
    }
};
