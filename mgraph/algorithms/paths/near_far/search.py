"""One rank's part of a search for shortest paths: lists of vertices near and far, and what is sent to other ranks.

A length that falls is a vertex to look at again: soon if it is below a limit (near), else later (far). Once no rank has
near vertices, the limit rises to the least far length plus `delta`. So lengths are final in steps of `delta`, as in
delta-stepping [1]_, but with two lists instead of many buckets [2]_, and with vertices that are listed once at most. No
step reads more than its lists: nothing scans all vertices.

All ranks run the turns as one program (`search.cuh`, `mgraph.exchange.world`). A turn relaxes the near rows, and the
lengths that others have sent; it costs one meeting of the ranks, and one more where it has rows of high degree. When
the limit rises there are two. A length of another rank's vertex is sent when it falls below the shortest that was found
here, as 8 bytes, or 16 with wide words; one that does not fit into the inbox is sent in another meeting. Lengths that
fall again later are corrected, so the result is the same.

GPUs go another way until the program has run on them (`RESIDENT`), and so does a search along the edges of two
structures. There the host takes turns. While few vertices are near, one kernel takes turn after turn by itself
(`RelaxPersistent`). On several ranks, each goes on until it has no near vertices, and then sends what it found in the
others' ranges.

A search that goes on after a change (`NearFarSearch.resume`) begins at many places, far from and near to the source,
most of which change few vertices. In the order of lengths they would be done one after another. On a GPU and a rank
that is alone, blocks take these places and go on from each by themselves (`RelaxBlockwise`), in no order; few lengths
fall again where they have bounds (`paths.incremental_paths`).

================== ======================================= ========== ================================================
step of the host   launches                                read-backs exchange
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
from functools import cached_property

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels, task_room
from mgraph.algorithms.primitives.programs import inbox_room
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct, constants
from mgraph.structures import Structure

__all__ = ["HOPS", "Lengths", "NearFarSearch", "Outbox", "library"]

#: whether all ranks run a search as one program; on GPUs it has not run yet
RESIDENT = {"cpu": True, "cuda": False}
#: so many near or far vertices are left to one kernel: a launch and a read-back take as long as their turn
FEW = {"cuda": 1 << 15, "cpu": 512}
#: so many near vertices, and so many suspects, are left to blocks that go on by themselves
BLOCKWISE = {"cuda": 1 << 17, "cpu": 0}
BLOCKWISE_TILES = 1024  #: so many tiles they have
BLOCKWISE_STEPS = 32  #: of a block, between two meetings of all
BLOCKWISE_TURNS = 64  #: meetings of one launch, after which the host looks whether the call was aborted
BLOCKWISE_LAUNCHES = 16  #: launches, after which a search goes on in the order of lengths
TURNS = 1 << 12  #: turns of one launch, after which the host looks whether the call was aborted
_WORDS = constants("algorithms/paths/near_far/near_far.cuh").enums["State"]
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


def library(shard: Shard, lengths: Lengths, edges: Structure | None = None, resident: bool | None = None) -> Library:
    """Return the kernels of a search over the shard's out-edges, or over other edges of it."""
    view = (shard.out_edges if edges is None else edges).view()
    resident = RESIDENT[shard.device.kind] if resident is None else resident
    file = "search.cuh" if resident else "near_far.cuh"
    return kernels(shard, f"algorithms/paths/near_far/{file}", view, LENGTHS=lengths.bits)


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


class NearFarSearch:
    """The lists and lengths of one search.

    They take 4 bytes a vertex of the whole graph (8 with wide words) and 16 bytes an owned vertex; bitmaps take n / 8
    bytes, and n / 4 of owned vertices. On several ranks inboxes take 2 bytes a vertex of the whole graph (4), 2 MiB a
    rank at least; where the host takes steps, 4 bytes for each vertex of the other ranges instead.

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
        The turns and the rises of the limit so far; by the host, the steps in which ranks met.
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
        self.n, self.resident = n, RESIDENT[device.kind] and len(edges) == 1
        # a search by the program clears everything first
        cleared = self.resident and length is None
        new, zeros = (device.empty, device.empty) if cleared else (self._unreached, device.zeros)
        self.length = new(shard.n_vertices, lengths.word) if length is None else length
        self.lists = device.empty(4 * n, np.uint32)
        self.marks = zeros(2 * (-(-n // 32) + 1), np.uint32)
        self.held = zeros(-(-shard.n_vertices // 32) + 1, np.uint32)
        self.state = device.zeros(OUT + (shard.size if shard.size > 1 else 0), np.int64)
        self.few, self.arrived = FEW[device.kind], device.zeros(1, np.uint64)
        self.least = device.empty(2, np.uint64)
        self.set_edges(edges)
        self.limit, self.rounds = lengths.limit(0, delta), 0
        self.counts = np.zeros(len(self.state), np.int64)

    def _unreached(self, n: int, dtype: type) -> Array:
        return self.device.full(n, self.lengths.none, dtype)

    @cached_property
    def outbox(self) -> Outbox:
        """The lists for other ranks, where the host takes steps."""
        return Outbox(self.shard)

    @cached_property
    def fields(self) -> Struct:
        """The fields of the kernels' `NearFarLists`."""
        return Struct(
            length=self.length, first=self.shard.lo, n=self.n, lists=self.lists, marks=self.marks, held=self.held,
            state=self.state, **self.outbox.fields,
        )  # fmt: skip

    @property
    def kernels(self) -> Library:
        """The kernels of the host's steps."""
        return library(self.shard, self.lengths, self.structures[0], resident=False)

    def set_edges(self, edges: Sequence[Structure]) -> None:
        """Follow these edges as they are now."""
        self.structures = edges
        self.sides = [(one.view(), task_room(one)) for one in edges]
        self.graph = self.sides[0][0]
        self.tasks = self.device.empty(max(room for _, room in self.sides), np.uint64)

    # ---- the search -------------------------------------------------------------------------------------------------

    def resume(self, sources: Array, words: Array) -> None:
        """`run` after an earlier search with the same lists, from the lengths that are known; O(n / 32) besides.

        Blocks go on by themselves where the search `relaxes_blockwise`.
        """
        if self.resident and not self.relaxes_blockwise:
            self._run_together(sources, words, clears=False)
            return
        self.device.fill(self.state, 0)
        self.device.fill(self.held, 0)
        self.limit = self.lengths.limit(0, self.delta)
        self._begin(sources, words)
        self._loop(BLOCKWISE_LAUNCHES if self.relaxes_blockwise and self.near <= BLOCKWISE[self.device.kind] else 0)

    def run(self, sources: Array, words: Array) -> None:
        """Find the lengths of the shortest paths from `sources`, whose lengths at the beginning are `words`."""
        if self.resident:
            self._run_together(sources, words, clears=True)
        else:
            self._begin(sources, words)
            self._loop()

    def _run_together(self, sources: Array, words: Array, clears: bool) -> None:
        """Run the program on all ranks, which with `clears` forgets all lengths first."""
        device, shard, lengths, n = self.device, self.shard, self.lengths, len(sources)
        edges = self.structures[0]
        world = shard.exchange.world(device)
        layout = world.layout(shard.partition, inbox_room(shard), 8 if lengths.bits == 32 else 16)
        state = world.run(
            library(shard, lengths, edges, resident=True), "NearFar", layout, 1 + (self.n + edges.num_edges) // 256,
            graph=self.graph, length=self.length, none=lengths.none, clears=int(clears),
            sources=device.asarray(sources), words=device.asarray(words), n_sources=n,
            limit=lengths.limit(0, self.delta), delta=self.delta, lists=self.lists, marks=self.marks, held=self.held,
            least=self.least, tasks=self.tasks,
        )  # fmt: skip
        self.rounds += state["rounds"]
        self.counts[EDGES] = state["edges"]

    def _begin(self, sources: Array, words: Array) -> None:
        device, n = self.device, len(sources)
        self.kernels.BeginSearch(
            max(n, 1), search=self.fields, limit=self.limit, sources=device.asarray(sources),
            words=device.asarray(words), n=n,
        )  # fmt: skip
        self._read()

    def _loop(self, relaxes_blockwise: int = 0) -> None:
        while self._superstep():
            self.rounds += 1
            if self.near and relaxes_blockwise:
                self._relax_blockwise()
                relaxes_blockwise -= 1
            elif self.near > self.few or (self.near and len(self.sides) > 1):
                self._relax()
            elif self.near or (self.shard.size == 1 and 0 < self.far <= self.few):
                self._relax_persistent()

    @property
    def relaxes_blockwise(self) -> bool:
        """Whether blocks may go on by themselves: on a rank that is alone, along the edges of one structure."""
        return self.shard.size == 1 and len(self.sides) == 1 and BLOCKWISE[self.device.kind] > 0

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

    def _superstep(self) -> bool:
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
                return self._raise_limit()
            return bool(any_far)
        return True

    def _now(self) -> dict[str, int]:
        return {"turn": self.turn, "far_turn": self.far_turn, "limit": self.limit}

    def _relax(self) -> None:
        now, tasks = {"search": self.fields, "tasks": self.tasks, **self._now()}, TASKS + self.turn % 3
        for view, room in self.sides:
            last = view is self.sides[-1][0]
            self.kernels.RelaxNear(-(-self.near // LANES), graph=view, count=self.near, last=int(last), **now)
            self.kernels.RelaxHubs(room, graph=view, **now)
            if not last:
                self.device.fill(self.state[tasks : tasks + 1], 0)
        self._read()

    def _relax_persistent(self) -> None:
        self.kernels.RelaxPersistent(
            -(-self.few // LANES), graph=self.graph, search=self.fields, alone=int(self.shard.size == 1),
            most=self.few, turns=TURNS, delta=self.delta, tasks=self.tasks, arrived=self.arrived,
        )  # fmt: skip
        self._read()

    def _relax_blockwise(self) -> None:
        """Go on from many places at once, on a rank that is alone; what is left then is near."""
        self.kernels.RelaxBlockwise(
            BLOCKWISE_TILES, graph=self.graph, search=self.fields, turns=BLOCKWISE_TURNS, steps=BLOCKWISE_STEPS,
            tasks=self.tasks, arrived=self.arrived,
        )  # fmt: skip
        self._read()

    def _raise_limit(self) -> bool:
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
            self.kernels.PackLengths(len(part), search=self.fields, list=part, n=len(part), words=words)
            parts.append(words)
        for r, words in enumerate(self.shard.exchange.alltoallv(parts)):
            if r != self.shard.rank:
                n = len(words) // wide
                self.kernels.ReceiveLengths(n, search=self.fields, words=words, n=n, **self._now())
        self.device.fill(self.state[OUT:], 0)
        self._read()

    def all_gather(self) -> None:
        """Make the lengths of all vertices known to every rank. One allgather."""
        if self.shard.size == 1:
            return
        for r, theirs in enumerate(self.shard.exchange.allgather(self.length[self.shard.lo : self.shard.hi])):
            if r != self.shard.rank:
                first, end = self.shard.partition.range(r)
                self.length[first:end] = theirs
