"""``bench calls``: small calls of a graph in succession, in this process or on workers.

Each kind of call is timed in rounds of 100. The machine may have other work, so a figure is the minimum of the rounds'
medians; the minimum of their 99th percentiles stands beside it. Inserts of 100,000 edges, uint32 ids from host memory,
come last, in rounds of 10 calls; each call inserts other edges.

A pipeline of inserts of 100 edges is timed as a whole, with the user's thread and the shard's; the fastest of three
passes counts. Each pass inserts new edges.

With ``--cold`` the kernel cache is empty: the making of a graph and the first call of each algorithm are timed once.
With ``--many N`` one kind of call is made N times, and memory, threads and descriptors must not grow.
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np

from mgraph import DynamicGraph, EdgeBatch
from mgraph.algorithms import ALGORITHMS
from mgraph.client.reports.history import KEPT
from mgraph.errors import InvalidOption
from workloads.arguments import check_least
from workloads.bench.harness import Bench, Mismatch

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "small calls, in this process or on workers: insert, delete, has_edges, neighbors"
ROUND = 100  #: calls per round
LARGE, LARGE_ROUND = 100_000, 10  #: edges of a large insert, and such calls per round
#: by which memory and the number of objects may grow in many calls: those of a local cluster are Dask's
MARGIN_KIB, MARGIN_OBJECTS = 8192, {False: 100, True: 10_000}
DRAWN = 5000  #: distinct edges, which the calls take in turn
PASSES = 3  #: of the pipeline
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
        help=f"of {ROUND} calls of a kind (default: 20; on workers, where a call takes 3 ms, 3)",
    )
    add("--batches", type=int, default=10_000, metavar="N", help="in the pipeline (default: %(default)s)")
    add("--workers", type=int, default=0, metavar="N", help="worker processes (default: none, in this process)")
    add("--cold", action="store_true", help="the first call of each algorithm, with an empty cache of kernels")
    add("--many", type=int, metavar="N", help="make N calls, has_edges and insert in turn, and look for leaks")
    add("--seed", type=int, default=1, help="of the edges (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Time each kind of call, and compare the last answers with a set of edges."""
    options, rows = bench.options, []
    if options.rounds is None:
        options.rounds = 3 if options.workers else 20
    check_least(options, "vertices", "edges", "rounds", "batches")
    check_least(options, "workers", least=0)
    if options.cold:
        _measure_cold(bench)
        return
    if options.many is not None:
        check_least(options, "many")
        _measure_many(bench)
        return
    # Fill the graph, then time the calls.
    rng = np.random.default_rng(options.seed)
    with ExitStack() as stack:
        graph = stack.enter_context(_graph(bench, stack))
        src, dst = rng.integers(0, options.vertices, (2, options.edges), np.uint32)
        graph.insert(src, dst)
        calls = _calls(graph, rng, options.vertices)
        figures = {name: _times(call, options.rounds, ROUND) for name, call in calls.items()}
        per_second = _in_flight(graph, rng, options.vertices, options.batches)
        batches = rng.integers(0, options.vertices, (LARGE_ROUND * (options.rounds + 1), 2, LARGE), np.uint32)
        figures[f"insert {LARGE:,}"] = _times(_cycled(graph.insert, batches), options.rounds, LARGE_ROUND)
        _check(graph, src, dst)

    # Print the table.
    for name, times in figures.items():
        bench.add("call", call=name, workers=options.workers, **times)
        rows.append([name, times["p50_us"], times["p99_us"]])
    where = f"on {options.workers} worker{'s'[: options.workers > 1]}" if options.workers else "in this process"
    columns = ["call", "p50 us", "p99 us"]
    bench.table(f"calls {where}, the least of {options.rounds} rounds", columns, rows)
    bench.add("pipeline", batches=options.batches, edges=100, workers=options.workers, batches_per_second=per_second)
    rows = [[f"{options.batches:,} inserts of 100 edges", round(per_second)]]
    bench.table(f"in a pipeline {where}, the best of {PASSES}", ["calls", "batches/s"], rows)


def _graph(bench: Bench, stack: ExitStack) -> Any:
    options, kind = bench.options, bench.device.kind
    client = None
    if options.workers:
        from cluster import start  # a graph in this process needs no Dask

        client = stack.enter_context(start(options.workers, device=kind, threads=1))
    return DynamicGraph(client, options.vertices, structure=options.structure, device=kind)


def _cycled(call: Callable[..., Any], ids: np.ndarray) -> Call:
    """Return a function that calls `call` with the next of `ids`, again and again."""
    arguments = cycle(list(ids))
    return lambda: call(*next(arguments))


def _calls(graph: Any, rng: np.random.Generator, n_vertices: int) -> dict[str, Call]:
    """Return the calls by name.

    Each call of a series names other edges; "delete 1" deletes those of "insert 1".
    """
    singles, hundreds = (rng.integers(0, n_vertices, (DRAWN, 2, n), np.uint32) for n in (1, 100))
    calls = {
        "insert 1": _cycled(graph.insert, singles),
        "insert 100": _cycled(graph.insert, hundreds),
        "delete 1": _cycled(graph.delete, singles),
        "has_edges 1": _cycled(graph.has_edges, singles),
        "degrees 1": _cycled(graph.degrees, singles[:, :1]),
        "neighbors 1": _cycled(graph.neighbors, singles[:, :1]),
    }
    coordinator = graph._directory.coordinator
    return {"empty": lambda: coordinator.call("order", {"wanted": False}), **calls}


def _times(call: Call, rounds: int, each: int) -> dict[str, Any]:
    """Time rounds of `each` calls, after a warm-up round.

    Returns the minimum median and 99th percentile of the rounds, in microseconds.
    """
    # Time each call.
    seconds = np.empty((rounds + 1, each))
    for taken in seconds:
        for i in range(each):
            began = perf_counter()
            call()
            taken[i] = perf_counter() - began

    # Leave out the warm-up round.
    us = seconds[1:] * 1e6
    p50, p99 = np.percentile(us, 50, axis=1), np.percentile(us, 99, axis=1)
    return {"n": us.size, "p50_us": round(float(p50.min()), 1), "p99_us": round(float(p99.min()), 1)}


def _in_flight(graph: Any, rng: np.random.Generator, n_vertices: int, batches: int) -> float:
    """Return the batches per second of a pipeline."""
    best = 0.0
    for _ in range(PASSES):
        ids = rng.integers(0, n_vertices, (batches, 2, 100), np.uint32)
        parts, before, began = [EdgeBatch(*both) for both in ids], graph.num_edges, perf_counter()
        with graph.pipeline() as pipeline:
            pending = [pipeline.update(part) for part in parts]
        best = max(best, batches / (perf_counter() - began))
        if sum(report.result().inserted for report in pending) != graph.num_edges - before:
            raise Mismatch("the reports of a pipeline do not add up to the edges of the graph")
    return best


# ---- first calls -----------------------------------------------------------------------------------------------------


def _first_calls(graph: Any) -> dict[str, Call]:
    """Return a first call of each kind of update, read and algorithm, by name."""
    ids, values = np.arange(2, dtype=np.uint32), np.zeros(graph.num_vertices, np.float32)
    pairs = np.array([[0, 1]])
    arguments: dict[str, tuple[Any, ...]] = {
        "bfs": (0,), "sssp": (0,), "k_hop": (ids, 2), "multi_source_bfs": (ids,), "shortest_path": (0, 0),
        "distances": (ids,), "betweenness_centrality": (1,), "modularity": (values.astype(np.int64),), "k_truss": (3,),
        "jaccard": (pairs,), "overlap": (pairs,), "random_walks": (ids, 4), "sample_neighbors": (ids, [2]),
        "gather": (values,),
    }  # fmt: skip
    algorithms = {name: partial(getattr(graph, name), *arguments.get(name, ())) for name in ALGORITHMS}
    reads = {"has_edges": partial(graph.has_edges, ids, ids), "neighbors": partial(graph.neighbors, ids)}
    return {"insert": partial(graph.insert, ids, ids[::-1]), **reads, **algorithms}


def _measure_cold(bench: Bench) -> None:
    """Time the making of an undirected weighted graph and each first call, with an empty cache of kernels."""
    options, rows = bench.options, []
    if options.workers:
        raise InvalidOption("--cold needs this process, where this benchmark can empty the cache of kernels")

    def timed(name: str, call: Call) -> Any:
        seconds, result = bench.time(call)
        line = bench.add("first call", call=name, seconds=round(seconds, 3))
        rows.append([name, line["seconds"]])
        return result

    make = partial(
        DynamicGraph, n_vertices=options.vertices, structure=options.structure, device=bench.device.kind,
        directed=False, weighted=True,
    )  # fmt: skip
    # The benchmark itself has compiled nothing but the copies of its device. CuPy reads the name of its folder once, so
    # it must leave its folder alone.
    with tempfile.TemporaryDirectory() as folder:
        empty = patch.dict(os.environ, {"MGRAPH_CACHE_DIR": folder, "CUPY_CACHE_IN_MEMORY": "1"})
        with empty, timed("make", make) as graph:
            rng = np.random.default_rng(options.seed)
            ids = rng.integers(0, options.vertices, (2, options.edges), np.uint32)
            timed("first batch", partial(graph.insert, *ids))
            for name, call in _first_calls(graph).items():
                timed(name, call)
    rows.append(["all", round(sum(row[1] for row in rows), 3)])
    bench.table("first calls with an empty cache of kernels", ["call", "s"], rows)


# ---- many calls ------------------------------------------------------------------------------------------------------


def _resources() -> dict[str, int]:
    """Return this process's memory in KiB, threads, descriptors and objects."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "resident_kib": pages * (os.sysconf("SC_PAGE_SIZE") // 1024),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "objects": len(gc.get_objects()),
    }


def _all_resources(graph: Any) -> dict[str, int]:
    """Return the resources of this process, and of each worker if the graph has workers."""
    # Dask opens connections to ask the workers: they come before this process's descriptors are counted.
    client = graph._directory.coordinator.client
    workers = [] if client is None else client.run(_resources).values()
    each = {f"worker {k}: {name}": n for k, worker in enumerate(workers) for name, n in worker.items()}
    return {**_resources(), **each}


def _measure_many(bench: Bench) -> None:
    """Make many calls; raise `Mismatch` if they leave memory, threads, descriptors, objects or waiters."""
    options = bench.options
    with ExitStack() as stack:
        graph = stack.enter_context(_graph(bench, stack))
        edges = np.random.default_rng(options.seed).integers(0, options.vertices, (DRAWN, 2, 1), np.uint32)
        graph.insert(*edges[:, :, 0].T)

        def calls(n: int) -> None:
            for i in range(n // 2):
                src, dst = edges[i % DRAWN]
                if not graph.has_edges(src, dst)[0] or graph.insert(src, dst).updated != 1:
                    raise Mismatch(f"call {2 * i}: an edge that was inserted is not there")

        # The history is full after the first calls.
        calls(2 * KEPT + ROUND)
        before, began = _all_resources(graph), perf_counter()
        calls(options.many)
        seconds, after = perf_counter() - began, _all_resources(graph)
        waiting = [len(session._answers) for session in _sessions(graph)]

    # Memory may grow by fragments, but not by a byte per call.
    bench.add("many calls", calls=options.many, seconds=seconds, before=before, after=after, waiting=waiting)
    rows = [[name, before[name], after[name]] for name in before]
    bench.table(f"{options.many:,} calls in {seconds:.0f} s", ["of a process", "before", "after"], rows)
    most = {"resident_kib": MARGIN_KIB, "threads": 0, "descriptors": 0, "objects": MARGIN_OBJECTS[options.workers > 0]}
    grown = [name for name in before if after[name] > before[name] + most[name.split()[-1]]]
    if grown or any(waiting):
        raise Mismatch(f"{options.many} calls left {', '.join(grown) or 'waiters'}: {before}, {after}, {waiting}")


def _sessions(graph: Any) -> list[Any]:
    """Return the sessions with the workers; none of a graph in this process."""
    sessions = getattr(graph._directory.coordinator, "sessions", None)
    return [] if sessions is None else sessions.all


def _check(graph: Any, src: np.ndarray, dst: np.ndarray) -> None:
    """Raise unless single queries give the same answers as all queries at once."""
    chunk = slice(0, 100)
    together = graph.has_edges(src[chunk], dst[chunk])
    singly = [bool(graph.has_edges(s, d)[0]) for s, d in zip(src[chunk, None], dst[chunk, None], strict=True)]
    degrees = graph.degrees(src[chunk])
    rows = np.diff(graph.neighbors(src[chunk]).offsets)
    if singly != together.tolist() or (rows != degrees).any():
        raise Mismatch("single queries answer otherwise than all of them at once")
