"""Metrics of a worker's shards, sent with each heartbeat, for the dashboard."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mgraph.metrics import of_rank
from mgraph.worker.sessions.session_table import SessionTable
from mgraph.worker.sessions.thread import ShardThread

__all__ = ["Meter"]

Numbers = dict[str, float]

SPAN_SECONDS = 0.25  #: the shortest time over which a rate is computed


class Meter:
    """Metrics of all shards of a worker, from their last states; makes no call.

    ``metrics["mgraph"]`` is a dict: `graphs`, the number of shards; `edges` and `bytes`, their sums; `epoch`, the
    largest epoch; `batch_rate`, the batches per second since the previous heartbeat; and `shards`, a dict per shard:
    its `graph` and `rank`, the numbers of `mgraph.metrics.METRICS`, the graph that it is a copy of (`copy_of`), the
    calls that wait (`queued`), the running call (`doing`) and its seconds (`since`). Dask's table of workers shows only
    numbers, so all numbers but `graphs` are also separate metrics, such as ``mgraph_edges``.
    """

    def __init__(self, table: SessionTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._table, self._clock = table, clock
        self._seen: dict[tuple[str, int], int] = {}
        self._at, self._rate = clock(), 0.0

    def metrics(self) -> dict[str, Callable[[Any], Any]]:
        """Return the entries of ``Worker.metrics``: functions of the worker, called on its event loop."""
        flat = {f"mgraph_{name}": self._single(name) for name in ("edges", "bytes", "epoch", "batch_rate")}
        return {"mgraph": lambda worker: {**self.read(), "shards": self.shards()}, **flat}

    def _single(self, name: str) -> Callable[[Any], float]:
        return lambda worker: self.read()[name]

    def read(self) -> Numbers:
        """Return the current values by name."""
        shards = {key: thread.state for key, thread in self.threads().items()}
        return {
            "graphs": len(shards),
            "edges": sum(state.edges for state in shards.values()),
            "bytes": sum(state.nbytes for state in shards.values()),
            "epoch": max((state.epoch for state in shards.values()), default=0),
            "batch_rate": self._batch_rate({key: state.epoch for key, state in shards.items()}),
        }

    def shards(self) -> list[dict[str, Any]]:
        """Return the metrics and the running call of each shard."""
        return [_shard(graph, rank, thread) for (graph, rank), thread in self.threads().items()]

    def name(self, graph: str, rank: int) -> str:
        """Return the name under which a shard's graph is published; its id if it is not."""
        published = self._table.published.get((graph, rank))
        return graph if published is None or published.name is None else published.name

    def threads(self) -> dict[tuple[str, int], ShardThread]:
        """Return the threads of all shards by graph and rank, of published ones once. Any thread may call it."""
        shards: dict[tuple[str, int], Any] = {**self._table.sessions, **self._table.published}
        return {key: shard.thread for key, shard in shards.items()}

    def _batch_rate(self, epochs: dict[tuple[str, int], int]) -> float:
        """Return the rate; batches count from the first epoch over 0, at which copies and stored graphs begin."""
        now = self._clock()
        if now - self._at >= SPAN_SECONDS:
            batches = sum(epoch - (self._seen.get(key) or epoch) for key, epoch in epochs.items())
            self._rate, self._at, self._seen = batches / (now - self._at), now, epochs
        return self._rate


def _shard(graph: str, rank: int, thread: ShardThread) -> dict[str, Any]:
    what, since = thread.doing or ("", time.monotonic())
    doing = {"doing": thread.busy or what, "since": time.monotonic() - since}
    mine = {"graph": graph, "rank": rank, "copy_of": thread.copy_of}
    return {**mine, **of_rank(thread.live), "queued": len(thread.requests), **doing}
