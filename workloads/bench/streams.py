"""Streams of the same batches into a graph without a store, with one in the background, and with one synced always.

The passes that go into each graph: batches without a pause; several times as many as fit in the lag of the background;
one batch each so many milliseconds, such that the log needs `TARGET` of what the disk takes; and, if asked for, a pause
after each. The graphs take turns, since the same batches take some percent longer at one time than at another.
"""

from __future__ import annotations

import argparse
import shutil
import time
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple

from mgraph import DynamicGraph, EdgeBatch
from workloads.bench.harness import summary
from workloads.bench.stored import Stored, wait_until

__all__ = ["measure_streams", "passes_of"]

TARGET = 0.7  #: of the disk's rate, which the log needs in the pass at a given rate
WARM = 3  #: batches that do not count
BURSTS = 7  #: whose median counts
EDGE_BYTES = 8  #: of a logged edge, without its batch's header


def passes_of(options: argparse.Namespace) -> dict[str, list[int]]:
    """The passes by name: how many batches come before the next graph's turn, for each turn."""
    burst = max(1, min(options.batches, options.lag_bytes * 9 // 10 // (EDGE_BYTES * options.batch)))
    passes = {"no pause": [options.batches], "burst": BURSTS * [burst], "paced": [options.batches]}
    return passes | ({"paused": [options.batches]} if options.pause else {})


def measure_streams(run: Stored) -> None:
    """Time the passes in each graph; the one in the background is kept."""
    options, first = run.bench.options, run.resident
    period = EDGE_BYTES * options.batch / (TARGET * run.disk["background"])
    turns: dict[str, list[list[EdgeBatch]]] = {}
    for name, counts in {"warm": [WARM], **passes_of(options)}.items():
        turns[name] = []
        for count in counts:
            ends = range(first, first + count * options.batch, options.batch)
            turns[name].append([run.batch(at, at + options.batch) for at in ends])
            first += count * options.batch
    run.bench.synchronize()
    warm = turns.pop("warm")[0]
    graphs: dict[str | None, DynamicGraph] = {}
    with ExitStack() as stack:
        for sync in (None, "background", "always"):
            path = None if sync is None else run.root / sync
            graph = run.graph(sync, path, **({} if sync is None else {"snapshot_bytes": 0}))
            graphs[sync] = stack.enter_context(graph)
            seconds = run.fill(graph, 0, run.resident)
            run.add("fill", sync or "no store", edges=run.resident, seconds=seconds)
            for batch in warm:
                graph.update(batch)
        for name, rounds in turns.items():
            pace = _Pace(period if name == "paced" else 0.0, (options.pause or 0.0) / 1e3 * (name == "paused"))
            _pass(run, graphs, name, rounds, pace)
        for graph in graphs.values():
            run.same("the graph of the streams", graph)
        run.keep(run.root / "background", first, graphs["background"])
    shutil.rmtree(run.root / "always", ignore_errors=True)
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


class _Turn(NamedTuple):
    """What the batches of one turn took: seconds in all and of each, and of the log bytes, and what was behind then."""

    seconds: float
    spent: list[float]
    logged: int = 0
    lag: int = 0
    lag_epochs: int = 0
    drained: float = 0.0


def _pass(
    run: Stored, graphs: dict[str | None, DynamicGraph], name: str, rounds: list[list[EdgeBatch]], pace: _Pace
) -> None:
    """Time one pass in all graphs; what counts of several turns are their medians."""
    turns: dict[str | None, list[_Turn]] = {sync: [] for sync in graphs}
    for batches in rounds:
        for sync, graph in graphs.items():
            turns[sync].append(_timed(graph, batches, pace))
    plain = median(turn.seconds for turn in turns[None])
    edges = sum(map(len, rounds[0]))
    for sync, done in turns.items():
        seconds = median(turn.seconds for turn in done)
        values: dict[str, Any] = {"sync": sync, "period_ms": pace.period * 1e3, "pause_ms": pace.pause * 1e3}
        values |= {"turns": len(done), "seconds": seconds, "edges": edges}
        values |= summary([one for turn in done for one in turn.spent])
        if sync is not None:
            rate = median(turn.logged / (turn.seconds + turn.drained) for turn in done)
            values |= {"bytes_per_edge": done[0].logged / edges, "mb_per_s": rate / 1e6}
            values |= {"disk_share": rate / run.disk[sync], "loss_percent": 100 * (1 - plain / seconds)}
            values |= {"lag_bytes": max(turn.lag for turn in done), "lag_epochs": max(t.lag_epochs for t in done)}
            values |= {"drain_s": median(turn.drained for turn in done)}
        run.add("stream", f"{sync or 'no store'}, {name}", **values)


def _timed(graph: DynamicGraph, batches: list[EdgeBatch], pace: _Pace) -> _Turn:
    _settled(graph)
    before, spent = graph.store, []
    began = time.perf_counter()
    for batch in batches:
        start = time.perf_counter()
        graph.update(batch)
        spent.append(time.perf_counter() - start)
        pace.wait(began, len(spent))
    seconds = time.perf_counter() - began
    after = graph.store
    if before is None or after is None:
        return _Turn(seconds, spent)
    drained, behind = _settled(graph), after.epoch - after.durable_epoch
    return _Turn(seconds, spent, after.logged - before.logged, after.lag, behind, drained)


def _settled(graph: DynamicGraph) -> float:
    """Wait until all that was acknowledged is on the disk; the seconds that took."""
    if graph.store is None:
        return 0.0
    return wait_until(lambda: graph.durable_epoch == graph.epoch, "the log is on the disk")
