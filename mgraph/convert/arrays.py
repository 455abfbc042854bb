"""Graphs from arrays of any library, by DLPack."""

from __future__ import annotations

from typing import Any, Unpack

from mgraph.client.options import GraphOptions
from mgraph.client.reports.progress import building
from mgraph.convert.build import from_table
from mgraph.errors import InvalidBatch
from mgraph.tables.arrays import as_array
from mgraph.tables.names import Names

__all__ = ["from_dlpack"]


@building
def from_dlpack(
    cls: Any,
    source: Any,
    target: Any,
    weight: Any = None,
    *,
    time: Any = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """Create a graph from arrays with the DLPack interface: NumPy, CuPy, PyTorch and others.

    Arrays on a GPU are checked there, and a graph in this process on that GPU takes them without a copy through the
    host. ``DynamicGraph.from_dlpack(*data.edge_index)`` takes a graph of PyTorch Geometric.

    Parameters
    ----------
    source, target : array with ``__dlpack__``, whole numbers, shape (m,)
        The ends of each edge.
    weight : array with ``__dlpack__``, numbers, shape (m,), optional
        The weights. With them the graph is weighted.
    time : array with ``__dlpack__``, integers, shape (m,), optional
        The edges' times. With them the graph has `times`. DLPack has no datetime64.
    client, n_vertices, **options
        As in `from_pandas`.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    InvalidBatch
        An argument is no such array, or has another shape; or an error of `from_pandas`. No graph was created.
    UnknownVertex
        An id is `n_vertices` or more. No graph was created.

    Examples
    --------
    >>> import numpy as np
    >>> from mgraph import DynamicGraph
    >>> g = DynamicGraph.from_dlpack(np.array([0, 1, 2]), np.array([1, 2, 0]))
    >>> g.num_vertices, g.num_edges
    (3, 3)
    """
    arrays = {"source": source, "target": target, "weight": weight, "time": time}
    columns = {name: _array(name, values) for name, values in arrays.items() if values is not None}
    return from_table(cls, columns, Names(), client, n_vertices, options)


def _array(name: str, values: Any) -> Any:
    if not hasattr(values, "__dlpack__"):
        raise InvalidBatch(f"{name} is a {type(values).__name__}, which has no DLPack interface")
    return as_array(values)
