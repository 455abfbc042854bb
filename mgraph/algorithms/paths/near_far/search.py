"""Near-far search for shortest paths on each rank: lists of near and far vertices, and messages to other ranks.

A vertex whose length falls is listed again: as near if the length is below a limit, else as far. Once no rank has near
vertices, the limit rises to the least far length plus `delta`. So lengths are final in steps of `delta`, as in
delta-stepping [1]_, but with two lists instead of many buckets [2]_, and each vertex is listed at most once. No step
reads more than its lists: nothing scans all vertices.

All ranks run the turns as a single program (`search.cuh`, `mgraph.exchange.world`). A turn relaxes the near rows, and
the lengths that other ranks have sent. It costs one meeting of the ranks, and another if it has rows of high degree. A
rise of the limit costs two. A rank sends the length of another rank's vertex when it falls below the shortest that this
rank has found, as 8 bytes, or 16 with wide words. A length that does not fit into the inbox is sent in another meeting.
Lengths that fall again later are corrected, so the result is the same.

On GPUs the host runs the turns until the program has run there (`RESIDENT`). It also does so for a search along the
edges of two structures. While few vertices are near, one kernel runs many turns per launch (`RelaxPersistent`). On
several ranks, each continues until it has no near vertices, and then sends the lengths that it found for the other
ranges.

A search that resumes after a change (`NearFarSearch.resume`) begins at many places, far from and near to the source,
most of which change few vertices. In the order of lengths they would run one after another. On a single rank with a
GPU, each block takes some of these places and continues from them independently (`RelaxBlockwise`), in no order. Few
lengths fall again if they have bounds (`paths.incremental_paths`).

================== ======================================= ========== ================================================
step of the host   launches                                read-backs exchange
================== ======================================= ========== ================================================
a large turn       1, 2 where there may be hubs            1          allreduce of three numbers (a copy on one rank)
many small turns   1                                       1          the same
many places        1                                       1          the same
found elsewhere    1 for each rank sent to or heard from   1          alltoallv of 8 bytes per vertex, or 16
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

#: whether all ranks run a search as a single program; it has not run on GPUs yet
RESIDENT = {"cpu": True, "cuda": True}
#: the most near or far vertices for one persistent kernel: a launch and a read-back take as long as their turn
FEW = {"cuda": 1 << 15, "cpu": 512}
#: the most near vertices, and the most suspects, for blocks that continue independently
BLOCKWISE = {"cuda": 1 << 17, "cpu": 0}
BLOCKWISE_TILES = 1024  #: tiles of such a launch
BLOCKWISE_STEPS = 32  #: steps of a block between two meetings of all blocks
BLOCKWISE_TURNS = 64  #: meetings per launch, after which the host checks whether the call was aborted
BLOCKWISE_LAUNCHES = 16  #: launches after which a search continues in the order of lengths
TURNS = 1 << 12  #: turns per launch, after which the host checks whether the call was aborted
_WORDS = constants("algorithms/paths/near_far/near_far.cuh").enums["State"]
TURN, FAR_TURN, LIMIT, LEAST, NEAR, FAR, TASKS, EDGES, OUT = 0, 1, 2, 3, 5, 8, 10, 13, 16
assert len(_WORDS) == 10
NONE = 2**64 - 1


@dataclass(frozen=True)
class Lengths:
    """Kind of lengths: the kernels' macro LENGTHS, the dtype of a word, and the word of an unreached vertex."""

    bits: int
    word: type
    none: int

    @classmethod
    def of(cls, dtype: str) -> Lengths:
        """Return the kind for float32 or float64 lengths."""
        if dtype == "float32":
            return cls(32, np.uint32, int(np.float32(np.inf).view(np.uint32)))
        return cls(64, np.uint64, int(np.float64(np.inf).view(np.uint64)))

    def limit(self, least: int, delta: float) -> int:
        """Return the next limit: `least` + `delta`, but always above `least`."""
        if self.bits == 0:
            return NONE
        real = np.float32 if self.bits == 32 else np.float64
        with np.errstate(over="ignore"):
            more = real(self.word(least).view(real) + real(delta))
        return max(int(more.view(self.word)), least + 1)


HOPS = Lengths(0, np.uint64, NONE)  #: hops << 32 | source


def library(shard: Shard, lengths: Lengths, edges: Structure | None = None, resident: bool | None = None) -> Library:
    """Return the kernels of a search over `edges`, by default the shard's out-edges."""
    view = (shard.out_edges if edges is None else edges).view()
    resident = RESIDENT[shard.device.kind] if resident is None else resident
    file = "search.cuh" if resident else "near_far.cuh"
    return kernels(shard, f"algorithms/paths/near_far/{file}", view, LENGTHS=lengths.bits)


class Outbox:
    """Vertices to send, grouped by owner.

    They take 4 bytes per vertex of the other ranges.
    """

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
        """Return the vertices to send by owner: `counts[r]` for rank r."""
        return [self.list[at : at + int(n)] for at, n in zip(self.firsts, counts, strict=False)]


class NearFarSearch:
    """Lists and lengths of a search.

    They take 4 bytes per vertex of the whole graph (8 with wide words) and 16 bytes per owned vertex; bitmaps take
    1 / 8 byte per vertex of the whole graph, and 1 / 4 byte per owned vertex. On several ranks inboxes take 2 bytes per
    vertex of the whole graph (4 with wide words), at least 2 MiB per rank. If the host runs the turns, lists of 4 bytes
    per vertex of the other ranges replace them.

    Parameters
    ----------
    shard : Shard
    lengths : Lengths
    delta : float
        The step by which the limit of near vertices rises.
    edges : sequence of Structure, optional
        The edges to follow: one structure, or two that store each other's edges reversed. By default the shard's
        out-edges.
    length : uint32 or uint64[n_vertices], optional
        The lengths at the beginning; by default no vertex is reached.

    Attributes
    ----------
    length : uint32 or uint64[n_vertices]
        The shortest length that this rank knows of each vertex.
    rounds : int
        The turns and the rises of the limit so far; if the host runs the turns, the supersteps.
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
        # Allocate lengths, lists and bitmaps.
        device, n = shard.device, shard.hi - shard.lo
        edges = edges or [shard.out_edges]
        self.n, self.resident = n, RESIDENT[device.kind] and len(edges) == 1
        # The program clears all arrays first.
        cleared = self.resident and length is None
        new, zeros = (device.empty, device.empty) if cleared else (self._unreached, device.zeros)
        self.length = new(shard.n_vertices, lengths.word) if length is None else length
        self.lists = device.empty(4 * n, np.uint32)
        self.marks = zeros(2 * (-(-n // 32) + 1), np.uint32)
        self.held = zeros(-(-shard.n_vertices // 32) + 1, np.uint32)
        self.state = device.zeros(OUT + (shard.size if shard.size > 1 else 0), np.int64)
        self.few, self.arrived = FEW[device.kind], device.zeros(1, np.uint64)
        self.least = device.empty(2, np.uint64)

        # Begin without near vertices.
        self.set_edges(edges)
        self.limit, self.rounds = lengths.limit(0, delta), 0
        self.counts = np.zeros(len(self.state), np.int64)

    def _unreached(self, n: int, dtype: type) -> Array:
        return self.device.full(n, self.lengths.none, dtype)

    @cached_property
    def outbox(self) -> Outbox:
        """Vertices to send to other ranks, if the host runs the turns."""
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
        """Follow `edges` in their current state."""
        self.structures = edges
        self.sides = [(structure.view(), task_room(structure)) for structure in edges]
        self.graph = self.sides[0][0]
        self.tasks = self.device.empty(max(room for _, room in self.sides), np.uint64)

    # ---- the search -------------------------------------------------------------------------------------------------

    def resume(self, sources: Array, words: Array) -> None:
        """Continue an earlier search from `sources` with the lengths `words`.

        O(n / 32) besides the search. All other lengths stay. Blocks continue independently if the search
        `relaxes_blockwise`.
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
        """Find the lengths of the shortest paths from `sources`, which begin with the lengths `words`."""
        if self.resident:
            self._run_together(sources, words, clears=True)
        else:
            self._begin(sources, words)
            self._loop()

    def _run_together(self, sources: Array, words: Array, clears: bool) -> None:
        """Run the program on all ranks, after a reset with `clears`."""
        # Lay out the inboxes, with 8 or 16 bytes per message.
        device, shard, lengths, n = self.device, self.shard, self.lengths, len(sources)
        edges = self.structures[0]
        world = shard.exchange.world(device)
        layout = world.layout(shard.partition, inbox_room(shard), 8 if lengths.bits == 32 else 16)

        # Run the program, and add up its counters.
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
        # Each superstep relaxes near vertices, by the kernel that suits their number.
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
        """True if blocks may continue independently: on a single rank, along the edges of one structure."""
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
        """Exchange lengths between ranks, or raise the limit if no rank has near vertices. Returns False at the end."""
        # All ranks decide alike.
        sent = self.counts[OUT:]
        any_near, any_out, any_far = self.shard.exchange.allreduce(
            np.array([self.near > 0, int(sent.sum()) > 0, self.far > 0], np.int64), "max"
        ).tolist()
        if any_out:
            self._deliver(sent)
        elif not any_near:
            # On a single rank, the persistent kernel raises the limit itself.
            if self.shard.size > 1 or self.far > self.few:
                return self._raise_limit()
            return bool(any_far)
        return True

    def _now(self) -> dict[str, int]:
        return {"turn": self.turn, "far_turn": self.far_turn, "limit": self.limit}

    def _relax(self) -> None:
        now, tasks = {"search": self.fields, "tasks": self.tasks, **self._now()}, TASKS + self.turn % 3
        # Relax the near rows in each structure, then the hubs among them.
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
        """Continue from many places at once, on a single rank. The vertices that are left then are near."""
        self.kernels.RelaxBlockwise(
            BLOCKWISE_TILES, graph=self.graph, search=self.fields, turns=BLOCKWISE_TURNS, steps=BLOCKWISE_STEPS,
            tasks=self.tasks, arrived=self.arrived,
        )  # fmt: skip
        self._read()

    def _raise_limit(self) -> bool:
        """Raise the limit on all ranks above the least far length. Returns False if no vertex is far."""
        # Find the least far length of all ranks.
        now = {"graph": self.graph, "search": self.fields, "far_turn": self.far_turn, "count": self.far}
        self.kernels.FarLeast(self.far, limit=self.limit, **now)
        least = self.state[LEAST + (self.far_turn & 1) :][:1]
        mine = Device.to_host(least).view(np.uint64).copy()
        nearest = int(self.shard.exchange.allreduce(mine, "min")[0])
        if nearest == NONE:
            return False

        # Divide the far vertices by the new limit.
        limit = self.lengths.limit(nearest, self.delta)
        self.kernels.Divide(max(self.far, 1), turn=self.turn, old=self.limit, limit=limit, **now)
        self._read()
        return True

    # ---- several ranks ----------------------------------------------------------------------------------------------

    def _deliver(self, counts: np.ndarray) -> None:
        """Send the lengths that fell to their owners, and receive the own.

        A vertex takes 8 bytes, or 16 with wide words.
        """
        # Pack the lengths for each owner.
        wide, parts = 1 if self.lengths.bits == 32 else 2, []
        for part in self.outbox.parts(counts):
            words = self.device.empty(wide * len(part), np.uint64)
            self.kernels.PackLengths(len(part), search=self.fields, list=part, n=len(part), words=words)
            parts.append(words)

        # Take those that other ranks send.
        for r, words in enumerate(self.shard.exchange.alltoallv(parts)):
            if r != self.shard.rank:
                n = len(words) // wide
                self.kernels.ReceiveLengths(n, search=self.fields, words=words, n=n, **self._now())
        self.device.fill(self.state[OUT:], 0)
        self._read()

    def all_gather(self) -> None:
        """Gather the lengths of all vertices on every rank. One allgather."""
        if self.shard.size == 1:
            return
        for r, theirs in enumerate(self.shard.exchange.allgather(self.length[self.shard.lo : self.shard.hi])):
            if r != self.shard.rank:
                first, end = self.shard.partition.range(r)
                self.length[first:end] = theirs
