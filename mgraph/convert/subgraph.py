"""Parts of a graph as new graphs in this process."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.checks import check_whole
from mgraph.convert.build import build
from mgraph.distinct import distinct
from mgraph.tables.ids import KINDS

__all__ = ["ego", "subgraph"]

G = TypeVar("G")  #: the class of the graph


def subgraph(self: G, vertices: Any) -> G:
    """Return the subgraph of some vertices, with all edges between them.

    It is a copy: later changes of one graph do not reach the other. All exports and algorithms work on it.

    Parameters
    ----------
    vertices : array-like, shape (k,)
        Ids, or keys in a graph that has them. Repeated vertices count once.

    Returns
    -------
    DynamicGraph
        A graph with `keys`, in which vertices keep their names: strings, or ``keys="int64"`` for keys of 64 bits and
        for ids. ``vertices()`` has them in the order of the argument, isolated ones too. Direction, weights and
        in-edges are like this graph's; other options are the defaults.

    Raises
    ------
    UnknownVertex
        A vertex is not in the graph.
    InvalidBatch
        `vertices` is no one-dimensional array of ids or keys.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    One read brings the rows of the vertices to this process, and so all are of one epoch: O(r log k), for rows with r
    edges.

    Examples
    --------
    >>> from mgraph import DynamicGraph
    >>> g = DynamicGraph(n_vertices=9)
    >>> report = g.insert([0, 1, 5, 5], [1, 5, 0, 8])
    >>> part = g.subgraph([5, 0, 1])
    >>> part.vertices().tolist(), sorted(part.to_networkx().edges)
    ([5, 0, 1], [(0, 1), (1, 5), (5, 0)])
    """
    # Read the rows of the vertices.
    graph: Any = self
    with graph._directory.still():  # keys that are deleted meanwhile would change places
        names = _once(graph, vertices)
        rows = graph.neighbors(names, time=graph._options.times is not None)
    # Keep the edges between them.
    place = _places(names, rows.dst)
    source = np.repeat(np.arange(len(names)), np.diff(rows.offsets))
    kept = place >= 0 if graph.directed else place >= source  # an undirected edge is in two rows
    weight, time = (None if column is None else column[kept] for column in (rows.weight, rows.time))
    batch = EdgeBatch(names[source[kept]], names[place[kept]], weight, keys=_kind(graph), time=time)
    # Create a graph of the same kind.
    options = {name: getattr(graph, name) for name in ("directed", "weighted")}
    options |= {"reverse": graph.reverse and graph.directed}
    options |= {"device": graph.device if graph._client is None else "auto"}
    part: G = build(type(graph), batch, {}, None, None, options, names)
    return part


def ego(self: G, vertex: Any, k: int = 1, direction: str = "out") -> G:
    """Return the `subgraph` of the vertices within `k` edges of a vertex, itself first.

    Parameters
    ----------
    vertex : int or str
        An id, or a key in a graph that has them.
    k : int
        The largest number of edges, 0 or more.
    direction : "out" | "in"
        Follow edges, or their reverse, which needs ``reverse=True``.

    Returns
    -------
    DynamicGraph
        A result of `subgraph`, with nearer vertices first.

    Raises
    ------
    InvalidOption
        `k` is no whole number of 0 or more; or `direction` is "in" and the graph has no in-edges.
    UnknownVertex, InvalidBatch, WorkerLost, GraphLost, GraphClosed
        The errors of `subgraph`.

    Notes
    -----
    k + 1 reads of rows, O(r log r) for r edges of the vertices reached, whatever the size of the graph. If another
    thread changes edges meanwhile, the vertices may be of an earlier epoch than the edges.

    Examples
    --------
    >>> from mgraph import DynamicGraph
    >>> g = DynamicGraph()
    >>> report = g.insert(["ada", "grace", "edsger"], ["grace", "edsger", "tony"])
    >>> sorted(g.ego("ada", 2).to_networkx().edges)
    [('ada', 'grace'), ('grace', 'edsger')]
    """
    graph: Any = self
    k = check_whole(k, "k")
    with graph._directory.still():
        # Search breadth-first: a ring is a level without the vertices before it.
        reached = ring = _once(graph, [vertex])
        for _ in range(k):
            ends = distinct(graph.neighbors(ring, direction).dst)
            ring = ends[_places(reached, ends) < 0]
            if not len(ring):
                break
            reached = np.concatenate([reached, ring])
        return subgraph(self, reached)


def _kind(graph: Any) -> str:
    """Return the keys of a part of a graph."""
    return graph.keys if graph.keys in KINDS else "int64"


def _once(graph: Any, vertices: Any) -> np.ndarray:
    """Return the vertices, each once: int64[k], or str objects."""
    numbering = graph._directory.numbering
    ids = numbering.ids(vertices, "vertices")
    _, first = np.unique(ids, return_index=True)
    names: np.ndarray = numbering.names(ids[np.sort(first)])
    return names if names.dtype == object else names.astype(np.int64)


def _places(names: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the place of each wanted name among the distinct `names`, or -1.

    O((k + m) log k).
    """
    if not len(names):
        return np.full(len(wanted), -1)
    order = np.argsort(names)
    ascending = names[order]
    at = np.minimum(np.searchsorted(ascending, wanted), len(names) - 1)
    return np.where(ascending[at] == wanted, order[at], -1)
