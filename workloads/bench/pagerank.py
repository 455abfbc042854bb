"""``bench pagerank``: milliseconds an iteration of the program that shards run, with and without its start.

Ranks must be those found with ``csr`` after as many iterations, to an L1 distance under 1e-5, and sum to 1.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

from mgraph.algorithms import pagerank
from mgraph.errors import InvalidOption
from workloads.bench import shards
from workloads.bench.harness import Bench, Mismatch, summary
from workloads.bench.shards import Graph

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time PageRank's iterations, through the program that shards run"
LIMIT = 1e-5  #: L1 distance to csr's ranks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    shards.add_arguments(parser)
    add = parser.add_argument
    add("--iterations", type=int, default=20, metavar="N", help="iterations a run (default: %(default)s)")
    add("--repeats", type=int, default=5, metavar="N", help="runs (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Rank each structure's vertices, always by the same number of iterations."""
    options = bench.options
    for name in ("iterations", "repeats"):
        if getattr(options, name) < 1:
            raise InvalidOption(f"--{name} is {getattr(options, name)}; at least 1 is needed")
    graph, oracle, rows = Graph(bench), None, []
    for name, shard in graph.shards():
        whole = bench.times(partial(pagerank, shard, tol=0.0, max_iter=options.iterations), options.repeats)
        start = bench.times(partial(pagerank, shard, tol=0.0, max_iter=0), options.repeats)
        ranks = bench.device.to_host(pagerank(shard, tol=0.0, max_iter=options.iterations)[0]).astype(np.float64)
        oracle = ranks if oracle is None else oracle
        distance = _checked(name, ranks, oracle)
        line = bench.add(
            "pagerank",
            structure=name,
            arcs=shard.num_edges,
            bytes_per_arc=round(shard.nbytes / max(shard.num_edges, 1), 3),
            iterations=options.iterations,
            **summary([seconds / options.iterations for seconds in whole]),
            start_ms=summary(start)["p50_ms"],
            step_ms=round(float(np.median(whole) - np.median(start)) / options.iterations * 1e3, 4),
            l1_to_csr=distance,
        )
        rows.append([name, line["p50_ms"], line["step_ms"], line["start_ms"], distance])
        del shard
    columns = ["structure", "ms an iteration", "without the start", "start ms", "L1 to csr"]
    bench.table(f"PageRank, {options.iterations} iterations a run, median of {options.repeats} runs", columns, rows)


def _checked(name: str, ranks: np.ndarray, oracle: np.ndarray) -> float:
    """The L1 distance to the oracle's ranks; `Mismatch` where it is too much, or where they do not sum to 1."""
    distance, total = float(np.abs(ranks - oracle).sum()), float(ranks.sum())
    if not (distance < LIMIT and abs(total - 1) < LIMIT):
        raise Mismatch(f"{name}: ranks sum to {total} and lie {distance:.3g} from csr's; {LIMIT:g} at most is allowed")
    return distance
