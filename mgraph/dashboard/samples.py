"""What the workers' heartbeats said of each graph in the last minutes; kept on the scheduler."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["KEPT", "Samples", "Track"]

KEPT = 600  #: samples of a graph: ten minutes of one a second
SPAN = 5  #: samples over which a rate is taken
FORGET_SECONDS = 60.0  #: after which a graph without shards is no longer shown

Shard = dict[str, Any]


@dataclass
class Track:
    """One graph over time: seconds since 1970, edges, edges named by batches a second, and the last batch's ms.

    A rate is that of the last `SPAN` samples, since heartbeats come at other times than samples are taken.
    """

    times: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    edges: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT))
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    latencies: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))
    counted: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=SPAN + 1))

    def add(self, now: float, shards: list[Shard]) -> None:
        """A sample: what all ranks said last."""
        operations = sum(shard["operations"] for shard in shards)
        if self.counted and operations < self.counted[-1][1]:  # after a loss the graph was opened again
            self.counted.clear()
        self.counted.append((now, operations))
        began, before = self.counted[0]
        self.rates.append((operations - before) / (now - began) if now > began else 0.0)
        self.times.append(now)
        self.edges.append(sum(shard["edges"] for shard in shards))
        self.latencies.append(1e3 * max(shard["seconds"] for shard in shards))


class Samples:
    """The shards of now, and a `Track` of each graph.

    Attributes
    ----------
    shards : list of dict
        What each shard said last, with its `worker`; ordered by graph and rank.
    tracks : dict of str to Track
        The graphs by id, in the order in which they were first seen.
    """

    def __init__(self) -> None:
        self.shards: list[Shard] = []
        self.tracks: dict[str, Track] = {}

    def take(self, now: float, metrics: Mapping[str, Mapping[str, Any]]) -> None:
        """Take a sample of the metrics of all workers, which are given by address."""
        found = [
            {**shard, "worker": worker}
            for worker, given in metrics.items()
            for shard in given.get("mgraph", {}).get("shards", ())
        ]
        self.shards = sorted(found, key=lambda shard: (shard["graph"], shard["rank"]))
        graphs: dict[str, list[Shard]] = {}
        for shard in self.shards:
            graphs.setdefault(shard["graph"], []).append(shard)
        for graph, shards in graphs.items():
            self.tracks.setdefault(graph, Track()).add(now, shards)
        gone = [graph for graph, track in self.tracks.items() if now - track.times[-1] > FORGET_SECONDS]
        for graph in gone:
            del self.tracks[graph]
