"""Mixed streams of LPMA's paper: updates with 3% queries, answered in stream order.

They are executed together, and cut into runs of one kind like the paper's baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph import DynamicGraph, Operations
from workloads.bench.harness import Mismatch, short
from workloads.paper.experiments import Run
from workloads.paper.streams import Stream

__all__ = ["mixed"]

BATCHES = 3  #: per size, the first to warm up
CUT = 1  #: batches per size that are cut into runs: each takes thousands of calls, 1.4 s for 100k operations on an H200
WARM = 500  #: warm-up operations before the cut ones: on present edges, so that nothing changes
Answer = Callable[[], np.ndarray]  #: applies the operations, and returns the answers of the queries


def mixed(run: Run, stream: Stream, sizes: Sequence[int], share: float) -> None:
    """Measure inserts with a share of edge queries at random places, cut into runs and at once."""
    # Draw the places of queries, the same for both ways.
    resident = len(stream) // 2
    most = max((len(stream) - resident) // BATCHES, 1)
    for name in run.names:
        for size in dict.fromkeys(min(size, most) for size in run.divided(sizes)):
            what = f"{short(size)} operations, {share:.0%} queries"
            query = np.random.default_rng(size).random(size) < share
            warm = min(size, WARM, resident)

            # Measure each way on a fresh graph.
            for way, prepare, batches in (("cut into runs", _cut, CUT), ("executed at once", _at_once, BATCHES)):
                n = min(batches, 1 + run.repeats)
                with DynamicGraph(n_vertices=stream.n_vertices, structure=name, device=run.bench.device.kind) as g:
                    g.insert(*_on_host(stream, 0, resident))
                    prepare(g, query[:warm], *_on_host(stream, 0, warm))()
                    ms = []
                    for at in range(resident, resident + n * size, size):
                        seconds, answers = run.bench.time(prepare(g, query, *_on_host(stream, at, at + size)))
                        ms.append(seconds * 1e3)
                        if answers.any():  # edges are unique, and queried edges are not inserted
                            raise Mismatch(f"{name}, {way}: an edge is found that is not there")
                    run.same(("edges after", what, n, stream.name), name, g.fingerprint())
                run.add_ms(stream, f"{what}, {way}", name, ms[1:] or ms)


def _on_host(stream: Stream, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    src, dst = stream.between(start, stop)
    return stream.device.to_host(src), stream.device.to_host(dst)


def _at_once(g: Any, query: np.ndarray, src: np.ndarray, dst: np.ndarray) -> Answer:
    """Prepare one call for all operations."""
    operations = Operations(np.where(query, Operations.HAS_EDGE, Operations.INSERT), src, dst)
    return lambda: g.execute(operations).has_edge


def _cut(g: Any, query: np.ndarray, src: np.ndarray, dst: np.ndarray) -> Answer:
    """Prepare a call per run of operations of one kind."""
    ends = [0, *(np.flatnonzero(query[1:] != query[:-1]) + 1).tolist(), len(query)]

    def answer() -> np.ndarray:
        answers = [np.empty(0, bool)]
        for start, stop in pairwise(ends):
            if query[start]:
                answers.append(g.has_edges(src[start:stop], dst[start:stop]))
            else:
                g.insert(src[start:stop], dst[start:stop])
        return np.concatenate(answers)

    return answer
