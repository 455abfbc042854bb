// Connected components by all ranks together. Each rank has a forest over all vertices, as link.cuh says.
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
// A forest may begin with the links of an earlier one whose arcs still exist. Deleted arcs have cut it into patches.
//   plant, sample        a vertex is planted as it hung before. The other arcs link the patches, and so do a few
//                        neighbours of some vertices. Then all but the rows outside of the largest tree are skipped
#pragma once
#include "algorithms/communities/components/link.cuh"
#include "algorithms/primitives/programs.cuh"

constexpr u32 samples = 64;  // own vertices whose roots are compared to find the largest tree
constexpr u32 large = 8;  // it is skipped if it has at least 1 / large of them
constexpr u64 few = 4;  // the ranks tell their own roots if at least 1 / few of the sampled are outside of it
constexpr i64 sampled_first = 32;  // a row of so many is sampled before the others
constexpr i64 sampled_of_patches = 4;  // neighbours that are linked of a sampled row of kept links
constexpr i64 no_vertex = (i64)1 << 62;

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
    i64 shared_offset;  // of a bitmap of all vertices, in each rank's region
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

    DEVICE u32* shared_bits(i64 r) const { return world.words(r, shared_offset); }
    DEVICE u32* told_to(i64 r) const { return world.words(r, spare_offset); }  // `spare` of rank r
    DEVICE i64 planted_rows(i64 r) const { return lesser(planted, world.start(r + 1) - world.start(r)); }
    DEVICE i64 vertices() const { return world.vertices(); }
    DEVICE u64* task_list(int side) const { return tasks + side * task_room; }
    template <class Visit> DEVICE void visit_views(Visit visit) const {
        visit(graph, 0);
        if (views > 1) visit(back, 1);
    }

    DEVICE void begin(State& s) const { s.phase = vertices() > 0 ? (i64)count : (i64)finished; }
    DEVICE bool alone(const State& s) const {
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
        switch (s.phase) {
        case count:
            for (i64 i : grid.items(1)) mine.of[ACTIVE] = active_rows() + i;
            break;
        case plant: links ? do_plant(grid, s, rows, trees, links) : do_plant(grid, s, rows, trees, nullptr); break;
        case adopt: do_adopt(grid); break;
        case begin_sample:
        case sample:
            if (!kept) links ? do_sample(grid, s, trees, links) : do_sample(grid, s, trees, nullptr);
            else if (s.phase == sample) do_link_patches(grid, rows, trees);
            break;
        case vote: do_vote(grid, s, mine); break;
        case agree:
            for (i64 r : grid.items(world.size)) store(active + r, heard.number(r, ACTIVE));
            for (i64 i : grid.items(1)) {
                mine.of[REFERENCE] = own_largest() + i;
                mine.of[JOINED] = joined_trees(heard);
                mine.of[ACTIVE] = s.active;
                mine.of[OUTSIDE] = (i64)load(largest + 1);
            }
            break;
        case share: do_share(grid, s); break;
        case join: do_join(grid, s); break;
        case link_rows: do_link(grid, s); break;
        case link_tasks: do_link_tasks(grid, s); break;
        case tell_own: do_tell_own(grid); break;
        case adopt_own: do_adopt_own(grid); break;
        case tell:
            do_learn(grid, s, heard);
            do_tell(grid, s, heard);
            break;
        case learn: do_learn(grid, s, heard); break;
        case name_trees: do_name(grid, s); break;
        case label: do_label(grid, s, mine); break;
        default: do_flatten(grid, s, trees);
        }
        return mine;
    }

    // ---- phases -----------------------------------------------------------------------------------------------------

    // Calls work(first, step): a lane has `count` of n items, from `first` in steps; some may be n or more.
    template <int count, class Work> static DEVICE void take_several(Grid grid, i64 n, Work work) {
        i64 step = (n + count - 1) / count;
        for (i64 i : grid.items(step)) work(i, step);
    }
    // Calls work(v, up, live) for groups of vertices from `first` to `last`: v and those behind it, their parents, and
    // bits for those in the range. All lanes of a tile call it equally often.
    template <class Work>
    static DEVICE void take_vertices(Grid grid, const u32* trees, i64 first, i64 last, Work work) {
        constexpr int n = vertices_at_once;
        i64 begin = first / n * n, groups = first < last ? (last - begin + n - 1) / n : 0;
        for (i64 i : grid.items((groups + lanes - 1) / lanes * lanes)) {
            i64 v = begin + i * n;
            u32 live = own_bits(v, first, last), up[n] = {};
            if (live == (1u << n) - 1) load_several(trees + v, up);
            else
                for (int k = 0; k < n; ++k)
                    if (live >> k & 1) up[k] = stale_load(trees + v + k);
            work(v, up, live);
        }
    }
    // The same for all vertices that may have edges, once the ranks have said how many these are.
    template <class Work> DEVICE void take_all(Grid grid, const State& s, const u32* trees, Work work) const {
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
    static DEVICE u32 own_bits(i64 v, i64 first, i64 last) {  // of v and those behind it: which are in the range
        u32 live = 0;
        for (int k = 0; k < vertices_at_once; ++k) live |= (u32)(v + k >= first && v + k < last) << k;
        return live;
    }
    // A run without links passes a constant, null, as `arcs`.
    DEVICE void do_plant(Grid grid, const State& s, const View& edges, u32* trees, u64* arcs) const {
        i64 first = world.lo();
        take_several<rows_read_at_once>(grid, s.active, [&](i64 from, i64 step) {
            i64 row[rows_read_at_once];
            u64 arc[rows_read_at_once];
            u32 ids[rows_read_at_once][sampled];
            for (int k = 0; k < rows_read_at_once; ++k) {
                i64 next = from + k * step;
                arc[k] = arcs && kept && next < s.active ? kept[first + next] : unlinked;
                row[k] = next < s.active && arc[k] == unlinked ? next : -1;
            }
            first_neighbours(edges, s.active, row, ids);
            for (int k = 0; k < rows_read_at_once; ++k) {
                i64 next = from + k * step, v = first + next;
                if (next >= s.active) break;
                u32 up = lesser((u32)v, lesser(ids[k][0], ids[k][1]));
                if (!kept) labels[next] = (i64)arc_of(ids[k][0], ids[k][1]);
                plant_one(trees, arcs, v, up, arc[k]);
            }
        });
        for (i64 i : grid.items(vertices() - s.active)) {  // the others
            i64 v = i < first ? i : i + s.active;
            plant_one(trees, arcs, v, (u32)v, arcs && kept ? kept[v] : unlinked);
        }
        if (world.size > 1)
            for (i64 i : grid.items(words_of(vertices()) + 1)) store(shared_bits(world.rank) + i, 0u);
    }
    DEVICE void plant_one(u32* trees, u64* arcs, i64 v, u32 up, u64 arc) const {
        if (arc != unlinked) up = hung_on(arc, v);
        trees[v] = up;
        i64 row = v - world.lo();
        if (row >= 0 && row < planted_rows(world.rank))
            for (i64 r = 0; r < world.size; ++r)
                if (r != world.rank) store(told_to(r) + v, up);
        if (arcs) arcs[v] = up == (u32)v ? unlinked : arc != unlinked ? arc : arc_of(v, up);
    }
    DEVICE void do_adopt(Grid grid) const {
        for (i64 r = 0; r < world.size; ++r) {
            if (r == world.rank) continue;
            for (i64 i : grid.items(planted_rows(r)))
                store(parent + world.start(r) + i, load(spare + world.start(r) + i));
        }
    }
    // Joins the neighbours that `do_plant` has noted: of the first rows, then of the others.
    DEVICE void do_sample(Grid grid, const State& s, u32* trees, u64* arcs) const {
        i64 lo = world.lo(), few = s.active / sampled_first;
        i64 first = s.phase == sample ? few : 0, rows = (s.phase == sample ? s.active : few) - first;
        take_several<rows_read_at_once>(grid, rows, [&](i64 from, i64 step) {
            u32 ids[rows_read_at_once][sampled], near[rows_read_at_once], up[rows_read_at_once][sampled];
            for (int k = 0; k < rows_read_at_once; ++k) {
                u64 pair = from + k * step < rows ? (u64)labels[first + from + k * step] : arc_of(no_id, no_id);
                ids[k][0] = (u32)(pair >> 32), ids[k][1] = (u32)pair;
            }
            for (int k = 0; k < rows_read_at_once; ++k)
                near[k] = ids[k][0] == no_id ? 0 : stale_load(trees + lo + first + from + k * step);
            for (int k = 0; k < rows_read_at_once; ++k)
                for (int j = 0; j < sampled; ++j)
                    up[k][j] = ids[k][j] == no_id ? near[k] : stale_load(trees + ids[k][j]);
            for (int k = 0; k < rows_read_at_once; ++k)
                for (int j = 0; j < sampled; ++j)
                    if (up[k][j] != near[k])
                        near[k] = link(trees, near[k], up[k][j], arcs, arc_of(lo + first + from + k * step, ids[k][j]));
        });
    }
    // Links the patches of an earlier forest: by its other arcs, and by sampled rows, so that most are in one tree.
    DEVICE void do_link_patches(Grid grid, const View& edges, u32* trees) const {
        i64 first = world.lo(), count = world.rows() / stride;
        for (i64 v : grid.items(vertices())) {
            u64 arc = kept[v];
            if (arc != unlinked && hung_on(arc, v) == (u32)v) link(trees, (u32)(arc >> 32), (u32)arc, links, arc);
        }
        auto row_at = [&](i64 i) { return i * stride; };
        for (i64 i : grid.items(count)) {
            fetch_row(edges, i, count, row_at);
            i64 v = first + row_at(i);
            u32 near = (u32)v, up = hung_on(kept[v], v);
            auto link_to = [&](u32 id) {
                if (id != up) near = link(trees, near, id, links, arc_of(v, id));
            };
            visit_sample(edges, row_at(i), link_to, sampled_of_patches);
        }
    }
    // The rows of rank r whose paths the phase shortens. Before the ranks vote, these are the own ones, and those that are
    // planted. A path of an own vertex may lead through many others, which no lane shortens then: so all are, if one is
    // long.
    DEVICE i64 flat_rows(const State& s, i64 r) const {
        if (s.phase == flatten_rest && !s.is_long) return 0;
        if (r == world.rank) return s.active;
        switch (s.phase) {
        case flatten: return planted_rows(r);
        case flatten_own: return 0;
        case flatten_rest: return world.start(r + 1) - world.start(r);
        default: return load(active + r);
        }
    }
    DEVICE void do_flatten(Grid grid, const State& s, u32* trees) const {
        bool last = s.phase == flatten_all || (s.phase == flatten_rows && world.size == 1);
        auto flat = [&](i64 v, u32(&up)[vertices_at_once], u32 live) {
            auto gives_up = [&](u32 steps) { return steps > short_path && s.phase == flatten_own && world.size > 1; };
            if (compress(trees, v, up, live, gives_up)) store(world.number(LONG), (i64)1);
            for (int k = 0; last && names && k < vertices_at_once; ++k)
                if (live >> k & 1 && up[k] == (u32)(v + k)) store(spare + v + k, names[v + k]);
        };
        // These first: paths of own vertices lead through them.
        if (s.phase == flatten && !kept)
            for (i64 i : grid.items(s.active / sampled_first)) {
                u32 ids[] = {(u32)((u64)labels[i] >> 32), (u32)labels[i]};
                for (u32 id : ids)
                    if (id != no_id) compress(trees, id);
            }
        for (i64 r = 0; r < world.size; ++r)
            take_vertices(grid, trees, world.start(r), world.start(r) + flat_rows(s, r), flat);
        if (last && links)
            for (i64 v : grid.items(vertices())) note_hook(links, hooks, v);
        if (s.parts && s.phase == flatten_rows)
            for (i64 v : grid.items(vertices())) store(spare + v, load(trees + v));
    }
    // A tile counts the votes of the sampled vertices for their roots, and says the root of the largest tree.
    DEVICE void do_vote(Grid grid, const State& s, Numbers& mine) const {
        Tile<lanes> tile;
        u64 rows = (u64)s.active;
        u32 n = (u32)lesser((u64)samples, rows), lane = tile.rank();
        auto at = [&](u32 i) { return (u32)(world.lo() + (rows < samples ? i : i * rows / samples)); };
        auto sample = [&](u32 i) { return i < n ? stale_load(parent + at(i)) : no_id; };
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
            store(largest, most);
            store(largest + 1, (most >> 32) * few < (u64)hung * (few - 1) ? rows : 0);
            mine.of[REFERENCE] = most ? (i64)(u32)most : no_vertex;
            mine.of[ACTIVE] = s.active;
        }
    }
    DEVICE i64 own_largest() const {  // its root, or no_vertex
        u64 votes = load(largest);
        return votes ? (i64)(u32)votes : no_vertex;
    }
    // The ranks whose largest trees are one with this rank's, as far as this rank knows: bits.
    DEVICE i64 joined_trees(const Heard& heard) const {
        i64 root = own_largest();
        u64 ranks = 0;
        for (i64 r = 0; root != no_vertex && r < world.size; ++r) {
            i64 other = heard.number(r, REFERENCE);
            if (other != no_vertex && (i64)root_of(parent, (u32)other) == root) ranks |= (u64)1 << r;
        }
        return (i64)ranks;
    }
    // The ranks whose largest trees are one with the reference's, by the numbers of all ranks: bits.
    DEVICE u64 agreeing(const Heard& heard, i64 reference) const {
        u64 ranks = 0;
        for (i64 r = 0; r < world.size; ++r) ranks |= (u64)(heard.number(r, REFERENCE) == reference) << r;
        for (u64 before = 0; ranks != before;) {
            before = ranks;
            for (i64 r = 0; r < world.size; ++r) {
                u64 joined = (u64)heard.number(r, JOINED);
                if (joined & ranks) ranks |= joined;
            }
        }
        return ranks;
    }
    // A rank's rows are outside of the reference's tree if its largest tree is, or if many of them are outside of that.
    DEVICE bool many_are_outside(const Heard& heard, u64 ranks) const {
        u64 outside = 0;
        for (i64 r = 0; r < world.size; ++r) {
            bool other = !(ranks >> r & 1) && heard.number(r, REFERENCE) != no_vertex;
            outside += heard.number(r, other ? ACTIVE : OUTSIDE);
        }
        return outside && outside * few >= (u64)heard.total(ACTIVE);
    }
    DEVICE void do_share(Grid grid, const State& s) const {
        OwnBits own{world};
        if (!s.agrees) return;
        u32 root = (u32)own_largest();
        for (i64 i : grid.items(words_of(world.lo() + s.active) - own.first_word())) {
            i64 word = own.first_word() + i;
            const u32* up = parent + word * word_bits;
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
                if (world.reaches(r)) own.put(shared_bits(r), word, bits);
        }
    }
    DEVICE bool is_shared(i64 v) const { return get_bit(shared_bits(world.rank), v); }
    DEVICE u32 shared_from(i64 v) const {  // the bits of a group of vertices that begins with v
        return stale_load(shared_bits(world.rank) + v / word_bits) >> v % word_bits;
    }
    // Stores a word at those of neighbouring places that have a bit.
    static DEVICE void store_several(u32* p, u32 places, u32 word) {
        if constexpr (vertices_at_once % 4 == 0) {
            u32 four[4] = {word, word, word, word};
            if (places == (1u << vertices_at_once) - 1) {
                for (int k = 0; k < vertices_at_once; k += 4) store_four(p + k, four);
                return;
            }
        }
        for (int k = 0; k < vertices_at_once; ++k)
            if (places >> k & 1) store(p + k, word);
    }
    DEVICE void do_join(Grid grid, const State& s) const {
        if (s.reference == no_vertex) return;
        u32 root = stale_load(parent + s.reference);
        take_all(grid, s, parent, [&](i64 v, const u32(&up)[vertices_at_once], u32 live) {
            u32 shared = live ? live & shared_from(v) : 0, news = 0;
            for (int k = 0; k < vertices_at_once; ++k) news |= (u32)(up[k] != root) << k;
            news &= shared;
            // All links of this phase lead to the reference's tree, so a root needs no atomic.
            for (int k = 0; k < vertices_at_once; ++k)
                if (news >> k & 1 && up[k] != (u32)(v + k))
                    link(parent, (u32)(v + k), (u32)s.reference), news ^= 1u << k;
            store_several(parent + v, news, root);
        });
    }
    DEVICE void do_link(Grid grid, const State& s) const {
        Tile<lanes> tile;
        constexpr int count = rows_read_at_once;
        i64 first = world.lo(), known = world.size > 1 ? s.reference : own_largest(), whole = count * tile.size();
        bool all = !skips || known == no_vertex;
        for (i64 i : grid.items(tile, (s.active + whole - 1) / whole)) {
            bool open[count];
            i64 row = i * whole + tile.rank();
            for (int k = 0; k < count; ++k) open[k] = row + k * tile.size() < s.active;
            for (int k = 0; k < count; ++k) {
                i64 v = first + row + k * tile.size();
                if (open[k] && !all) open[k] = world.size > 1 ? !is_shared(v) : (i64)stale_load(parent + v) != known;
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

    DEVICE void do_tell_own(Grid grid) const {
        for (i64 i : grid.items(world.rows())) {
            u32 root = load(parent + world.lo() + i);
            for (i64 r = 0; r < world.size; ++r)
                if (world.reaches(r)) store(told_to(r) + world.lo() + i, root);
        }
    }
    // Links the vertices as they were told. Those that hang on others get a bit: all ranks know that now.
    DEVICE void do_adopt_own(Grid grid) const {
        Tile<lanes> tile;
        u32* bitmap = shared_bits(world.rank);
        for (i64 word : grid.items(tile, words_of(vertices()))) {
            u32 bits = 0;
            for (int bit = 0; bit < word_bits; bit += tile.size()) {
                i64 v = word * word_bits + bit + tile.rank();
                u32 root = v < vertices() ? load(spare + v) : (u32)v;
                if (root != (u32)v) link(parent, (u32)v, root);
                bits |= tile.ballot(root != (u32)v) << bit;
            }
            if (tile.rank() == 0) store(bitmap + word, load(bitmap + word) | bits);
        }
    }

    // What this rank has joined besides, of a part of the vertices that begins with its own.
    DEVICE void do_tell(Grid grid, const State& s, const Heard& heard) const {
        auto work = [&](i64 v, const u32(&root)[vertices_at_once], u32 live) { tell_of(s, heard, v, root, live); };
        if (!s.parts) {
            take_all(grid, s, parent, work);
            return;
        }
        i64 n = lesser(world.room, vertices() - s.part * world.room);
        i64 first = (world.lo() + s.part * world.room) % vertices();
        take_vertices(grid, spare, first, lesser(first + n, vertices()), work);
        take_vertices(grid, spare, 0, first + n - vertices(), work);
    }
    DEVICE void tell_of(const State& s, const Heard& heard, i64 v, const u32 (&root)[vertices_at_once],
                        u32 live) const {
        Tile<lanes> tile;
        u32 news = 0, known = live ? shared_from(v) : 0;
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
    DEVICE void do_learn(Grid grid, const State& s, const Heard& heard) const {
        for (i64 r = 0; s.inbox && r < world.size; ++r)
            for (i64 i : grid.items(heard.messages(r))) {
                u64 pair = world.template message<u64>(heard, r, i);
                link(parent, (u32)(pair >> 32), (u32)pair);
            }
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
            u64 ranks = s.reference != no_vertex ? agreeing(heard, s.reference) : 0;
            s.agrees = ranks >> world.rank & 1;
            s.scattered = many_are_outside(heard, ranks);
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
