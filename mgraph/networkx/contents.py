"""Contents of a backend graph: a `DynamicGraph`, the nodes by its ids, and pending changes.

The `DynamicGraph` is in this process; the first read creates it. Node i of `nodes` is its vertex i. Changes are kept in
a dict, the last one for each edge, and become one batch at the next read or after `ROOM` of them. A removed node leaves
a hole: a vertex without edges. Reads of rows tolerate holes; an algorithm closes them first.

Invariants: (1) ``index[nodes[i]] == i`` for every i but holes; (2) ids ascend in the order in which nodes were added;
(3) in an undirected graph the keys of `_pending` have the smaller id first; (4) once the pending changes are applied,
holes have no edges.

Several threads may read a graph, and change it: callers of methods with ids, and all other methods, hold `lock`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import chain
from typing import Any, TypeVar, cast

import networkx as nx
import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.convert.build import edges_of
from mgraph.forks import renew_in_children
from mgraph.graph import DynamicGraph
from mgraph.tables.ids import EXACT

__all__ = ["KEEP", "LARGEST", "NUMBERS", "Contents", "Refused", "is_number"]

F = TypeVar("F", bound=Callable[..., Any])

ROOM = 1 << 18  #: pending changes, at most; more become a batch: 50 MB, at 200 bytes each
_HOLE = object()  #: a removed node in `nodes`
NUMBERS: tuple[Any, ...] = (int, float, np.integer, np.floating)  #: types of values
LARGEST = float(np.finfo(np.float32).max)
KEEP = object()  #: the value of an edge that is added without a value: an old edge keeps its own, a new one has 1


class Refused(nx.NetworkXError, NotImplementedError):
    """Error for a request that the backend cannot fulfil. NetworkX then tries the next backend, if it may."""

    @classmethod
    def of_value(cls, name: Hashable, edge: tuple[Any, Any], value: Any) -> Refused:
        """Return the error for a value that `is_number` does not accept."""
        return cls(
            f"attribute {name!r} of edge {edge!r} is {value!r}; the mgraph backend keeps numbers up to {LARGEST:.8g}"
        )


def is_number(value: Any) -> bool:
    """Return True for a real number within float32's range, the values of an edge attribute. False for NaN."""
    return isinstance(value, NUMBERS) and abs(value) <= LARGEST


def _locked(method: F) -> F:
    """Have a method of `Contents` hold the lock."""

    @wraps(method)
    def call(self: Contents, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            return method(self, *args, **kwargs)

    return cast("F", call)


class Contents:
    """Nodes and edges of a graph.

    Parameters
    ----------
    directed : bool
        A directed graph stores in-edges too.
    nodes : iterable of hashable
        Distinct nodes, which get the ids 0, 1, ...

    Attributes
    ----------
    attribute : hashable or None
        The name of the edge attribute; None as long as no edge has one.
    whole, exact : bool
        True if all values so far were integers below `EXACT`, and if float32 has held all of them exactly.
    merged : "sum" | "least" | None
        The rule that merged parallel edges; None if the graph had none.
    edits, removals, version : int
        Counts of requested changes, of removals among them, and of changes to the `DynamicGraph`. Rows of an earlier
        version may be stale.
    lock : threading.RLock
        Held while ids are used, since an algorithm renumbers the nodes after removals.
    """

    def __init__(self, directed: bool, nodes: Iterable[Hashable] = ()) -> None:
        self.directed = directed
        self.nodes: list[Any] = list(nodes)
        self.index: dict[Any, int] = {node: i for i, node in enumerate(self.nodes)}
        self.attribute: Hashable | None = None
        self.whole = self.exact = True
        self.merged: str | None = None
        self.edits = self.removals = self.version = 0
        self.lock = threading.RLock()
        renew_in_children(self, "lock")
        self._pending: dict[tuple[int, int], Any] = {}
        self._graph: DynamicGraph | None = None
        self._close = weakref.finalize(self, _nothing)

    # ---- nodes -------------------------------------------------------------------------------------------------------

    @_locked
    def add_node(self, node: Hashable) -> int:
        """Add a node, unless it is there, and return its id."""
        i = self.index.get(node)
        if i is None:
            self.edits += 1
            i = self.index[node] = len(self.nodes)
            self.nodes.append(node)
        return i

    @_locked
    def remove_nodes(self, nodes: Sequence[Hashable]) -> None:
        """Remove present nodes, each named once, with their edges. Reads their rows once."""
        # Remove the edges of both directions.
        self.edits += 1
        self.removals += 1
        ids = np.array([self.index[node] for node in nodes], np.int64)
        graph = self.flushed()
        for direction in ("out", "in") if self.directed else ("out",):
            rows = graph.neighbors(ids, direction)
            ends = [np.repeat(ids, np.diff(rows.offsets)).tolist(), rows.dst.tolist()]
            for i, j in zip(*(ends if direction == "out" else ends[::-1]), strict=True):
                self.remove_edge(i, j)

        # Leave holes, so that other ids stay.
        for node in nodes:
            self.nodes[self.index.pop(node)] = _HOLE

    # ---- edges -------------------------------------------------------------------------------------------------------

    def _key(self, i: int, j: int) -> tuple[int, int]:
        return (i, j) if self.directed or i <= j else (j, i)

    def value(self, edge: tuple[Any, Any], attributes: Mapping[Any, Any]) -> Any:
        """Return the value in the attributes of an edge. The first name becomes the graph's attribute.

        Raises `Refused` for a second name, several attributes, or a value that is no number.
        """
        for name, value in attributes.items():
            if len(attributes) > 1 or self.attribute not in (None, name):
                own = "" if self.attribute is None else f", here {self.attribute!r}"
                raise Refused(
                    f"edge {edge!r} has the attributes {', '.join(map(repr, attributes))}; a graph of the mgraph "
                    f"backend keeps one{own}"
                )
            if not is_number(value):
                raise Refused.of_value(name, edge, value)
            self.attribute = name
            return value
        return KEEP

    def put(self, i: int, j: int, value: Any = KEEP) -> None:
        """Add the edge from id i to id j, or change its value."""
        self.edits += 1
        key, pending = self._key(i, j), self._pending
        # Track whether all values are integers, and exact in float32.
        if value is not KEEP:
            whole = isinstance(value, int | np.integer)
            number = int(value) if whole else float(value)
            small = not whole or abs(number) < EXACT
            self.whole = self.whole and whole and small
            self.exact = self.exact and small and float(np.float32(number)) == number  # NumPy would compare in float32
            pending[key] = float(number)
        elif pending.setdefault(key, KEEP) is None:  # removed before: a new edge
            pending[key] = 1.0
        if len(pending) >= ROOM:
            self.flushed()

    def remove_edge(self, i: int, j: int) -> None:
        """Remove the edge from id i to id j, if present."""
        self.edits += 1
        self.removals += 1
        self._pending[self._key(i, j)] = None
        if len(self._pending) >= ROOM:
            self.flushed()

    def has_edge(self, i: int, j: int) -> bool:
        """Return True if there is an edge from id i to id j. Pending changes stay pending."""
        key = self._key(i, j)
        if key in self._pending:
            return self._pending[key] is not None
        count = self._graph.num_vertices if self._graph is not None else 0
        return self._graph is not None and max(key) < count and bool(self._graph.has_edges([key[0]], [key[1]])[0])

    @_locked
    def clear(self) -> None:
        """Remove all nodes."""
        self.clear_edges()
        self.nodes.clear()
        self.index.clear()

    @_locked
    def clear_edges(self) -> None:
        """Remove all edges and the attribute."""
        self.edits += 1
        self.removals += 1
        self._pending.clear()
        self._set(None)
        self.attribute, self.whole, self.exact = None, True, True

    # ---- the DynamicGraph --------------------------------------------------------------------------------------------

    def fill(self, src: np.ndarray, dst: np.ndarray, values: np.ndarray | None) -> None:
        """Insert the edges of new contents, uint32[m], with float64[m] `values` if they have an attribute."""
        graph = self._open(len(self.nodes), values is not None)
        graph.insert(src, dst, values)
        self._set(graph)

    @_locked
    def flushed(self) -> DynamicGraph:
        """Return the `DynamicGraph` with all changes applied. It may have holes."""
        # Create or enlarge the graph.
        n, weighted = len(self.nodes), self.attribute is not None
        graph = self._graph
        if graph is None or (weighted and not graph.weighted):
            self._remade(np.arange(0 if graph is None else graph.num_vertices), n, weighted)
        elif n > graph.num_vertices:
            graph.add_vertices(n - graph.num_vertices)
            self.version += 1
        assert self._graph is not None

        # Apply the pending changes as one batch.
        if self._pending:
            self._graph.update(self._batch(self._graph))
            self._pending.clear()
            self.version += 1
        return self._graph

    @_locked
    def clone(self) -> Contents:
        """Return new contents of the same nodes and edges, in a copy of the graph. O(n + m)."""
        graph = self.graph()
        clone = self._alike(self.nodes)
        clone._set(graph.copy())
        return clone

    def _alike(self, nodes: Iterable[Hashable]) -> Contents:
        """Return new contents with the same attribute, and no edges."""
        alike = Contents(self.directed, nodes)
        alike.attribute, alike.merged = self.attribute, self.merged
        alike.whole, alike.exact = self.whole, self.exact
        return alike

    @_locked
    def part(self, inside: np.ndarray) -> Contents:
        """Return new contents of the nodes that are `inside`, bool[n], and their edges. O(n + m)."""
        graph = self.graph()
        part = self._alike(self.nodes[i] for i in np.flatnonzero(inside).tolist())

        # Renumber the edges: place i is the number of kept nodes before it.
        src, dst, values = edges_of(graph)
        kept, places = inside[src] & inside[dst], np.cumsum(inside) - 1
        part.fill(places[src[kept]], places[dst[kept]], None if values is None else values[kept])
        return part

    @_locked
    def __reduce__(self) -> Any:
        """Pickle or copy to the same nodes and edges in a new `DynamicGraph`."""
        edges = edges_of(self.graph())  # `graph` closes the holes among the nodes
        names = ("attribute", "merged", "whole", "exact")
        return _restored, (self.directed, self.nodes, {name: getattr(self, name) for name in names}, edges)

    @_locked
    def graph(self) -> DynamicGraph:
        """Return the `DynamicGraph` with all changes applied and without holes. O(n + m) after removals of nodes."""
        graph = self.flushed()
        if len(self.index) < len(self.nodes):
            live = np.fromiter((node is not _HOLE for node in self.nodes), bool, len(self.nodes))
            self._remade(np.cumsum(live) - 1, len(self.index), graph.weighted)
            self.nodes = list(self.index)
            self.index = {node: i for i, node in enumerate(self.nodes)}
        assert self._graph is not None
        return self._graph

    def _batch(self, graph: DynamicGraph) -> EdgeBatch:
        """Return the pending changes as a batch."""
        # Split the changes into ends, operations and values.
        count, values = len(self._pending), list(self._pending.values())
        ends = np.fromiter(chain.from_iterable(self._pending), np.int64, 2 * count).reshape(count, 2)
        op = np.fromiter((-1 if value is None else 1 for value in values), np.int8, count)
        weights, selected = None, np.ones(count, bool)

        # With weights: drop additions without a value of edges that exist, so that these keep theirs.
        if graph.weighted:
            kept = np.fromiter((value is KEEP for value in values), bool, count)
            numbers = (1.0 if value is None or value is KEEP else value for value in values)
            weights = np.fromiter(numbers, np.float64, count)
            kept[kept] = graph.has_edges(*ends[kept].T)
            selected = ~kept
            weights = weights[selected]
        return EdgeBatch(ends[selected, 0], ends[selected, 1], weights, op[selected])

    def _remade(self, places: np.ndarray, n: int, weighted: bool) -> None:
        """Rebuild the graph with n vertices: vertex i becomes ``places[i]``. Edges without a weight get 1."""
        graph = self._open(n, weighted)
        if self._graph is not None and self._graph.num_edges:
            src, dst, values = edges_of(self._graph)
            graph.insert(places[src], places[dst], values)
        self._set(graph)

    def _open(self, n: int, weighted: bool) -> DynamicGraph:
        device = nx.config.backends.mgraph.device
        return DynamicGraph(None, n, directed=self.directed, reverse=self.directed, weighted=weighted, device=device)

    def _set(self, graph: DynamicGraph | None) -> None:
        """Replace the graph and close the old one. The new one is closed with the contents."""
        self._close()
        self._graph = graph
        self._close = weakref.finalize(self, _nothing if graph is None else graph.close)
        self._close.atexit = False
        self.version += 1


def _restored(directed: bool, nodes: list[Any], attributes: dict[str, Any], edges: tuple[Any, ...]) -> Contents:
    """Rebuild the contents from the parts that `Contents.__reduce__` returned."""
    contents = Contents(directed, nodes)
    vars(contents).update(attributes)
    contents.fill(*edges)
    return contents


def _nothing() -> None:
    """Do nothing: the contents have no graph to close."""
