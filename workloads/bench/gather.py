"""``bench gather``: milliseconds of a sum over neighbours, beside an iteration of PageRank with shares as wide.

Sums must be csr's, up to rounding.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from mgraph.algorithms.centrality.pagerank.program import run as pagerank
from mgraph.algorithms.primitives.gather.program import run as gather
from workloads.arguments import check_least
from workloads.bench import shards
from workloads.bench.harness import Bench, Mismatch, summary
from workloads.bench.shards import Graph

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time a gather, beside an iteration of PageRank"
ITERATIONS = 20
WIDTHS = {"float64": 1e-30, "float32": 1e-9}  #: of values; the tolerance with which PageRank's shares are as wide


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    shards.add_arguments(parser)
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Gather the sum of the neighbours' values in each structure."""
    check_least(bench.options, "repeats")
    repeats = bench.options.repeats
    graph, rows = Graph(bench), []
    oracle: dict[str, Any] = {}
    for name, shard in graph.shards():
        for dtype, tol in WIDTHS.items():
            values = bench.device.asarray(np.random.default_rng(1).random(shard.n_vertices).astype(dtype))
            direction = "out" if shard.in_edges is None else "in"
            one = partial(gather, shard, values, direction=direction)
            sums = one()[0]["gathered"]
            if not bench.xp.allclose(sums, oracle.setdefault(dtype, sums), rtol=1e-6):
                raise Mismatch(f"{name}: the sums of {dtype} are not csr's")
            found = summary(bench.times(one, repeats))
            rank = partial(pagerank, shard, tol=tol, dtype=dtype)
            whole, start = (bench.times(partial(rank, max_iter=n), repeats) for n in (ITERATIONS, 0))
            step = (float(np.median(whole)) - float(np.median(start))) / ITERATIONS * 1e3
            line = bench.add(
                "gather", structure=name, dtype=dtype, arcs=shard.num_edges, step_ms=round(step, 4), **found
            )
            rows.append([name, dtype, line["p50_ms"], line["step_ms"], round(line["p50_ms"] / step, 3)])
        del shard
    columns = ["structure", "values", "gather ms", "PageRank's iteration ms", "ratio"]
    bench.table(f"gather, median of {repeats} runs; sums equal to csr's", columns, rows)
