"""Degree centrality: each edge counts 1, at its row and, in a directed graph, at its other end."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Runs, Shard
from mgraph.algorithms.primitives.replicated import sum_to_owners
from mgraph.algorithms.primitives.weight_sums import WeightSums

__all__ = ["ALGORITHM", "degree_centrality", "run", "warm"]


T = TypeVar("T")


def degree_centrality(self: Runs[T]) -> T:
    """Compute the degree of each vertex divided by ``num_vertices - 1``: float64, on the workers.

    Weights are ignored. In an undirected graph a self-loop counts 2. In a directed graph edges to and from a vertex
    count. In a graph of a single vertex the value is 1. All this is like NetworkX. Deleted vertices count as vertices.

    Raises
    ------
    CapacityError
        A worker has too little memory: 16 bytes per own vertex and, for a directed graph, 12 per vertex of the whole
        graph.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m). In a directed graph the workers add up in-degrees in one superstep, in which 8 bytes per vertex travel.
    After L. C. Freeman, "Centrality in social networks: conceptual clarification", Social Networks 1, 1979.

    Examples
    --------
    >>> g.insert([0, 0], [1, 2])  # of 4 vertices  # doctest: +SKIP
    >>> g.degree_centrality().to_numpy()  # doctest: +SKIP
    array([0.66666667, 0.33333333, 0.33333333, 0.        ])
    """
    return self.run("degree_centrality")


def check(graph: GraphFacts) -> dict[str, Any]:
    """Return the program's arguments: none."""
    return {}


def warm(shard: Shard) -> None:
    """Compile the kernels that `run` launches on this shard."""
    WeightSums(shard, shard.out_edges.view(), shard.out_edges, shard.lo, 0)


def run(shard: Shard) -> Columns:
    """Return the degree of each own vertex by the number of other vertices.

    Returns
    -------
    columns : dict
        "centrality", float64[hi - lo] on the shard's device.
    scalars : dict
        None.

    Notes
    -----
    O(n + m): one launch, two for directed graphs, twice as many if there may be hubs.
    """
    # Count the edges at their rows, and in a directed graph at their other ends.
    device, out, n = shard.device, shard.out_edges, shard.n_vertices
    directed = shard.in_edges is not out
    weights = WeightSums(shard, out.view(), out, shard.lo, shard.hi - shard.lo, loops=1 if directed else 2)
    degrees = weights.strengths()
    if directed:
        sums = device.zeros(n, np.int64)
        weights.weigh("incoming", device.arange(0, n, np.uint32), sums)
        degrees += sum_to_owners(shard, sums)

    # Divide by the number of other vertices.
    if n == 1:
        return {"centrality": device.full(len(degrees), 1, np.float64)}, {}
    values = device.astype(degrees, np.float64)
    values /= max(n - 1, 1)
    return {"centrality": values}, {}


ALGORITHM = Algorithm(
    name="degree_centrality", check=check, run=run, columns={"centrality": "value"}, scalars=(), warm=warm
)
