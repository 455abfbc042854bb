"""``bench triangles``: milliseconds of the triangles at each vertex, by the program that shards run.

Counts must be those found with ``csr``, and at some vertices those of its rows' common neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.density.triangles.program import run as triangles
from mgraph.device import Array
from mgraph.errors import InvalidOption
from workloads.bench.counts import add_arguments
from workloads.bench.counts import measure as measure_counts
from workloads.bench.harness import Bench, Mismatch

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time triangles at each vertex, through the program that shards run"
LOOKED_AT = 20  #: vertices whose triangles are counted otherwise, too


def measure(bench: Bench) -> None:
    """Count the triangles in each structure."""
    if bench.options.directed:
        raise InvalidOption("--directed: triangles are those of an undirected graph")
    measure_counts(bench, "triangles", triangles, _check)


def _check(bench: Bench, name: str, shard: Any, counts: Array) -> None:
    """`Mismatch` where a vertex has other triangles than pairs of neighbours that are neighbours."""
    edges = shard.out_edges
    for vertex in np.random.default_rng(1).integers(0, len(counts), LOOKED_AT).astype(np.uint32):
        near = bench.device.to_host(edges.neighbors([vertex]).dst)
        near = near[near != vertex]
        loops = edges.has_edges(near, near).astype(np.int64) + int(edges.has_edges([vertex], [vertex])[0])
        common = edges.common_neighbors(near, np.full_like(near, vertex)) - loops
        if int(common.sum()) != 2 * int(counts[vertex]):
            raise Mismatch(f"{name}: vertex {vertex} has {counts[vertex]} triangles, by its rows {common.sum() / 2}")
