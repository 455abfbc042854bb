"""Rows of a backend graph as the mappings of NetworkX: node, neighbour, attribute."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np

from mgraph.networkx.contents import Contents, Refused
from mgraph.structures import Csr

__all__ = ["Adjacency", "EdgeData"]

AHEAD = 1 << 14  #: rows per read, at most, while rows are read in order


class EdgeData(dict):
    """The attributes of an edge. Assignments change the graph, as long as it has the edge."""

    __slots__ = ("_contents", "_edge", "_removals")

    def __init__(self, values: Mapping[Hashable, Any], contents: Contents, edge: tuple[Any, Any]) -> None:
        super().__init__(values)
        self._contents, self._edge, self._removals = contents, edge, contents.removals

    def __setitem__(self, name: Hashable, value: Any) -> None:
        contents, (u, v) = self._contents, self._edge
        with contents.lock:
            if self._is_there():
                contents.put(contents.index[u], contents.index[v], contents.value(self._edge, {name: value}))
        super().__setitem__(name, value)

    def _is_there(self) -> bool:
        """Return True if the graph still has the edge. Asks only if anything was removed since the row was read."""
        contents = self._contents
        if self._removals == contents.removals:
            return True
        u, v = map(contents.index.get, self._edge)
        return u is not None and v is not None and contents.has_edge(u, v)

    def update(self, *others: Any, **values: Any) -> None:
        """Set attributes."""
        for name, value in dict(*others, **values).items():
            self[name] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]  # of a dict it returns a dict
        self.update(other)
        return self

    def setdefault(self, name: Hashable, default: Any = None) -> Any:
        """Return the value of an attribute; set it first if the edge has none."""
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: Hashable, *default: Any) -> Any:
        """Return the default of an absent attribute. Raises `Refused` for a present one: it cannot be removed."""
        return self._refuse() if name in self else dict[Any, Any]().pop(name, *default)

    def _refuse(self, *args: Any) -> Any:
        raise Refused("an edge's attribute cannot be removed: in a graph of the mgraph backend every edge has it")

    __delitem__ = popitem = clear = _refuse

    def copy(self) -> dict:
        """Return the attributes as a plain dict."""
        return dict(self)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class Adjacency(Mapping):
    """Neighbours of every node: ``adjacency[node]`` is a new dict of `EdgeData` by neighbour.

    Each access reads a row from the live graph. Rows in order are read ahead, twice as many each time, so that a loop
    over all nodes reads the graph in a few large parts.

    Parameters
    ----------
    contents : Contents
    direction : "out" | "in"
        Successors or predecessors.
    """

    def __init__(self, contents: Contents, direction: str = "out") -> None:
        self._contents, self._direction = contents, direction
        self._version = self._first = self._end = -1
        self._rows: Csr | None = None

    def __reduce__(self) -> Any:
        return Adjacency, (self._contents, self._direction)

    def __getitem__(self, node: Any) -> dict[Any, Any]:
        # Read the row: ids of neighbours, and values if edges have an attribute.
        contents = self._contents
        with contents.lock:
            i = contents.index[node]
            dst, weights = self._row(i)
            nodes, name = contents.nodes, contents.attribute
            neighbours = [nodes[j] for j in dst.tolist()]

        # Wrap the values: each `EdgeData` knows its edge, so that assignments reach the graph.
        if weights is None:
            return {neighbour: EdgeData({}, contents, self._edge(node, neighbour)) for neighbour in neighbours}
        numbers = (weights.astype(np.int64) if contents.whole else weights).tolist()
        return {
            neighbour: EdgeData({name: value}, contents, self._edge(node, neighbour))
            for neighbour, value in zip(neighbours, numbers, strict=True)
        }

    def _edge(self, node: Any, other: Any) -> tuple[Any, Any]:
        return (node, other) if self._direction == "out" else (other, node)

    def _row(self, i: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the ids in row i, and their values."""
        # Read ahead if rows are read in order.
        contents = self._contents
        graph = contents.flushed()
        now = self._version == contents.version
        if not (now and self._first <= i < self._end):
            rows = min(2 * (self._end - self._first), AHEAD) if now and i == self._end else 1
            self._first, self._end = i, min(i + rows, graph.num_vertices)
            self._rows = graph.neighbors(np.arange(i, self._end), self._direction)
            self._version = contents.version
        assert self._rows is not None

        # Cut the row out of the rows in memory.
        a, b = self._rows.offsets[i - self._first], self._rows.offsets[i - self._first + 1]
        return self._rows.dst[a:b], None if self._rows.weight is None else self._rows.weight[a:b]

    def __contains__(self, node: Any) -> bool:
        return node in self._contents.index

    def __iter__(self) -> Iterator[Any]:
        return iter(self._contents.index)

    def __len__(self) -> int:
        return len(self._contents.index)

    def __repr__(self) -> str:
        return repr(dict(self))
