"""Vertices of the k-core: all levels below k at once, by the peeling of `density.core_number`."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Runs, Shard
from mgraph.algorithms.density.core_number import program as cores
from mgraph.algorithms.density.core_number.program import HIGHEST, removal_levels
from mgraph.algorithms.primitives.replicated import sides
from mgraph.checks import check_whole
from mgraph.device import Device
from mgraph.kernels import Library, load

__all__ = ["ALGORITHM", "k_core", "run", "warm"]


T = TypeVar("T")


def k_core(self: Runs[T], k: int | None = None) -> T:
    """Compute which vertices are in the k-core: bool, True for those inside, on the workers.

    The k-core is the largest subgraph in which every vertex has k edges or more. On a directed graph, edges to and from
    a vertex count. Self-loops are ignored. The ids of its vertices are ``numpy.flatnonzero(g.k_core(k))``; its edges
    are those of the graph among them.

    Parameters
    ----------
    k : int, optional
        0 or more. By default the innermost core: that of the largest core number.

    Returns
    -------
    VertexValues
        With ``.k``, and ``.vertices``, the number of vertices in the k-core.

    Raises
    ------
    InvalidOption
        `k` is not a whole number of 0 or more.
    CapacityError
        A worker has too little memory; it needs that of `core_number`.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m) work. With `k`, all levels below it are peeled at once, which takes less time than `core_number`. Without
    `k` it takes as long. The result is exact. After S. B. Seidman, "Network structure and minimum degree", Social
    Networks 5, 1983.

    Examples
    --------
    >>> g.insert([0, 1, 2, 0], [1, 2, 0, 3])  # of 5 vertices  # doctest: +SKIP
    >>> np.flatnonzero(g.k_core(2))  # doctest: +SKIP
    array([0, 1, 2])
    """
    return self.run("k_core", k=k)


def inside_kernels(device: Device) -> Library:
    """Return the kernels that mark the vertices of a core."""
    return load(device, "algorithms/density/core_number/inside.cuh")


def warm(shard: Shard) -> None:
    """Compile the kernels of `run` for this shard."""
    cores.warm(shard)
    inside_kernels(shard.device)


def check(graph: GraphFacts, k: Any = None) -> dict[str, Any]:
    """Return the program's arguments."""
    return {} if k is None else {"k": min(check_whole(k, "k"), sys.maxsize)}


def run(shard: Shard, k: int | None = None) -> Columns:
    """Return a mask of own vertices in the k-core; without `k` in the innermost core.

    Returns
    -------
    columns : dict
        "inside", bool[hi - lo] on the shard's device.
    scalars : dict
        ``k``; ``vertices``, the number of vertices in the k-core.

    Notes
    -----
    O(n + m) work, and a meeting of the ranks per frontier; without `k` that of `core_number`.
    """
    edges, device = sides(shard, "k_core"), shard.device
    if k is None:
        core, state = removal_levels(shard, edges)
        k = level = state["largest"]
    else:
        last, level = min(k - 1, HIGHEST), -1
        core, _ = removal_levels(shard, edges, last, last)
    inside, count = device.empty(len(core), bool), device.zeros(1, np.int64)
    inside_kernels(device).MarkInside(
        len(core), core=core, level=level, n=len(core), inside=inside.view(np.uint8), count=count
    )
    mine = Device.to_host(count)
    return {"inside": inside}, {"k": k, "vertices": int(shard.exchange.allreduce(mine)[0])}


ALGORITHM = Algorithm(
    name="k_core", check=check, run=run, columns={"inside": "value"}, scalars=("k", "vertices"), warm=warm
)
