"""The edges of a whole graph in this process, a range of vertices at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mgraph.structures import Csr

__all__ = ["edges_of", "ranges"]


def ranges(degrees: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of vertices, first and end, that have up to `most` edges together, or one vertex each."""
    behind, first = np.cumsum(degrees, dtype=np.int64), 0
    while first < len(degrees):
        edges = int(behind[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(behind, edges + most, "right")))
        yield first, end
        first = end


def edges_of(graph: Any, first: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The edges of the vertices `first` to `end` - 1, as far as they are there: src and dst, uint32[m], and weights.

    An undirected edge is in the row of its lower end only.
    """
    rows: Csr = graph.neighbors(np.arange(first, min(end, graph.num_vertices), dtype=np.uint32))
    n = len(rows.offsets) - 1
    src, dst, weight = (
        np.repeat(np.arange(first, first + n, dtype=np.uint32), np.diff(rows.offsets)),
        rows.dst,
        rows.weight,
    )
    if not graph.directed:
        once = src <= dst
        src, dst, weight = src[once], dst[once], None if weight is None else weight[once]
    return src, dst, weight
