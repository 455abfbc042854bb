"""Graphs from NetworkX, and back."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat
from typing import Any, Unpack

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.checks import check_count, check_flag, check_growth
from mgraph.client.options import WeightOptions, keys_of
from mgraph.client.reports.progress import building, stage
from mgraph.convert.build import build, check_names, names_of, timed_edges_of
from mgraph.errors import InvalidBatch, InvalidOption, UnknownVertex
from mgraph.facade import needed, type_name
from mgraph.tables.ids import as_ids, as_keys, chosen_kind
from mgraph.tables.names import DEFAULTS, warn_unused

__all__ = ["from_networkx", "to_networkx"]


@building
def from_networkx(
    cls: Any,
    graph: Any,
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    directed: bool | None = None,
    **options: Unpack[WeightOptions],
) -> Any:
    """Create a graph from a NetworkX graph with integers or strings as nodes.

    ``networkx.convert_node_labels_to_integers`` makes such a graph of any other.

    Parameters
    ----------
    graph : networkx.Graph or networkx.DiGraph
    weight : str, optional
        The edge attribute with the weights; every edge needs it. With it the graph is weighted. By default "weight" if
        ``weighted=True``. Other attributes are not read; a warning names one called weight or time.
    time : str, optional
        The edge attribute with the times, integers or `datetime`; every edge needs it. With it the graph has `times`.
    client : distributed.Client, optional
        The cluster for the graph; by default the graph is in this process.
    n_vertices : int, optional
        The number of vertices, whose ids are the nodes. By default the graph has the nodes of `graph` and no others:
        they are keys unless they are 0 .. n - 1.
    directed : bool, optional
        By default the direction of `graph`. With True an undirected graph has each edge both ways, and a loop once.
    **options
        The other options of `DynamicGraph`.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    InvalidBatch
        A node is neither a whole number nor a string, or of another kind than the others; an edge lacks the weight or
        time; or `graph` has parallel edges. The message names the node or edge. No graph was created.
    UnknownVertex
        A node is `n_vertices` or more. No graph was created.
    """
    # Refuse other objects, and parallel edges.
    if not hasattr(graph, "is_multigraph"):
        raise InvalidBatch(f"from_networkx takes a NetworkX graph, got {type_name(graph)}")
    if graph.is_multigraph():
        simple = "DiGraph" if graph.is_directed() else "Graph"
        raise InvalidBatch(
            f"a {type(graph).__name__} may have parallel edges; networkx.{simple}(graph) has one of each"
        )
    # Find the attributes, and choose the keys by the nodes.
    stage("reading the nodes and edges")
    weight, time = _attributes(graph, weight, time, options)
    both = directed is not None and check_flag(directed, "directed") and not graph.is_directed()
    kind = {**options, "directed": graph.is_directed() if directed is None else directed}
    keys, nodes = keys_of(options.get("keys", "auto"), n_vertices), _objects(graph.nodes)
    try:
        if keys == "auto":
            keys = chosen_kind(nodes, nodes, ("nodes",) * 2)
            # The graph has these nodes and no others: numbers with gaps are keys.
            if keys is None and len(nodes) and int(as_ids(nodes, "nodes").max()) >= len(nodes):
                keys = "int64"
        names = None if keys is None else as_keys(nodes, keys, "nodes")
    except InvalidBatch as error:
        raise InvalidBatch(f"{error}; networkx.convert_node_labels_to_integers numbers nodes of any type") from None
    # With keys, the nodes are the vertices, isolated nodes too.
    if names is not None:
        return build(cls, *_edges(graph, weight, time, both, keys), client, None, kind, names)
    # Without keys, nodes are ids, and the largest decides the number of vertices.
    ids = as_ids(nodes, "nodes")
    least = int(ids.max()) + 1 if len(ids) else 0
    if n_vertices is None:
        check_growth(least - 1, "the largest node", len(ids), graph.number_of_edges())
    elif check_count(n_vertices, "n_vertices") < least:
        raise UnknownVertex(f"node {least - 1} is in the graph, and n_vertices is {n_vertices}")
    return build(
        cls, *_edges(graph, weight, time, both, None), client, least if n_vertices is None else n_vertices, kind
    )


def _attributes(
    graph: Any, weight: str | None, time: str | None, options: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """Return the attributes of weights and times, by the rules of table columns; warn of unused attributes."""
    # Attributes of the default names count if any edge has them.
    names = names_of(options, weight=weight, time=time)
    named = {name for name in (weight, time) if name is not None}
    found = {name for *_, attributes in graph.edges(data=True) for name in attributes}
    named |= found - {"op", *(name for column in ("src", "dst") for name in DEFAULTS[column])}
    columns, unused = names.find(["source", "target", *named], "the graph")
    warn_unused(unused, "the graph", "attribute")
    return columns.get("weight"), columns.get("time")


def _edges(
    graph: Any, weight: str | None, time: str | None, both: bool, keys: str | None
) -> tuple[EdgeBatch, dict[str, str]]:
    """Return the edges of a checked graph, with their labels. `both` adds the reverse edges."""
    # Read the ends and the attributes.
    pairs = [*graph.edges()]
    source, target = (_objects(pair[end] for pair in pairs) for end in (0, 1))
    columns, labels = {"src": source, "dst": target}, {"src": "column 'source'", "dst": "column 'target'"}
    for name, attribute in (("weight", weight), ("time", time)):
        if attribute is not None:
            columns[name], labels[name] = _attribute(graph, attribute, name), f"column {attribute!r}"
    # Append the reverse edges, except of loops.
    if both:
        back = np.fromiter((u != v for u, v in pairs), bool, len(pairs))
        reverse = {**columns, "src": target, "dst": source}
        columns = {name: np.concatenate([column, reverse[name][back]]) for name, column in columns.items()}
    return EdgeBatch.of(columns, keys, labels), labels


def _attribute(graph: Any, name: str, what: str) -> np.ndarray:
    values = [*graph.edges(data=name, default=None)]
    for source, target, value in values:
        if value is None:
            raise InvalidBatch(f"edge ({source!r}, {target!r}) has no attribute {name!r}; every edge needs a {what}")
    return _objects(value for _, _, value in values)


def _objects(values: Any) -> np.ndarray:
    """Return any objects, tuples among them, as a one-dimensional array."""
    values = [*values]
    array = np.empty(len(values), object)
    array[:] = values
    return array


def to_networkx(graph: Any, weight: str | None = "weight", time: str | None = "time") -> Any:
    """Return the graph as a ``networkx.DiGraph`` or ``networkx.Graph``. Needs NetworkX.

    All vertices are nodes. O(n + m), in Python.

    Parameters
    ----------
    weight : str
        The attribute for the weight of each edge, a Python float, if the graph is weighted. None leaves it out.
    time : str
        The attribute for the time of each edge, a Python int or a ``numpy.datetime64``, if the graph has `times`. None
        leaves it out.

    Raises
    ------
    InvalidOption
        The graph has weights and times, and both names are equal; or a name is no name.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.
    """
    nx = needed("networkx", "to_networkx()", '"dask-mgraph[networkx]"')
    check_names({"weight": weight, "time": time})
    # Read the graph. Isolated vertices are nodes, too.
    result = nx.DiGraph() if graph.directed else nx.Graph()
    with graph._directory.still():  # vertices that are deleted meanwhile would stay without their edges
        result.add_nodes_from(graph.vertices().tolist())
        src, dst, *values = timed_edges_of(graph)
    # Give each edge the attributes that the graph has.
    columns = [
        (name, column)
        for name, column in zip((weight, time), values, strict=True)
        if name is not None and column is not None
    ]
    named = dict(columns)
    if len(named) < len(columns):
        raise InvalidOption(f"weight and time are both {weight!r}; edges with both need two names")
    rows = zip(
        *(list(column) if column.dtype.kind == "M" else column.tolist() for column in named.values()), strict=True
    )
    attributes = (dict(zip(named, row, strict=True)) for row in rows) if named else repeat({}, len(src))
    result.add_edges_from(zip(src.tolist(), dst.tolist(), attributes, strict=True))
    return result
