"""``bench cores``: milliseconds of the core numbers, by the program that shards run.

They must be those found with ``csr``, and every vertex of core number k needs k edges to vertices of k or more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.density.core_number.program import run as core_number
from mgraph.device import Array
from workloads.bench.counts import add_arguments
from workloads.bench.counts import measure as measure_counts
from workloads.bench.harness import Bench, Mismatch

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time core numbers, through the program that shards run"


def measure(bench: Bench) -> None:
    """Find the core numbers in each structure."""
    measure_counts(bench, "cores", core_number, _check)


def _check(bench: Bench, name: str, shard: Any, cores: Array) -> None:
    """`Mismatch` where a vertex has too few edges to vertices of its core number or more."""
    xp, n = bench.xp, len(cores)
    near = xp.zeros(n, np.int64)
    csr = shard.out_edges.to_csr()
    rows = xp.searchsorted(csr.offsets, xp.arange(len(csr.dst)), side="right") - 1
    inside = (cores[csr.dst] >= cores[rows]) & (rows != csr.dst)
    near += xp.bincount(rows[inside], minlength=n)
    if shard.in_edges is not shard.out_edges:  # the arcs are each vertex's in-edges, too
        inside = (cores[rows] >= cores[csr.dst]) & (rows != csr.dst)
        near += xp.bincount(csr.dst[inside], minlength=n)
    few = xp.flatnonzero(near < cores)
    if len(few):
        at = int(few[0])
        raise Mismatch(f"{name}: vertex {at} has core number {cores[at]} and {near[at]} edges to such vertices")
