"""Lists of vertices for other ranks."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Shard
from mgraph.device import Array

__all__ = ["Outbox"]


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
