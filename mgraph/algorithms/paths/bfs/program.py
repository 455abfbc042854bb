"""Breadth-first search on each rank: level-synchronous, and direction-optimising if the graph has in-edges.

The levels are phases of a single program that all ranks run together (`search.cuh`, `mgraph.exchange.world`).
Top-down, a rank sends each vertex of another range once, as 4 bytes. Bottom-up, each rank sends the bits of its own
vertices to all. So a level costs one meeting of the ranks, and another if it has rows of high degree or the direction
turns upwards. A search that has explored few arcs after some levels gives up on a GPU, and near and far lists
(`paths.near_far`) find the distances, for which ranks meet less often.

Predecessors are found by a second program (`tree.cuh`), from the distances, which all ranks share: a vertex takes its
least in-neighbour that is one level nearer to the source. Without in-edges each rank finds the least candidate among
its own vertices for every vertex, and the owners take the minimum.

References
----------
.. [1] S. Beamer, K. Asanović, D. Patterson, "Direction-optimizing breadth-first search", SC 2012.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, incoming, kernels, task_room
from mgraph.algorithms.paths.near_far.search import HOPS, NearFarSearch
from mgraph.algorithms.primitives.bitmaps import words_of
from mgraph.algorithms.primitives.replicated import sum_to_owners
from mgraph.device import Array
from mgraph.errors import CapacityError
from mgraph.kernels import Library, View, compile_together
from mgraph.structures import Structure

__all__ = ["run", "warm"]

ROOM = (
    1 << 16
)  # messages that a rank may send to another between two meetings, at least; past them it shares its bitmap
LEVELS = {"cuda": 128, "cpu": 0}  #: levels after which a search that has explored few edges gives up; 0 for never
AHEAD = 128  #: levels that a search by near and far lists settles at a time, in no order
DEEP = 255  # levels from which on a vertex's depth takes four bytes
NONE = 2**64 - 1  # no predecessor


def search_kernels(shard: Shard, view: View, parents: bool = False) -> Library:
    """Return a search's kernels over `view`; with `parents`, they note predecessors bottom-up."""
    return kernels(shard, "algorithms/paths/bfs/search.cuh", view, PARENTS=int(parents))


def _edges(shard: Shard, direction: str) -> tuple[Structure, Structure | None]:
    """Return the edges that a search follows, and their reverse, None if the graph does not store it."""
    if direction == "out":
        return shard.out_edges, shard.in_edges
    return incoming(shard, 'direction "in"'), shard.out_edges


def tree_kernels(shard: Shard, edges: Structure, bits: int) -> Library:
    """Return the kernels that find predecessors along `edges`, from depths of 8 or 32 `bits`."""
    return kernels(shard, "algorithms/paths/bfs/tree.cuh", edges.view(), DEPTH_BITS=bits)


def warm(shard: Shard, direction: str = "out", predecessors: bool = False) -> None:
    """Compile the kernels of `run` for this shard; those of `predecessors` for fewer than `DEEP` levels."""
    forward, backward = _edges(shard, direction)
    search_kernels(shard, forward.view(), predecessors and backward is not None)
    if predecessors:
        tree_kernels(shard, backward or forward, 8)


def run(shard: Shard, source: int, direction: str = "out", predecessors: bool = False) -> Columns:
    """Return the distances of the own vertices from `source`, or to it, in edges.

    Parameters
    ----------
    shard : Shard
    source : int
        An internal id; the same on every rank.
    direction : "out" | "in"
        "in" follows edges backwards, which gives distances to `source`, and needs in-edges.
    predecessors : bool
        Find each vertex's predecessor too: the smallest internal id among the vertices of the previous level
        that have an edge to it. It does not depend on the structure, the number of ranks or timing.

    Returns
    -------
    columns : dict
        "distance", int32[hi - lo] on the shard's device, -1 if there is no path; with `predecessors` also
        "predecessors", int64[hi - lo]: internal ids, -1 for the source and if there is no path.
    scalars : dict
        ``levels``, the largest distance plus one; ``reached``, the number of vertices reached; ``bottom_up``, the
        number of supersteps that ran bottom-up.

    Raises
    ------
    InvalidOption
        `direction` is "in" and the graph has no in-edges.
    CapacityError
        Too little memory: 12 bytes per own vertex, half a byte per vertex of the whole graph, 1 / 64 byte per own arc.
        Predecessors take 8 bytes per own vertex and 1 per vertex of the whole graph (4 from 255 levels on), plus 8 per
        vertex of the whole graph if it has no in-edges.

    Notes
    -----
    O(n + m) work, and O(n / 32) in each bottom-up level. The distances are exact and do not depend on timing.
    """
    if predecessors:
        with compile_together():
            warm(shard, direction, predecessors)
    forward, backward = _edges(shard, direction)
    parents = shard.device.empty(shard.hi - shard.lo, np.uint64) if predecessors and backward is not None else None
    distance, state = _search(shard, forward, backward, source, parents)
    scalars = {"levels": state["levels"], "reached": state["reached"], "bottom_up": state["pulled"]}
    columns = {"distance": distance}
    if predecessors:
        columns["predecessors"] = _predecessors(shard, forward, backward, distance, parents, state["levels"])
    return columns, scalars


def _search(
    shard: Shard, forward: Structure, backward: Structure | None, source: int, parents: Array, gives_up: bool = True
) -> tuple[Array, dict[str, int]]:
    """Return the distances of the own vertices and the program's final state. Notes predecessors in `parents`.

    Where paths are long, near and far lists find the distances, unless `gives_up` is False.
    """
    # Lay out the inboxes, and the two bitmaps of the vertices that were seen.
    device, n, own = shard.device, shard.n_vertices, shard.hi - shard.lo
    world = shard.exchange.world(device)
    words = -(-words_of(n) // 4) * 4 + 4
    widest = shard.partition.widest
    room = 0 if shard.size == 1 else min(widest, max(ROOM, words_of(widest)))
    layout = world.layout(shard.partition, room, seen=2 * 4 * words)

    # Allocate the rank's own arrays and run the program on all ranks. The distances are all that the result keeps.
    room = max(task_room(edges) for edges in (forward, backward) if edges is not None)
    distance = device.empty(own, np.int32)
    lists, tasks = device.carve((2 * own, np.uint32), (room, np.uint64))
    view = forward.view()
    library = search_kernels(shard, view, parents is not None)
    state = world.run(
        library, "BreadthFirst", layout, 1 + (own + forward.num_edges) // 256, graph=view,
        back=view if backward is None else backward.view(), root=source, pulls=int(backward is not None),
        arcs=forward.num_edges, most_levels=LEVELS[device.kind] if gives_up else 0,
        seen_offset=layout.offsets["seen"], seen_words=words, distance=distance, parents=parents, lists=lists,
        tasks=tasks,
    )  # fmt: skip
    if not state["gave_up"]:
        return distance, state
    del distance, lists, tasks
    found = _search_by_lists(shard, forward, source)
    return found or _search(shard, forward, backward, source, parents, gives_up=False)


def _search_by_lists(shard: Shard, forward: Structure, source: int) -> tuple[Array, dict[str, int]] | None:
    """Return the same as `_search`, by near and far lists; None on all ranks if one has too little memory."""
    search = None
    with suppress(CapacityError):
        search = NearFarSearch(shard, HOPS, AHEAD, forward)
    if not shard.exchange.least(int(search is not None)):
        return None
    assert search is not None
    try:
        search.run(np.array([source], np.uint32), np.zeros(1, np.uint64))
    except CapacityError:  # of a region, on all ranks
        return None
    distance, state = search.hops()
    return distance, {**state, "pulled": 0}


def _predecessors(
    shard: Shard, forward: Structure, backward: Structure | None, distance: Array, parents: Array, levels: int
) -> Array:
    """Return the own vertices' predecessors: internal ids, int64[hi - lo], -1 for none."""
    # All ranks share the depths of their vertices, as bytes if the levels allow. With in-edges, each own vertex pulls
    # its least in-neighbour of the level before.
    device, n, own, bits = shard.device, shard.n_vertices, len(distance), 8 if levels < DEEP else 32
    edges = backward or forward
    library = tree_kernels(shard, edges, bits)
    world = shard.exchange.world(device)
    layout = world.layout(shard.partition, 0, depths=-(-n * bits // 64) * 8)
    rows, tasks = device.carve((own, np.uint32), (task_room(edges), np.uint64))
    world.run(
        library, "Tree", layout, 1 + (own + edges.num_edges) // 256, graph=edges.view(),
        pulls=int(backward is not None), distance=distance, depths_offset=layout.offsets["depths"], parents=parents,
        list=rows, tasks=tasks,
    )  # fmt: skip
    if backward is not None:
        return parents.view(np.int64)

    # Without, push the least candidate to every vertex, and take the minimum at the owners.
    least, count = device.full(n, NONE, np.uint64), device.zeros(1, np.int64)
    depths = world.array(layout, "depths", n, np.uint8 if bits == 8 else np.uint32)
    common = {"graph": edges.view(), "first": shard.lo, "depths": depths}
    library.Push(own, n=own, least=least, tasks=tasks, n_tasks=count, **common)
    library.PushTasks(len(tasks), least=least, tasks=tasks, n_tasks=count, **common)
    # Copy the own part, so that the array of the whole graph is freed.
    return device.concatenate([sum_to_owners(shard, least, least=True)]).view(np.int64)
