"""Graphs from SciPy's sparse matrices, and back."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from mgraph.budget import Budget
from mgraph.checks import check_count, check_flag
from mgraph.client.options import DirectionOptions
from mgraph.client.reports.progress import building, stage
from mgraph.convert.build import from_columns
from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.facade import needed, type_name, warn

__all__ = ["check_shape", "from_scipy", "to_scipy"]

ROW_BYTES = 16  #: bytes per row of a matrix while it becomes a graph: its offset, and its number


@building
def from_scipy(
    cls: Any, matrix: Any, *, client: Any = None, weighted: bool | None = None, **options: Unpack[DirectionOptions]
) -> Any:
    """Create a graph from a SciPy sparse matrix.

    A stored entry at (i, j), zero or not, is the edge i -> j.

    Parameters
    ----------
    matrix : scipy.sparse array or matrix, shape (n, n)
        Of any format. Entries at the same place are added up, whole numbers as int64 if that holds the sums, and others
        as float64.
    client : distributed.Client, optional
        The cluster for the graph; by default the graph is in this process.
    weighted : bool, optional
        True to take the entries as weights. By default they are not; a warning says so if they are not all 1.
    **options
        `directed` and the other options of `DynamicGraph`. If ``directed=False`` and both (i, j) and (j, i) have
        entries, the entry in the later row counts.

    Returns
    -------
    DynamicGraph
        With n vertices.

    Raises
    ------
    InvalidBatch
        `matrix` is not sparse or not square, or SciPy cannot read it; or an entry is NaN, no real number or too large
        for float32. No graph was created.
    CapacityError
        It has more rows than 32-bit ids allow, or than this machine has memory for. Nothing was allocated.
    InvalidOption
        `n_vertices` is given.
    """
    # Refuse other objects, and matrices that are too large.
    if not hasattr(matrix, "tocsr"):
        raise InvalidBatch(f"from_scipy takes a SciPy sparse matrix, got {type_name(matrix)}")
    n = check_shape(matrix.shape)
    if (n_vertices := dict(options).get("n_vertices")) is not None:
        raise InvalidOption(f"n_vertices is {n_vertices!r}; a graph of a matrix has a vertex a row, {n}")
    weighted = None if weighted is None else check_flag(weighted, "weighted")
    # Sum duplicates, in a wide dtype.
    stage(f"reading {matrix.nnz:,} entries")
    try:
        csr = _summed(matrix)
        # Rows to pairs.
        src = np.repeat(np.arange(n), np.diff(csr.indptr))
    except (ValueError, TypeError, IndexError) as error:  # a wrong dtype, or indices that do not fit each other
        raise InvalidBatch(f"the matrix cannot be read by SciPy: {error}") from None
    if weighted is None and (csr.data != 1).any():
        warn("the entries of the matrix were not used; weighted=True makes them weights")
    columns = {"src": src, "dst": csr.indices, **({"weight": csr.data} if weighted else {})}
    labels = {"src": "column 'row'", "dst": "column 'column'", "weight": "column 'data'"}
    return from_columns(cls, columns, labels, client, n, {**options, "weighted": bool(weighted)})


def _summed(matrix: Any) -> Any:
    """Return a matrix in the format CSR, with one entry per place."""
    if matrix.dtype.kind in "biuf":  # sums of duplicates would not fit into a small dtype
        wide: type[np.number] = np.uint64 if matrix.dtype.kind == "u" else np.int64
        if matrix.dtype.kind in "iu" and matrix.dtype.itemsize == 8 and matrix.nnz:
            entries = matrix.tocoo().data
            wide = wide if max(float(entries.max()), -float(entries.min())) * len(entries) < 2**63 else np.float64
        matrix = matrix.astype(np.result_type(matrix.dtype, wide))
    csr = matrix.tocsr()
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    return csr


def check_shape(shape: tuple[int, ...]) -> int:
    """Return the number of rows of a matrix of this shape.

    Raises
    ------
    InvalidBatch
        It is not square.
    CapacityError
        It has more rows than 32-bit ids allow, or than this machine has memory for.
    """
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InvalidBatch(f"the matrix has shape {shape}; one of a graph is square")
    n = check_count(shape[0], "the number of rows of the matrix")
    Budget().reserve(ROW_BYTES * n, f"the {n} rows of the matrix").release()
    return n


def to_scipy(graph: Any) -> Any:
    """Return the graph as a ``scipy.sparse.csr_array`` of its float32 weights, or of ones.

    O(n + m).
    """
    sparse = needed("scipy.sparse", "to_scipy()", "scipy")
    csr = graph.to_csr()
    data = np.ones(len(csr.dst), np.float32) if csr.weight is None else csr.weight
    return sparse.csr_array((data, csr.dst.astype(np.int64), csr.offsets), shape=(len(csr.offsets) - 1,) * 2)
