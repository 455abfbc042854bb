// Rounds of label propagation by all ranks together. Each rank has the labels of all vertices twice, of even and odd
// rounds: one is read while the other one is written.
//   enter   all ranks are in the program, so that others may write to their regions
//   vote    the own rows vote, but for wide ones, and store their labels into the arrays of all ranks
//   cast, rank, settle  let wide rows vote, a group after another whose tables fit into memory
// The last phase of a round ends with a meeting of the ranks, which says how many labels have changed.
#pragma once
#include "algorithms/primitives/label_counts.cuh"
#include "kernels/count.cuh"
#include "kernels/world.cuh"

struct MostFrequent {  // the rule by which a row chooses
    const u32* labels;  // per vertex of the graph
    u32* chosen;  // out: label per row
    i64 tabled;  // most edges of a row that is not wide
    template <class View> DEVICE u64 amount(const View&, i64) const { return 1; }
    DEVICE void fetch(u32) const {}
    DEVICE bool counts(i64, u32) const { return true; }
    DEVICE bool may_choose(i64) const { return true; }
    DEVICE u64 score(i64, u32, u64 sum) const { return sum; }
    DEVICE void settle(i64 row, Best best) const { chosen[row] = best.label; }
};

struct CountLabels {  // counts the different labels, one lane per vertex
    static constexpr int lanes = 1;
    const u32* labels;
    i64 n;
    u32* seen;  // a bit per label
    i64* count;
    DEVICE void operator()(Grid grid) const {
        i64 mine[1] = {};
        for (i64 v : grid.items(n)) {
            u32 *word = seen + (labels[v] >> 5), bit = 1u << (labels[v] & 31);
            mine[0] += !(stale_load(word) & bit) && !(atomic_or(word, bit) & bit);
        }
        add_by_block(mine, count);
    }
};

template <class View>
struct Rounds {
    static constexpr int lanes = 32;
    static constexpr int shared = 12 * most_tiles * table_slots;  // tables of all tiles
    i64 launch;
    i64 resume;
    World world;
    View graph;
    View back;  // the in-edges, which count too if `both` is 1
    i64 both;
    i64 tabled;  // most edges of a row that is not wide
    const u32* first_labels;  // per vertex of the graph; null if they are its vertices' numbers
    i64 most;  // rounds
    const u32* wide;
    const i64* places;  // first slot of each wide row's table
    const i64* tasks;  // first task of each wide row, in each view
    const i64* back_tasks;
    const i64* groups;
    i64 n_groups;
    u32* keys;  // tables of a group
    u64* sums;
    u64* scores;  // of their pieces
    u32* best;
    i64 even_offset;  // in each rank's region: labels of all vertices, of even and odd rounds
    i64 odd_offset;
    struct State {
        i64 phase = 0;
        i64 round = 0;
        i64 group = 0, groups = 0;  // groups are as many as the rank with the most of them has
        i64 changed = 0;  // labels of own vertices, up to this phase of the round
    };
    enum Stage : i64 { finished, enter, vote, cast, rank, settle };
    enum Number { CHANGED, GROUPS = CHANGED };

    DEVICE i64 labels_at(i64 round) const { return round & 1 ? odd_offset : even_offset; }
    DEVICE u32* labels(i64 r, i64 round) const { return world.words(r, labels_at(round)); }
    DEVICE i64 of_group(i64 group, i64 word) const { return group < n_groups ? groups[group * group_words + word] : 0; }
    DEVICE bool ends_round(const State& s) const {
        return s.phase >= vote && s.group + (s.phase == settle) == s.groups;
    }

    DEVICE void begin(State& s) const { s.phase = enter; }
    DEVICE bool alone(const State& s) const { return s.phase != enter && !ends_round(s); }
    DEVICE Shared shares(const State& s) const {
        Shared shared;
        if (ends_round(s)) shared.array = labels_at(s.round + 1), shared.width = sizeof(u32);
        return shared;
    }
    DEVICE i64 items(const State& s, const Heard&) const {
        switch (s.phase) {
        case enter: return world.vertices() / 256;
        case vote: return world.rows() / lanes;
        case cast: return of_group(s.group, 3) + of_group(s.group, 4);
        case rank: return of_group(s.group, 2) / chunk_slots;
        default: return of_group(s.group, 1) - of_group(s.group, 0);
        }
    }
    DEVICE Numbers step(Grid grid, const State& s, const Heard&) const {
        SHARED_LARGE(u32, words, Tile<lanes>::size() == 1 ? 1 : shared / sizeof(u32));
        Numbers mine;
        switch (s.phase) {
        case enter:
            for (i64 i : grid.items(1)) mine.of[GROUPS] = i - n_groups;
            for (i64 v : grid.items(world.vertices()))
                for (i64 round = 0; round < 2; ++round)
                    store(labels(world.rank, round) + v, first_labels ? first_labels[v] : (u32)v);
            return mine;
        case vote: mine.of[CHANGED] = do_vote(grid, s, graph, back, words); break;
        case cast:
            do_cast(grid, votes(s.round), graph, rows_of(s.group), tasks, of_group(s.group, 3), words);
            if (both) do_cast(grid, votes(s.round), back, rows_of(s.group), back_tasks, of_group(s.group, 4), words);
            break;
        case rank:
            if (s.group < n_groups) rank_wide(grid, votes(s.round), rows_of(s.group), scores, best);
            break;
        default: mine.of[CHANGED] = do_settle(grid, s);
        }
        if (ends_round(s))
            for (i64 i : grid.items(1)) mine.of[CHANGED] += s.changed + i;
        return mine;
    }

    // ---- phases -----------------------------------------------------------------------------------------------------

    DEVICE MostFrequent votes(i64 round) const {
        return {labels(world.rank, round), labels(world.rank, round + 1) + world.lo(), tabled};
    }
    DEVICE WideRows rows_of(i64 group) const {
        return {wide, places, of_group(group, 0), of_group(group, 1), keys, sums};
    }
    // Stores an own vertex's label into the arrays of the other ranks. Returns true if it has changed.
    DEVICE bool put(i64 round, i64 row) const {
        i64 v = world.lo() + row;
        u32 label = load(labels(world.rank, round + 1) + v);
        for (i64 r = 0; r < world.size; ++r)
            if (r != world.rank && world.reaches(r)) store(labels(r, round + 1) + v, label);
        return label != labels(world.rank, round)[v];
    }
    DEVICE void clear_tables(Grid grid, i64 group) const {
        for (i64 at : grid.items(of_group(group, 2))) store(keys + at, no_label), store(sums + at, (u64)0);
    }
    // Views are copies, which no store can change.
    APART i64 do_vote(Grid grid, const State& s, View rows, View back_rows, u32* words) const {
        clear_tables(grid, 0);  // first: afterwards the loop would have to keep what this needs
        i64 changed = 0;
        MostFrequent rule = votes(s.round);
        Voting<View, MostFrequent>{rows, back_rows, both != 0, nullptr, world.rows(), rule, words}.run(
            grid, [&](i64 row) { changed += row >= 0 && put(s.round, row); });
        return changed;
    }
    APART void do_cast(Grid grid, MostFrequent rule, View rows, WideRows now, const i64* task_of, i64 n,
                       u32* words) const {
        cast_wide(grid, rows, rule, now, task_of, n, words);
    }
    DEVICE i64 do_settle(Grid grid, const State& s) const {
        i64 changed = 0;
        settle_wide(grid, votes(s.round), rows_of(s.group), scores, best,
                    [&](i64 row) { changed += put(s.round, row); });
        clear_tables(grid, s.group + 1);
        return changed;
    }

    // ---- which phase follows -----------------------------------------------------------------------------------------

    DEVICE void next(State& s, const Heard& heard) const {
        if (s.phase == enter) {
            s.groups = -heard.least(GROUPS);
            s.phase = most > 0 ? (i64)vote : (i64)finished;
        } else if (ends_round(s)) {
            s.changed = s.group = 0;
            s.phase = ++s.round < most && heard.total(CHANGED) ? (i64)vote : (i64)finished;
        } else {
            s.changed += heard.own(CHANGED);
            s.group += s.phase == settle;
            s.phase = s.phase == settle ? cast : s.phase + 1;
        }
    }
};
