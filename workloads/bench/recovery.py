"""Time from the death of a worker to the next acknowledged call, with ``recover="auto"``."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mgraph import DynamicGraph
from workloads.bench.store_run import Stored

__all__ = ["measure_recovery"]

WORKERS_SECONDS = 60.0  #: that the nanny may take to start another worker
AGAIN = 1000  #: edges of the call after the kill; the graph has them already

Call = tuple[str, float, float]  #: method, begin, end


def measure_recovery(run: Stored, edges: list[int]) -> None:
    """Fill a graph up to each number of edges in turn, and kill the worker of the last rank."""
    done = 0
    with run.graph("background", run.root / "recovered", recover="auto") as graph:
        for goal in sorted(edges):
            seconds = run.fill(graph, done, goal)
            done = goal
            run.add("fill", f"background, {len(graph.workers)} workers", edges=goal, seconds=seconds)
            _kill(run, graph)
            run.client.wait_for_workers(run.bench.options.workers, timeout=WORKERS_SECONDS)


def _kill(run: Stored, graph: DynamicGraph) -> None:
    # Choose the victim before the clock starts.
    what = f"the recovered graph after epoch {graph.epoch}"
    edges, _ = run.same(what, graph)
    batch, count = run.batch(0, AGAIN), len(graph.recoveries)
    pid = run.client.run(os.getpid, workers=[graph.workers[-1]])[graph.workers[-1]]

    # Kill it, and wait for the next call.
    with _noted() as calls:
        began, clock = time.perf_counter(), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        graph.update(batch)
        seconds = time.perf_counter() - began

    # The graph must have recovered, with the same edges.
    run.same(what, graph)
    if len(graph.recoveries) == count:
        raise AssertionError("the worker was killed, and the graph did not notice")
    back = graph.recoveries[-1]
    values = {"edges": edges, "seconds": seconds, "workers": len(back.workers), "reopened_s": back.seconds}
    run.add("recover", "a worker was killed", **values, **_where(calls, clock))


def _where(calls: list[Call], began: float) -> dict[str, float]:
    """Return the seconds of each phase, by the graph's calls.

    Phases: until the loss was noticed, until sessions were open, and each call of the opening.
    """
    lost = next((end for method, _, end in calls if method == "update"), began)
    survey = next((start for method, start, _ in calls if method == "survey"), lost)
    seconds = {"noticed_s": lost - began, "sessions_s": survey - lost}
    for method, start, end in calls:
        if start >= survey:
            seconds[f"{method}_s"] = seconds.get(f"{method}_s", 0.0) + end - start
    return seconds


@contextmanager
def _noted() -> Iterator[list[Call]]:
    """Yield a list of the calls that graphs of this process make in the block, by the workers' methods."""
    from mgraph.client.calls.coordinator import Coordinator  # needs Dask, which the other parts do not

    calls: list[Call] = []
    plain = Coordinator.call

    def noting(self: Coordinator, name: str, *args: Any) -> Any:
        began = time.monotonic()
        try:
            return plain(self, name, *args)
        finally:
            calls.append((name, began, time.monotonic()))

    # Wrap the calls, and silence the report of the loss.
    quiet = logging.getLogger("mgraph.client.stores.recovery")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    Coordinator.call = noting  # type: ignore[assignment,method-assign]
    try:
        yield calls
    finally:
        Coordinator.call = plain  # type: ignore[method-assign]
        quiet.setLevel(level)
