"""Streams of the same batches into graphs without a store, with one in the background, and with one synced always.

Each graph gets these passes: batches without a pause; several bursts that fit in the background's lag; batches at a
fixed period, such that the log needs `TARGET` of the disk's rate; and on demand, a pause after each batch. The graphs
take turns, because the same batches take some percent longer at one time than at another.
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
from workloads.bench.store_run import Stored, wait_until

__all__ = ["EDGE_BYTES", "measure_streams", "passes_of"]

TARGET = 0.7  #: share of the disk's rate that the log needs in the paced pass
WARM = 3  #: warm-up batches
BURSTS = 7  #: bursts; their median counts
EDGE_BYTES = 8  #: per logged edge, without its batch's header


def passes_of(options: argparse.Namespace) -> dict[str, list[int]]:
    """Return the passes by name: for each turn, the number of batches before the next graph's turn."""
    burst = max(1, min(options.batches, options.lag_bytes * 9 // 10 // (EDGE_BYTES * options.batch)))
    passes = {"no pause": [options.batches], "burst": BURSTS * [burst], "paced": [options.batches]}
    return passes | ({"paused": [options.batches]} if options.pause else {})


def measure_streams(run: Stored) -> None:
    """Time the passes in each graph, and keep the store of the background."""
    # Draw all batches beforehand.
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

    # Fill and warm up the graphs.
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

        # Time the passes in turn.
        for name, rounds in turns.items():
            pace = _Pace(period if name == "paced" else 0.0, (options.pause or 0.0) / 1e3 * (name == "paused"))
            _pass(run, graphs, name, rounds, pace)

        # Compare the graphs, and keep a store.
        for graph in graphs.values():
            run.same("the graph of the streams", graph)
        run.keep(run.root / "background", first, graphs["background"])
    shutil.rmtree(run.root / "always", ignore_errors=True)
    run.bench.free()


class _Pace(NamedTuple):
    """Times of the batches of a pass: one per `period`, or each a `pause` after the last."""

    period: float
    pause: float

    def wait(self, began: float, done: int) -> None:
        """Wait until the batch after the first `done` ones is due."""
        due = max(self.pause, began + done * self.period - time.perf_counter() if self.period else 0.0)
        if due > 0:
            time.sleep(due)


class _Turn(NamedTuple):
    """Measurements of the batches of a turn: seconds in all and of each, log bytes, and the lag at the end."""

    seconds: float
    spent: list[float]
    logged: int = 0
    lag: int = 0
    lag_epochs: int = 0
    drained: float = 0.0


def _pass(
    run: Stored, graphs: dict[str | None, DynamicGraph], name: str, rounds: list[list[EdgeBatch]], pace: _Pace
) -> None:
    """Time a pass in all graphs. Several turns count by their medians."""
    # Run the turns.
    turns: dict[str | None, list[_Turn]] = {sync: [] for sync in graphs}
    for batches in rounds:
        for sync, graph in graphs.items():
            turns[sync].append(_timed(graph, batches, pace))

    # One line per graph, relative to the graph without a store.
    plain = median(turn.seconds for turn in turns[None])
    edges = sum(map(len, rounds[0]))
    for sync, done in turns.items():
        seconds = median(turn.seconds for turn in done)
        values: dict[str, Any] = {"sync": sync, "period_ms": pace.period * 1e3, "pause_ms": pace.pause * 1e3}
        values |= {"turns": len(done), "seconds": seconds, "edges": edges}
        values |= summary([spent for turn in done for spent in turn.spent])
        if sync is not None:
            rate = median(turn.logged / (turn.seconds + turn.drained) for turn in done)
            values |= {"bytes_per_edge": done[0].logged / edges, "mb_per_s": rate / 1e6}
            values |= {"disk_share": rate / run.disk[sync], "loss_percent": 100 * (1 - plain / seconds)}
            values |= {"lag_bytes": max(turn.lag for turn in done), "lag_epochs": max(t.lag_epochs for t in done)}
            values |= {"drain_s": median(turn.drained for turn in done)}
        run.add("stream", f"{sync or 'no store'}, {name}", **values)


def _timed(graph: DynamicGraph, batches: list[EdgeBatch], pace: _Pace) -> _Turn:
    # Start with an empty lag.
    _settled(graph)
    before, spent = graph.store, []
    began = time.perf_counter()
    for batch in batches:
        start = time.perf_counter()
        graph.update(batch)
        spent.append(time.perf_counter() - start)
        pace.wait(began, len(spent))
    seconds = time.perf_counter() - began

    # Measure the lag, then drain it.
    after = graph.store
    if before is None or after is None:
        return _Turn(seconds, spent)
    drained, behind = _settled(graph), after.epoch - after.durable_epoch
    return _Turn(seconds, spent, after.logged - before.logged, after.lag, behind, drained)


def _settled(graph: DynamicGraph) -> float:
    """Wait until all acknowledged changes are on the disk. Returns the seconds."""
    if graph.store is None:
        return 0.0
    return wait_until(lambda: graph.durable_epoch == graph.epoch, "the log is on the disk")
