"""Compiles what the programs run on a shard."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.bfs import search_kernels
from mgraph.algorithms.contract import Shard, kernels
from mgraph.algorithms.transpose import some_rows

__all__ = ["warm"]


def warm(shard: Shard) -> None:
    """Compile what programs run on this shard, so that the first call is as fast as the others. Seconds, once.

    Not what few calls need: predecessors, and PageRank where in-edges can neither be had nor made.
    """
    out, back = shard.out_edges.view(), shard.in_edges
    kernels(shard, "ranks.cuh", out)
    kernels(shard, "pagerank.cuh", (back or some_rows(shard.device)).view())
    for view in (out, out if back is None else back.view()):
        search_kernels(shard, view, predecessors=False)
    ranks = shard.device.zeros(1, np.float32)  # CuPy compiles, too: what a start takes
    ranks += ranks
    ranks.sum(dtype=np.float64)
    ranks.min()
