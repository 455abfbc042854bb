"""``bench pagerank``: milliseconds per iteration of the shards' PageRank, with and without its setup.

Ranks must equal those of ``csr`` with the same rule, up to an L1 distance of 1e-5, and sum to 1.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np

from mgraph.algorithms.centrality.pagerank.program import run as pagerank
from mgraph.errors import InvalidOption
from mgraph.worker.shard.shard import Shard
from workloads.arguments import check_least
from workloads.bench import shards
from workloads.bench.harness import Bench, Mismatch, summary
from workloads.bench.shards import Graph

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time PageRank's iterations, through the program that shards run"
LIMIT = 1e-5  #: L1 distance to csr's ranks
TOL = 1e-7  #: the smallest tolerance with the default exchange of shares as 16 bits


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    shards.add_arguments(parser)
    add = parser.add_argument
    add("--iterations", type=int, default=20, metavar="N", help="iterations a run at most (default: %(default)s)")
    add("--tol", type=float, default=TOL, metavar="T", help="ends a run, too; float32 shares below %(default)s")
    add("--dtype", choices=["float32", "float64"], default="float32", help="of the ranks (default: %(default)s)")
    add("--repeats", type=int, default=5, metavar="N", help="runs (default: %(default)s)")
    add("--warm", type=int, default=0, metavar="N", help="then insert N edges, and go on from the ranks before them")


def measure(bench: Bench) -> None:
    """Rank each structure's vertices, to a tolerance or by a number of iterations."""
    # Check the options.
    options = bench.options
    if not options.tol >= 0:
        raise InvalidOption(f"--tol is {options.tol}; it is not negative")
    check_least(options, "iterations", "repeats")
    check_least(options, "warm", least=0)

    # Time whole runs, and runs without iterations: the setup.
    graph, oracle, rows = Graph(bench), None, []
    for name, shard in graph.shards():
        rank = partial(pagerank, shard, tol=options.tol, dtype=options.dtype)
        whole = bench.times(partial(rank, max_iter=options.iterations), options.repeats)
        start = bench.times(partial(rank, max_iter=0), options.repeats)

        # Compare the ranks.
        values, info = rank(max_iter=options.iterations)
        ranks, iterations = bench.device.to_host(values["rank"]).astype(np.float64), info["iterations"]
        oracle = ranks if oracle is None else oracle
        distance = _checked(name, ranks, oracle)
        line = bench.add(
            "pagerank",
            structure=name,
            arcs=shard.num_edges,
            bytes_per_arc=round(shard.nbytes / max(shard.num_edges, 1), 3),
            iterations=iterations,
            **summary([seconds / iterations for seconds in whole]),
            start_ms=summary(start)["p50_ms"],
            step_ms=round(float(np.median(whole) - np.median(start)) / iterations * 1e3, 4),
            l1_to_csr=distance,
        )
        rows.append([name, line["p50_ms"], line["step_ms"], line["start_ms"], distance])
        if options.warm:
            _go_on(bench, name, graph, shard)
        del shard

    # Print the table.
    columns = ["structure", "ms per iteration", "without the start", "start ms", "L1 to csr"]
    bench.table(
        f"PageRank, at most {options.iterations} iterations a run, median of {options.repeats} runs", columns, rows
    )


def _go_on(bench: Bench, name: str, graph: Graph, shard: Shard) -> None:
    """Time runs after a batch, to the default tolerance: from equal ranks, and from the ranks before the batch."""
    # Run both ways.
    before = pagerank(shard)[0]["rank"]
    graph.insert_more(shard, bench.options.warm)
    runs = {}
    for way, start in (("cold", None), ("warm", before)):
        seconds = bench.times(partial(pagerank, shard, start=start), bench.options.repeats)
        columns, info = pagerank(shard, start=start)
        runs[way] = {"iterations": info["iterations"], "ms": summary(seconds)["p50_ms"]}, columns["rank"]

    # Compare their ranks.
    apart = float(abs(runs["cold"][1].astype(np.float64) - runs["warm"][1]).sum())
    if not apart < LIMIT:
        raise Mismatch(f"{name}: warm and cold ranks lie {apart:.3g} apart; {LIMIT:g} at most is allowed")
    cold, warm = runs["cold"][0], runs["warm"][0]
    bench.add("warm", structure=name, batch=bench.options.warm, cold=cold, warm=warm, l1=apart)
    bench.say(
        f"{name}, after {bench.options.warm:,} inserts: {cold['iterations']} iterations in {cold['ms']:.4g} ms "
        f"from equal ranks, {warm['iterations']} in {warm['ms']:.4g} ms from those before; {apart:.2g} apart"
    )


def _checked(name: str, ranks: np.ndarray, oracle: np.ndarray) -> float:
    """Return the L1 distance to the oracle's ranks.

    Raises `Mismatch` if it is too large, or if the sum is not 1.
    """
    distance, total = float(np.abs(ranks - oracle).sum()), float(ranks.sum())
    if not (distance < LIMIT and abs(total - 1) < LIMIT):
        raise Mismatch(f"{name}: ranks sum to {total} and lie {distance:.3g} from csr's; {LIMIT:g} at most is allowed")
    return distance
