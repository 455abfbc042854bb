"""What connected components must be: SciPy's, named by the least id of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components
from spmd import Graph, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.partition import Partition

COMPONENTS = ALGORITHMS["connected_components"]


def labels(graph: Graph, user: np.ndarray | None = None) -> np.ndarray:
    """The label of each internal id, int64[n]; `user` is the user's id of each, the same one where it is left out."""
    user = np.arange(graph.n) if user is None else user
    count, component = connected_components(graph.matrix(), connection="weak")
    least = np.full(count, graph.n, np.int64)
    np.minimum.at(least, component, user)
    return least[component]


def check_result(got: np.ndarray, info: dict[str, Any], want: np.ndarray) -> None:
    """A result is the wanted one, and what it says of itself is so."""
    np.testing.assert_array_equal(got, want)
    assert got.dtype == np.int64
    assert info["components"] == len(np.unique(want))


def check(graph: Graph, partition: Partition, reverse: bool = False, **options: Any) -> dict[str, Any]:
    """Find the components and check them; what the result says."""
    made = shards(graph, partition, reverse=reverse, **options)
    got, info = run(made, COMPONENTS)
    check_result(got, info, labels(graph))
    assert info["supersteps"] == 1
    return info
