"""Samples of the workers' heartbeats, kept on the scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KEPT", "Samples", "Track"]

KEPT = 600  #: samples per graph: ten minutes, one per second
SPAN = 5  #: samples over which a rate is averaged
FORGET_SECONDS = 60.0  #: after which a graph without shards is dropped

Shard = dict[str, Any]


@dataclass
class Track:
    """Time series of a graph.

    Seconds since 1970, edges, operations per second, and the last batch's milliseconds. A rate is averaged over the
    last `SPAN` samples, since heartbeats and samples are not synchronized.
    """

    times: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    edges: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT))
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    counted: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=SPAN + 1))

    def add(self, now: float, shards: list[Shard]) -> None:
        """Append a sample: the latest metrics of all ranks."""
        operations = sum(shard["operations"] for shard in shards)
        if self.counted and operations < self.counted[-1][1]:  # the graph was reopened after a loss
            self.counted.clear()
        self.counted.append((now, operations))
        began, before = self.counted[0]
        self.rates.append((operations - before) / (now - began) if now > began else 0.0)
        self.times.append(now)
        self.edges.append(sum(shard["edges"] for shard in shards))
        self.latencies.append(1e3 * max(shard["last_batch_seconds"] for shard in shards))


class Samples:
    """Current shards, and a `Track` per graph.

    Attributes
    ----------
    shards : list of dict
        The latest metrics of each shard, with its `worker`; ordered by graph and rank.
    tracks : dict of str to Track
        The graphs by id, in the order in which they were first seen.
    """

    def __init__(self) -> None:
        self.shards: list[Shard] = []
        self.tracks: dict[str, Track] = {}

    def take(self, now: float, metrics: Mapping[str, Mapping[str, Any]]) -> None:
        """Sample the metrics of all workers, a mapping by address."""
        # Collect the current shards.
        shards = [
            {**shard, "worker": worker}
            for worker, values in metrics.items()
            for shard in values.get("mgraph", {}).get("shards", ())
        ]
        self.shards = sorted(shards, key=lambda shard: (shard["graph"], shard["rank"]))

        # Append one sample per graph, and drop graphs whose shards are gone.
        graphs: dict[str, list[Shard]] = {}
        for shard in self.shards:
            graphs.setdefault(shard["graph"], []).append(shard)
        for graph, parts in graphs.items():
            self.tracks.setdefault(graph, Track()).add(now, parts)
        gone = [graph for graph, track in self.tracks.items() if now - track.times[-1] > FORGET_SECONDS]
        for graph in gone:
            del self.tracks[graph]
