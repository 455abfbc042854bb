"""Timing a program that gives each vertex a whole number; what it gives must be the same with every structure."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.device import Array
from workloads.arguments import check_least
from workloads.bench import shards
from workloads.bench.harness import Bench, Mismatch, summary
from workloads.bench.shards import Graph

__all__ = ["add_arguments", "measure"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of such a benchmark."""
    shards.add_arguments(parser)
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="runs (default: %(default)s)")


def measure(
    bench: Bench, kind: str, program: Callable[[Shard], Columns], check: Callable[[Bench, str, Any, Array], None]
) -> None:
    """Run `program` in each structure; ``check(bench, structure, shard, values)`` raises where values are wrong."""
    check_least(bench.options, "repeats")
    repeats = bench.options.repeats
    graph, rows = Graph(bench), []
    oracle: Array = None
    for name, shard in graph.shards():
        seconds = bench.times(partial(program, shard), repeats)
        found, info = program(shard)
        values = next(iter(found.values()))
        oracle = values if oracle is None else oracle
        wrong = bench.xp.flatnonzero(values != oracle)
        if len(wrong):
            at = int(wrong[0])
            raise Mismatch(f"{name}: vertex {at} has {values[at]}, with csr {oracle[at]}")
        check(bench, name, shard, values)
        facts = {"structure": name, "arcs": shard.num_edges, **summary(seconds), **info}
        line = bench.add(kind, **facts)
        rows.append([name, line["p50_ms"], line["min_ms"], line["max_ms"], *info.values()])
        del shard
    columns = ["structure", "p50 ms", "least ms", "most ms", *info]
    bench.table(f"{kind}, {repeats} runs; values equal to csr's", columns, rows)
