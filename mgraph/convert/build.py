"""A new graph from checked edges, and the edges of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.checks import check_count, check_growth
from mgraph.convert.columns import Column, vertex_ids, weights
from mgraph.errors import InvalidBatch, InvalidOption, UnknownVertex

__all__ = ["Edges", "build", "columns_of", "edges_of"]


@dataclass(frozen=True)
class Edges:
    """Checked edges: src and dst uint32[n], weight float32[n] or None, and the names of the first two for messages."""

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray | None = None
    names: tuple[str, str] = ("source", "target")

    @classmethod
    def of(cls, source: Column, target: Column, weight: Column | None = None) -> Edges:
        """The edges in columns; `InvalidBatch` for the first bad value."""
        src, dst = vertex_ids(source), vertex_ids(target)
        return cls(src, dst, None if weight is None else weights(weight), (source.name, target.name))

    def largest(self) -> tuple[int, str, int]:
        """The largest id, and its column and row; (-1, "", 0) without edges."""
        if not len(self.src):
            return -1, "", 0
        column = self.src if self.src.max() >= self.dst.max() else self.dst
        row = int(column.argmax())
        return int(column[row]), self.names[0 if column is self.src else 1], row


def build(cls: Any, edges: Edges, client: Any, n_vertices: int | None, options: Mapping[str, Any]) -> Any:
    """A new graph of `edges`, as one batch; without `n_vertices` it has the vertices up to the largest id, and grows.

    Raises
    ------
    InvalidBatch
        There is no edge, and so no largest id; or the ids are too sparse for it to be meant.
    UnknownVertex
        An id is `n_vertices` or more.
    InvalidOption
        There are weights and ``weighted=False``; or as `DynamicGraph`.
    """
    options = dict(options)
    if edges.weight is not None and not options.setdefault("weighted", True):
        raise InvalidOption("weighted is False and a column of weights is named; leave one of them out")
    largest, name, row = edges.largest()
    if n_vertices is None:
        _check_known(edges)
    elif largest >= check_count(n_vertices, "n_vertices"):
        raise UnknownVertex(
            f"column {name!r}, row {row} is {largest}; the graph has {n_vertices} vertices, 0 to {n_vertices - 1}"
        )
    graph: Any = cls(client, n_vertices, **options)
    try:
        if len(edges.src):
            graph.insert(edges.src, edges.dst, edges.weight)
    except BaseException:
        graph.close()
        raise
    return graph


def _check_known(edges: Edges) -> None:
    """Raise `InvalidBatch` unless the edges say how many vertices there are."""
    largest, name, row = edges.largest()
    if largest < 0:
        raise InvalidBatch("there are 0 edges, so the number of vertices is not known; give n_vertices")
    check_growth(largest, f"column {name!r}, row {row}", 0, len(edges.src))


def edges_of(graph: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The edges of a graph: sources and targets, uint32[m], and weights or None; an undirected edge once. O(n + m)."""
    csr = graph.to_csr()
    src = np.repeat(np.arange(len(csr.offsets) - 1, dtype=np.uint32), np.diff(csr.offsets))
    if graph.directed:
        return src, csr.dst, csr.weight
    once = src <= csr.dst
    return src[once], csr.dst[once], None if csr.weight is None else csr.weight[once]


def columns_of(graph: Any, source: str, target: str, weight: str) -> dict[str, np.ndarray]:
    """The edges of a graph as named columns: ids as int64, and weights as float32 in a weighted graph."""
    src, dst, values = edges_of(graph)
    columns = {source: src.astype(np.int64), target: dst.astype(np.int64)}
    if values is not None:
        columns[weight] = values
    if len(columns) < 2 + (values is not None):
        raise InvalidOption(f"source {source!r}, target {target!r} and weight {weight!r} need different names")
    return columns
