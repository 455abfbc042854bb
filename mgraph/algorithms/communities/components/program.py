"""Connected components by concurrent union-find on each rank, whose forests are merged.

Each rank stores a parent for every vertex of the graph, and links the two ends of each of its arcs. It first links each
vertex with its first two neighbours, which joins nearly all of the largest component [1]_. If the graph has in-edges,
the rank then skips the rows of that tree's vertices: an arc that leaves the tree is also in the row of its other end.
Only an arc between two skipped vertices is not read at all. On one rank both its ends are in the same tree already. On
several ranks, each skips its own largest tree. If these trees are not one tree after the merge, a second superstep
reads the skipped rows.

On CPUs the ranks do that as phases of one program (`forest.cuh`, `mgraph.exchange.world`): they agree on the largest
tree first, by a bit per vertex, and then tell each other what they have joined besides. On GPUs the host still goes
superstep by superstep, as follows, since the program has not been measured there.

To merge, every rank sends its parents to all others, and each links every vertex with its parent on the other ranks.
After that all forests connect the same vertices, and the root of each tree is its smallest vertex.

================= ======================================================= =============================================
step              launches                                                exchange among p ranks
================= ======================================================= =============================================
sample            4; one read-back of 4 KB where rows can be skipped      none
link rows         1, 2 where there may be hubs; twice as many for         none
                  directed graphs with in-edges
merge             1; on several ranks 1 more, and p - 1 for each part     allgathers in parts; each rank receives
                                                                          4 n (p - 1) bytes in all
second superstep  link rows and merge again; rare, on several ranks only  an allreduce of p numbers decides on it
labels            1, 2 where the graph has an order; one read-back        an allreduce of one number
================= ======================================================= =============================================

References
----------
.. [1] M. Sutton, T. Ben-Nun, A. Barak, "Optimizing parallel graph connectivity computation via subgraph sampling",
   IPDPS 2018. Source of sampling, skipping and the way in which two trees are linked.
.. [2] J. Jaiganesh, M. Burtscher, "A high-performance connected components implementation for GPUs", HPDC 2018.
   Source of the first parents: a smaller neighbour of each vertex.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import LANES, Columns, Shard, kernels, task_room
from mgraph.algorithms.primitives.bitmaps import words_of
from mgraph.device import Array, Device
from mgraph.kernels import Library, View

__all__ = ["Forest", "component_kernels", "find", "labelled", "least_ids", "run", "warm"]

RESIDENT_ON_GPU = True  #: whether GPUs run the program of all ranks; it has run on CPUs only
PROGRAM = "algorithms/communities/components/forest.cuh"
FILE = "algorithms/communities/components/components.cuh"
ROOM = 1 << 20  #: pairs that a rank tells another at once, at most
NONE = -1  #: instead of a root: skip no tree
SAMPLES = 1024  #: vertices whose roots are sampled to find the largest tree, as in [1]_
LARGE = 8  #: a tree is skipped if it has at least 1 / LARGE of the sampled vertices
PART = 1 << 22  #: parents that a rank sends at once: 16 MiB, with which exchanges come near their full bandwidth


class Forest:
    """Forest of a rank over all vertices of the graph, and the edges to build it from.

    Attributes
    ----------
    parent : uint32[n_vertices]
        The parent of each vertex, which is never a larger id. A root is its own parent.
    sides : list of (View, Library)
        The out-edges, and the in-edges if they are stored separately; each with its kernels.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard, self.device, self.n = shard, shard.device, shard.n_vertices
        self.first, self.rows = shard.lo, shard.hi - shard.lo
        self.sides = _sides(shard)
        self.kernels = self.sides[0][1]
        self.parent = self.device.empty(self.n, np.uint32)
        self.room = max(task_room(edges) for edges in (shard.out_edges, shard.in_edges) if edges is not None)
        self.tasks, self.n_tasks = self.device.empty(self.room, np.uint64), self.device.empty(1, np.int64)

    def sample(self) -> None:
        """Link each own vertex with its first neighbours."""
        own = {"graph": self.sides[0][0], "first": self.first, "rows": self.rows, "parent": self.parent}
        self.kernels.Plant(self.n, n=self.n, **own)
        self.compress()
        self.kernels.LinkSample(self.rows, **own)
        self.compress()

    def compress(self) -> None:
        """Make the root of each vertex its parent."""
        self.kernels.Compress(self.n, parent=self.parent, n=self.n)

    def largest(self) -> int:
        """Return the root of the largest tree by a sample; `NONE` if none is large."""
        sample = _some(self.parent[self.first : self.first + self.rows])
        roots, counts = np.unique(sample, return_counts=True)
        return int(roots[counts.argmax()]) if len(sample) and counts.max() * LARGE >= len(sample) else NONE

    def link_rows(self, skipped: int) -> None:
        """Link each own vertex with all its neighbours.

        Children of the root `skipped` are left out.
        """
        for view, library in self.sides:
            self.device.fill(self.n_tasks, 0)
            common = {"graph": view, "first": self.first, "parent": self.parent}
            common |= {"tasks": self.tasks, "n_tasks": self.n_tasks}
            library.LinkRows(-(-self.rows // LANES), rows=self.rows, skipped=skipped, **common)
            library.LinkHubs(self.room, **common)

    def merge(self) -> None:
        """Connect on this rank the vertices that any rank has connected.

        Linking changes only the parents of roots, so parents that are sent after others were merged lose no connection.
        """
        self.compress()
        if self.shard.size == 1:
            return
        for begin in range(0, self.n, PART):
            for rank, part in enumerate(self.shard.exchange.allgather(self.parent[begin : begin + PART])):
                if rank != self.shard.rank:
                    self.kernels.LinkForest(len(part), part=part, n=len(part), begin=begin, parent=self.parent)
        self.compress()

    def joined(self, skipped: int) -> bool:
        """Return True if `merge` made all skipped trees the same tree."""
        if self.shard.size == 1:
            return True
        every = np.full(self.shard.size, NONE, np.int64)
        every[self.shard.rank] = skipped
        every = self.shard.exchange.allreduce(every, "max")
        return len(np.unique(_at(self.parent, every[every != NONE], self.device))) <= 1

    def labels(self) -> tuple[Array, int]:
        """Return the labels of own vertices, int64[hi - lo], and the number of trees."""
        least = None if self.shard.by_name is None else least_ids(self.shard, self.kernels, self.parent)
        return labelled(self.shard, self.kernels, self.parent, least)


def least_ids(shard: Shard, library: Library, parent: Array) -> Array:
    """Return the label of each root: uint32[n_vertices].

    It is the first place in `Shard.by_name` of a vertex in its tree.
    """
    n = shard.n_vertices
    least = shard.device.full(n, 2**32 - 1, np.uint32)
    library.LeastIds(n, order=shard.by_name, n=n, parent=parent, least=least)
    return least


def labelled(shard: Shard, library: Library, parent: Array, least: Array) -> tuple[Array, int]:
    """Return the labels of own vertices, int64[hi - lo], and the number of trees.

    `parent` has the root of each vertex of the graph, `least` the result of `least_ids`; None if roots are labels.
    """
    device, rows = shard.device, shard.hi - shard.lo
    labels, roots = device.empty(rows, np.int64), device.zeros(1, np.int64)
    library.Label(rows, first=shard.lo, rows=rows, parent=parent, least=least, labels=labels, roots=roots)
    return labels, int(shard.exchange.allreduce(Device.to_host(roots))[0])


def component_kernels(shard: Shard) -> Library:
    """Return the kernels for the shard's out-edges."""
    return kernels(shard, FILE, shard.out_edges.view())


def _sides(shard: Shard) -> list[tuple[View, Library]]:
    others = [] if shard.in_edges in (None, shard.out_edges) else [shard.in_edges]
    views = [edges.view() for edges in (shard.out_edges, *others)]
    return [(view, kernels(shard, FILE, view)) for view in views]


def _some(values: Array) -> np.ndarray:
    """Copy about `SAMPLES` of the values, evenly spaced, to the host."""
    return Device.to_host(values[:: max(1, len(values) // SAMPLES)])


def _at(values: Array, places: np.ndarray, device: Device) -> np.ndarray:
    return device.to_host(values[device.asarray(places)])


def resident(shard: Shard) -> bool:
    """Return True if the ranks run the program together.

    Else the host runs superstep after superstep.
    """
    return RESIDENT_ON_GPU or shard.device.kind == "cpu"


def warm(shard: Shard) -> None:
    """Compile the kernels of `run` for this shard."""
    if resident(shard):
        kernels(shard, PROGRAM, shard.out_edges.view())
        return
    _sides(shard)
    words = shard.device.zeros(2 * SAMPLES, np.uint32)  # CuPy compiles kernels for its own operations, too
    _some(words)
    _at(words, np.arange(2), shard.device)


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
        ``components``, the number of components; ``supersteps``, how often the ranks merged their forests: 1 or 2.

    Raises
    ------
    CapacityError
        There is too little memory for 4 bytes a vertex of the whole graph (8 if the graph has an order, and on several
        ranks), 8 bytes an owned vertex and 1 / 64 byte an edge for hubs' tasks.

    Notes
    -----
    O(n + m) in practice. The result is exact, and does not depend on timing, order, structure or the number of ranks.
    """
    if resident(shard):
        _, labels, components = _connect(shard, named=True)
        return {"component": labels}, {"components": components, "supersteps": 1}
    forest, supersteps = _find(shard)
    labels, components = forest.labels()
    return {"component": labels}, {"components": components, "supersteps": supersteps}


def find(shard: Shard) -> tuple[Array, int]:
    """Return the root of each vertex, which names its component, and the supersteps."""
    if resident(shard):
        return _connect(shard, named=False)[0], 1
    forest, supersteps = _find(shard)
    return forest.parent, supersteps


def _connect(shard: Shard, named: bool) -> tuple[Array, Array, int]:
    """Return all vertices' roots, and with `named` own vertices' labels and the number of components."""
    # The inboxes, and a bitmap of all vertices; a single rank needs neither.
    device, n, own = shard.device, shard.n_vertices, shard.hi - shard.lo
    world = shard.exchange.world(device)
    several, edges = shard.size > 1, [shard.out_edges]
    if shard.in_edges not in (None, shard.out_edges):
        edges.append(shard.in_edges)
    layout = world.layout(
        shard.partition, min(n, ROOM) if several else 0, message=8, bits=4 * (words_of(n) + 1) if several else 0
    )
    # The arrays of the program.
    order, room = shard.by_name if named else None, max(task_room(rows) for rows in edges)
    largest, tasks, spare = device.carve(
        (1, np.uint64), (room * len(edges), np.uint64), (n if several or order is not None else 0, np.uint32)
    )
    parent, labels = device.empty(n, np.uint32), device.empty(own, np.int64) if named else None
    # Run it on all ranks together.
    views = [rows.view() for rows in edges]
    state = world.run(
        kernels(shard, PROGRAM, views[0]), "Forest", layout, 1 + (n + sum(rows.num_edges for rows in edges)) // 256,
        graph=views[0], back=views[-1], views=len(edges), skips=int(shard.in_edges is not None), parent=parent,
        order=order, named=int(named), spare=spare, labels=labels, largest=largest,
        shared_offset=layout.offsets["bits"], tasks=tasks, task_room=room,
    )  # fmt: skip
    return parent, labels, state["components"]


def _find(shard: Shard) -> tuple[Forest, int]:
    """Return the forest of the components, and the number of supersteps."""
    # Link, without the rows of the largest tree, and merge.
    forest = Forest(shard)
    forest.sample()
    skipped = NONE if shard.in_edges is None else forest.largest()
    forest.link_rows(skipped)
    forest.merge()
    # Read the skipped rows if the skipped trees are still apart.
    if forest.joined(skipped):
        return forest, 1
    forest.link_rows(NONE)
    forest.merge()
    return forest, 2
