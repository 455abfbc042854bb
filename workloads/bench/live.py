"""``bench live``: maintained results, read after each batch, relative to fresh runs of the same method.

The graph is undirected, in this process, and gets batches of several sizes and kinds:

- ``inserts``: edges drawn like those of the graph;
- ``deletes``: edges that were drawn before;
- ``mixed``: half of these, and half deletes of present edges;
- ``weights``: present edges, with new weights.

Reading a result after a batch brings it up to date. Only that is timed. Then a fresh run of the method is timed on the
same graph, and the last of them is compared with the maintained result. Each read is divided by the fresh run after the
same batch, since fresh runs differ: `share` and `worst` are the median and the largest of these quotients. On a CPU,
`cpu_share` and `cpu_worst` are the same of the process's CPU time, which other processes lengthen less. The first run
after a batch takes up to 1.4 times as long, so a fresh run that is not timed comes before both. They take turns in
which is first, and a median is the mean of two: of the reads that came first, and of the others.

Communities are compared after each batch: `loss` is the part of a fresh run's quality that the maintained ones lack,
and `worst_loss` the largest of all reads. Fresh runs differ themselves, by `spread` around their running mean: the
standard deviation, as a part of it. `worst_of_mean` is the largest loss against that mean.

The goals are printed beside each row, and those that are missed are marked (`workloads/bench/goals.py`).
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from mgraph import DynamicGraph
from mgraph.batch import EdgeBatch
from mgraph.errors import InvalidOption
from workloads.arguments import check_least
from workloads.bench.goals import goals_of, verdict
from workloads.bench.harness import Bench, Mismatch, counts_of, short, summary
from workloads.bench.inputs import Edges, add_graph_arguments, degree_order

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time results that follow the graph, after batches of several sizes, against fresh runs"
KINDS = ("inserts", "deletes", "mixed", "weights")
ALPHA = 0.85  #: of PageRank, its default
NAMES = ("connected_components", "triangles", "pagerank", "bfs", "sssp")
COMMUNITIES = {"leiden": "quality", "louvain": "modularity"}  #: the quality of each
COLUMNS = ("p50_ms", "max_ms", "fresh_ms", "share", "worst", "cpu_share", "cpu_worst", "worst_loss", "how")  #: shown
RUNNING = 20  #: reads before and after one whose fresh runs are its running mean
LOSS = 0.1  #: of quality, at most, against a fresh run: RMAT graphs have no communities, and fresh runs differ too


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add_graph_arguments(parser, "gpma+")
    add = parser.add_argument
    more = ", ".join(COMMUNITIES)
    add("--names", default=",".join(NAMES), metavar="A,B", help=f"what is followed, also {more} (default: %(default)s)")
    add("--batches", default="1000,100000", metavar="N,N", help="edges per batch (default: %(default)s)")
    add("--kinds", default="inserts,mixed", metavar="A,B", help=f"of {', '.join(KINDS)} (default: %(default)s)")
    add("--repeats", type=int, default=20, metavar="N", help="batches of each size and kind (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Maintain each result on each structure through all batches.

    A graph in this process has a thread per CPU of the process, so ``--threads`` restricts these meanwhile.
    """
    cpus = os.sched_getaffinity(0)
    if bench.device.kind == "cpu":
        os.sched_setaffinity(0, sorted(cpus)[-bench.device.threads :])
    try:
        _measure(bench)
    finally:
        os.sched_setaffinity(0, cpus)


def _measure(bench: Bench) -> None:
    # Check the options.
    options = bench.options
    names, kinds = _chosen(options, "names", (*NAMES, *COMMUNITIES)), _chosen(options, "kinds", KINDS)
    sizes, edges = counts_of(options.batches, "batches"), Edges(options, bench.device)
    check_least(options, "repeats")

    # Weighted results need a weighted graph of their own.
    rows: list[list[Any]] = []
    for structure in dict.fromkeys(options.structure.split(",")):
        for weighted in (False, True):
            mine = [name for name in names if weighted == (name == "sssp" or "weights" in kinds)]
            if mine:
                rows += _followed(bench, structure, edges, weighted, mine, kinds, sizes)
                bench.free()
    title = f"ms to bring a result up to date, medians of {options.repeats} batches; equal to fresh runs"
    shown = (column.replace("_", " ") for column in COLUMNS)
    bench.table(title, ["structure", "result", "batch", *shown, "goals"], rows)


def _chosen(options: argparse.Namespace, option: str, choices: tuple[str, ...]) -> list[str]:
    chosen = list(dict.fromkeys(getattr(options, option).split(",")))
    if unknown := [name for name in chosen if name not in choices]:
        raise InvalidOption(f"--{option} names {unknown[0]!r}; there are {', '.join(choices)}")
    return chosen


def _followed(
    bench: Bench, structure: str, edges: Edges, weighted: bool, names: list[str], kinds: list[str], sizes: list[int]
) -> list[list[Any]]:
    """Measure the results on one graph. Returns rows for the table."""
    # Build the graph, with ids in the order of degrees.
    src, dst = edges.between(0, edges.n_edges)
    order = degree_order(src, dst, edges.n_vertices, bench.xp)
    source = int(bench.xp.argmin(order))  # the vertex of most edges: the source of searches
    rows = []
    options: dict[str, Any] = {"n_vertices": edges.n_vertices, "structure": structure, "weighted": weighted}
    options |= {"directed": False, "order": bench.device.to_host(order), "device": bench.device.kind}
    with DynamicGraph(**options) as graph:
        stream = _Stream(bench, edges, weighted)
        graph.insert(src, dst, stream.weights(edges.n_edges))
        del src, dst
        bench.say(f"{structure}: {graph.num_edges:,} edges, {'weighted, ' if weighted else ''}{bench.device}")

        # Maintain each result through all kinds and sizes.
        for name in names:
            arguments: dict[str, Any] = {"source": source} if name in ("bfs", "sssp") else {}
            with graph.maintain(name, **arguments) as live:
                for kind in kinds:
                    for size in sizes:
                        line = _point(bench, graph, stream, live, (name, arguments), kind, size)
                        line["goals"] = goals_of(name, edges.shape, size, graph.num_edges, bench.device.kind)
                        bench.add("live", structure=structure, name=name, batches=kind, batch=size, **line)
                        shown = [line.get(column, "") for column in COLUMNS] + [verdict(line["goals"], line)]
                        rows.append([structure, name, f"{short(size)} {kind}", *shown])
    return rows


class _Stream:
    """Stream of batches, without repeated new edges."""

    def __init__(self, bench: Bench, edges: Edges, weighted: bool) -> None:
        self.bench, self.edges, self.weighted, self.at = bench, edges, weighted, edges.n_edges
        self.rng = np.random.default_rng(bench.options.seed)

    def weights(self, n: int) -> Any:
        """Return weights between 1 and 2 for `n` edges; None in an unweighted graph."""
        return self.bench.xp.asarray(1 + self.rng.random(n, np.float32)) if self.weighted else None

    def batch(self, kind: str, size: int) -> EdgeBatch:
        """Return the next batch of a kind."""
        # Choose new edges, and a span of old ones.
        xp, old = self.bench.xp, {"inserts": 0, "mixed": size // 2}.get(kind, size)
        first = int(self.rng.integers(max(1, self.edges.n_edges - old)))
        spans = [(self.at, self.at + size - old), (first, first + old)]
        self.at += size - old
        parts = [self.edges.between(*span) for span in spans if span[0] < span[1]]
        src, dst = (xp.concatenate(columns) for columns in zip(*parts, strict=True))

        # Old edges are deleted, or get new weights.
        op = xp.ones(size, np.int8)
        op[size - old :] = 1 if kind == "weights" else -1
        return EdgeBatch(src, dst, self.weights(size), op)


def _point(
    bench: Bench, graph: DynamicGraph, stream: _Stream, live: Any, run: tuple[str, Any], kind: str, size: int
) -> dict[str, Any]:
    """Maintain a result through batches of one size and kind."""
    name, arguments = run
    used: tuple[list[list[float]], ...] = ([], [])  # time and CPU time, of reads and of fresh runs
    how, visited, qualities = Counter[str](), [], []
    # After each batch, time the read and a fresh run, so that other load on the machine affects both. Every second time
    # the fresh run comes first, since the other one finds the graph in the caches.
    calls = [live.result, lambda: getattr(graph, name)(**arguments)]
    for number in range(1 + bench.options.repeats):
        graph.update(stream.batch(kind, size))
        calls[1]()  # so that both find the graph in the caches
        order = (0, 1) if number % 2 else (1, 0)
        timed = {which: _timed(bench, calls[which]) for which in order}
        (spent, result), (again, anew) = timed[0], timed[1]
        if number:  # the first is a warm-up
            used[0].append(spent)
            used[1].append(again)
            how[live.report.how] += 1
            visited.append(live.report.edges)
            if name in COMMUNITIES:
                qualities.append([one.info[COMMUNITIES[name]] for one in (result, anew)])

    # Compare the last two results, and the times.
    _check(name, result, anew)
    (seconds, fresh), (cpu, fresh_cpu) = np.moveaxis(np.array(used), -1, 0)
    line = {**summary(seconds.tolist()), "fresh_ms": round(1e3 * _median(fresh), 4), **_shares(seconds, fresh)}
    if bench.device.kind == "cpu":
        line |= {f"cpu_{column}": part for column, part in _shares(cpu, fresh_cpu).items()}
    if qualities:
        line |= _losses(*np.array(qualities).T)
    ways = ", ".join(f"{n} {way}" for way, n in how.most_common())
    return {**line, "how": ways, "visited": int(np.median(visited))}


def _timed(bench: Bench, call: Callable[[], Any]) -> tuple[list[float], Any]:
    """Return the seconds of `call` and its CPU time, of the whole process, and its result."""
    began = time.process_time()
    seconds, value = bench.time(call)
    return [seconds, time.process_time() - began], value


def _median(values: np.ndarray) -> float:
    """Return the mean of the medians of every second value and of the others."""
    return float(np.mean([np.median(half) for half in (values[::2], values[1::2]) if len(half)]))


def _shares(reads: np.ndarray, fresh: np.ndarray) -> dict[str, float]:
    """Return the median and the largest read, each as a part of the fresh run after the same batch."""
    parts = reads / fresh
    return {"share": round(_median(parts), 4), "worst": round(float(parts.max()), 4)}


def _losses(mine: np.ndarray, fresh: np.ndarray) -> dict[str, float]:
    """Compare the qualities of all reads with those of the fresh runs after the same batches."""
    near = np.array([fresh[max(at - RUNNING, 0) : at + RUNNING + 1].mean() for at in range(len(fresh))])
    loss = 1 - mine / fresh
    line = {"quality": mine[-1], "fresh_quality": fresh[-1], "loss": loss.mean(), "worst_loss": loss.max()}
    line |= {"spread": float(np.std(fresh / near)), "worst_of_mean": (1 - mine / near).max()}
    return {key: round(float(value), 6) for key, value in line.items()}


def _check(name: str, maintained: Any, fresh: Any) -> None:
    """Raise `Mismatch` unless a maintained result equals a fresh one.

    PageRank's is within the bounds of both, and communities are of about the same quality.
    """
    if name in COMMUNITIES:
        own, other = (one.info[COMMUNITIES[name]] for one in (maintained, fresh))
        if own < (1 - LOSS) * other:
            raise Mismatch(f"{name}: quality {own:.4f}, and {other:.4f} of a fresh run")
        return
    mine, theirs = maintained.to_numpy(), fresh.to_numpy()
    if name == "pagerank":
        apart = float(np.abs(mine.astype(np.float64) - theirs).sum())
        bound = ALPHA / (1 - ALPHA) * (maintained.error + fresh.error)
        if not apart <= bound:
            raise Mismatch(f"pagerank: {apart:.3g} from a fresh run, by L1; {bound:.3g} is the bound of both")
    elif not np.array_equal(mine, theirs):
        at = int(np.flatnonzero(mine != theirs)[0])
        raise Mismatch(f"{name}: vertex {at} has {mine[at]}, and {theirs[at]} in a fresh run")
