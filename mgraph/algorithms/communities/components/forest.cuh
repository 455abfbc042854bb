// Connected components by all ranks together. Each rank has a forest over all vertices, as link.cuh says. The phases
// that need several steps are in files of their own: first_trees.cuh, largest_tree.cuh, root_exchange.cuh.
//   count                the own rows before the last empty ones
//   plant, adopt, begin_sample, sample, link
//                        join the ends of the arcs in own rows: of the first two arcs of each row before the others. Few
//                        rows come first and their trees are flattened, so that most others find themselves joined. All
//                        ranks are told how the first rows of each rank are planted: these have most of the arcs. If
//                        each arc is in two rows, the rows of the largest tree's vertices are not read: an arc that
//                        leaves it is in the row of its other end, too
//   agree, share         On several ranks, the largest tree must be one tree for all first. So each rank names the root
//                        of its largest tree, and which of the others' roots are in that tree. The least root is the
//                        reference. Ranks whose trees are one with its tree set the bits of their own vertices in it,
//                        and write them to all ranks, which link them
//   tell_own, adopt_own  If samples show that many vertices are outside of the reference's tree, each rank tells all
//                        others the root of each own vertex: 4 bytes, in memory order
//   tell                 A rank sends the other vertices that it has joined to all, as pairs of a vertex and its root,
//                        in as many parts as inboxes need; vertices whose own ranks have told a root are left out
// After that all forests join the same vertices.
//
// CPU ranks that map each other's memory may have one forest instead, in the region of rank 0. They link their own rows
// in it, as threads of one rank do, and nothing is told.
//
// A forest may begin with the links of an earlier one whose arcs still exist. Deleted arcs have cut it into patches.
//   plant, sample        a vertex is planted as it hung before. The other arcs link the patches, and so do a few
//                        neighbours of some vertices. Then all but the rows outside of the largest tree are skipped
#pragma once
#include "algorithms/communities/components/first_trees.cuh"
#include "algorithms/communities/components/largest_tree.cuh"
#include "algorithms/communities/components/link.cuh"
#include "algorithms/communities/components/root_exchange.cuh"
#include "algorithms/communities/components/vertex_groups.cuh"
#include "algorithms/primitives/programs.cuh"

constexpr int short_path = 16;  // steps

template <class View>
struct Forest {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    View graph;
    View back;
    i64 views;  // 2 where `back` has the in-edges of a directed graph
    i64 skips;  // 1 if each arc is in the rows of both its ends
    u32* parent;  // of all vertices
    u64* links;  // out: of all vertices, the arcs of this rank's forest; null if they are not wanted
    u8* hooks;  // 0 before: 1 for the ends of arcs by which other vertices were linked
    const u64* kept;  // links to begin with; null for none
    i64 stride;  // one row of so many is sampled
    const u32* names;  // of all vertices; null if they are their numbers
    // For all vertices: the parents that their ranks have told, then the roots to send in parts, then the least name in
    // the tree of each root. Of several ranks, each has it in its region.
    u32* spare;
    i64* labels;  // out: of the own vertices. Before, the first neighbours of their rows
    u64* largest;  // votes << 32 | root, and the own rows if many of them hang on other roots, else 0
    i64* active;  // of each rank, the rows before its last vertices without edges: only these are looked at
    i64 shared_offset;  // of a bitmap of all vertices, in each rank's region; -1 if all ranks have one forest
    i64 spare_offset;  // of `spare`, there too
    i64 planted;  // so many first rows of each rank are planted on all ranks; 0 for none
    u64* tasks;  // for each view, `task_room` of them
    i64 task_room;
    struct State {
        i64 phase = 0;
        i64 active = 0;  // rows of this rank
        i64 is_long = 0;  // 1 if an own vertex had a long path to its root
        i64 tasks = 0, back_tasks = 0;
        i64 reference = 0;  // a vertex of the tree that all ranks know, or no_vertex
        i64 agrees = 0;  // 1 if this rank's largest tree is part of it
        i64 scattered = 0;  // 1 if many vertices are outside of the reference's tree
        i64 told = 0;  // 1 once the ranks have told the roots of their own vertices
        i64 part = 0, parts = 0;  // of the vertices to send; 0: all at once
        i64 inbox = 0;  // 1 if pairs have come in
        i64 components = 0;
    };
    enum Stage : i64 {
        finished,
        count,
        plant,
        adopt,
        begin_sample,
        flatten,
        sample,
        flatten_own,
        flatten_rest,
        vote,
        agree,
        share,
        join,
        link_rows,
        link_tasks,
        flatten_rows,
        tell_own,
        adopt_own,
        tell,
        learn,
        flatten_all,
        name_trees,
        label
    };
    enum Number { TASKS, BACK_TASKS, REFERENCE, JOINED, ACTIVE, OUTSIDE = TASKS, LONG = TASKS, ROOTS = REFERENCE };

    // True if all ranks have one forest, with `parent` and `spare` in one region.
    DEVICE bool is_common() const { return shared_offset < 0; }
    DEVICE u32* shared_bits(i64 r) const { return world.words(r, shared_offset); }
    DEVICE u32* told_to(i64 r) const { return world.words(r, spare_offset); }  // `spare` of rank r
    DEVICE i64 planted_rows(i64 r) const { return lesser(planted, world.start(r + 1) - world.start(r)); }
    DEVICE i64 vertices() const { return world.vertices(); }
    DEVICE bool is_shared(i64 v, i64 reference) const {  // true if v is known to be in the reference's tree
        if constexpr (one_memory)
            if (is_common()) return (i64)stale_load(parent + v) == reference;
        return get_bit(shared_bits(world.rank), v);
    }
    DEVICE u32 shared_from(i64 v) const {  // the bits of a group of vertices that begins with v
        return stale_load(shared_bits(world.rank) + v / word_bits) >> v % word_bits;
    }
    DEVICE u64* task_list(int side) const { return tasks + side * task_room; }
    template <class Visit> DEVICE void visit_views(Visit visit) const {
        visit(graph, 0);
        if (views > 1) visit(back, 1);
    }

    DEVICE void begin(State& s) const { s.phase = vertices() > 0 ? (i64)count : (i64)finished; }
    DEVICE bool alone(const State& s) const {
        if constexpr (one_memory)
            if (is_common()) return s.phase == count || s.phase == link_rows;
        if (s.phase == count || s.phase == plant) return planted == 0;  // no rank is told before it has begun
        return s.phase != vote && s.phase != agree && s.phase != share && s.phase != tell_own && s.phase != tell &&
               s.phase != label;
    }
    DEVICE Shared shares(const State& s) const {
        Shared shared = s.phase == share ? shared_offset : -1;
        if (s.phase == tell_own) shared.array = spare_offset, shared.width = sizeof(u32);
        return shared;
    }
    DEVICE i64 items(const State& s, const Heard& heard) const {
        switch (s.phase) {
        case sample: return (kept ? vertices() : s.active) / 32;
        case flatten_own:
        case link_rows:
        case share:
        case tell_own:
        case label: return world.rows() / 32;
        case flatten: return s.active / 32;
        case link_tasks: return (s.tasks + s.back_tasks) * 8;
        case count:
        case vote:
        case agree: return 1;
        case learn: return received(heard, s.inbox) / 32;
        default: return vertices() / 32;
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        Numbers mine;
        View rows = graph;  // copies, which no store can change
        u32* trees = parent;
        FirstTrees<View> first{*this, s};
        LargestTree<View> tree{*this, s};
        RootExchange<View> exchange{*this, s};
        switch (s.phase) {
        case count:
            for (i64 i : grid.items(1)) mine.of[ACTIVE] = active_rows() + i;
            break;
        case plant: links ? first.plant(grid, rows, trees, links) : first.plant(grid, rows, trees, nullptr); break;
        case adopt: first.adopt(grid); break;
        case begin_sample:
        case sample:
            if (!kept) links ? first.sample(grid, trees, links) : first.sample(grid, trees, nullptr);
            else if (s.phase == sample) first.link_patches(grid, rows, trees);
            break;
        case vote: tree.vote(grid, mine); break;
        case agree: tree.agree(grid, heard, mine); break;
        case share: tree.share(grid); break;
        case join: tree.join(grid); break;
        case link_rows: do_link(grid, s); break;
        case link_tasks: do_link_tasks(grid, s); break;
        case tell_own: exchange.tell_own(grid); break;
        case adopt_own: exchange.adopt_own(grid); break;
        case tell:
            exchange.learn(grid, heard);
            exchange.tell(grid, heard);
            break;
        case learn: exchange.learn(grid, heard); break;
        case name_trees: do_name(grid, s); break;
        case label: do_label(grid, s, mine); break;
        default: do_flatten(grid, s, trees);
        }
        return mine;
    }

    // ---- phases -----------------------------------------------------------------------------------------------------

    // `take_vertices` for all vertices that may have edges, once the ranks have said how many these are.
    template <class Work> DEVICE void take_all(Grid grid, const State& s, const u32* trees, Work work) const {
        if constexpr (one_memory)
            if (is_common()) return take_vertices(grid, trees, world.lo(), world.lo() + s.active, work);
        for (i64 r = 0; r < world.size; ++r) {
            i64 first = world.start(r), rows = world.size > 1 ? load(active + r) : s.active;
            take_vertices(grid, trees, first, first + rows, work);
        }
    }
    DEVICE i64 active_rows() const {
        i64 n = skips ? 0 : world.rows();  // else an empty row's vertex may have in-edges
        visit_views([&](const View& edges, int) { n = greater(n, rows_before_empty(edges, world.rows())); });
        return n;
    }
    // The rows of rank r whose paths the phase shortens. Before the ranks vote, these are the own ones, and those that are
    // planted. A path of an own vertex may lead through many others, which no lane shortens then: so all are, if one is
    // long.
    DEVICE i64 flat_rows(const State& s, i64 r) const {
        if (s.phase == flatten_rest && !s.is_long) return 0;
        if (r == world.rank) return s.active;
        if constexpr (one_memory)
            if (is_common()) return 0;
        switch (s.phase) {
        case flatten: return planted_rows(r);
        case flatten_own: return 0;
        case flatten_rest: return world.start(r + 1) - world.start(r);
        default: return load(active + r);
        }
    }
    DEVICE void do_flatten(Grid grid, const State& s, u32* trees) const {
        bool last = s.phase == flatten_all || (s.phase == flatten_rows && world.size == 1);
        if constexpr (one_memory) last |= s.phase == flatten_rows && is_common();
        u32 root = no_id;
        auto flat = [&](i64 v, u32(&up)[vertices_at_once], u32 live) {
            auto gives_up = [&](u32 steps) {
                if constexpr (one_memory)
                    if (is_common()) return false;
                return steps > short_path && s.phase == flatten_own && world.size > 1;
            };
            if (compress(trees, v, up, live, root, gives_up)) store(world.number(LONG), (i64)1);
            for (int k = 0; last && names && k < vertices_at_once; ++k) {
                i64 next = v + k * Tile<32>::size();
                if (live >> k & 1 && up[k] == (u32)next) store(spare + next, names[next]);
            }
        };
        // These first: paths of own vertices lead through them.
        if (s.phase == flatten && !kept)
            for (i64 i : grid.items(s.active / sampled_first)) {
                u32 ids[] = {(u32)((u64)labels[i] >> 32), (u32)labels[i]};
                for (u32 id : ids)
                    if (id != no_id) compress(trees, id);
            }
        for (i64 r = 0; r < world.size; ++r)
            take_paths(grid, trees, world.start(r), world.start(r) + flat_rows(s, r), flat);
        if (last && links)
            for (i64 v : grid.items(vertices())) note_hook(links, hooks, v);
        if (s.parts && s.phase == flatten_rows)
            for (i64 v : grid.items(vertices())) store(spare + v, load(trees + v));
    }
    DEVICE void do_link(Grid grid, const State& s) const {
        Tile<lanes> tile;
        constexpr int count = rows_read_at_once;
        i64 first = world.lo(), known = world.size > 1 ? s.reference : LargestTree<View>{*this, s}.own_root(),
            whole = count * tile.size();
        bool all = !skips || known == no_vertex;
        for (i64 i : grid.items(tile, (s.active + whole - 1) / whole)) {
            bool open[count];
            i64 row = i * whole + tile.rank();
            for (int k = 0; k < count; ++k) open[k] = row + k * tile.size() < s.active;
            for (int k = 0; k < count; ++k) {
                i64 v = first + row + k * tile.size();
                if (open[k] && !all)
                    open[k] = world.size > 1 ? !is_shared(v, known) : (i64)stale_load(parent + v) != known;
            }
            for (int k = 0; k < count; ++k) {
                if (!tile.any(open[k])) continue;
                visit_views([&](const View& edges, int side) {
                    visit_rows(edges, tile, open[k] ? row + k * tile.size() : -1, task_list(side),
                               world.number(TASKS + side), [&](auto group, i64 next, i64 unit) {
                                   link_unit(edges, group, first + next, next, unit, parent, links, side > 0);
                               });
                });
            }
        }
    }
    DEVICE void do_link_tasks(Grid grid, const State& s) const {
        visit_views([&](const View& edges, int side) {
            visit_hubs(grid, edges, task_list(side), side ? s.back_tasks : s.tasks, [&](auto tile, i64 row, i64 unit) {
                link_unit(edges, tile, world.lo() + row, row, unit, parent, links, side > 0);
            });
        });
    }

    // A root has its own name in `spare` already: see `do_flatten`.
    DEVICE void do_name(Grid grid, const State& s) const {
        take_all(grid, s, parent, [&](i64 v, const u32(&root)[vertices_at_once], u32 live) {
            for (int k = 0; k < vertices_at_once; ++k)
                if (live >> k & 1 && root[k] != (u32)(v + k)) note_name(spare, root[k], names[v + k]);
        });
    }
    DEVICE void do_label(Grid grid, const State& s, Numbers& mine) const {
        i64 first = world.lo(), rows = world.rows();
        take_several<vertices_at_once>(grid, rows, [&](i64 from, i64 step) {
            u32 root[vertices_at_once], name[vertices_at_once];
            for (int k = 0; k < vertices_at_once; ++k) {
                i64 row = from + k * step;
                root[k] = row < s.active ? parent[first + row] : (u32)(first + row);
            }
            for (int k = 0; k < vertices_at_once; ++k) {
                i64 row = from + k * step;
                name[k] = !names || row >= rows ? root[k] : row < s.active ? spare[root[k]] : names[root[k]];
            }
            for (int k = 0; k < vertices_at_once; ++k) {
                i64 row = from + k * step;
                if (row >= rows) break;
                mine.of[ROOTS] += (i64)root[k] == first + row;
                labels[row] = name[k];
            }
        });
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        bool several = world.size > 1;
        if constexpr (one_memory) several = several && !is_common();
        switch (s.phase) {
        case count:
            s.active = heard.own(ACTIVE);
            s.phase = plant;
            break;
        case plant: s.phase = planted ? adopt : begin_sample; break;
        case flatten_own:
            s.is_long = heard.own(LONG) > 0;
            s.phase = several ? flatten_rest : vote;
            break;
        case vote:
            s.reference = heard.least(REFERENCE);
            s.phase = several ? agree : link_rows;
            break;
        case agree: {
            LargestTree<View> tree{*this, s};
            u64 ranks = s.reference != no_vertex ? tree.agreeing(heard) : 0;
            s.agrees = ranks >> world.rank & 1;
            s.scattered = tree.many_are_outside(heard, ranks);
            s.phase = share;
            break;
        }
        case link_rows:
            s.tasks = heard.own(TASKS), s.back_tasks = heard.own(BACK_TASKS);
            s.phase = link_tasks;
            break;
        case flatten_rows:
            s.phase = !several ? after_forest() : s.scattered > s.told ? (i64)tell_own : (i64)tell;
            break;
        case adopt_own:
            s.told = 1;
            s.phase = flatten_rows;
            break;
        case tell:
            s.inbox = !heard.any(overflowed);
            if (!s.inbox) {  // all is told again, part by part
                s.parts = (vertices() + world.room - 1) / world.room;
                s.phase = flatten_rows;
            } else if (++s.part >= s.parts) {
                s.phase = learn;
            }
            break;
        case flatten_all: s.phase = after_forest(); break;
        case label:
            s.components = heard.total(ROOTS);
            s.phase = finished;
            break;
        default: ++s.phase;
        }
    }
    DEVICE i64 after_forest() const { return names ? name_trees : label; }
};
