"""Strongly connected components by trimming, and by forward and backward searches.

Vertices that no cycle leads to, or that lead to none, are components of their own: trimming removes them first, from
frontier to frontier. Then a search forward and one backward from the vertex of most edges find the component of both,
mostly the largest. After that every vertex that is left begins with a color of its own, and the largest colors spread
forward. A vertex that keeps its color is a root, and a search backward among its color finds its component. This is
repeated until no vertex is left. Colors are mixed ids, so that a chain of k components takes about log k rounds of
this.

These are phases of one program of all ranks (`colors.cuh`, `mgraph.exchange.world`): one launch on each rank that
maps the others' memory. A frontier costs one meeting of the ranks, and two of the own blocks. A vertex of another rank
that a frontier changes is a message of 8 bytes; more of them than an inbox holds take more meetings. A round writes 4
bytes per open vertex to all ranks. CPU ranks of one host share the words of all vertices instead.

In an undirected graph these are the connected components, whose program finds them in a fraction of the time.

References
----------
.. [1] L. K. Fleischer, B. Hendrickson, A. Pinar, "On identifying strongly connected components in parallel", IPDPS
   Workshops 2000. Source of searches forward and backward.
.. [2] G. M. Slota, S. Rajamanickam, K. Madduri, "BFS and coloring-based parallel algorithms for strongly connected
   components and related problems", IPDPS 2014. Source of trimming, one such search, and then colors.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, kernels, task_room
from mgraph.algorithms.communities import components
from mgraph.algorithms.primitives.bitmaps import words_of
from mgraph.algorithms.primitives.programs import inbox_room
from mgraph.algorithms.primitives.replicated import sides
from mgraph.algorithms.primitives.transpose import alike, sample_rows

__all__ = ["run", "warm"]

PROGRAM = "algorithms/communities/strong_components/colors.cuh"


def warm(shard: Shard) -> None:
    """Compile the kernels of `run` for this shard."""
    if shard.in_edges is shard.out_edges:
        components.ALGORITHM.warm(shard)
        return
    sample = sample_rows(shard.device) if shard.in_edges is None else None
    kernels(shard, PROGRAM, (sample or shard.out_edges).view())


def run(shard: Shard) -> Columns:
    """Return the strongly connected component of each own vertex.

    Returns
    -------
    columns : dict
        "component", int64[hi - lo] on the shard's device: the smallest user's id in each own vertex's component.
    scalars : dict
        ``components``, the number of components.

    Raises
    ------
    CapacityError
        There is too little memory for 12 bytes per vertex of the whole graph, 24 bytes per owned vertex, 1 / 64 byte
        per arc for tasks and, on several ranks, inboxes; or for the in-edges of a directed graph that does not store
        them.

    Notes
    -----
    O(n + m) work a round. The result is exact, and does not depend on timing, order, structure or the number of ranks.
    """
    if shard.in_edges is shard.out_edges:
        columns, facts = components.ALGORITHM.run(shard)
        return columns, {"components": facts["components"]}
    edges = sides(shard, "strongly_connected_components")
    # The inboxes, the words of all vertices, and the lists of open vertices.
    device, n, rows = shard.device, shard.n_vertices, shard.hi - shard.lo
    world, widest = shard.exchange.world(device), shard.partition.widest
    common = {"colors": 4 * n, "root": 4 * n, "marks": 8 * (words_of(n) + 1)} if world.one_memory else {}
    colors = {} if common else {"colors": 4 * n}
    layout = world.layout(shard.partition, inbox_room(shard), 8, common, open=8 * widest, **colors)
    # The edges, in the same kind of rows.
    out, back = alike(shard, edges)
    searched = int(out is edges[0] or shard.out_edges.sorted_rows)
    # The vertices' state.
    lengths, most, tasks, root, lists, changed, marks = device.carve(
        (2 * shard.size, np.int64), (1, np.uint64), (max(task_room(side) for side in edges), np.uint64),
        (0 if common else n, np.uint32), (2 * rows, np.uint32), (n if shard.size > 1 else 0, np.uint32),
        (0 if common else 2 * (words_of(rows) + 1) + words_of(n), np.uint32),
    )  # fmt: skip
    if common:
        root, marks = (world.common_array(layout, name, common[name] // 4, np.uint32) for name in ("root", "marks"))
    labels = device.empty(rows, np.int64)
    state = world.run(
        kernels(shard, PROGRAM, out.view()), "Colors", layout, 1 + (n + sum(side.num_edges for side in edges)) // 256,
        graph=out.view(), back=back.view(), searched=searched, common=int(bool(common)),
        color_offset=layout.offsets["colors"], open_offset=layout.offsets["open"], widest=widest, root=root,
        lists=lists, changed=changed, lengths=lengths,
        marks=marks, most=most, tasks=tasks, order=shard.by_name, labels=labels,
    )  # fmt: skip
    return {"component": labels}, {"components": state["components"]}
