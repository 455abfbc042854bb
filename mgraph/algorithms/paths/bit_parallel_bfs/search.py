"""Bit-parallel breadth-first search on each rank: up to 64 searches, one bit per vertex and search [1]_.

A level expands the frontier: the vertices that any search reached in the level before. So all searches that are at the
same vertex share each read of an edge.

All ranks run the levels as a single program (`program.cuh`, `mgraph.exchange.world`). The searches that reach a vertex
of another rank in a level travel as a message of 16 bytes, sent after the level's expansion. A level costs one meeting
of the ranks, and another for each further part if the messages exceed an inbox.

On GPUs the host runs the levels until the program has run there (`RESIDENT`). It also does so for callers that read
each level's vertices. On a single rank, one block of a GPU or one thread of a CPU runs many levels per launch while the
frontier is small.

================ ======================================= ========== ==================================================
step of the host launches                                read-backs exchange
================ ======================================= ========== ==================================================
a level          2, 3 where there may be hubs            1          allreduce of a number; alltoallv of 16 bytes per
                                                                    vertex found in another range, and a read-back
many small ones  1                                       1          none
================ ======================================= ========== ==================================================

References
----------
.. [1] M. Then, M. Kaufmann, F. Chirigati, T. Hoang-Vu, K. Pham, A. Kemper, T. Neumann, H. T. Vo, "The more the merrier:
   efficient multi-source graph traversal", PVLDB 8(4), 2014.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels, task_room
from mgraph.algorithms.primitives.outbox import Outbox
from mgraph.algorithms.primitives.programs import inbox_room
from mgraph.device import Array, Device
from mgraph.kernels import Library, Struct, constants

__all__ = ["SEARCHES", "BitParallelBfs", "library", "search", "warm"]

#: whether all ranks run searches as a single program; it has not run on GPUs yet
RESIDENT = {"cpu": True, "cuda": True}

_FILE = "algorithms/paths/bit_parallel_bfs/search.cuh"
SEARCHES = constants(_FILE)["searches"]  #: at a time
LIST, LEVEL, OUT = 0, 4, 5  #: words of the state; the first two are pairs for even and odd levels
FEW = 2048  #: the largest frontier that one block expands
LEVELS = 1 << 14  #: levels per launch, after which the host checks whether the call was aborted


def library(shard: Shard) -> Library:
    """Return the kernels of the host's steps over the shard's out-edges."""
    return kernels(shard, _FILE, shard.out_edges.view())


def program(shard: Shard) -> Library:
    """Return the program of all ranks over the shard's out-edges."""
    return kernels(shard, "algorithms/paths/bit_parallel_bfs/program.cuh", shard.out_edges.view())


def warm(shard: Shard) -> None:
    """Compile the kernels of `search` for this shard."""
    (program if RESIDENT[shard.device.kind] else library)(shard)


def search(shard: Shard, sources: np.ndarray, distance: Array) -> None:
    """Write the distances of the own vertices from up to 64 sources to `distance`, int32[k * (hi - lo)], all -1 before.

    The search takes 16 bytes per vertex of the whole graph, 16 bytes per owned vertex and, on several ranks, 4 bytes
    per vertex of the other ranges; inboxes take 4 bytes per vertex of the whole graph, at least 4 MiB per rank.
    """
    if not RESIDENT[shard.device.kind]:
        BitParallelBfs(shard, sources, distance).run()
        return

    # Allocate the words and lists, and run the program on all ranks.
    device, n, edges = shard.device, shard.hi - shard.lo, shard.out_edges
    outbox = Outbox(shard)
    coming, seen, now, lists = device.carve(
        (shard.n_vertices, np.uint64), (shard.n_vertices, np.uint64), (n, np.uint64), (2 * n, np.uint32)
    )
    world = shard.exchange.world(device)
    world.run(
        program(shard), "BitParallel", world.layout(shard.partition, inbox_room(shard), 16),
        1 + (n + edges.num_edges) // 256, graph=edges.view(), coming=coming, seen=seen, now=now, lists=lists,
        distance=distance, out=outbox.list, places=outbox.places, out_counts=device.empty(shard.size, np.int64),
        sources=device.asarray(sources), n_sources=len(sources), tasks=device.empty(task_room(edges), np.uint64),
    )  # fmt: skip


class BitParallelBfs:
    """Up to 64 searches, whose levels the host runs.

    Their words and lists take 16 bytes per vertex of the whole graph, 16 bytes per owned vertex and, on several ranks,
    4 bytes per vertex of the other ranges.

    Attributes
    ----------
    level : int
        The level in which the listed vertices were found.
    count : int
        The number of listed vertices of this rank.
    fresh : int64[1]
        The number of pairs of a search and an own vertex that it reached so far, except by `few`.
    """

    def __init__(self, shard: Shard, sources: np.ndarray, distance: Array = None) -> None:
        self.shard, self.device, self.n = shard, shard.device, shard.hi - shard.lo

        # Allocate words, lists and counters.
        device = shard.device
        self.graph, self.kernels = shard.out_edges.view(), library(shard)
        self.coming, self.seen = (device.zeros(shard.n_vertices, np.uint64) for _ in range(2))
        self.now, self.lists = device.empty(self.n, np.uint64), device.empty(2 * self.n, np.uint32)
        self.state = device.zeros(OUT + (shard.size if shard.size > 1 else 0), np.int64)
        self.room = task_room(shard.out_edges)
        self.tasks, self.fresh = device.empty(self.room, np.uint64), device.zeros(1, np.int64)
        self.outbox = Outbox(shard)
        self.fields = Struct(
            coming=self.coming, seen=self.seen, now=self.now, first=shard.lo, n=self.n, lists=self.lists,
            distance=distance, state=self.state, **self.outbox.fields,
        )  # fmt: skip

        # Level 0 consists of the sources.
        self.level = 0
        self.kernels.Begin(len(sources), bfs=self.fields, sources=device.asarray(sources), n=len(sources))
        self._read()
        self._settle()

    def _read(self) -> None:
        self.counts = Device.to_host(self.state).copy()
        self.level = int(self.counts[LEVEL])
        self.count = int(self.counts[LIST + (self.level & 1)])

    def _settle(self) -> None:
        self.kernels.Settle(self.count, bfs=self.fields, level=self.level, count=self.count, fresh=self.fresh)

    def step(self) -> bool:
        """Expand the frontier by a level. False if no rank found a vertex."""
        # Follow the frontier's edges.
        items, hubs = -(-self.count // LANES), {"graph": self.graph, "bfs": self.fields, "tasks": self.tasks}
        self.kernels.Expand(max(items, 1), level=self.level, count=self.count, **hubs)
        self.kernels.ExpandHubs(self.room, level=self.level, **hubs)
        self._read()

        # Send the searches that reached vertices of other ranks.
        sent = self.counts[OUT:]
        most = self.shard.exchange.allreduce(np.array([self.count, int(sent.sum())], np.int64), "max")
        if int(most[1]):
            self._deliver(sent)
        self._settle()
        return bool(most.any())

    def few(self) -> bool:
        """Run many levels in one launch, on a single rank with a small frontier. Returns False at the end."""
        self.kernels.ExpandPersistent(1, graph=self.graph, bfs=self.fields, most=FEW, levels=LEVELS, tasks=self.tasks)
        self._read()
        self.shard.exchange.barrier()  # an aborted call ends here
        return self.count > 0

    def run(self) -> None:
        """Search until the frontier is empty on all ranks."""
        while (self.few if self.shard.size == 1 and 0 < self.count <= FEW else self.step)():
            pass

    def _deliver(self, counts: np.ndarray) -> None:
        # Pack the vertices and words for each owner.
        parts = []
        for part in self.outbox.parts(counts):
            words = self.device.empty(2 * len(part), np.uint64)
            self.kernels.PackSearches(len(part), bfs=self.fields, list=part, n=len(part), words=words)
            parts.append(words)

        # Exchange them, and add those received to the frontier.
        for r, words in enumerate(self.shard.exchange.alltoallv(parts)):
            if r != self.shard.rank:
                n = len(words) // 2
                self.kernels.ReceiveSearches(n, bfs=self.fields, words=words, n=n, level=self.level)
        self.device.fill(self.state[OUT:], 0)
        self._read()

    def found(self) -> tuple[Array, Array]:
        """Return the own vertices of this level, and the search that reached each.

        They are int64 and uint8, in any order. The method must be called at level 0 and after each `step`. It takes one
        read-back and one launch.
        """
        total = int(Device.to_host(self.fresh)[0])
        n, self._emitted = total - self._emitted, total
        vertex, search = self.device.empty(n, np.int64), self.device.empty(n, np.uint8)
        self.kernels.Emit(
            self.count, bfs=self.fields, level=self.level, count=self.count, next=self.device.zeros(1, np.int64),
            vertex=vertex, search=search,
        )  # fmt: skip
        return vertex, search

    _emitted = 0
