"""``bench components``: milliseconds of the connected components, by the program that shards run.

Labels must be those found with ``csr``, and each the least vertex of its component.
"""

from __future__ import annotations

import argparse
from functools import partial

from mgraph.algorithms.communities.components.program import run as connected_components
from mgraph.device import Array
from workloads.arguments import check_least
from workloads.bench import shards
from workloads.bench.harness import Bench, Mismatch, summary
from workloads.bench.shards import Graph

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time connected components, through the program that shards run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    shards.add_arguments(parser)
    parser.add_argument("--repeats", type=int, default=10, metavar="N", help="runs (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Find the components in each structure."""
    check_least(bench.options, "repeats")
    repeats = bench.options.repeats
    graph, rows = Graph(bench), []
    oracle: Array = None
    for name, shard in graph.shards():
        seconds = bench.times(partial(connected_components, shard), repeats)
        found, info = connected_components(shard)
        labels = found["component"]
        oracle = labels if oracle is None else oracle
        _check(bench, name, graph, labels, oracle)
        line = bench.add(
            "components",
            structure=name,
            arcs=shard.num_edges,
            bytes_per_arc=round(shard.nbytes / max(shard.num_edges, 1), 3),
            **summary(seconds),
            **info,
        )
        rows.append([name, line["p50_ms"], line["min_ms"], line["max_ms"], line["components"]])
        del shard
    columns = ["structure", "p50 ms", "least ms", "most ms", "components"]
    bench.table(f"Connected components, {repeats} runs; labels equal to csr's", columns, rows)


def _check(bench: Bench, name: str, graph: Graph, labels: Array, oracle: Array) -> None:
    """`Mismatch` where a label is not csr's, not that of an edge's other end, or not the least id of its component."""
    wrong = bench.xp.flatnonzero(labels != oracle)
    if len(wrong):
        at = int(wrong[0])
        raise Mismatch(f"{name}: vertex {at} is in component {labels[at]}, with csr in {oracle[at]}")
    parted = int((labels[graph.src] != labels[graph.dst]).sum())
    ids = bench.xp.arange(len(labels))
    above = int((labels > ids).sum()) + int((labels[labels] != labels).sum())
    if parted or above:
        raise Mismatch(f"{name}: {parted} edges join different components; {above} labels are not least")
