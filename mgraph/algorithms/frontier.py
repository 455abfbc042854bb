"""The vertices of one search on one rank: what was found, and how the new ones reach their owners and the other ranks.

Two bitmaps over all vertices, n / 8 bytes each: `found` and `seen`. What is in the first and not in the second is
new, so nothing is settled twice and nothing is sent twice. What travels from rank to rank is a list of vertices or a
bitmap of one range, whichever is fewer bytes: a part as long as the bitmap is one, a shorter one is a list. Both are
uint32 and count from the first vertex of the range, so ranges need not begin at a word.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms import contract
from mgraph.algorithms.contract import LANES, Shard
from mgraph.device import Array, Device
from mgraph.kernels import Library, View

__all__ = ["COUNT", "NEW_EDGES", "SENT", "TASKS", "Frontier", "words_of"]

# Counters on the device: vertices reached and their edges over all supersteps; then two rows, for supersteps in turn:
# the new frontier's length, its edges, the hubs' tasks, and what is new in each rank's range, for several ranks.
COUNT, NEW_EDGES, TASKS, SENT = 0, 1, 2, 3


def words_of(n: int) -> int:
    """Words of a bitmap of `n` bits."""
    return -(-n // LANES)


class Frontier:
    """Bitmaps, lists and counters of one search, all allocated at once.

    Bytes on the device: n / 4 for the bitmaps, n / 4 more to send from where there are several ranks, and 8.1 for each
    owned vertex. Superstep L uses the counters ``row(L)``; `absorb`, its last kernel, clears those of L - 1.

    Attributes
    ----------
    distance : int32[hi - lo]
        Levels; -1 where not reached.
    vertices : uint32[hi - lo]
        The newest level's own vertices, from `lo` on; `count` of the superstep says how many.
    """

    def __init__(self, shard: Shard, kernels: Library, graph: View) -> None:
        self.shard, self.kernels, self.graph, self.device = shard, kernels, graph, shard.device
        device, words = shard.device, words_of(shard.n_vertices) + 1  # one more: kernels read words at any bit
        self.n = shard.hi - shard.lo
        self.found, self.seen = device.zeros(words, np.uint32), device.zeros(words, np.uint32)
        self.fresh = device.empty(words_of(self.n), np.uint32)
        self.vertices = device.empty(self.n, np.uint32)
        self.distance = device.full(self.n, -1, np.int32)
        self.counters = SENT + (shard.size if shard.size > 1 else 0)
        self.state = device.zeros(2 + 2 * self.counters, np.int64)
        rows = [self.state[2 + row * self.counters :][: self.counters] for row in (0, 1)]
        self.rows = [[row[at:] for at in (COUNT, NEW_EDGES, TASKS, SENT)] for row in rows]
        if shard.size > 1:
            self._prepare_sending()

    def _prepare_sending(self) -> None:
        rank, size, starts = self.shard.rank, self.shard.size, np.asarray(self.shard.partition.starts, np.int64)
        words = [0 if r == rank else words_of(int(starts[r + 1] - starts[r])) for r in range(size)]
        self.places = np.concatenate([[0], np.cumsum(words)]).astype(np.int64)
        chunks = np.concatenate([[0], np.cumsum([-(-w // contract.CHUNK) for w in words])]).astype(np.int64)
        self.tables = [self.device.asarray(table) for table in (starts, self.places, chunks)]
        self.chunks = int(chunks[-1])
        self.out_bits = self.device.empty(int(self.places[-1]), np.uint32)
        self.out_list = self.device.empty(int(self.places[-1]), np.uint32)

    # ---- counters ----------------------------------------------------------------------------------------------------

    def row(self, level: int, at: int = COUNT) -> Array:
        """The device counters of superstep `level`, from the one numbered `at` on."""
        return self.rows[level & 1][at]

    def read(self, level: int) -> tuple[int, int, np.ndarray]:
        """Vertices reached and their edges so far, and the counters of superstep `level`: the one read-back."""
        state = Device.to_host(self.state)
        first = 2 + (level & 1) * self.counters
        return int(state[0]), int(state[1]), state[first : first + self.counters]

    # ---- one rank ----------------------------------------------------------------------------------------------------

    def begin(self, source: int) -> None:
        """Level 0 is `source`, which every rank knows to be visited. Three launches."""
        one, own = self.device.asarray(np.array([source], np.uint32)), self.shard.lo <= source < self.shard.hi
        self.kernels.MergeList(1, list=one, n=1, first=0, found=self.found, seen=None if own else self.seen)
        self.absorb(0)

    def absorb(self, level: int) -> None:
        """What is new in the own range gets `level` and becomes the frontier, or joins it. One launch."""
        self.kernels.Absorb(
            -(-words_of(self.n) // contract.CHUNK), graph=self.graph, first=self.shard.lo, n=self.n, found=self.found,
            seen=self.seen, fresh=self.fresh, distance=self.distance, level=level, frontier=self.vertices,
            count=self.row(level), totals=self.state, spent=self.row(level + 1), counters=self.counters,
        )  # fmt: skip

    # ---- several ranks -----------------------------------------------------------------------------------------------

    def pack(self, level: int) -> None:
        """Make ready what is new in the other ranks' ranges, and count it for each of them. One launch."""
        starts, places, chunks = self.tables
        self.kernels.Pack(
            self.chunks, starts=starts, places=places, chunks=chunks, owners=self.shard.size, found=self.found,
            seen=self.seen, bits=self.out_bits, list=self.out_list, counts=self.row(level, SENT),
        )  # fmt: skip

    def deliver(self, counts: np.ndarray) -> int:
        """Send what was packed, of which `counts` tell how much for each rank, and take in what is for this one.

        Returns how many vertices came at most. One alltoallv, one launch for each rank that sent something.
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
        """Tell every rank of the own `count` newest vertices, and learn of theirs. One allgather."""
        self._share(self.vertices[:count] if count < len(self.fresh) else self.fresh)

    def share_all(self) -> None:
        """Tell every rank of all own visited vertices, and learn of theirs. One launch, one allgather."""
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
