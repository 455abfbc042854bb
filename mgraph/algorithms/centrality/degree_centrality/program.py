"""Degree centrality: each edge weighs 1, at its row and, in a directed graph, at its other end."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.algorithms.communities.louvain.weights import Weights
from mgraph.algorithms.communities.modularity.program import warm
from mgraph.algorithms.primitives.replicated import sum_to_owners

__all__ = ["run", "warm"]


def run(shard: Shard) -> Columns:
    """The degree of each own vertex by the number of other vertices.

    Returns
    -------
    columns : dict
        "centrality", float64[hi - lo] on the shard's device.
    scalars : dict
        None.

    Notes
    -----
    O(n + m): one launch, two for directed graphs, twice as many where there may be hubs.
    """
    device, out, n = shard.device, shard.out_edges, shard.n_vertices
    directed = shard.in_edges is not out
    weights = Weights(shard, out.view(), out, shard.lo, shard.hi - shard.lo, loops=1 if directed else 2)
    degrees = weights.strengths()
    if directed:
        sums = device.zeros(n, np.int64)
        weights.weigh("received", device.arange(0, n, np.uint32), sums)
        degrees += sum_to_owners(shard, sums)
    if n == 1:
        return {"centrality": device.full(len(degrees), 1, np.float64)}, {}
    values = device.astype(degrees, np.float64)
    values /= max(n - 1, 1)
    return {"centrality": values}, {}
