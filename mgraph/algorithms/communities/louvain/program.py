"""The Louvain method on p ranks: vertices join the neighbouring community from which modularity gains most.

At first every vertex is a community of its own. In a sweep each vertex chooses once. Vertices choose in a few turns, by
a hash of their names, and those of a turn choose at the same time, so that few neighbours choose without knowing of
each other. A sweep that gains no modularity all the same is undone. In a small graph it is done again in twice as many
turns, a few times; else it ends its level. Then the communities become the vertices of a smaller graph, and so on,
while modularity gains.

On a GPU rows with gaps are copied once for the first graph, see `packed`.

Every rank has the community, the weight and the name of each vertex of the graph, and the rows of its own vertices.
After each turn the ranks share the moves. Ranks own equal ranges of the vertices of smaller graphs, whose edges are
sent to them, added up by pairs of communities.

Weights are whole numbers (`weight_sums`), and equal gains are decided by vertices' names, so that communities do not
depend on the number of ranks, the structure, the order of the vertices or timing.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
a turn            p + 1, and those of wide rows; a read-back                an allgather of 8 bytes a move
a sweep           `TURNS` turns, and 1, 2 where there may be hubs; two      an allreduce of two numbers
                  read-backs; where there are wide rows, a sort of a byte
                  a row, and three more
a smaller graph   8, and for each piece 4; a sort of each piece, and two    two alltoallvs of 8 bytes a pair of
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
from mgraph.algorithms.primitives.compact_csr import packed, some_packed
from mgraph.algorithms.primitives.label_counts import Tally, tally_kernels
from mgraph.algorithms.primitives.replicated import share
from mgraph.algorithms.primitives.user_ids import vertex_labels
from mgraph.algorithms.primitives.weight_sums import Weights, unit_of
from mgraph.device import Array, Device
from mgraph.kernels import View, load
from mgraph.partition import Partition
from mgraph.structures.sort import sort_keys

__all__ = ["FILE", "run", "warm"]

TURNS = 8  #: in which the vertices of a sweep choose
FILE = "algorithms/communities/louvain/louvain.cuh"
FEW, MOST_TURNS = 1 << 16, 64  #: up to so many vertices, a sweep that was undone is done again in up to so many turns
SWEEPS, LEVELS = 50, 50  #: at most, so that it ends; 3 to 15 of each is usual
SWEEP_GAIN, LEVEL_GAIN = 1e-5, 1e-7  #: the modularity that a sweep must gain to be followed by another; a level
PIECE = 1 << 26  #: arcs whose pairs of communities are added up at once


@dataclass
class _Coarse:
    """The rows of a graph of communities on one rank."""

    offsets: Array
    dst: Array
    weights: Array

    @property
    def num_edges(self) -> int:
        """The number of arcs."""
        return len(self.dst)

    def view(self) -> View:
        """The view through which kernels read the rows."""
        return View("algorithms/communities/louvain/view.cuh", "CoarseView", vars(self))


class _Level:
    """One graph, of vertices or of communities, and the communities of its vertices.

    Attributes
    ----------
    names : uint32[n] or None
        The name of each vertex, by which communities are called and equal gains are decided; None for its id.
    labels : uint32[n]
        The community of each vertex: the name of a vertex that began there.
    strength : int64[n]
        What the edges of each vertex weigh.
    sums : int64[n]
        The strength of each community, by its name.
    loops : int
        What edges inside of the vertices weigh: those of communities of earlier levels.
    """

    def __init__(
        self, shard: Shard, edges: Any, partition: Partition, degrees: Array, names: Array, strength: Array,
        loops: int, unit: float, resolution: float,
    ) -> None:  # fmt: skip
        self.shard, self.device, self.n = shard, shard.device, partition.n_vertices
        self.first, end = partition.range(shard.rank)
        self.rows, self.edges, self.loops, self.resolution = end - self.first, edges, loops, resolution
        self.weights = Weights(shard, edges.view(), edges, self.first, self.rows, unit=unit, file=FILE)
        self.tally = Tally(shard, [self.weights.view], degrees)
        self.names = names
        self.strength = share(shard, self.weights.strengths()) if strength is None else strength
        self.labels = self.device.arange(0, self.n, np.uint32) if names is None else names.copy()
        self.sums = self.device.zeros(self.n, np.int64)
        self.weights.kernels.SumByLabel(self.n, labels=self.labels, strength=self.strength, n=self.n, sums=self.sums)
        self.total = int(Device.to_host(self.strength.sum(dtype=np.int64)))
        self.moves, self.count = self.device.empty(self.rows, np.uint64), self.device.zeros(1, np.int64)

    def inside(self) -> int:
        """What the edges inside of communities weigh, both ways."""
        own = Device.to_host(self.weights.weigh("inside", self.labels))[:1]
        return int(self.shard.exchange.allreduce(own)[0]) + self.loops

    def modularity(self) -> float:
        """The modularity of the communities."""
        part = self.sums / float(self.total)
        part *= part
        return self.inside() / self.total - self.resolution * float(part.sum())

    def sweep(self, seed: int, number: int, turns: int) -> int:
        """Have each vertex choose once, in so many turns; how many have moved."""
        moved = 0
        votes: dict[str, Any] = {"labels": self.labels, "first": self.first, "unit": self.weights.unit}
        votes |= {"strength": self.strength, "sums": self.sums, "price": self.resolution / self.total}
        votes |= {"names": self.names, "classes": turns, "turn": 0, "seed": _mixed(seed, number)}
        votes |= {"chosen": None, "moves": self.moves, "count": self.count}
        self.tally.deal(votes)
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
        """Sweep while modularity gains; the modularity."""
        best, turns = self.modularity(), TURNS
        for number in range(SWEEPS):
            before = self.labels.copy(), self.sums.copy()
            if self.sweep(seed, number, turns) == 0:
                break
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
        """The number of each vertex's community, by smallest names; and each community's strength and smallest name."""
        device, library, n = self.device, self.weights.kernels, self.n
        least, marked = device.full(n, 2**32 - 1, np.uint32), device.zeros(n, np.uint8)
        library.LeastNames(n, labels=self.labels, names=self.names, n=n, least=least)
        library.MarkNames(n, least=least, n=n, marked=marked)
        upto = device.empty(n, np.int64)
        device.cumsum(marked, out=upto)
        communities = int(upto[-1]) if n else 0
        strength, names = device.empty(communities, np.int64), device.empty(communities, np.uint32)
        library.NumberCommunities(n, least=least, upto=upto, sums=self.sums, n=n, strength=strength, names=names)
        numbers = device.empty(n, np.uint32)
        library.NumberVertices(n, labels=self.labels, least=least, upto=upto, n=n, numbers=numbers)
        return numbers, strength, names

    def coarse(self, numbers: Array, partition: Partition) -> _Coarse:
        """The own rows of the graph of communities."""
        pairs = self._pairs(numbers)
        keys, sums = _added(self.device, *(self.device.concatenate(list(one)) for one in zip(*pairs, strict=True)))
        if self.shard.size > 1:
            marks = np.asarray(partition.starts[1:-1], np.uint64) << np.uint64(32)
            inner = self.device.xp.searchsorted(keys, self.device.asarray(marks))
            cuts = list(pairwise([0, *self.device.to_host(inner).tolist(), len(keys)]))
            sent = [self.shard.exchange.alltoallv([one[a:b] for a, b in cuts]) for one in (keys, sums)]
            keys, sums = _added(self.device, *(self.device.concatenate(parts) for parts in sent))
        first, end = partition.range(self.shard.rank)
        rows = self.device.arange(first, end + 1, np.uint64)
        rows <<= np.uint64(32)
        offsets = self.device.astype(self.device.xp.searchsorted(keys, rows), np.int64)
        return _Coarse(offsets, self.device.astype(keys, np.uint32), sums)

    def _pairs(self, numbers: Array) -> list[tuple[Array, Array]]:
        """The own arcs between communities, added up in each piece: keys and weights."""
        device = self.device
        counts, offsets = device.zeros(self.rows, np.uint32), device.zeros(self.rows + 1, np.int64)
        between = {"numbers": numbers, "first": self.first, "unit": self.weights.unit, "counts": counts}
        between["offsets"] = offsets
        self._join(0, self.rows, {**between, "begin": 0, "keys": None, "weights": None})
        device.cumsum(counts, out=offsets[1:])
        device.fill(counts, 0)
        marks = device.asarray(np.arange(1, -(-int(offsets[-1]) // PIECE), dtype=np.int64) * PIECE)
        inner = device.to_host(device.xp.searchsorted(offsets, marks)).tolist()
        pairs = []
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
        """The level of the communities."""
        partition = Partition.equal(len(strength), self.shard.size)
        rows = self.coarse(numbers, partition)
        degrees = rows.offsets[1:] - rows.offsets[:-1]
        return _Level(self.shard, rows, partition, degrees, None, strength, inside, self.weights.unit, self.resolution)


def _added(device: Device, keys: Array, weights: Array) -> tuple[Array, Array]:
    """Each different key once, ascending, and the sum of its weights. One sort, two read-backs."""
    n = len(keys)
    if n == 0:
        return keys, weights
    keys, places = sort_keys(device, keys, with_places=True)
    weights = device.gather(weights, places)
    del places
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
    """A seed for the turns of a sweep: uint64."""
    return (seed * 0x9E3779B97F4A7C15 + (number + 1) * 0xD1B54A32D192ED03) % 2**64


def warm(shard: Shard) -> None:
    """Compile what `run` launches on this shard."""
    device = shard.device
    offsets, none = device.zeros(1, np.int64), device.empty(0, np.uint64)
    rows = _Coarse(offsets, device.empty(0, np.uint32), none)
    for edges in (some_packed(shard, shard.out_edges), rows):
        Weights(shard, edges.view(), edges, 0, 0, file=FILE)
        tally_kernels(shard, edges.view())
    _added(device, device.zeros(2, np.uint64), device.zeros(2, np.uint64))


def run(shard: Shard, resolution: float = 1.0, seed: int = 0) -> Columns:
    """The community of each own vertex by the Louvain method.

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
        ``modularity``; ``communities``; ``levels``, how often communities were made to vertices.

    Raises
    ------
    InvalidOption
        A weight is negative or not finite; on every rank.
    CapacityError
        There is too little memory for 60 bytes a vertex of the whole graph, 12 bytes an owned vertex, what `Tally`
        takes, and 56 bytes an arc of a piece, or for each pair of communities with edges that a rank has.

    Notes
    -----
    O(n + m) a sweep; the module docstring lists launches and exchanges.
    """
    device, unit = shard.device, unit_of(shard, "louvain", 2, FILE)
    names = None if shard.by_name is None else vertex_labels(shard)
    out, lo = shard.out_edges, shard.lo
    level = _Level(shard, packed(shard, out, True), shard.partition, out.degrees(), names, None, 0, unit, resolution)
    members = device.arange(lo, shard.hi, np.uint32)  # the vertex of the present level that each own vertex is in
    called, levels = names, 0  # the smallest user's id of each vertex of the present level; None for its id
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
    own = members if called is None else device.gather(called, members)
    communities = shard.n_vertices if called is None else len(called)
    return {"community": device.astype(own, np.int64)}, {"modularity": q, "communities": communities, "levels": levels}
