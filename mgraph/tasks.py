"""Functions that mgraph runs on a worker: Dask tasks and queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from distributed import get_worker

from mgraph.batch import EdgeBatch, columns_of
from mgraph.budget import Budget
from mgraph.operations import Operations, as_part
from mgraph.tables.names import Names

__all__ = ["batch_of", "frame_of", "part_of", "published"]

#: dtypes of a batch's columns
TYPES = {"src": np.uint32, "dst": np.uint32, "weight": np.float32, "op": np.int8, "time": np.int64}


def batch_of(part: Any, names: Names) -> EdgeBatch | Operations:
    """Convert a part of a Dask collection, with its memory reserved first.

    Raises
    ------
    CapacityError
        The worker has too little memory.
    InvalidBatch
        The part cannot be a batch.
    """
    if isinstance(part, EdgeBatch | Operations):
        return as_part(part)
    # Convert, with the memory reserved.
    columns, labels, unused = columns_of(part, names)
    with _budget().reserve(_host_bytes(columns), f"a part of the source, a {type(part).__name__}, as a batch"):
        return EdgeBatch.of(columns, None, labels, unused)


def published(dask_worker: Any, end: str | None) -> list[dict[str, Any]]:
    """Return the graphs published on a worker, after `end` was withdrawn."""
    plugin = dask_worker.plugins.get("mgraph")
    return [] if plugin is None else plugin.published(end)


def part_of(graph: str, rank: int, token: str, names: Sequence[str], given: Any) -> Any:
    """Return a rank's part of a result as a ``pandas.DataFrame``.

    Parameters
    ----------
    token : str
        The rank's name for the columns of this task.
    given : pandas.DataFrame
        The index, and the columns that the client has translated.
    """
    plugin = get_worker().plugins["mgraph"]
    return frame_of(plugin.lent(graph, rank, token), names, given)


def frame_of(columns: Mapping[str, np.ndarray], names: Sequence[str], given: Any) -> Any:
    """Return columns as a frame, a 2-d array by its rows."""
    import pandas as pd

    column = columns[names[0]]
    if column.ndim == 2:
        return pd.DataFrame(column.T, given.index)
    # Columns that the client translated replace the rank's.
    taken = {name: given[name] if name in given else pd.Series(columns[name], given.index) for name in names}
    return pd.DataFrame(taken, given.index)


def _budget() -> Budget:
    """Return the budget of this task's worker."""
    plugin = get_worker().plugins.get("mgraph")
    return Budget() if plugin is None else plugin.budget


def _host_bytes(columns: Mapping[str, Any]) -> int:
    """Return an upper bound of the host memory that converting columns takes."""
    return sum(_column_bytes(column, TYPES[name]) for name, column in columns.items() if hasattr(column, "__len__"))


def _column_bytes(column: Any, dtype: type) -> int:
    """Return the bytes of a column's check mask and copy; 0 on a GPU."""
    if hasattr(column, "__cuda_array_interface__"):
        return 0
    n = len(column)
    return n if getattr(column, "dtype", None) == dtype else n + max(sizeof(column), 4 * n)
