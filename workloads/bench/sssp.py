"""``bench sssp``: shortest paths by weights from random roots, by the program that shards run.

Weights are whole numbers from 1 to 255. Distances must equal those of ``csr``, bit for bit. No drawn edge may be a
shorter path; with predecessors, each must be nearer than its vertex.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from mgraph.algorithms.paths.sssp.program import run as sssp
from mgraph.device import Array
from workloads.arguments import check_least
from workloads.bench import shards
from workloads.bench.harness import Bench, Mismatch, summary
from workloads.bench.shards import Graph

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time shortest paths by weights from random roots, through the program that shards run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    shards.add_arguments(parser)
    parser.add_argument("--roots", type=int, default=8, metavar="N", help="searches (default: %(default)s)")
    parser.add_argument("--predecessors", action="store_true", help="find the predecessors too")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32", help="of the distances")


def measure(bench: Bench) -> None:
    """Search each structure from the same roots."""
    options, rows = bench.options, []
    check_least(options, "roots")
    graph = Graph(bench, weighted=True)
    # Draw the roots.
    rng = np.random.default_rng(options.seed)
    roots = bench.device.to_host(
        graph.src[bench.device.asarray(rng.integers(0, len(graph.src), options.roots))]
    ).tolist()

    # Search each structure, and check every search.
    oracle: dict[int, Array] = {}
    for name, shard in graph.shards():
        seconds, reached, supersteps = [], [], []
        sssp(shard, roots[0], options.predecessors, options.dtype)  # compiles
        for root in roots:
            search = partial(sssp, shard, root, options.predecessors, options.dtype)
            took, (result, info) = bench.time(search)
            _check(bench, name, graph, root, result, oracle)
            seconds.append(took)
            reached.append(info["reached"])
            supersteps.append(info["supersteps"])
        line = bench.add(
            "sssp",
            structure=name,
            arcs=shard.num_edges,
            delta=info["delta"],
            reached=int(np.median(reached)),
            supersteps=int(np.median(supersteps)),
            **summary(seconds),
        )
        rows.append([name, *(line[c] for c in ("p50_ms", "min_ms", "max_ms", "reached", "supersteps"))])
        del shard

    # Print the table.
    columns = ["structure", "p50 ms", "least ms", "most ms", "reached", "supersteps"]
    bench.table(f"Shortest paths, {len(roots)} roots; distances equal to csr's", columns, rows)


def _check(bench: Bench, name: str, graph: Graph, root: int, columns: dict[str, Any], oracle: dict[int, Array]) -> None:
    """Raise `Mismatch` if a distance differs from csr's, an edge is shorter, or a predecessor does not fit."""
    # Compare with csr.
    distance = columns["distance"]
    if not bool((oracle.setdefault(root, distance) == distance).all()) or float(distance[root]) != 0:
        raise Mismatch(f"{name}: shortest paths from {root} differ from csr's")

    # No edge may be shorter: d[u] + w >= d[v].
    weights = graph.weights().astype(distance.dtype)
    ways = [(graph.src, graph.dst)] if bench.options.directed else [(graph.src, graph.dst), (graph.dst, graph.src)]
    shorter = sum(int((distance[u] + weights < distance[v]).sum()) for u, v in ways)
    if shorter:
        raise Mismatch(f"{name}: from {root}, {shorter} edges are shorter ways")

    # Predecessors are nearer, and only reached vertices have them.
    if "predecessors" in columns:
        before = columns["predecessors"]
        reached = bench.xp.isfinite(distance)
        reached[root] = False
        fits = (distance[before[reached]] <= distance[reached]).all() and bool(((before >= 0) == reached).all())
        if not bool(fits):
            raise Mismatch(f"{name}: from {root}, a predecessor is missing, or farther than its vertex")
