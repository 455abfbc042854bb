"""Connected components by concurrent union-find on each rank, whose forests are merged.

Each rank stores a parent for every vertex of the graph, and links the two ends of each of its arcs. It first links each
vertex with its first two neighbours, which joins nearly all of the largest component [1]_. If the graph has in-edges,
the rank then skips the rows of that tree: an arc that leaves the tree is also in the row of its other end, and arcs
inside the tree need not be read. So the ranks first agree on the largest tree, by a bit per vertex. Then they send each
other their other links, as pairs of a vertex and its root. If there are many, each rank first sends its own vertices'
roots as an array. CPU ranks that map each other's memory share one forest instead, and send nothing.

These steps are phases of one program of all ranks (`forest.cuh`, `mgraph.exchange.world`). At its end, all forests
connect the same vertices, and the root of each tree is its smallest vertex.

References
----------
.. [1] M. Sutton, T. Ben-Nun, A. Barak, "Optimizing parallel graph connectivity computation via subgraph sampling",
   IPDPS 2018. Source of sampling, skipping and the way in which two trees are linked.
.. [2] J. Jaiganesh, M. Burtscher, "A high-performance connected components implementation for GPUs", HPDC 2018.
   Source of the first parents: a smaller neighbour of each vertex.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, kernels, task_room
from mgraph.algorithms.primitives.bitmaps import words_of
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.device import Array

__all__ = ["Links", "connect", "run", "warm"]

PROGRAM = "algorithms/communities/components/forest.cuh"
ROOM = 1 << 20  #: most pairs per message from a rank to another
PLANTED = 4  #: the ranks share how the first of this many rows are planted
UNLINKED = np.uint64(2**64 - 1)


@dataclass
class Links:
    """Spanning forest of a rank: the arcs that have joined trees. All ranks' arcs together connect each component.

    Attributes
    ----------
    arcs : uint64[n_vertices]
        The arc by which each vertex was linked to a smaller one of another tree, ``src << 32 | dst``; `UNLINKED` for
        roots. A vertex *hangs on* the other end if it is an end itself, and the other is smaller.
    hooks : uint8[n_vertices]
        1 for the ends of the other arcs.
    """

    arcs: Array
    hooks: Array

    @property
    def nbytes(self) -> int:
        """Bytes of device memory."""
        return int(self.arcs.nbytes) + int(self.hooks.nbytes)


def warm(shard: Shard) -> None:
    """Compile the kernels of `run` for this shard."""
    kernels(shard, PROGRAM, shard.out_edges.view())


def run(shard: Shard) -> Columns:
    """Return the weakly connected component of each own vertex.

    Parameters
    ----------
    shard : Shard

    Returns
    -------
    columns : dict
        "component", int64[hi - lo] on the shard's device: the smallest user's id in each own vertex's component.
    scalars : dict
        ``components``, the number of components; ``supersteps``, always 1.

    Raises
    ------
    CapacityError
        There is too little memory for 4 bytes per vertex of the whole graph (8 on several ranks, of which 4 are in the
        region, or all in that of the first CPU rank; 12 if the graph has an order, of which 4 stay), 8 bytes per owned
        vertex and 1 / 64 byte per edge for hubs' tasks.

    Notes
    -----
    O(n + m) in practice. The result is exact, and does not depend on timing, order, structure or the number of ranks.
    """
    _, labels, components = connect(shard, keep=False)
    return {"component": labels}, {"components": components, "supersteps": 1}


def connect(
    shard: Shard, links: Links | None = None, kept: Array = None, stride: int = 1, keep: bool = True
) -> tuple[Array, Array, int]:
    """Return all vertices' roots, own vertices' labels, and the number of components.

    The arcs of this rank's forest are written to `links`, whose hooks are 0 before. It may begin with `kept`, the links
    of an earlier forest whose arcs still exist: then one row of `stride` is sampled. If `keep` is false, the roots may
    be in a region, which the next program overwrites.
    """
    # The inboxes, a bitmap and an array of all vertices; a single rank needs none of them in a region.
    device, n, own = shard.device, shard.n_vertices, shard.hi - shard.lo
    world = shard.exchange.world(device)
    several, edges = shard.size > 1, [shard.out_edges]
    if shard.in_edges not in (None, shard.out_edges):
        edges.append(shard.in_edges)
    common = world.one_memory and not keep
    separate = several and not common
    planted = shard.partition.widest // PLANTED if separate and world.mapped and links is None else 0
    layout = world.layout(
        shard.partition, min(n, ROOM) if separate else 0, 8,
        dict.fromkeys(("forest", "least"), 4 * n) if common else {},
        bits=4 * (words_of(n) + 1) if separate else 0, spare=4 * n if separate else 0,
    )  # fmt: skip
    # The arrays of the program.
    names, room = vertex_labels(shard), max(task_room(rows) for rows in edges)
    largest, active, tasks, spare = device.carve(
        (2, np.uint64), (shard.size, np.int64), (room * len(edges), np.uint64),
        (0 if several or names is None else n, np.uint32),
    )  # fmt: skip
    if separate:
        spare = world.array(layout, "spare", n, np.uint32)
    if common:
        parent, spare = (world.common_array(layout, name, n, np.uint32) for name in ("forest", "least"))
    else:
        parent = device.empty(n, np.uint32)
    labels = device.empty(own, np.int64)
    # Run it on all ranks together.
    views = [rows.view() for rows in edges]
    state = world.run(
        kernels(shard, PROGRAM, views[0]), "Forest", layout, 1 + (n + sum(rows.num_edges for rows in edges)) // 256,
        graph=views[0], back=views[-1], views=len(edges), skips=int(shard.in_edges is not None), parent=parent,
        links=None if links is None else links.arcs, hooks=None if links is None else links.hooks,
        kept=kept, stride=stride, names=names, spare=spare, labels=labels, largest=largest, active=active,
        shared_offset=-1 if common else layout.offsets["bits"], spare_offset=layout.offsets["spare"], planted=planted,
        tasks=tasks, task_room=room,
    )  # fmt: skip
    return parent, labels, state["components"]
