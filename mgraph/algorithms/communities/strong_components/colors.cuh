// Strong components by all ranks together. Vertices without a component yet are open. Two searches trim; then searches
// forward and backward alternate, first from one vertex, then from all open ones, until no vertex is open.
//   count       trimming: counts the in-edges or out-edges of own rows, and lists rows without any
//   list_open   lists the open own rows, and at first chooses the one with the most edges, the pivot
//   tell_pivot  sends the pivot of each rank to all
//   color       gives a color to each vertex from which the search forward begins. The search then gives each vertex
//               the largest color among those that reach it
//   share       writes the colors of open rows to all ranks
//   find_roots  lists the vertices that keep their color, the roots. Backward, the vertices of its color that reach a
//               root get its id
//   spread, hubs  follow the edges of the listed rows, and of rows of high degree
//   tell          sends the changes of other ranks' vertices to their owners, one per vertex, in as many parts as
//                 inboxes need. They are read in the next spread or tell
//   name, learn, share_names, label  find the least name in each component, at the root's owner
// A vertex has one word: its remaining edges while edges are counted, then its color, at last a name. The word of
// another rank's vertex has this rank's part: the edges to take away, or the largest color to give it. CPU ranks of one
// host have the same words, and tell an owner only that its vertex has changed.
#pragma once
#include "algorithms/communities/strong_components/color_of.cuh"
#include "algorithms/primitives/programs.cuh"
#include "kernels/buffered_append.cuh"

constexpr u32 closed = ~0u;  // the word of a vertex that has a component, and of one without a name

template <class View>
struct Colors {
    static constexpr int lanes = 32;
    i64 launch;
    i64 resume;
    World world;
    View graph;
    View back;  // the in-edges
    i64 searched;  // 1 if rows can be searched by `find`; a copy of unsorted rows cannot
    i64 common;  // 1 if all ranks have the same words, roots and marks of lists
    i64 color_offset;  // in each rank's region, or that of rank 0: the words of all vertices
    i64 open_offset;  // two lists of open own vertices, of `widest`
    i64 widest;
    u32* root;  // of all vertices: the component, or no_vertex; of other ranks' vertices the last one sent
    u32* lists;  // two lists of own vertices, to follow
    u32* changed;  // other ranks' vertices to tell of, by owner, in the place of its range
    i64* lengths;  // how many of each rank: two, used in turn
    u32* marks;  // bitmaps: the members of each list of own rows, then of `changed`
    u64* most;  // edges << 32 | id
    u64* tasks;
    const u32* order;  // the vertex of each name; null where they are the same
    i64* labels;  // out: of the own vertices
    struct State {
        i64 phase = 0;
        i64 search = 0;
        i64 turn = 0;  // which lists are read: its lowest bit
        i64 listed = 0, next = 0;  // own vertices in the lists
        i64 tasks = 0;
        i64 inbox = 0;  // 1 if messages wait
        i64 part = 0, parts = 0;  // of the vertices that are told
        i64 all_next = 0;  // vertices that all ranks have listed
        i64 scans = 0, open = 0;  // how often open vertices were listed, and the own ones
        i64 pivot = 0;
        i64 components = 0;
    };
    enum Stage : i64 {
        finished,
        count,
        spread,
        hubs,
        tell,
        list_open,
        tell_pivot,
        color,
        share,
        find_roots,
        clear_names,
        name,
        learn,
        share_names,
        label
    };
    enum Search : i64 { sources, sinks, forward, backward, naming };  // the first two trim
    enum Number { NEXT, TASKS, LONGEST, OPEN = TASKS, MOST = LONGEST };

    DEVICE bool is_common() const {
        if constexpr (one_memory) return common;
        return false;
    }
    DEVICE u32* colors(i64 r) const { return world.words(is_common() ? 0 : r, color_offset); }
    DEVICE i64 open_at(i64 scans) const { return open_offset + (scans & 1) * widest * (i64)sizeof(u32); }
    DEVICE u32* opened(i64 scans) const { return world.words(world.rank, open_at(scans)); }
    DEVICE u32* listing(i64 turn) const { return lists + (turn & 1) * world.rows(); }
    DEVICE i64* lengths_of(i64 turn) const { return lengths + (turn & 1) * world.size; }
    DEVICE i64 marked_words() const { return words_of(is_common() ? world.vertices() : world.rows()) + 1; }
    DEVICE u32* marked(i64 turn) const { return marks + (turn & 1) * marked_words(); }
    DEVICE u32* marked_others() const { return marks + 2 * marked_words(); }
    DEVICE bool is_own(i64 v) const { return v >= world.lo() && v < world.hi(); }

    DEVICE void begin(State& s) const { s.phase = world.vertices() > 0 ? (i64)count : (i64)finished; }
    DEVICE bool alone(const State& s) const {
        switch (s.phase) {
        case tell:
        case list_open:
        case tell_pivot:
        case share:
        case share_names:
        case label: return false;
        case count:
        case color:
        case find_roots:
        case name: return !is_common();  // no other rank's vertex is changed before its owner has come to it
        default: return true;
        }
    }
    DEVICE Shared shares(const State& s) const {
        Shared shared;
        if (s.phase == share || s.phase == share_names)
            shared.vertices = open_at(s.scans), shared.count = s.open, shared.narrow = color_offset;
        return shared;
    }
    DEVICE i64 items(const State& s, const Heard& heard) const {
        switch (s.phase) {
        case count: return (s.search == sources ? world.vertices() : world.rows()) / 32;
        case spread: return (s.listed + received(heard, s.inbox)) / 16;  // a CPU wakes nobody for 512 rows
        case hubs: return s.tasks * 8;
        case tell: return lesser(world.room, world.vertices()) / 32;
        case tell_pivot: return 1;
        case share:
        case find_roots:
        case share_names: return s.open / 32;
        case learn: return received(heard, s.inbox) / 32;
        default: return world.vertices() / 32;
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard& heard) const {
        Numbers mine;
        if (s.phase != spread && s.phase != hubs)
            for (i64 r : grid.items(world.size)) store(lengths_of(s.turn + 1) + r, (i64)0);
        switch (s.phase) {
        case count: do_count(grid, s); break;
        case spread:
        case hubs: do_spread(grid, s, heard); break;
        case tell: do_tell(grid, s, heard, mine); break;
        case list_open: do_list_open(grid, s, mine); break;
        case tell_pivot:
            for (i64 i : grid.items(1)) mine.of[MOST] = i - (i64)load(most);
            break;
        case color: do_color(grid, s); break;
        case find_roots: do_find_roots(grid, s); break;
        case clear_names:
            for (i64 v : grid.items(world.vertices())) store(colors(world.rank) + v, closed);
            break;
        case name: do_name(grid, s); break;
        case learn: {
            Finds finds(*this, s);
            receive_all(grid, s, heard, finds);
            break;
        }
        case label: do_label(grid, mine); break;
        default: do_share(grid, s);
        }
        return mine;
    }

    // ---- searches ----------------------------------------------------------------------------------------------------

    // What a lane brings to vertices. Those that it changes are listed, once in a turn.
    struct Finds {
        const Colors& all;
        const State& s;
        const World& world = all.world;
        u32* words = all.colors(world.rank);
        u32 first = (u32)world.lo(), rows = (u32)world.rows();
        BufferedIds next{};
        DEVICE Finds(const Colors& all, const State& s) : all(all), s(s) {}
        Finds(const Finds&) = delete;
        DEVICE ~Finds() { next.put(list(), world.number(NEXT)); }
        DEVICE u32* list() const {
            return (s.search == naming ? all.opened(s.scans) : all.listing(s.turn + 1)) + s.next;
        }
        DEVICE u32 row_of(u32 id) const { return id - first; }
        DEVICE bool owns(u32 id) const { return row_of(id) < rows; }  // those before the first one wrap around
        DEVICE u32 value_of(u32 id) const {  // what the edges of a listed vertex bring
            return s.search == forward ? load(words + id) : s.search == backward ? load(all.root + id) : 1u;
        }
        // Returns true if that changes the vertex. `wanted` is the color of a root that comes backward.
        DEVICE bool brings(u32 id, u32 value, u32 wanted) const {
            u32* word = words + id;
            if (s.search == forward) return load(word) < value && atomic_max(word, value) < value;
            if (s.search == naming) return atomic_min(word, value), true;
            if (s.search == backward) {
                if (load(word) != wanted || atomic_cas(all.root + id, no_vertex, value) != no_vertex) return false;
            } else {
                if (!owns(id) && !all.is_common()) return atomic_add(word, value) == 0;
                if (load(word) == closed || atomic_add(word, 0u - value) != value) return false;
                store(all.root + id, id);
            }
            store(word, closed);
            return true;
        }
        DEVICE u32 mark_of(u32 id) const { return all.is_common() ? id : row_of(id); }
        // Returns false if a search that may change a vertex again has listed it in this turn.
        DEVICE bool is_new(u32 id) const {
            if (s.search != forward && s.search != naming) return true;
            if (owns(id) || all.is_common()) return mark(all.marked(s.turn + 1), mark_of(id));
            return mark(all.marked_others(), id);
        }
        DEVICE void add_next(u32 id) { next.add(id, list(), world.number(NEXT)); }
        DEVICE void tell_owner(u32 id) const {
            i64 owner = world.owner(id);
            store(all.changed + world.start(owner) + take_place(all.lengths_of(s.turn) + owner), id);
        }
        DEVICE void take(u32 id, u32 value, u32 wanted) {
            if (!brings(id, value, wanted) || !is_new(id)) return;
            if (owns(id)) add_next(id);
            else tell_owner(id);
        }
        template <class Group> DEVICE void follow(const View& edges, Group group, u32 row, i64 unit) {
            u32 own = first + row, value = value_of(own), wanted = color_of(value);
            if constexpr (Tile<lanes>::size() == 1) {  // a CPU asks for the memory of a few at once
                constexpr int few = 16;
                u32 ids[few];
                int n = 0;
                auto take_all = [&] {
                    for (int k = 0; k < n; ++k) take(ids[k], value, wanted);
                    n = 0;
                };
                edges.visit(group, row, unit, [&](u32 id, i64, bool live) {
                    if (!live || id == own) return false;
                    prefetch_to_write(words + id);
                    ids[n++] = id;
                    if (n == few) take_all();
                    return false;
                });
                take_all();
            } else {
                edges.visit(group, row, unit, [&](u32 id, i64, bool live) {
                    if (live && id != own) take(id, value, wanted);
                    return false;
                });
            }
        }
    };
    // Reads a message, a vertex and its new value. Returns the row if that changes it, or has changed it; or -1.
    DEVICE i64 receive(const Heard& heard, i64 from, i64 i, const Finds& finds) const {
        u64 message = world.message<u64>(heard, from, i);
        u32 id = (u32)(message >> 32), value = (u32)message;
        return is_common() || finds.brings(id, value, color_of(value)) ? (i64)finds.row_of(id) : -1;
    }
    DEVICE void receive_all(Grid grid, const State& s, const Heard& heard, Finds& finds) const {
        for (i64 r = 0; s.inbox && r < world.size; ++r)
            for (i64 i : grid.items(heard.messages(r))) {
                i64 row = receive(heard, r, i, finds);
                u32 id = (u32)(world.lo() + row);
                if (row >= 0 && (is_common() || finds.is_new(id))) finds.add_next(id);
            }
    }
    // The row in a place of the list, after which come the messages; -1 for a vertex that does not change.
    DEVICE i64 row_at(const State& s, const Heard& heard, i64 at, const Finds& finds) const {
        auto unmark = [&](u32 id) {  // all of the word are in this turn's lists
            if (s.search == forward) store(marked(s.turn) + finds.mark_of(id) / word_bits, 0u);
        };
        if (at < s.listed) {
            u32 id = load(listing(s.turn) + at);
            unmark(id);
            return finds.row_of(id);
        }
        i64 r = 0;
        for (at -= s.listed; at >= heard.messages(r); ++r) at -= heard.messages(r);
        i64 row = receive(heard, r, at, finds);
        if (is_common()) unmark((u32)(world.lo() + row));
        return row;
    }
    template <class Visit> DEVICE void visit_side(const State& s, Visit visit) const {  // visit(rows), along the search
        if (s.search == sinks || s.search == backward) visit(back);
        else visit(graph);
    }
    // Follows the listed rows and those of messages; or the tasks of rows of high degree. 32 bits, for want of registers.
    DEVICE void do_spread(Grid grid, const State& s, const Heard& heard) const {
        Tile<lanes> tile;
        Finds finds(*this, s);
        bool by_task = s.phase == hubs;
        u32 n = (u32)(by_task ? s.tasks : s.listed + received(heard, s.inbox));
        u32 few = by_task ? 1u : (u32)rows_at_once(grid, tile, n);
        Items share = grid.items(tile, turns_of(n, few));
        visit_side(s, [&](const View& edges) {
            auto listed_row = [&](i64 at) { return (i64)finds.row_of(load(listing(s.turn) + at)); };
            for (u32 i = (u32)share.first; i < (u32)share.last; i += (u32)share.step) {
                u32 at = i * few + tile.rank(), row = 0, unit = 0, end = 0;  // units that the tile follows
                if (!by_task) fetch_row(edges, at, s.listed, listed_row);
                if ((u32)tile.rank() < few && at < n) {
                    if (by_task) {
                        u64 task = load(tasks + at);
                        row = (u32)(task >> 32), unit = (u32)task;
                        end = (u32)lesser((i64)unit + task_units(edges, row), (i64)edges.units(row));
                    } else {
                        i64 its = row_at(s, heard, at, finds), degree = its < 0 ? 0 : (i64)edges.degree(its);
                        row = (u32)its;
                        if (degree > HUB_DEGREE) add_tasks(edges, its, tasks, world.number(TASKS));
                        else if (degree > 0) end = (u32)edges.units(its);
                        for (; degree <= short_degree && unit < end; ++unit) finds.follow(edges, Tile<1>{}, row, unit);
                    }
                }
                for (u32 rest = tile.ballot(unit < end); rest; rest &= rest - 1) {
                    int lane = lowest_bit(rest);
                    u32 its = tile.shfl(row, lane), last = tile.shfl(end, lane);
                    for (u32 u = tile.shfl(unit, lane); u < last; ++u) finds.follow(edges, tile, its, u);
                }
            }
        });
    }
    DEVICE void do_tell(Grid grid, const State& s, const Heard& heard, Numbers& mine) const {
        Finds finds(*this, s);
        receive_all(grid, s, heard, finds);
        // This part, with the words as they are now. Edges that were taken away are told once.
        const i64* n_changed = lengths_of(s.turn);
        bool trims = s.search <= sinks;
        i64 first = s.part * world.room, longest = 0;
        for (i64 r = 0; r < world.size; ++r) {
            i64 n = load(n_changed + r), now = greater(lesser(n - first, world.room), (i64)0);
            longest = greater(longest, n);
            for (i64 i : grid.items(now)) {
                u32 id = load(changed + world.start(r) + first + i);
                u32 value = load((s.search == backward ? root : finds.words) + id);
                if (trims && !is_common()) store(finds.words + id, 0u);
                if (s.search == forward && !is_common()) store(marked_others() + id / word_bits, 0u);
                world.put(heard, r, i, (u64)id << 32 | value);
            }
            for (i64 i : grid.items(1))
                if (now) store(world.counts() + r + i, now);
        }
        for (i64 i : grid.items(s.part ? 0 : 1)) mine.of[NEXT] = s.next + i, mine.of[LONGEST] = -longest;
    }

    // ---- where searches begin ----------------------------------------------------------------------------------------

    DEVICE void do_count(Grid grid, const State& s) const {
        if (s.search == sinks) {
            Finds finds(*this, s);
            for (i64 row : grid.items(world.rows()))
                if (load(root + world.lo() + row) == no_vertex) count_row(graph, row, finds);
            return;
        }
        Finds finds(*this, s);
        for (i64 id : grid.items(world.vertices())) {
            if (is_common() && !is_own(id)) continue;
            store(root + id, no_vertex);
            if (is_own(id)) count_row(back, id - world.lo(), finds);
            else store(finds.words + id, 0u);
        }
        i64 words =
            is_common() ? world.rank == 0 ? 2 * marked_words() : 0 : 2 * marked_words() + words_of(world.vertices());
        for (i64 i : grid.items(words)) store(marks + i, 0u);
        for (i64 i : grid.items(1)) store(most + i, (u64)0);
    }
    DEVICE void count_row(const View& counted, i64 row, Finds& finds) const {
        u32 id = (u32)(world.lo() + row);
        fetch_row(counted, row, world.rows(), EveryRow{});
        u32 edges = (u32)counted.degree(row);
        if (edges && finds_loop(counted, row, id)) --edges;
        store(finds.words + id, edges ? edges : closed);
        if (edges) return;
        store(root + id, id);
        finds.next.add(id, finds.list(), world.number(NEXT));
    }
    // A row of high degree is not read for a loop, which then counts: the vertex is not trimmed, but found by searches.
    DEVICE bool finds_loop(const View& edges, i64 row, u32 own) const {
        if (searched && View::sorted) return edges.find(row, own) >= 0;
        bool loop = false;
        i64 units = edges.degree(row) > HUB_DEGREE ? 0 : (i64)edges.units(row);
        for (i64 unit = 0; unit < units; ++unit)
            edges.visit(Tile<1>{}, row, unit, [&](u32 id, i64, bool live) { return loop |= live && id == own; });
        return loop;
    }
    DEVICE void do_list_open(Grid grid, const State& s, Numbers& mine) const {
        Tile<lanes> tile;
        BufferedAppender list(opened(s.scans + 1), world.number(OPEN));
        u64 best = 0;
        for (i64 i : grid.items(s.scans ? s.open : world.rows())) {
            u32 id = s.scans ? load(opened(s.scans) + i) : (u32)(world.lo() + i);
            if (load(root + id) != no_vertex) continue;
            list.add(id);
            if (s.scans == 0) best = greater(best, (u64)graph.degree(id - world.lo()) << 32 | id);
        }
        best = tile.most(best);
        if (best && tile.rank() == 0) atomic_max(most, best);
    }
    DEVICE void do_color(Grid grid, const State& s) const {
        u32* words = colors(world.rank);
        Finds finds(*this, s);
        for (i64 i : grid.items(s.open)) {
            u32 id = load(opened(s.scans) + i);
            bool begins = s.scans > 1 || (i64)id == s.pivot;
            store(words + id, begins ? color_of(id) : no_color);
            if (begins) finds.next.add(id, finds.list(), world.number(NEXT));
        }
        // Other ranks' vertices, but for those of which this rank has told that they have a component.
        for (i64 v : grid.items(world.size > 1 && !is_common() ? world.vertices() : 0))
            if (!is_own(v)) store(words + v, load(root + v) == no_vertex ? no_color : closed);
    }
    DEVICE void do_share(Grid grid, const State& s) const {
        const u32* words = colors(world.rank);
        for (i64 i : grid.items(s.open)) {
            u32 id = load(opened(s.scans) + i), word = load(words + id);
            for (i64 r = 0; r < world.size; ++r)
                if (r != world.rank && world.reaches(r)) store(colors(r) + id, word);
        }
    }
    DEVICE void do_find_roots(Grid grid, const State& s) const {
        u32* words = colors(world.rank);
        Finds finds(*this, s);
        for (i64 i : grid.items(s.open)) {
            u32 id = load(opened(s.scans) + i);
            if (load(words + id) != color_of(id)) continue;
            store(root + id, id), store(words + id, closed);
            finds.next.add(id, finds.list(), world.number(NEXT));
        }
    }

    // ---- names -------------------------------------------------------------------------------------------------------

    DEVICE void do_name(Grid grid, const State& s) const {
        Finds finds(*this, s);
        for (i64 i : grid.items(order ? world.vertices() : world.rows())) {
            i64 v = order ? (i64)order[i] : world.lo() + i;
            if (!is_own(v)) continue;
            u32 own_name = (u32)(order ? i : v), to = load(root + v);
            if (own_name >= stale_load(finds.words + to)) continue;
            if (atomic_min(finds.words + to, own_name) == closed && !finds.owns(to)) finds.tell_owner(to);
        }
    }
    DEVICE void do_label(Grid grid, Numbers& mine) const {
        const u32* words = colors(world.rank);
        for (i64 row : grid.items(world.rows())) {
            u32 of = root[world.lo() + row];
            mine.of[NEXT] += (i64)of == world.lo() + row;
            labels[row] = words[of];
        }
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        bool several = world.size > 1, apart = several && !is_common();  // with words of their own
        switch (s.phase) {
        case count:
        case color:
        case find_roots:
            s.search = s.phase == count ? s.search : s.phase == color ? forward : backward;
            s.next = heard.own(NEXT);
            end_turn(s, several ? -1 : s.next);
            break;
        case spread:
        case hubs:
            s.next += heard.own(NEXT), s.tasks = heard.own(TASKS), s.inbox = 0;
            // All ranks have the same phases, so several ranks have this one even without tasks.
            if (s.phase == spread && (several || s.tasks)) s.phase = hubs;
            else if (several) s.phase = tell, s.part = s.all_next = 0;
            else end_turn(s, s.next);
            break;
        case tell:
            if (s.part == 0) s.parts = (world.room - 1 - heard.least(LONGEST)) / world.room;
            s.next += heard.own(NEXT) - (s.part ? 0 : s.next), s.all_next += heard.total(NEXT);
            s.inbox = heard.sent() > 0;
            if (++s.part < s.parts) break;
            if (s.search == naming) s.phase = learn;
            else end_turn(s, s.all_next + s.inbox);
            break;
        case list_open:
            s.open = heard.own(OPEN);
            ++s.scans;
            s.phase = heard.total(OPEN) == 0 ? apart ? clear_names : name : s.scans == 1 ? tell_pivot : color;
            break;
        case tell_pivot:
            s.pivot = -heard.least(MOST) & (i64)no_vertex;
            s.phase = color;
            break;
        case share: s.phase = find_roots; break;
        case name:
            s.search = naming, s.open = s.next = 0;
            s.part = s.all_next = 0;
            s.phase = apart ? (i64)tell : (i64)label;
            break;
        case learn:
            s.open = s.next + heard.own(NEXT);
            s.phase = share_names;
            break;
        case label:
            s.components = heard.total(NEXT);
            s.phase = finished;
            break;
        default: ++s.phase;  // clear_names, share_names
        }
    }
    // The next turn of a search, or the phase after it, if nothing is `left` to follow.
    DEVICE void end_turn(State& s, i64 left) const {
        ++s.turn;
        s.listed = s.next, s.next = 0;
        if (left) s.phase = spread;
        else if (s.search == sources) s.search = sinks, s.phase = count;
        else if (s.search == forward) s.phase = world.size > 1 && !is_common() ? share : find_roots;
        else s.phase = list_open;
    }
};
