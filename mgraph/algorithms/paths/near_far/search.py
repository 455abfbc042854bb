"""One rank's part of a search for shortest paths: lists of vertices near and far, and what is sent to other ranks.

A length that falls is a vertex to look at again: soon if it is below a limit (near), else later (far). Once no rank has
near vertices, the limit rises to the least far length plus `delta`. So lengths are final in steps of `delta`, as in
delta-stepping [1]_, but with two lists instead of many buckets [2]_, and with vertices that are listed once at most. No
step reads more than its lists: nothing scans all vertices.

While few vertices are near, one kernel takes turn after turn by itself (`Settle`), with blocks that meet on a GPU and
one thread on a CPU: roads have thousands of small turns, and a launch and a read-back take longer than each. On several
ranks, each goes on until it has no near vertices, and then sends what it found in the others' ranges. Lengths that fall
again later are corrected, so the result is the same.

A search that goes on after a change (`Search.again`) begins at many places, far from and near to the source, most of
which change few vertices. In the order of lengths they would be done one after another. On a GPU and a rank that is
alone, blocks take these places and go on from each by themselves (`Spread`), in no order. Lengths that fall again later
are corrected here, too; few do where lengths have bounds (`paths.incremental_paths`).

================== ======================================= ========== ================================================
step               launches                                read-backs exchange
================== ======================================= ========== ================================================
a large turn       1, 2 where there may be hubs            1          allreduce of three numbers (a copy on one rank)
many small turns   1                                       1          the same
many places        1                                       1          the same
found elsewhere    1 for each rank sent to or heard from   1          alltoallv of 8 bytes a vertex (16 with wide words)
the limit rises    2                                       2          allreduce of a number
================== ======================================= ========== ================================================

References
----------
.. [1] U. Meyer, P. Sanders, "Delta-stepping: a parallelizable shortest path algorithm", J. Algorithms 49, 2003.
.. [2] A. Davidson, S. Baxter, M. Garland, J. D. Owens, "Work-efficient parallel GPU methods for single-source shortest
   paths", IPDPS 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels, task_room
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct, constants
from mgraph.structures import Structure

__all__ = ["HOPS", "Lengths", "Outbox", "Search", "library"]

#: so many near or far vertices are left to one kernel: a launch and a read-back take as long as their turn
FEW = {"cuda": 1 << 15, "cpu": 512}
#: so many near vertices, and so many suspects, are left to blocks that go on by themselves
SPREAD = {"cuda": 1 << 17, "cpu": 0}
SPREAD_TILES = 1024  #: so many tiles they have
SPREAD_STEPS = 32  #: of a block, between two meetings of all
SPREAD_TURNS = 64  #: meetings of one launch, after which the host looks whether the call was aborted
SPREADS = 16  #: launches, after which a search goes on in the order of lengths
TURNS = 1 << 12  #: turns of one launch, after which the host looks whether the call was aborted
_WORDS = constants("algorithms/paths/near_far/paths.cuh").enums["State"]
TURN, FAR_TURN, LIMIT, LEAST, NEAR, FAR, TASKS, EDGES, OUT = 0, 1, 2, 3, 5, 8, 10, 13, 16
assert len(_WORDS) == 10
NONE = 2**64 - 1


@dataclass(frozen=True)
class Lengths:
    """A kind of lengths: the macro LENGTHS of the kernels, the dtype of a word, and the word of an unreached vertex."""

    bits: int
    word: type
    none: int

    @classmethod
    def of(cls, dtype: str) -> Lengths:
        """Those of floats."""
        if dtype == "float32":
            return cls(32, np.uint32, int(np.float32(np.inf).view(np.uint32)))
        return cls(64, np.uint64, int(np.float64(np.inf).view(np.uint64)))

    def limit(self, least: int, delta: float) -> int:
        """The next limit: `delta` above the length `least`, and above it in any case."""
        if self.bits == 0:
            return NONE
        real = np.float32 if self.bits == 32 else np.float64
        with np.errstate(over="ignore"):
            more = real(self.word(least).view(real) + real(delta))
        return max(int(more.view(self.word)), least + 1)


HOPS = Lengths(0, np.uint64, NONE)  #: hops << 32 | source


def library(shard: Shard, lengths: Lengths, edges: Structure | None = None) -> Library:
    """The kernels of a search over the shard's out-edges, or over other edges of it."""
    view = (shard.out_edges if edges is None else edges).view()
    return kernels(shard, "algorithms/paths/near_far/paths.cuh", view, LENGTHS=lengths.bits)


class Outbox:
    """The lists of vertices that are sent to other ranks, a part for each owner: 4 bytes a vertex of other ranges."""

    def __init__(self, shard: Shard) -> None:
        self.shard, device, ranks = shard, shard.device, range(shard.size)
        starts = np.asarray(shard.partition.starts, np.int64)
        lengths = [0 if r == shard.rank else int(starts[r + 1] - starts[r]) for r in ranks]
        self.firsts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        several = shard.size > 1
        self.starts = device.asarray(starts) if several else None
        self.places = device.asarray(self.firsts) if several else None
        self.list: Array = device.empty(int(self.firsts[-1]), np.uint32) if several else None
        self.fields = {"starts": self.starts, "places": self.places, "owners": shard.size, "out": self.list}

    def parts(self, counts: np.ndarray) -> list[Array]:
        """The vertices for each owner, of which there are `counts`."""
        return [self.list[at : at + int(n)] for at, n in zip(self.firsts, counts, strict=False)]


class Search:
    """The lists and lengths of one search.

    They take 4 bytes a vertex of the whole graph (8 with wide words), 16 bytes an owned vertex and, on several ranks, 4
    bytes for each vertex of the other ranges; bitmaps take n / 8 bytes, and n / 4 of owned vertices.

    Parameters
    ----------
    shard : Shard
    lengths : Lengths
    delta : float
        How much the limit of near vertices rises at a time.
    edges : sequence of Structure, optional
        The edges that are followed: one structure, or two of which one has the edges of the other reversed. The shard's
        out-edges by default.
    length : uint32 or uint64[n_vertices], optional
        Lengths that are known; by default no vertex is reached.

    Attributes
    ----------
    length : uint32 or uint64[n_vertices]
        The shortest length that this rank knows of each vertex.
    rounds : int
        The steps so far in which ranks met.
    """

    def __init__(
        self,
        shard: Shard,
        lengths: Lengths,
        delta: float = 0.0,
        edges: Sequence[Structure] = (),
        length: Array = None,
    ) -> None:
        self.shard, self.lengths, self.delta, self.device = shard, lengths, delta, shard.device
        device, n = shard.device, shard.hi - shard.lo
        edges = edges or [shard.out_edges]
        self.n, self.kernels = n, library(shard, lengths, edges[0])
        self.length = device.full(shard.n_vertices, lengths.none, lengths.word) if length is None else length
        self.lists = device.empty(4 * n, np.uint32)
        self.marks = device.zeros(2 * (-(-n // 32) + 1), np.uint32)
        self.held = device.zeros(-(-shard.n_vertices // 32) + 1, np.uint32)
        self.state = device.zeros(OUT + (shard.size if shard.size > 1 else 0), np.int64)
        self.few, self.arrived = FEW[device.kind], device.zeros(1, np.uint64)
        self.outbox = Outbox(shard)
        self.look_at(edges)
        self.fields = Struct(
            length=self.length, first=shard.lo, n=n, lists=self.lists, marks=self.marks, held=self.held,
            state=self.state, **self.outbox.fields,
        )  # fmt: skip
        self.limit, self.rounds = lengths.limit(0, delta), 0
        self.counts = np.zeros(len(self.state), np.int64)

    def look_at(self, edges: Sequence[Structure]) -> None:
        """Follow these edges as they are now."""
        self.sides = [(one.view(), task_room(one)) for one in edges]
        self.graph = self.sides[0][0]
        self.tasks = self.device.empty(max(room for _, room in self.sides), np.uint64)

    # ---- the search -------------------------------------------------------------------------------------------------

    def again(self, sources: Array, words: Array) -> None:
        """`run` after an earlier search with the same lists, from the lengths that are known; O(n / 32) besides.

        Blocks go on by themselves where the search `spreads`.
        """
        self.device.fill(self.state, 0)
        self.device.fill(self.held, 0)
        self.limit = self.lengths.limit(0, self.delta)
        self._begin(sources, words)
        self._go_on(SPREADS if self.spreads and self.near <= SPREAD[self.device.kind] else 0)

    def run(self, sources: Array, words: Array) -> None:
        """Find the lengths of the shortest paths from `sources`, whose lengths at the beginning are `words`."""
        self._begin(sources, words)
        self._go_on()

    def _begin(self, sources: Array, words: Array) -> None:
        device, n = self.device, len(sources)
        self.kernels.Begin(
            max(n, 1), search=self.fields, limit=self.limit, sources=device.asarray(sources),
            words=device.asarray(words), n=n,
        )  # fmt: skip
        self._read()

    def _go_on(self, spreads: int = 0) -> None:
        while self._meet():
            self.rounds += 1
            if self.near and spreads:
                self._spread()
                spreads -= 1
            elif self.near > self.few or (self.near and len(self.sides) > 1):
                self._turn()
            elif self.near or (self.shard.size == 1 and 0 < self.far <= self.few):
                self._settle()

    @property
    def spreads(self) -> bool:
        """Whether blocks may go on by themselves: on a rank that is alone, along the edges of one structure."""
        return self.shard.size == 1 and len(self.sides) == 1 and SPREAD[self.device.kind] > 0

    @property
    def edges(self) -> int:
        """The edges that this rank has followed until the last read-back."""
        return int(self.counts[EDGES])

    @property
    def near(self) -> int:
        """The number of near vertices of this rank at the last read-back."""
        return int(self.counts[NEAR + self.turn % 3])

    @property
    def far(self) -> int:
        """The number of far vertices of this rank, some of which may have been near in the meantime."""
        return int(self.counts[FAR + (self.far_turn & 1)])

    def _read(self) -> None:
        self.counts = Device.to_host(self.state).copy()
        self.turn, self.far_turn = int(self.counts[TURN]), int(self.counts[FAR_TURN])
        self.limit = int(self.counts[LIMIT : LIMIT + 1].view(np.uint64)[0])

    def _meet(self) -> bool:
        """Exchange what was found elsewhere, or raise the limit if no rank has near vertices; False at the end."""
        sent = self.counts[OUT:]
        any_near, any_out, any_far = self.shard.exchange.allreduce(
            np.array([self.near > 0, int(sent.sum()) > 0, self.far > 0], np.int64), "max"
        ).tolist()
        if any_out:
            self._deliver(sent)
        elif not any_near:
            # one block raises the limit by itself if it is alone
            if self.shard.size > 1 or self.far > self.few:
                return self._rise()
            return bool(any_far)
        return True

    def _now(self) -> dict[str, int]:
        return {"turn": self.turn, "far_turn": self.far_turn, "limit": self.limit}

    def _turn(self) -> None:
        now, tasks = {"search": self.fields, "tasks": self.tasks, **self._now()}, TASKS + self.turn % 3
        for view, room in self.sides:
            last = view is self.sides[-1][0]
            self.kernels.Follow(-(-self.near // LANES), graph=view, count=self.near, last=int(last), **now)
            self.kernels.FollowHubs(room, graph=view, **now)
            if not last:
                self.device.fill(self.state[tasks : tasks + 1], 0)
        self._read()

    def _settle(self) -> None:
        self.kernels.Settle(
            -(-self.few // LANES), graph=self.graph, search=self.fields, alone=int(self.shard.size == 1),
            most=self.few, turns=TURNS, delta=self.delta, tasks=self.tasks, arrived=self.arrived,
        )  # fmt: skip
        self._read()

    def _spread(self) -> None:
        """Go on from many places at once, on a rank that is alone; what is left then is near."""
        self.kernels.Spread(
            SPREAD_TILES, graph=self.graph, search=self.fields, turns=SPREAD_TURNS, steps=SPREAD_STEPS,
            tasks=self.tasks, arrived=self.arrived,
        )  # fmt: skip
        self._read()

    def _rise(self) -> bool:
        """Raise the limit on all ranks to what lies above the least far length; False if nothing is far."""
        now = {"graph": self.graph, "search": self.fields, "far_turn": self.far_turn, "count": self.far}
        self.kernels.FarLeast(self.far, limit=self.limit, **now)
        least = self.state[LEAST + (self.far_turn & 1) :][:1]
        mine = Device.to_host(least).view(np.uint64).copy()
        nearest = int(self.shard.exchange.allreduce(mine, "min")[0])
        if nearest == NONE:
            return False
        limit = self.lengths.limit(nearest, self.delta)
        self.kernels.Divide(max(self.far, 1), turn=self.turn, old=self.limit, limit=limit, **now)
        self._read()
        return True

    # ---- several ranks ----------------------------------------------------------------------------------------------

    def _deliver(self, counts: np.ndarray) -> None:
        """Send the lengths that fell to the owners, and take theirs; a vertex takes 8 bytes, or 16 with wide words."""
        wide, parts = 1 if self.lengths.bits == 32 else 2, []
        for part in self.outbox.parts(counts):
            words = self.device.empty(wide * len(part), np.uint64)
            self.kernels.PackOut(len(part), search=self.fields, list=part, n=len(part), words=words)
            parts.append(words)
        for r, words in enumerate(self.shard.exchange.alltoallv(parts)):
            if r != self.shard.rank:
                n = len(words) // wide
                self.kernels.TakeIn(n, search=self.fields, words=words, n=n, **self._now())
        self.device.fill(self.state[OUT:], 0)
        self._read()

    def share(self) -> None:
        """Make the lengths of all vertices known to every rank. One allgather."""
        if self.shard.size == 1:
            return
        for r, theirs in enumerate(self.shard.exchange.allgather(self.length[self.shard.lo : self.shard.hi])):
            if r != self.shard.rank:
                first, end = self.shard.partition.range(r)
                self.length[first:end] = theirs
