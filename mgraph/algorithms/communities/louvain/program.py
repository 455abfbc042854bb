"""The Louvain method on p ranks: vertices join the neighbouring community with the largest gain of modularity.

At first every vertex is a community of its own. In a sweep each vertex chooses once. Vertices choose in a few turns, by
a hash of their names, and those of a turn choose at the same time, so that few neighbours choose without knowing of
each other. A sweep that still gains no modularity is undone. In a small graph it is repeated in twice as many turns, a
few times; else it ends its level. Then the communities become the vertices of a smaller graph, and so on, while
modularity gains.

On a GPU `compact_rows` copies rows with gaps once for the first graph.

Every rank has the community, the strength and the name of each vertex of the graph, and the rows of its own vertices.
After each turn the ranks share the moves. Ranks own equal ranges of the vertices of smaller graphs, whose edges are
sent to them, added up by pairs of communities.

Weights are whole numbers (`weight_sums`), and equal gains are decided by vertices' names, so that communities do not
depend on the number of ranks, the structure, the order of the vertices or timing.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
a turn            p + 1, and those of wide rows; a read-back                an allgather of 8 bytes per move
a sweep           `TURNS` turns, and 1, 2 where there may be hubs; two      an allreduce of two numbers
                  read-backs; where there are wide rows, a sort of a byte
                  a row, and three more
a smaller graph   8, and for each piece 4; a sort of each piece, and two    two alltoallvs of 8 bytes per pair of
                  sorts of all pairs                                        communities that a rank has
================= ========================================================= ===========================================

References
----------
.. [1] V. D. Blondel, J.-L. Guillaume, R. Lambiotte, E. Lefebvre, "Fast unfolding of communities in large networks",
   J. Stat. Mech., 2008. The method.
.. [2] H. Lu, M. Halappanavar, A. Kalyanaraman, "Parallel heuristics for scalable community detection", Parallel
   Computing 47, 2015. Source of parallel moves on the state before them, and of choosing in several turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.algorithms import algorithm
from mgraph.algorithms.algorithm import LANES, Columns, Shard
from mgraph.algorithms.primitives.compact_csr import compact_rows, compact_rows_sample
from mgraph.algorithms.primitives.label_counts import LabelCounts, label_count_kernels
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.algorithms.primitives.weight_sums import WeightSums, unit_of
from mgraph.device import Array, Device
from mgraph.kernels import View, load
from mgraph.partition import Partition
from mgraph.structures.sort import sort_keys

__all__ = ["FILE", "run", "warm"]

TURNS = 8  #: turns per sweep, in which vertices choose
FILE = "algorithms/communities/louvain/louvain.cuh"
FEW, MOST_TURNS = 1 << 16, 64  #: up to FEW vertices, an undone sweep is repeated in up to MOST_TURNS turns
SWEEPS, LEVELS = 50, 50  #: upper bounds; 3 to 15 of each is usual
SWEEP_GAIN, LEVEL_GAIN = 1e-5, 1e-7  #: the smallest gains after which another sweep, and another level, follows
PIECE = 1 << 26  #: arcs per piece, whose pairs of communities are added up at once


@dataclass
class _Coarse:
    """Rows of a graph of communities on a rank."""

    offsets: Array
    dst: Array
    weights: Array

    @property
    def num_edges(self) -> int:
        """The number of arcs."""
        return len(self.dst)

    def view(self) -> View:
        """Return the view of the rows for kernels."""
        return View("algorithms/communities/louvain/view.cuh", "CoarseView", vars(self))


class _Level:
    """A graph, of vertices or of communities, and the communities of its vertices.

    Attributes
    ----------
    names : uint32[n] or None
        The name of each vertex, for naming communities and breaking ties; None for its id.
    labels : uint32[n]
        The community of each vertex: the name of a vertex that began there.
    strength : int64[n]
        The weight of each vertex's edges.
    sums : int64[n]
        The strength of each community, by its name.
    loops : int
        The weight of edges inside of the vertices: inside of communities of earlier levels.
    """

    def __init__(
        self, shard: Shard, edges: Any, partition: Partition, degrees: Array, names: Array, strength: Array,
        loops: int, unit: float, resolution: float,
    ) -> None:  # fmt: skip
        # The rows, and their strengths.
        self.shard, self.device, self.n = shard, shard.device, partition.n_vertices
        self.first, end = partition.range(shard.rank)
        self.rows, self.edges, self.loops, self.resolution = end - self.first, edges, loops, resolution
        self.weights = WeightSums(shard, edges.view(), edges, self.first, self.rows, unit=unit, file=FILE)
        self.tally = LabelCounts(shard, [self.weights.view], degrees)

        # Every vertex begins as its own community.
        self.names = names
        self.strength = all_gather(shard, self.weights.strengths()) if strength is None else strength
        self.labels = self.device.arange(0, self.n, np.uint32) if names is None else names.copy()
        self.sums = self.device.zeros(self.n, np.int64)
        self.weights.kernels.SumByLabel(self.n, labels=self.labels, strength=self.strength, n=self.n, sums=self.sums)
        self.total = int(Device.to_host(self.strength.sum(dtype=np.int64)))
        self.moves, self.count = self.device.empty(self.rows, np.uint64), self.device.zeros(1, np.int64)

    def inside(self) -> int:
        """Return the weight of the edges inside of communities, both ways."""
        own = Device.to_host(self.weights.weigh("inside", self.labels))[:1]
        return int(self.shard.exchange.allreduce(own)[0]) + self.loops

    def modularity(self) -> float:
        """Return the modularity of the communities."""
        part = self.sums / float(self.total)
        part *= part
        return self.inside() / self.total - self.resolution * float(part.sum())

    def sweep(self, seed: int, number: int, turns: int) -> int:
        """Let each vertex choose once, in `turns` turns. Returns the number of moves."""
        # Describe the votes.
        moved = 0
        votes: dict[str, Any] = {"labels": self.labels, "first": self.first, "unit": self.weights.unit}
        votes |= {"strength": self.strength, "sums": self.sums, "price": self.resolution / self.total}
        votes |= {"names": self.names, "classes": turns, "turn": 0, "seed": _mixed(seed, number)}
        votes |= {"chosen": None, "moves": self.moves, "count": self.count}
        self.tally.deal(votes)

        # In each turn the vertices vote, and all ranks apply all moves.
        for turn in range(turns):
            self.device.fill(self.count, 0)
            self.tally.vote({**votes, "turn": turn})
            n = int(Device.to_host(self.count)[0])
            state = {"strength": self.strength, "labels": self.labels, "sums": self.sums}
            for part in self.shard.exchange.allgather(self.moves[:n]):
                self.weights.kernels.Move(len(part), moves=part, n=len(part), **state)
                moved += len(part)
        return moved

    def improve(self, seed: int) -> float:
        """Sweep while modularity gains. Returns the modularity."""
        # Sweep.
        best, turns = self.modularity(), TURNS
        for number in range(SWEEPS):
            before = self.labels.copy(), self.sums.copy()
            if self.sweep(seed, number, turns) == 0:
                break

            # Undo a sweep without gain. A small graph tries again with more turns.
            now = self.modularity()
            if now <= best:
                self.labels, self.sums = before
                turns *= 2
                if self.n > FEW or turns > MOST_TURNS:
                    break
                continue
            gained, best = now - best, now
            if gained < SWEEP_GAIN:
                break
        return best

    # ---- the graph of the communities --------------------------------------------------------------------------------

    def numbered(self) -> tuple[Array, Array, Array]:
        """Number the communities by their smallest names.

        Returns the number of each vertex's community, and the strength and smallest name of each community.
        """
        # Find the smallest name of each community, and mark it.
        device, library, n = self.device, self.weights.kernels, self.n
        least, marked = device.full(n, 2**32 - 1, np.uint32), device.zeros(n, np.uint8)
        library.LeastNames(n, labels=self.labels, names=self.names, n=n, least=least)
        library.MarkNames(n, least=least, n=n, marked=marked)

        # Number the marked names.
        upto = device.empty(n, np.int64)
        device.cumsum(marked, out=upto)
        communities = int(upto[-1]) if n else 0
        strength, names = device.empty(communities, np.int64), device.empty(communities, np.uint32)
        library.NumberCommunities(n, least=least, upto=upto, sums=self.sums, n=n, strength=strength, names=names)
        numbers = device.empty(n, np.uint32)
        library.NumberVertices(n, labels=self.labels, least=least, upto=upto, n=n, numbers=numbers)
        return numbers, strength, names

    def coarse(self, numbers: Array, partition: Partition) -> _Coarse:
        """Return the own rows of the graph of communities."""
        # Add up the own arcs by pairs of communities.
        pairs = self._pairs(numbers)
        keys, sums = _added(
            self.device, *(self.device.concatenate(list(column)) for column in zip(*pairs, strict=True))
        )

        # Send the pairs to the owners of their sources, and add up again.
        if self.shard.size > 1:
            marks = np.asarray(partition.starts[1:-1], np.uint64) << np.uint64(32)
            inner = self.device.xp.searchsorted(keys, self.device.asarray(marks))
            cuts = list(pairwise([0, *self.device.to_host(inner).tolist(), len(keys)]))
            sent = [self.shard.exchange.alltoallv([column[a:b] for a, b in cuts]) for column in (keys, sums)]
            keys, sums = _added(self.device, *(self.device.concatenate(parts) for parts in sent))

        # Rows begin where their keys do.
        first, end = partition.range(self.shard.rank)
        rows = self.device.arange(first, end + 1, np.uint64)
        rows <<= np.uint64(32)
        offsets = self.device.astype(self.device.xp.searchsorted(keys, rows), np.int64)
        return _Coarse(offsets, self.device.astype(keys, np.uint32), sums)

    def _pairs(self, numbers: Array) -> list[tuple[Array, Array]]:
        """Return the own arcs between communities, added up in each piece: keys and weights."""
        # Count the arcs per row.
        device = self.device
        counts, offsets = device.zeros(self.rows, np.uint32), device.zeros(self.rows + 1, np.int64)
        between = {"numbers": numbers, "first": self.first, "unit": self.weights.unit, "counts": counts}
        between["offsets"] = offsets
        self._join(0, self.rows, {**between, "begin": 0, "keys": None, "weights": None})
        device.cumsum(counts, out=offsets[1:])
        device.fill(counts, 0)

        # Cut the rows into pieces of about `PIECE` arcs.
        marks = device.asarray(np.arange(1, -(-int(offsets[-1]) // PIECE), dtype=np.int64) * PIECE)
        inner = device.to_host(device.xp.searchsorted(offsets, marks)).tolist()
        pairs = []

        # Write the arcs of each piece, and add them up.
        for begin, end in pairwise([0, *inner, self.rows]):
            n = int(offsets[end] - offsets[begin])
            keys, weights = device.empty(n, np.uint64), device.empty(n, np.uint64)
            self._join(begin, end - begin, {**between, "begin": begin, "keys": keys, "weights": weights})
            pairs.append(_added(device, keys, weights))
        return pairs

    def _join(self, begin: int, rows: int, between: dict[str, Any]) -> None:
        weights = self.weights
        hubs = weights.hubs()
        weights.kernels.JoinRows(-(-rows // LANES), graph=weights.view, begin=begin, rows=rows, between=between, **hubs)
        weights.kernels.JoinHubs(weights.room, graph=weights.view, between=between, **hubs)

    def next(self, numbers: Array, strength: Array, inside: int) -> _Level:
        """Return the level of the communities."""
        partition = Partition.equal(len(strength), self.shard.size)
        rows = self.coarse(numbers, partition)
        degrees = rows.offsets[1:] - rows.offsets[:-1]
        return _Level(self.shard, rows, partition, degrees, None, strength, inside, self.weights.unit, self.resolution)


def _added(device: Device, keys: Array, weights: Array) -> tuple[Array, Array]:
    """Return each different key once, ascending, with the sum of its weights. One sort, two read-backs."""
    # Sort the keys with their weights.
    n = len(keys)
    if n == 0:
        return keys, weights
    keys, places = sort_keys(device, keys, with_places=True)
    weights = device.gather(weights, places)
    del places

    # Sums are the differences of the running sum at the last of equal keys.
    library = load(device, FILE, None, HUB_DEGREE=algorithm.HUB_DEGREE)
    lasts, upto = device.empty(n, np.uint8), device.zeros(n + 1, np.int64)
    library.MarkLast(n, keys=keys, n=n, lasts=lasts)
    device.cumsum(lasts, out=upto[1:])
    running = device.empty(n, np.uint64)
    device.cumsum(weights, out=running)
    different = int(upto[-1])
    out, sums = device.empty(different, np.uint64), device.empty(different, np.uint64)
    library.KeepLast(n, keys=keys, running=running, upto=upto[1:], n=n, out=out, sums=sums)
    sums[1:] -= sums[:-1].copy()
    return out, sums


def _mixed(seed: int, number: int) -> int:
    """Return a seed for the turns of a sweep: uint64."""
    return (seed * 0x9E3779B97F4A7C15 + (number + 1) * 0xD1B54A32D192ED03) % 2**64


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard."""
    device = shard.device
    offsets, none = device.zeros(1, np.int64), device.empty(0, np.uint64)
    rows = _Coarse(offsets, device.empty(0, np.uint32), none)
    for edges in (compact_rows_sample(shard, shard.out_edges), rows):
        WeightSums(shard, edges.view(), edges, 0, 0, file=FILE)
        label_count_kernels(shard, edges.view())
    _added(device, device.zeros(2, np.uint64), device.zeros(2, np.uint64))


def run(shard: Shard, resolution: float = 1.0, seed: int = 0) -> Columns:
    """Return the community of each own vertex by the Louvain method.

    Parameters
    ----------
    shard : Shard
    resolution : float
    seed : int
        Decides which vertices choose at the same time.

    Returns
    -------
    columns : dict
        "community", int64[hi - lo] on the shard's device: the smallest user's id in the community.
    scalars : dict
        ``modularity``; ``communities``; ``levels``, how often communities became vertices.

    Raises
    ------
    InvalidOption
        A weight is negative or not finite; on every rank.
    CapacityError
        Too little memory: 60 bytes per vertex of the whole graph, 12 bytes per owned vertex, that of `LabelCounts`, and
        56 bytes per arc of a piece, or per pair of communities with edges that a rank has.

    Notes
    -----
    O(n + m) per sweep; the module docstring lists launches and exchanges.
    """
    # Start with the vertices.
    device, unit = shard.device, unit_of(shard, "louvain", 2, FILE)
    names = None if shard.by_name is None else vertex_labels(shard)
    out, lo = shard.out_edges, shard.lo
    level = _Level(
        shard, compact_rows(shard, out, True), shard.partition, out.degrees(), names, None, 0, unit, resolution
    )
    members = device.arange(lo, shard.hi, np.uint32)  # vertex of the present level for each own vertex
    called, levels = names, 0  # smallest user's id of each vertex of the present level; None for its id

    # Improve level by level, while modularity gains.
    q = 0.0
    if level.total:
        q, before = level.improve(seed), -np.inf
        while levels < LEVELS and q > before + LEVEL_GAIN:
            numbers, strength, least = level.numbered()
            if len(strength) == level.n:
                break
            levels += 1
            members = device.gather(numbers, members)
            called = least if levels == 1 else device.gather(called, least)
            before = q
            level = level.next(numbers, strength, level.inside())
            q = level.improve(seed + levels)
        numbers, strength, least = level.numbered()
        members = device.gather(numbers, members)
        called = least if levels == 0 else device.gather(called, least)

    # Name the communities by their smallest user's ids.
    own = members if called is None else device.gather(called, members)
    communities = shard.n_vertices if called is None else len(called)
    return {"community": device.astype(own, np.int64)}, {"modularity": q, "communities": communities, "levels": levels}
