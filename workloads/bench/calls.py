"""``bench calls``: small calls of a graph in succession, in this process or on a worker.

Each kind of call is timed in rounds of 100. The machine may have other work, so a figure is the minimum of the rounds'
medians; the minimum of their 99th percentiles stands beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle
from time import perf_counter
from typing import Any

import numpy as np

from mgraph import DynamicGraph
from workloads.arguments import check_least
from workloads.bench.harness import Bench, Mismatch

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "small calls, in this process or on one worker: insert, delete, has_edges, neighbors"
ROUND = 100  #: calls per round
DRAWN = 5000  #: distinct edges, which the calls take in turn
Call = Callable[[], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add = parser.add_argument
    add("--structure", default="gpma+", metavar="S", help="with options as in slabgraph:slab=32 (default: %(default)s)")
    add("--vertices", type=int, default=65_536, metavar="N", help="(default: %(default)s)")
    add("--edges", type=int, default=100_000, metavar="N", help="drawn for the graph (default: %(default)s)")
    add(
        "--rounds",
        type=int,
        metavar="N",
        help=f"of {ROUND} calls of a kind (default: 20; on a worker, where a call takes 3 ms, 3)",
    )
    add("--worker", action="store_true", help="on one worker process of a local cluster, not in this process")
    add("--seed", type=int, default=1, help="of the edges (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Time each kind of call, and compare the last answers with a set of edges."""
    options, rows = bench.options, []
    if options.rounds is None:
        options.rounds = 3 if options.worker else 20
    check_least(options, "vertices", "edges", "rounds")
    # Fill the graph, then time the calls.
    rng = np.random.default_rng(options.seed)
    with ExitStack() as stack:
        graph = stack.enter_context(_graph(bench, stack))
        src, dst = rng.integers(0, options.vertices, (2, options.edges), np.uint32)
        graph.insert(src, dst)
        for name, call in _calls(graph, rng, options.vertices).items():
            line = bench.add("call", call=name, worker=options.worker, **_times(call, options.rounds))
            rows.append([name, *list(line.values())[-2:]])
        _check(graph, src, dst)

    # Print the table.
    where = "on one worker" if options.worker else "in this process"
    columns = ["call", "p50 us", "p99 us"]
    bench.table(f"small calls {where}, the least of {options.rounds} rounds of {ROUND}", columns, rows)


def _graph(bench: Bench, stack: ExitStack) -> Any:
    options, kind = bench.options, bench.device.kind
    client = None
    if options.worker:
        from distributed import Client, LocalCluster

        cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
        client = stack.enter_context(Client(stack.enter_context(cluster)))
    return DynamicGraph(client, options.vertices, structure=options.structure, device=kind)


def _calls(graph: Any, rng: np.random.Generator, n_vertices: int) -> dict[str, Call]:
    """Return the calls by name.

    Each call of a series names other edges; "delete 1" deletes those of "insert 1".
    """

    def over(call: Callable[..., Any], ids: np.ndarray) -> Call:
        arguments = cycle(list(ids))
        return lambda: call(*next(arguments))

    singles, hundreds = (rng.integers(0, n_vertices, (DRAWN, 2, n), np.uint32) for n in (1, 100))
    calls = {
        "insert 1": over(graph.insert, singles),
        "insert 100": over(graph.insert, hundreds),
        "delete 1": over(graph.delete, singles),
        "has_edges 1": over(graph.has_edges, singles),
        "degrees 1": over(graph.degrees, singles[:, :1]),
        "neighbors 1": over(graph.neighbors, singles[:, :1]),
    }
    coordinator = graph._directory.coordinator
    return {"empty": lambda: coordinator.call("order", {"wanted": False}), **calls}


def _times(call: Call, rounds: int) -> dict[str, Any]:
    """Return the minimum median and 99th percentile of the rounds, in microseconds, after a warm-up round."""
    # Time each call.
    seconds = np.empty((rounds + 1, ROUND))
    for taken in seconds:
        for i in range(ROUND):
            began = perf_counter()
            call()
            taken[i] = perf_counter() - began

    # Leave out the warm-up round.
    us = seconds[1:] * 1e6
    p50, p99 = np.percentile(us, 50, axis=1), np.percentile(us, 99, axis=1)
    return {"n": us.size, "p50_us": round(float(p50.min()), 1), "p99_us": round(float(p99.min()), 1)}


def _check(graph: Any, src: np.ndarray, dst: np.ndarray) -> None:
    """Raise unless single queries give the same answers as all queries at once."""
    chunk = slice(0, 100)
    together = graph.has_edges(src[chunk], dst[chunk])
    singly = [bool(graph.has_edges(s, d)[0]) for s, d in zip(src[chunk, None], dst[chunk, None], strict=True)]
    degrees = graph.degrees(src[chunk])
    rows = np.diff(graph.neighbors(src[chunk]).offsets)
    if singly != together.tolist() or (rows != degrees).any():
        raise Mismatch("single queries answer otherwise than all of them at once")
