"""Graphs from SciPy's sparse matrices, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.checks import check_count
from mgraph.client.options import keys_of
from mgraph.convert.build import Edges, build
from mgraph.convert.columns import Column
from mgraph.errors import InvalidBatch, InvalidOption

__all__ = ["from_scipy", "to_scipy"]


def from_scipy(cls: Any, matrix: Any, *, client: Any = None, weighted: bool = False, **options: Any) -> Any:
    """A new graph of a SciPy sparse matrix: a stored entry at (i, j), zero or not, is the edge i -> j.

    Parameters
    ----------
    matrix : scipy.sparse array or matrix, shape (n, n)
        Of any format. Entries at the same place are added up.
    client : distributed.Client, optional
        The cluster that holds the graph; without it the graph is in this process.
    weighted : bool
        Whether the entries are weights.
    **options
        `directed` and the other options of `DynamicGraph`. Where ``directed=False`` and there are entries at both
        (i, j) and (j, i), the one in the later row counts.

    Returns
    -------
    DynamicGraph
        With n vertices.

    Raises
    ------
    InvalidBatch
        `matrix` is not sparse or not square, or an entry is NaN, no real number or too large for float32. No graph was
        made.
    CapacityError
        It has more rows than 32-bit ids allow.
    InvalidOption
        `n_vertices` is given.
    """
    if not hasattr(matrix, "tocsr"):
        raise InvalidBatch(f"from_scipy takes a SciPy sparse matrix, got {type(matrix).__name__}")
    if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InvalidBatch(f"the matrix has shape {matrix.shape}; one of a graph is square")
    n = check_count(matrix.shape[0], "the number of rows of the matrix")
    if "n_vertices" in options:
        raise InvalidOption(f"n_vertices is {options['n_vertices']!r}; a graph of a matrix has a vertex a row, {n}")
    csr = matrix.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    keys_of(options.get("keys", "auto"), n)
    src = np.repeat(np.arange(n), np.diff(csr.indptr))
    data = Column("data", csr.data) if weighted else None
    edges = Edges.of(Column("row", src), Column("column", csr.indices), data)
    return build(cls, edges, client, n, {**options, "weighted": weighted})


def to_scipy(graph: Any) -> Any:
    """The whole graph as a ``scipy.sparse.csr_array`` of float32 weights, or ones if unweighted; needs SciPy.

    O(n + m).
    """
    from scipy.sparse import csr_array

    csr = graph.to_csr()
    data = np.ones(len(csr.dst), np.float32) if csr.weight is None else csr.weight
    return csr_array((data, csr.dst.astype(np.int64), csr.offsets), shape=(len(csr.offsets) - 1,) * 2)
