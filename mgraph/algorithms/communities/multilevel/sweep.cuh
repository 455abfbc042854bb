// All turns of a sweep by one thread of a CPU: the turns of a small graph take less time than their launches.
#pragma once
#include "algorithms/communities/multilevel/local_moving.cuh"
#include "algorithms/communities/multilevel/refinement.cuh"

template <class View>
struct SweepByThread {  // runs each turn's kernels, for the only rank, without wide rows; launched as one item
    static constexpr int lanes = 32;
    View graph;
    View back;  // in-edges, which count too if `both` is 1
    i64 both;
    const u32* list;  // active rows by turn
    const i64* marks;  // where each turn begins in `list`
    Votes votes;
    Labels labels;
    Follow follow;
    u32* before;  // of `follow`
    i64* change;  // per move, with bounds
    i64* cuts;  // of `votes`
    u64* tasks;
    i64* n_tasks;
    i64* moved;  // out: number of moves
    DEVICE void operator()(Grid grid) const {
        if constexpr (Tile<lanes>::size() == 1) {
            for (i64 turn = 0; turn < votes.classes; ++turn) {
                // Choose.
                Votes now = votes;
                now.turn = turn, *votes.count = 0;
                Vote<View>{graph, back, both, list + marks[turn], marks[turn + 1] - marks[turn], now}(grid);
                i64 n = *votes.count;
                *moved += n;

                // Move, and follow the moves along their edges.
                Move{votes.moves, n, labels}(grid);
                follow_moves(graph, grid, n);
                if (both) follow_moves(back, grid, n);
                if (votes.bounds) {
                    ChangesOf{votes.moves, n, votes.first, follow.changes, change}(grid);
                    JoinCuts{votes.moves, n, votes.names, change, cuts}(grid);
                }
                Remember{votes.moves, n, before}(grid);
            }
        }
    }
    DEVICE void follow_moves(const View& side, Grid grid, i64 n) const {
        *n_tasks = 0;
        FollowRows<View>{side, n, follow, tasks, n_tasks}(grid);
        FollowHubs<View>{side, follow, tasks, n_tasks}(grid);
    }
};
