"""The vertices of one search on one rank: which were found, and how new ones are sent to their owners and other ranks.

There are two bitmaps over all vertices, `found` and `seen`, of n / 8 bytes each. A vertex in `found` and not in `seen`
is new, so no vertex is settled twice or sent twice. Ranks send each other the new vertices of one range as a list or as
a bitmap, whichever has fewer bytes: an array with the length of the bitmap is a bitmap, a shorter one is a list. Both
are uint32 and relative to the first vertex of the range, so a range need not begin at a word of the bitmaps.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms import algorithm
from mgraph.algorithms.algorithm import Shard
from mgraph.device import Array, Device
from mgraph.kernels import Library, View, constants

__all__ = ["COUNT", "HUBS", "NEW_EDGES", "SENT", "TASKS", "Frontier", "words_of"]

WORD_BITS = constants("kernels/bits.cuh")["word_bits"]

# Counters on the device: the vertices reached in all supersteps, and their edges. Then two rows, for even and odd
# supersteps: the length of the new frontier, its edges, the hubs' tasks, its hubs and, on several ranks, the number of
# new vertices in each rank's range.
COUNT, NEW_EDGES, TASKS, HUBS, SENT = 0, 1, 2, 3, 4


def words_of(n: int) -> int:
    """The number of words in a bitmap of `n` bits."""
    return -(-n // WORD_BITS)


class Frontier:
    """The bitmaps, lists and counters of one search, all allocated at the start.

    They take n / 4 bytes on the device for the bitmaps, n / 4 bytes for buffers to send from if there are several
    ranks, and 8.1 bytes for each owned vertex. Superstep L uses the counters ``row(L)``; its last kernel, `absorb`,
    clears those of superstep L - 1.

    Attributes
    ----------
    distance : int32[hi - lo]
        The level of each own vertex; -1 if it is not reached.
    vertices : uint32[hi - lo]
        The own vertices of the newest level, relative to `lo`. The counter `COUNT` of the superstep is their number.
    """

    def __init__(self, shard: Shard, kernels: Library, graph: View) -> None:
        self.shard, self.kernels, self.graph, self.device = shard, kernels, graph, shard.device
        device, words = shard.device, words_of(shard.n_vertices) + 1  # one more: kernels read 32 bits from any bit on
        self.n = shard.hi - shard.lo
        self.found, self.seen = device.zeros(words, np.uint32), device.zeros(words, np.uint32)
        self.fresh = device.empty(words_of(self.n), np.uint32)
        self.vertices = device.empty(self.n, np.uint32)
        self.distance = device.full(self.n, -1, np.int32)
        self.counters = SENT + (shard.size if shard.size > 1 else 0)
        self.state = device.zeros(2 + 2 * self.counters, np.int64)
        rows = [self.state[2 + row * self.counters :][: self.counters] for row in (0, 1)]
        self.rows = [[row[at:] for at in (COUNT, NEW_EDGES, TASKS, HUBS, SENT)] for row in rows]
        if shard.size > 1:
            self._prepare_sending()

    def _prepare_sending(self) -> None:
        rank, size, starts = self.shard.rank, self.shard.size, np.asarray(self.shard.partition.starts, np.int64)
        words = [0 if r == rank else words_of(int(starts[r + 1] - starts[r])) for r in range(size)]
        self.places = np.concatenate([[0], np.cumsum(words)]).astype(np.int64)
        chunks = np.concatenate([[0], np.cumsum([-(-w // algorithm.CHUNK) for w in words])]).astype(np.int64)
        self.tables = [self.device.asarray(table) for table in (starts, self.places, chunks)]
        self.chunks = int(chunks[-1])
        self.out_bits = self.device.empty(int(self.places[-1]), np.uint32)
        self.out_list = self.device.empty(int(self.places[-1]), np.uint32)

    # ---- counters ----------------------------------------------------------------------------------------------------

    def row(self, level: int, at: int = COUNT) -> Array:
        """The device counters of superstep `level`, from counter `at` on."""
        return self.rows[level & 1][at]

    def read(self, level: int) -> tuple[int, int, np.ndarray]:
        """The vertices reached so far, their edges, and the counters of superstep `level`. One read-back."""
        state = Device.to_host(self.state)
        first = 2 + (level & 1) * self.counters
        return int(state[0]), int(state[1]), state[first : first + self.counters]

    # ---- one rank ----------------------------------------------------------------------------------------------------

    def begin(self, source: int) -> None:
        """Make `source` the only vertex of level 0; every rank marks it as visited. Two launches."""
        one, own = self.device.asarray(np.array([source], np.uint32)), self.shard.lo <= source < self.shard.hi
        self.kernels.MergeList(1, list=one, n=1, first=0, found=self.found, seen=None if own else self.seen)
        self.absorb(0)

    def absorb(self, level: int) -> None:
        """Give the new vertices of the own range the distance `level`, and append them to the frontier. One launch."""
        self.kernels.Absorb(
            -(-words_of(self.n) // algorithm.CHUNK), graph=self.graph, first=self.shard.lo, n=self.n, found=self.found,
            seen=self.seen, fresh=self.fresh, distance=self.distance, level=level, frontier=self.vertices,
            count=self.row(level), totals=self.state, spent=self.row(level + 1), counters=self.counters,
        )  # fmt: skip

    # ---- several ranks -----------------------------------------------------------------------------------------------

    def pack(self, level: int) -> None:
        """Write the new vertices of the other ranks' ranges to the send buffers, and count them. One launch."""
        starts, places, chunks = self.tables
        self.kernels.Pack(
            self.chunks, starts=starts, places=places, chunks=chunks, owners=self.shard.size, found=self.found,
            seen=self.seen, bits=self.out_bits, list=self.out_list, counts=self.row(level, SENT),
        )  # fmt: skip

    def deliver(self, counts: np.ndarray) -> int:
        """Send each rank what was packed for it, and merge what the other ranks send into `found`.

        Returns an upper bound of the number of vertices received. One alltoallv, and one launch for each rank that sent
        something.

        Parameters
        ----------
        counts : int64[size]
            The number of vertices packed for each rank.
        """
        parts, n = [], 0
        for r in range(self.shard.size):
            first, end = int(self.places[r]), int(self.places[r + 1])
            is_list = int(counts[r]) < end - first
            parts.append(self.out_list[first : first + int(counts[r])] if is_list else self.out_bits[first:end])
        for r, part in enumerate(self.shard.exchange.alltoallv(parts)):
            if r != self.shard.rank:
                n += self._merge(part, self.shard.lo, self.n, None)
        return min(n, self.n)

    def share_new(self, count: int) -> None:
        """Send the `count` newest own vertices to every rank, and receive theirs. One allgather."""
        self._share(self.vertices[:count] if count < len(self.fresh) else self.fresh)

    def share_all(self) -> None:
        """Send all visited own vertices to every rank, and receive theirs. One launch, one allgather."""
        self.kernels.CutBits(len(self.fresh), bits=self.seen, first=self.shard.lo, n=self.n, out=self.fresh)
        self._share(self.fresh)

    def _share(self, part: Array) -> None:
        for r, theirs in enumerate(self.shard.exchange.allgather(part)):
            if r != self.shard.rank:
                first, end = self.shard.partition.range(r)
                self._merge(theirs, first, end - first, self.seen)

    def _merge(self, part: Array, first: int, n: int, seen: Array) -> int:
        words = words_of(n)
        columns = {"n": len(part), "first": first, "found": self.found, "seen": seen}
        if len(part) < words:
            self.kernels.MergeList(len(part), list=part, **columns)
            return len(part)
        self.kernels.MergeBits(words, bits=part, **columns)
        return n
