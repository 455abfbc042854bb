"""What triangles and clustering coefficients must be: by SciPy's sparse products in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from spmd import Graph


def simple(graph: Graph) -> Any:
    """The adjacency matrix without self-loops, 1 an arc."""
    import scipy.sparse as sp

    matrix = sp.csr_array(graph.matrix() - sp.diags_array(graph.matrix().diagonal()))
    matrix.eliminate_zeros()
    return matrix


def triangles(graph: Graph) -> np.ndarray:
    """The triangles at each vertex of an undirected graph: int64[n]."""
    near = simple(graph)
    return (((near @ near) * near).sum(axis=1) / 2).astype(np.int64)


def transitivity(graph: Graph) -> float:
    """3 triangles by the pairs of neighbours."""
    degrees = simple(graph).sum(axis=1)
    pairs = float((degrees * (degrees - 1) / 2).sum())
    return float(triangles(graph).sum()) / pairs if pairs else 0.0


def coefficients(graph: Graph, definition: str) -> np.ndarray:
    """The clustering coefficient of each vertex, float64[n], by the definition's formula."""
    arcs = simple(graph)
    both = arcs * arcs.T
    near = arcs + arcs.T - both
    if definition == "fagiolo":
        if not graph.directed:
            return coefficients(graph, "ldbc")
        symmetric = arcs + arcs.T
        found = ((symmetric @ symmetric) * symmetric).sum(axis=1) / 2
        degrees = symmetric.sum(axis=1)
        could = degrees * (degrees - 1) - 2 * both.sum(axis=1)
    else:  # arcs among the neighbours of v: pairs u, w of them with an arc from u to w
        found = ((near @ arcs) * near).sum(axis=1)
        degrees = near.sum(axis=1)
        could = degrees * (degrees - 1)
    return np.divide(found, could, out=np.zeros(graph.n), where=found > 0)
