"""Single-source shortest paths on each rank, with the near and far lists of `paths.near_far`.

The step `delta` by which the limit rises is `STEPS` times the mean weight above 0 of sampled edges / mean degree, as in
[1]_ and [2]_. With a small step few vertices are near at a time. With a large one more lengths fall again later, and
edges are followed more than once. CPU seconds of a search with weights from 1 to 255 (mean 128), the best of four each,
on two cores that others used too; a second run differed by up to a third:

========================= ======= ======= ======= ======= ======= ======= ======= =======
delta / mean weight       1/32    1/8     1/4     1/2     1       2       8       32
========================= ======= ======= ======= ======= ======= ======= ======= =======
RMAT 18, degree 29        .25     .27     .31     .37     .43     .35     .34     .51
Luxembourg, degree 2.1    -       -       .014    .013    .012    .011    .011    .011
========================= ======= ======= ======= ======= ======= ======= ======= =======

On a CPU the step is 2 mean weights / mean degree: on RMAT 18, edges were followed 1.33 times each on average with it,
1.74 times with twice and 1.05 times with half the step, but limits rose 1.5 times as often with it as with twice the
step, and again with half.

On a GPU the step of [2]_, 32 mean weights / mean degree, is too large for graphs with high degrees, and too small for
roads: their near lists are short. So the factor falls as the mean degree grows. Milliseconds of a search on one H200
(2026-11-30, 3698f83c, medians of eight sources, the same weights), by the factor:

=========================== ====== ====== ====== ====== ====== ====== ====== ======
factor                      4      8      16     32     64     128    256    512
=========================== ====== ====== ====== ====== ====== ====== ====== ======
RMAT 25, degree 31          38.4   41.5   46.1   45.5   47.9
uniform 2^22, degree 16     8.2    8.3    8.4    8.6    20
grid 4096 x 4096, degree 4         109           69     60     60     117
roads, 2^24, degree 2.5                          42            35            91
RMAT 24, degree 4           12.6          13.5          13.5
uniform 2^24, degree 4      17.3          15.9          39.5
=========================== ====== ====== ====== ====== ====== ====== ====== ======

The last two have more near vertices than a grid of the same degree. For their sake a grid gets 32.

Without weights, `paths.bfs` finds the hops, and they become lengths: on RMAT of scale 18 a search takes a CPU 6 ms
instead of 52. What follows is about weights.

A search finds lengths first. The least length of a vertex does not depend on timing, since adding a weight is monotone
in floating point, too. Predecessors are found from the lengths afterwards, by one pass over the edges, and so do not
depend on timing either. A vertex whose predecessors all have its own length (weights of 0, or rounded away) gets one in
further rounds, by the number of such edges in a row.

Weights are checked and sampled once for each state of the edges; after that, this step has no launch and no read-back.

================== =========================================== ======================================================
step               launches                                    exchange among p ranks
================== =========================================== ======================================================
weights            2, 3 where there may be hubs; 2 read-backs  an allgather of five numbers
search             see `paths.near_far.search`                 the same
predecessors       4, 5 where there may be hubs; 1 read-back;  allgather of a word per vertex, alltoallv of 8
                   p - 1 merges                                bytes per vertex, an allreduce of a number
a further round    1, 2 where there may be hubs; 1 read-back;  allreduce, alltoallv of 16 bytes per vertex found
                   2 (p - 1) more
================== =========================================== ======================================================

References
----------
.. [1] U. Meyer, P. Sanders, "Delta-stepping: a parallelizable shortest path algorithm", J. Algorithms 49, 2003.
.. [2] A. Davidson, S. Baxter, M. Garland, J. D. Owens, "Work-efficient parallel GPU methods for single-source shortest
   paths", IPDPS 2014.
"""

from __future__ import annotations

from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from mgraph.algorithms.algorithm import LANES, Columns, Shard, kernels, task_room
from mgraph.algorithms.paths.bfs import program as bfs
from mgraph.algorithms.paths.near_far.search import Lengths, NearFarSearch, library
from mgraph.algorithms.paths.sssp.outbox import Outbox
from mgraph.algorithms.primitives.weight_validation import check_weights, weight_kernels
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct, compile_together, constants, load
from mgraph.structures import Structure

__all__ = ["Paths", "run", "warm"]

#: the limit rises by so many mean weights / mean degree, at least and at most; between them by 128 / mean degree
STEPS = {"cpu": (2, 2), "cuda": (4, 128)}
SAMPLES = 1024  #: rows whose first weights are sampled
SAMPLED_EDGES = constants("algorithms/paths/sssp/tree.cuh")["sampled_edges"]
NO_NOTE = 2**64 - 1
#: the state of the edges, and the sum and the number of their sampled weights
_sampled: WeakKeyDictionary[Structure, tuple[object, list[float]]] = WeakKeyDictionary()


def tree_kernels(shard: Shard, lengths: Lengths) -> Library:
    """Return the kernels that sample weights and find predecessors."""
    return kernels(shard, "algorithms/paths/sssp/tree.cuh", shard.out_edges.view(), LENGTHS=lengths.bits)


def length_kernels(shard: Shard, lengths: Lengths) -> Library:
    """Return the kernel that makes lengths of a BFS's hops."""
    return load(shard.device, "algorithms/paths/sssp/lengths_of_hops.cuh", LENGTHS=lengths.bits)


def warm(shard: Shard, dtype: str = "float32") -> None:
    """Compile the kernels of a search in `dtype` for this shard."""
    if shard.out_edges.weighted:
        _warm_paths(shard, dtype)
    else:
        bfs.warm(shard)
        length_kernels(shard, Lengths.of(dtype))


def _warm_paths(shard: Shard, dtype: str) -> None:
    for make in (library, tree_kernels):
        make(shard, Lengths.of(dtype))
    weight_kernels(shard)


class Paths:
    """Shortest paths from a single source on this rank."""

    def __init__(self, shard: Shard, source: int, dtype: str = "float32") -> None:
        with compile_together():
            _warm_paths(shard, dtype)
        self.shard, self.device, self.source, self.dtype = shard, shard.device, source, dtype
        self.lengths, self.n, self.graph = Lengths.of(dtype), shard.hi - shard.lo, shard.out_edges.view()
        self.kernels = tree_kernels(shard, self.lengths)
        edges = shard.out_edges
        every = check_weights(shard, "shortest paths", numbers=[*self._sample(), edges.num_edges, self.n])
        self.search = NearFarSearch(shard, self.lengths, self._step(*every.sum(0).tolist()))
        self.search.run(np.array([source], np.uint32), np.zeros(1, np.uint64))

    # ---- the step ----------------------------------------------------------------------------------------------------

    def _sample(self) -> list[float]:
        """Return the sum and the number of the first weights of some rows."""
        edges = self.shard.out_edges
        if not edges.weighted:
            return [1.0, 1.0]
        state, sample = _sampled.get(edges, (None, []))
        if state is not edges.state:
            samples = min(SAMPLES, self.n)
            sampled = self.device.empty(samples * SAMPLED_EDGES, np.float32)
            self.kernels.SampleWeights(samples, graph=self.graph, rows=self.n, samples=samples, weights=sampled)
            weights = Device.to_host(sampled).astype(np.float64)
            weights = weights[(weights > 0) & np.isfinite(weights)]  # a step of 0 would take a step per distance
            sample = [float(weights.sum()), float(len(weights))]
            _sampled[edges] = edges.state, sample
        return sample

    def _step(self, total: float, count: float, arcs: float, rows: float) -> float:
        """Return the step of the limit: mean sampled weight * `STEPS` / mean degree. The numbers are of all ranks."""
        mean, degree = total / count if count else 1.0, arcs / max(rows, 1.0)
        if not arcs:
            return mean
        least, most = STEPS[self.device.kind]
        return mean * min(max(128 / degree, least), most) / degree

    # ---- results ----------------------------------------------------------------------------------------------------

    def result(self, predecessors: bool) -> Columns:
        """Return the result of `run`."""
        columns = {}
        if predecessors:
            columns["predecessors"] = self.predecessors()
        columns = {"distance": self.distances(), **columns}
        return columns, {"reached": self.search.reached, "delta": self.search.delta, "supersteps": self.search.rounds}

    def distances(self) -> Array:
        """Return the distances of the own vertices: dtype[hi - lo]."""
        own = self.search.length[self.shard.lo : self.shard.hi]
        return (own if self.shard.size == 1 else own.copy()).view(self.dtype)

    @cached_property
    def n_tasks(self) -> Array:
        """The number of hubs' tasks."""
        return self.device.zeros(1, np.int64)

    @cached_property
    def counts(self) -> Array:
        """The numbers of vertices in the list of a round, and in the list for each other rank."""
        return self.device.zeros(1 + self.shard.size, np.int64)

    def _count_open(self) -> int:
        """Count the reached vertices without a predecessor."""
        count = self.device.zeros(1, np.int64)
        self.kernels.CountOpen(self.n, tree=self._tree(0), count=count)
        return int(self.shard.exchange.allreduce(Device.to_host(count))[0])

    def predecessors(self) -> Array:
        """Return the own vertices' predecessors, int64[hi - lo], -1 for none."""
        # Note the least nearer in-neighbour of every vertex, over the own edges.
        shard, search = self.shard, self.search
        search.all_gather()
        self.notes = self.device.full(shard.n_vertices, NO_NOTE, np.uint64)
        self._note(self.n, None, self._tree(0))

        # Merge the notes of all ranks at the vertices' owners.
        own = self.notes[shard.lo : shard.hi]
        if shard.size > 1:
            ranges = [shard.partition.range(r) if r != shard.rank else (0, 0) for r in range(shard.size)]
            for r, part in enumerate(shard.exchange.alltoallv([self.notes[first:end] for first, end in ranges])):
                if r != shard.rank:
                    self.kernels.MergePredecessors(len(own), part=part, n=len(own), notes=own)

        # Vertices that are as far as all their predecessors get one in further rounds.
        if self._count_open():
            self._rounds()
        own = own if shard.size == 1 else own.copy()
        self.kernels.Predecessors(len(own), notes=own, n=len(own))
        return own.view(np.int64)

    notes: Array = None

    @cached_property
    def outbox(self) -> Outbox:
        """Vertices to send to other ranks."""
        return Outbox(self.shard)

    def _tree(self, level: int) -> Struct:
        search, state = self.search, self.counts
        return Struct(
            length=search.length, none=self.lengths.none, first=self.shard.lo, n=self.n, source=self.source,
            notes=self.notes, level=level, list=search.lists[(level & 1) * self.n :][: self.n],
            count=state[:1], sent=state[1:], **self.outbox.fields,
        )  # fmt: skip

    def _note(self, items: int, listed: Array, tree: Struct) -> None:
        """Note predecessors along the edges of the rows `listed`, or of all rows. Up to two launches."""
        room = task_room(self.shard.out_edges)
        tasks = self.device.empty(room, np.uint64)
        self.device.fill(self.n_tasks, 0)
        common = {"graph": self.graph, "tree": tree, "tasks": tasks, "n_tasks": self.n_tasks}
        self.kernels.NoteEdges(-(-items // LANES), listed=listed, rows=items, **common)
        self.kernels.NoteHubs(room, **common)

    def _rounds(self) -> None:
        """Find predecessors of the vertices that are as far as all their predecessors, level by level."""
        search, shard = self.search, self.shard
        listed, rows, level = None, self.n, 0
        while True:
            # Note predecessors along edges that add nothing to the length.
            level += 1
            tree = self._tree(level)
            self.device.fill(self.counts, 0)
            self._note(rows, listed, tree)
            counts = Device.to_host(self.counts).copy()

            # Stop once no rank reaches another vertex; else the next level begins at those reached.
            reached = shard.exchange.allreduce(np.array([counts[0] + counts[1 : 1 + shard.size].sum()], np.int64))
            if int(reached[0]) == 0:
                return
            if shard.size > 1:
                counts = self._deliver(tree, counts[1 : 1 + shard.size])
            listed, rows = search.lists[(level & 1) * self.n :][: self.n], int(counts[0])

    def _deliver(self, tree: Struct, counts: np.ndarray) -> np.ndarray:
        # Pack the notes for each owner.
        parts, shard = [], self.shard
        for part in self.outbox.parts(counts):
            words = self.device.empty(2 * len(part), np.uint64)
            self.kernels.PackNotes(len(part), list=part, n=len(part), notes=self.notes, words=words)
            parts.append(words)
        # Exchange them.
        for r, words in enumerate(shard.exchange.alltoallv(parts)):
            if r != shard.rank:
                self.kernels.TakeNotes(len(words) // 2, tree=tree, words=words, n=len(words) // 2)
        return Device.to_host(self.counts).copy()


def run(shard: Shard, source: int, predecessors: bool = False, dtype: str = "float32") -> Columns:
    """Return the distances from `source` to the own vertices: the least sums of weights along paths.

    Parameters
    ----------
    shard : Shard
    source : int
        An internal id; the same on every rank.
    predecessors : bool
        Find each vertex's predecessor too: the smallest internal id among the vertices u with
        ``distance[u] + weight == distance[v]`` in `dtype`, and a smaller distance. If all predecessors of a vertex have
        its own distance, it gets the one from which the fewest such edges lead back.
    dtype : "float32" | "float64"
        The type in which distances are added up.

    Returns
    -------
    columns : dict
        "distance", dtype[hi - lo] on the shard's device, inf if there is no path; with `predecessors` also
        "predecessors", int64[hi - lo]: internal ids, -1 for the source and if there is no path.
    scalars : dict
        ``reached``, the number of vertices reached; ``delta``, by which the limit of the near list rose;
        ``supersteps``, the turns and the rises of the limit, which may depend on timing. Without weights, 1 and the
        number of levels.

    Raises
    ------
    InvalidOption
        An edge has a negative weight or NaN; raised on every rank.
    CapacityError
        Too little memory for the lengths and lists of `NearFarSearch`, 1 / 64 byte per edge for hubs' tasks and, with
        predecessors, 8 bytes per vertex of the whole graph and, on several ranks, 8 bytes per owned vertex.

    Notes
    -----
    An edge is followed as often as its source's distance falls while near: in practice O(n + m), and at worst as often
    as Bellman-Ford's. The distances do not depend on timing, structure or the number of ranks, bit for bit.
    """
    if shard.out_edges.weighted:
        return Paths(shard, source, dtype).result(predecessors)

    # Each edge counts 1.
    columns, found = bfs.run(shard, source, predecessors=predecessors)
    lengths, hops, n = Lengths.of(dtype), columns["distance"], shard.hi - shard.lo
    words = shard.device.empty(n, lengths.word)
    length_kernels(shard, lengths).LengthsOfHops(n, hops=hops, n=n, none=lengths.none, lengths=words)
    columns["distance"] = words.view(dtype)
    return columns, {"reached": found["reached"], "delta": 1.0, "supersteps": found["levels"]}
