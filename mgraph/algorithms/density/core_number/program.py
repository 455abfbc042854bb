"""Core numbers by peeling, level by level.

At each level, vertices with no more edges left than the level are removed with their edges. Removal goes on from
frontier to frontier until every vertex that is left has more edges than the level. The next level is the least number
of edges that one of them has left. It is found while the vertices that are left are listed anew, so that a vertex is
read once for each level up to its core number, and all levels together read O(n + m).

Levels and frontiers are phases of one program that all ranks run together (`cores.cuh`, `mgraph.exchange.world`): one
launch on each rank that maps the others' memory. An edge to a vertex of another rank is a message of 4 bytes; CPU ranks
take it away in an array of all of them.

References
----------
.. [1] H. Kabir, K. Madduri, "Parallel k-core decomposition on multicore platforms", IPDPSW 2017. Source of peeling by
   frontiers, where the edge that brings a vertex down to the level appends it.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, kernels, task_room
from mgraph.algorithms.primitives.replicated import sides
from mgraph.algorithms.primitives.transpose import CsrRows, alike, sample_rows
from mgraph.device import Array
from mgraph.errors import CapacityError
from mgraph.kernels import constants
from mgraph.structures import Structure

__all__ = ["HIGHEST", "removal_levels", "run", "warm"]

PROGRAM = "algorithms/density/core_number/cores.cuh"
#: messages that a rank may send to another in a round: at least, as a row that is no task has fewer; in large graphs
#: at least; and the share of the edges' memory that inboxes take there
LEAST_ROOM, USUAL_ROOM, MEMORY = 4096, 1 << 20, 0.08
NEVER = constants(PROGRAM, HUB_DEGREE=1024)["never"]
HIGHEST = 2**31 - 1  #: a level that removes every vertex


def _room(shard: Shard) -> int:
    """Return how many messages an inbox holds, the same on every rank. More of them are fewer rounds.

    An allreduce in large graphs.
    """
    most = 4 * shard.partition.widest
    room = max(LEAST_ROOM, min(USUAL_ROOM, most))
    if room < USUAL_ROOM:
        return room
    least = shard.exchange.least(shard.out_edges.nbytes)
    affordable = int(MEMORY * least) // (8 * shard.size)  # 4 bytes each, in two turns, of every rank
    return max(room, min(affordable >> 18 << 18, most))


def removal_levels(
    shard: Shard, edges: list[Structure | CsrRows], first: int = 0, last: int = NEVER
) -> tuple[Array, dict[str, int]]:
    """Return the level that removes each own vertex, and the last state of the program.

    Parameters
    ----------
    shard : Shard
    edges : list of edges
        Those of each vertex, in one view or two: `sides` of the shard.
    first, last : int
        The levels to go through. Vertices that are left after the last one have -1.

    Raises
    ------
    CapacityError
        There is too little memory for 28 bytes per owned vertex, 1 / 32 byte per arc for tasks and, on several ranks,
        inboxes for each rank of 8 MiB, or together of 8% of the edges' memory; or of a hash structure's rows a unit has
        more edges than an inbox holds. On CPU ranks of one host inboxes may have 8 bytes per vertex of the graph
        instead, and the first rank takes 4 bytes more for each.
    """
    # The inboxes.
    device, rows = shard.device, shard.hi - shard.lo
    world = shard.exchange.world(device)
    inbox = 0 if shard.size == 1 else _room(shard)
    # With an inbox for all its vertices, a rank's edges may be taken away by others, in one array of all ranks.
    widest, n = shard.partition.widest, shard.n_vertices
    common = world.one_memory and inbox >= widest
    layout = world.layout(shard.partition, widest if common else inbox, 4, {"left": 4 * n} if common else {})
    # The edges, in the same kind of rows.
    rows_alike = alike(shard, edges)
    views = [side.view() for side in rows_alike]
    searched = int(rows_alike is edges or shard.out_edges.sorted_rows)
    # The vertices' state.
    room = max(task_room(side) for side in edges)
    core, least, frontier, tasks, left, lists, alive = device.carve(
        (rows, np.int64), (2, np.int64), (3, np.int64), (2 * room * len(edges), np.uint64),
        (0 if common else rows, np.uint32), (2 * rows, np.uint32), (2 * rows, np.uint32),
    )  # fmt: skip
    if common:
        frontier, left = None, world.common_array(layout, "left", n, np.uint32)[shard.lo : shard.hi]
    library = kernels(shard, PROGRAM, views[0], VIEWS=len(edges))
    state = world.run(
        library, "Cores", layout, 1 + sum(rows + side.num_edges for side in edges) // 256, graph=views[0],
        back=views[-1], searched=searched, first_level=first, last_level=last, left=left, core=core,
        lists=lists, alive=alive, least=least, frontier=frontier, tasks=tasks, task_room=room,
    )  # fmt: skip
    if state["too_long"]:
        raise CapacityError(f"a unit of a row has more edges than the {layout.room} messages that an inbox holds")
    return core, state


def warm(shard: Shard) -> None:
    """Compile the kernels of `run` for this shard."""
    sample = sample_rows(shard.device) if shard.in_edges is None else None
    kernels(shard, PROGRAM, (sample or shard.out_edges).view(), VIEWS=1 + (shard.in_edges is not shard.out_edges))


def run(shard: Shard) -> Columns:
    """Return the core number of each own vertex.

    Self-loops are ignored, and arcs of a directed graph count both ways.

    Returns
    -------
    columns : dict
        "core", int64[hi - lo] on the shard's device.
    scalars : dict
        ``largest``, the largest core number of the graph.

    Raises
    ------
    CapacityError
        There is too little memory for what `removal_levels` takes, or for the in-edges of a directed graph
        that does not store them.

    Notes
    -----
    O(n + m) work, and a meeting of the ranks per frontier. The result is exact, and does not depend on
    timing, order, structure or the number of ranks.
    """
    core, state = removal_levels(shard, sides(shard, "core_number"))
    return {"core": core}, {"largest": state["largest"]}
