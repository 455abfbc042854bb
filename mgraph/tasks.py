"""Functions that mgraph runs on a worker: Dask tasks, and the list of published graphs."""

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

#: of a batch's columns
TYPES = {"src": np.uint32, "dst": np.uint32, "weight": np.float32, "op": np.int8, "time": np.int64}


def batch_of(part: Any, names: Names) -> EdgeBatch | Operations:
    """Return a part of a Dask collection as `as_part` makes it. Its memory is reserved before it is converted.

    Raises
    ------
    CapacityError
        The worker has too little memory.
    InvalidBatch
        The part is no batch.
    """
    if isinstance(part, EdgeBatch | Operations):
        return as_part(part)
    columns, labels, unused = columns_of(part, names)
    with _budget().reserve(_host_bytes(columns), f"a part of the source, a {type(part).__name__}, as a batch"):
        return EdgeBatch.of(columns, None, labels, unused)


def published(dask_worker: Any, end: str | None) -> list[dict[str, Any]]:
    """Return the graphs that are published on a worker, none without mgraph's plugin, after `end` was withdrawn."""
    plugin = dask_worker.plugins.get("mgraph")
    return [] if plugin is None else plugin.published(end)


def part_of(graph: str, rank: int, token: str, names: Sequence[str], given: Any) -> Any:
    """A rank's part of a result as a ``pandas.DataFrame`` with the columns `names`.

    Parameters
    ----------
    token : str
        Under which the rank keeps the columns for this task.
    given : pandas.DataFrame
        The index, and the columns that the client has translated.
    """
    plugin = get_worker().plugins["mgraph"]
    return frame_of(plugin.lent(graph, rank, token), names, given)


def frame_of(columns: Mapping[str, np.ndarray], names: Sequence[str], given: Any) -> Any:
    """The columns `names` of a part; a column of several rows is one column a row, by their numbers."""
    import pandas as pd

    one = columns[names[0]]
    if one.ndim == 2:
        return pd.DataFrame(one.T, given.index)
    taken = {name: given[name] if name in given else pd.Series(columns[name], given.index) for name in names}
    return pd.DataFrame(taken, given.index)


def _budget() -> Budget:
    """The budget of this task's worker."""
    plugin = get_worker().plugins.get("mgraph")
    return Budget() if plugin is None else plugin.budget


def _host_bytes(columns: Mapping[str, Any]) -> int:
    """Return the most bytes of host memory that columns take as a batch beside themselves, and their checks."""
    return sum(_column_bytes(column, TYPES[name]) for name, column in columns.items() if hasattr(column, "__len__"))


def _column_bytes(column: Any, dtype: type) -> int:
    """A mask of a byte an entry, which its check makes, and a copy where it is of another type; none on a GPU."""
    if hasattr(column, "__cuda_array_interface__"):
        return 0
    n = len(column)
    return n if getattr(column, "dtype", None) == dtype else n + max(sizeof(column), 4 * n)
