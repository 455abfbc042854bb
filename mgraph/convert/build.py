"""A new graph from checked edges, and the edges of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mgraph.checks import check_count, check_growth
from mgraph.client.reports.progress import stage
from mgraph.client.vertices.keyed import batch_of
from mgraph.columns import KINDS, as_keys, chosen_kind
from mgraph.convert.columns import Column, times, vertex_ids, weights
from mgraph.errors import InvalidBatch, InvalidOption, UnknownVertex

__all__ = ["Edges", "build", "columns_of", "edges_of", "filling", "timed_edges_of"]


@dataclass(frozen=True)
class Edges:
    """Checked edges: src and dst uint32[n], weight float32[n] or None, and the names of the first two for messages.

    With `keys`, their kind, src and dst are columns of keys; see `mgraph.columns.as_keys`. `time` is int64[n],
    datetime64[n] or None.
    """

    src: Any
    dst: Any
    weight: np.ndarray | None = None
    names: tuple[str, str] = ("source", "target")
    keys: str | None = None
    time: np.ndarray | None = None

    @classmethod
    def of(cls, source: Column, target: Column, weight: Column | None = None) -> Edges:
        """The edges in columns; `InvalidBatch` for the first bad value."""
        src, dst = vertex_ids(source), vertex_ids(target)
        return cls(src, dst, None if weight is None else weights(weight), (source.name, target.name))

    @classmethod
    def read(
        cls,
        columns: Sequence[tuple[str, Any]],
        keys: str | None,
        column: Callable[[str, Any], Column],
        time: str | None = None,
    ) -> Edges:
        """The edges in a table's columns source, target and maybe weight, given by name.

        Parameters
        ----------
        time : str, optional
            The name of the last of `columns`, if that has the times.
        keys : "int64" | "string" | "auto" | None
            What the ends are; for "auto" they choose.
        column : callable
            ``column(name, values)`` reads ids, weights and times.
        """
        if time is not None:
            *columns, last = columns
            return replace(cls.read(columns, keys, column), time=times(column(*last)))
        (source, src), (target, dst), *rest = columns
        stage(f"checking {len(src):,} edges")
        names = f"column {source!r}", f"column {target!r}"
        kind = keys if keys != "auto" else chosen_kind(src, dst, names) if len(src) else None
        if kind is None:
            return cls.of(*(column(*each) for each in columns))
        ends = as_keys(src, kind, names[0]), as_keys(dst, kind, names[1])
        return cls(ends[0], ends[1], weights(column(*rest[0])) if rest else None, (source, target), kind)

    def largest(self) -> tuple[int, str, int]:
        """The largest id, and its column and row; (-1, "", 0) without edges."""
        if not len(self.src):
            return -1, "", 0
        column = self.src if self.src.max() >= self.dst.max() else self.dst
        row = int(column.argmax())
        return int(column[row]), self.names[0 if column is self.src else 1], row


def build(cls: Any, edges: Edges, client: Any, n_vertices: int | None, options: Any, vertices: Any = ()) -> Any:
    """A new graph of `edges`, as one batch; without `n_vertices` it has the vertices up to the largest id, and grows.

    In a graph with keys, `vertices` are keys that have no edge.

    Raises
    ------
    InvalidBatch
        There is no edge, and so no largest id; or the ids are too sparse for it to be meant.
    UnknownVertex
        An id is `n_vertices` or more.
    InvalidOption
        There are weights and ``weighted=False``, or times and ``times=False``; or as `DynamicGraph`.
    """
    options = {**options, "keys": edges.keys}
    check_weighted(options, edges.weight is not None)
    if edges.time is not None and options.setdefault("times", edges.time.dtype) is False:
        raise InvalidOption("times is False and a column of times is named; leave one of them out")
    if edges.keys is None:
        largest, name, row = edges.largest()
        check_largest(largest, f"column {name!r}, row {row}", n_vertices, len(edges.src))
    with filling(cls(client, n_vertices, **options)) as graph:
        if len(vertices):
            stage(f"adding {len(vertices):,} vertices")
            graph.add_vertices(vertices)
        if len(edges.src):
            stage(f"inserting {len(edges.src):,} edges")
            batch = batch_of(graph._directory.keys, edges.src, edges.dst, edges.weight, time=edges.time)
            graph._updates.apply(batch, last=False)
    return graph


@contextmanager
def filling(graph: Any) -> Iterator[Any]:
    """A new graph, which the block fills; it is closed if that fails."""
    try:
        yield graph
    except BaseException:
        graph.close()
        raise


def check_weighted(options: Any, weights: bool) -> None:
    """Set the option `weighted` where there are `weights`; `InvalidOption` if it is False."""
    if weights and not options.setdefault("weighted", True):
        raise InvalidOption("weighted is False and a column of weights is named; leave one of them out")


def check_largest(largest: int, what: str, n_vertices: int | None, n_edges: int) -> None:
    """Raise unless a new graph of `n_vertices` vertices, or for None of one that grows, takes the largest id.

    Raises
    ------
    InvalidBatch
        The graph grows, and there is no edge, or the id is too large to be meant.
    UnknownVertex
        The id, which `what` names, is `n_vertices` or more.
    """
    if n_vertices is not None:
        if largest >= check_count(n_vertices, "n_vertices"):
            raise UnknownVertex.past(what, largest, n_vertices)
    elif largest < 0:
        raise InvalidBatch("there are 0 edges, so the number of vertices is not known; give n_vertices or keys")
    else:
        check_growth(largest, what, 0, n_edges)


def edges_of(graph: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The edges of a graph: sources and targets, and weights or None; an undirected edge once. O(n + m).

    Ends are uint32[m], or keys in a graph that has them.
    """
    src, dst, weight, _ = timed_edges_of(graph)
    return src, dst, weight


def timed_edges_of(graph: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """As `edges_of`, and the times of the edges, int64[m] or datetime64[m], or None."""
    with graph._directory.still():  # vertices that are deleted meanwhile would change places
        csr, names = graph.to_csr(), graph.vertices() if graph.keys in KINDS else None
    src = np.repeat(np.arange(len(csr.offsets) - 1, dtype=np.uint32), np.diff(csr.offsets))
    dst, weight, time = csr.dst, csr.weight, csr.time
    if not graph.directed:
        once = src <= dst
        src, dst = src[once], dst[once]
        weight, time = (None if column is None else column[once] for column in (weight, time))
    return (src, dst, weight, time) if names is None else (names[src], names[dst], weight, time)


def columns_of(graph: Any, source: str, target: str, weight: str, time: str) -> dict[str, np.ndarray]:
    """The edges of a graph as named columns: ids as int64, or keys; weights as float32 and times where there are some.

    Times are int64 or datetime64.
    """
    src, dst, values, stamps = timed_edges_of(graph)
    ends = [end if graph.keys == "string" else end.astype(np.int64) for end in (src, dst)]
    found = zip((source, target, weight, time), (*ends, values, stamps), strict=True)
    named = [(name, column) for name, column in found if column is not None]
    if len(dict(named)) < len(named):
        raise InvalidOption(f"source, target, weight and time need different names: {[name for name, _ in named]}")
    return dict(named)
