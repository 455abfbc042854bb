"""Streams of the same batches into a graph without a store, with one in the background, and with one synced always.

The passes that go into each graph: batches without a pause; as many as fit in the lag of the background; one batch each
so many milliseconds, such that the log needs `TARGET` of what the disk takes; and, if asked for, a pause after each.
"""

from __future__ import annotations

import shutil
import time
from typing import Any, NamedTuple

from mgraph import DynamicGraph, EdgeBatch
from workloads.bench.harness import summary
from workloads.bench.stored import Stored, wait_until

__all__ = ["measure_streams"]

TARGET = 0.7  #: of the disk's rate, which the log needs in the pass at a given rate
WARM = 3  #: batches that do not count
EDGE_BYTES = 8  #: of a logged edge, without its batch's header


def measure_streams(run: Stored) -> None:
    """Time the passes in each graph; the one in the background is kept."""
    options, first = run.bench.options, run.resident
    burst = max(1, min(options.batches, options.lag_bytes * 9 // 10 // (EDGE_BYTES * options.batch)))
    passes = {"no pause": options.batches, "burst": burst, "paced": options.batches}
    if options.pause:
        passes["paused"] = options.batches
    period = EDGE_BYTES * options.batch / (TARGET * run.disk["background"])
    batches: dict[str, list[EdgeBatch]] = {}
    for name, count in {"warm": WARM, **passes}.items():
        ends = range(first, first + count * options.batch, options.batch)
        batches[name] = [run.batch(at, at + options.batch) for at in ends]
        first += count * options.batch
    run.bench.synchronize()
    plain: dict[str, float] = {}
    for sync in (None, "background", "always"):
        path = None if sync is None else run.root / sync
        with run.graph(sync, path, **({} if sync is None else {"snapshot_bytes": 0})) as graph:
            seconds = run.fill(graph, 0, run.resident)
            run.add("fill", sync or "no store", edges=run.resident, seconds=seconds)
            for batch in batches["warm"]:
                graph.update(batch)
            for name in passes:
                pace = _Pace(period if name == "paced" else 0.0, (options.pause or 0.0) / 1e3 * (name == "paused"))
                _pass(run, graph, sync, name, batches[name], pace, plain)
            run.same("the graph of the streams", graph)
            if sync == "background":
                assert path is not None
                run.keep(path, first, graph)
        if sync == "always" and path is not None:
            shutil.rmtree(path, ignore_errors=True)
        run.bench.free()


class _Pace(NamedTuple):
    """When the batches of a pass come: one a `period`, or as soon as the one before is done and a `pause` is over."""

    period: float
    pause: float

    def wait(self, began: float, done: int) -> None:
        """Wait until the batch after the first `done` ones is due."""
        due = max(self.pause, began + done * self.period - time.perf_counter() if self.period else 0.0)
        if due > 0:
            time.sleep(due)


def _pass(
    run: Stored,
    graph: DynamicGraph,
    sync: str | None,
    name: str,
    batches: list[EdgeBatch],
    pace: _Pace,
    plain: dict[str, float],
) -> None:
    """Time one pass; `plain` has what the graph without a store took for each, in seconds."""
    _settled(graph)
    before = graph.store
    spent = []
    began = time.perf_counter()
    for batch in batches:
        start = time.perf_counter()
        graph.update(batch)
        spent.append(time.perf_counter() - start)
        pace.wait(began, len(spent))
    seconds = time.perf_counter() - began
    values: dict[str, Any] = {"sync": sync, "period_ms": pace.period * 1e3, "pause_ms": pace.pause * 1e3}
    values |= {"seconds": seconds, **summary(spent)}
    values["edges"] = sum(map(len, batches))
    after = graph.store
    if before is None or after is None:
        plain[name] = seconds
    else:
        drained = _settled(graph)
        logged = after.logged - before.logged
        rate = logged / (seconds + drained)
        values |= {"bytes_per_edge": logged / values["edges"], "mb_per_s": rate / 1e6}
        values |= {"disk_share": rate / run.disk[str(sync)], "loss_percent": 100 * (1 - plain[name] / seconds)}
        values |= {"lag_bytes": after.lag, "lag_epochs": after.epoch - after.durable_epoch, "drain_s": drained}
    run.add("stream", f"{sync or 'no store'}, {name}", **values)


def _settled(graph: DynamicGraph) -> float:
    """Wait until all that was acknowledged is on the disk; the seconds that took."""
    if graph.store is None:
        return 0.0
    return wait_until(lambda: graph.durable_epoch == graph.epoch, "the log is on the disk")
