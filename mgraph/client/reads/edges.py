"""Read the edges of a whole graph into this process, one range of vertices at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mgraph.client.reads.routed_reads import rows_of
from mgraph.structures import Csr

__all__ = ["edges_of", "once", "ranges"]

Column = np.ndarray | None
Edges = tuple[np.ndarray, np.ndarray, Column, Column]  #: src and dst, uint32[m]; weight, float32[m]; time, int64[m]


def ranges(degrees: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of vertices, first and end, with at most `most` edges together, or one vertex each."""
    edges_up_to, first = np.cumsum(degrees, dtype=np.int64), 0
    while first < len(degrees):
        edges = int(edges_up_to[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(edges_up_to, edges + most, "right")))
        yield first, end
        first = end


def edges_of(graph: Any, ids: np.ndarray, time: bool = False) -> Edges:
    """Return the edges in the rows of the vertices `ids`, by ids; with `time` also their times.

    With keys, ids are positions in `vertices`. An undirected edge is in the rows of both its ends; see `once`.
    """
    rows: Csr = graph._directory.read(lambda now: rows_of(graph._directory.coordinator, now, ids, time=time))
    return np.repeat(ids, np.diff(rows.offsets)), rows.dst, rows.weight, rows.time


def once(src: np.ndarray, dst: np.ndarray, weight: Column, time: Column = None) -> Edges:
    """Drop the undirected edges that are seen from their higher end."""
    low = src <= dst
    return src[low], dst[low], None if weight is None else weight[low], None if time is None else time[low]
