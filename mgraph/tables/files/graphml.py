"""Read GraphML: nodes, edges and a single attribute of the edges.

NetworkX's reader fails on other attributes, which are ignored here.

References
----------
U. Brandes, M. Eiglsperger, I. Herman, M. Himsolt, M. S. Marshall, "GraphML Progress Report", GD 2001.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np

from mgraph.errors import ReadError
from mgraph.tables.files.graph_file import GraphFile
from mgraph.tables.names import warn_unused

__all__ = ["graphml"]

LABELS = {"src": "column 'source'", "dst": "column 'target'"}


def graphml(body: bytes, weight: str | None, weighted: bool | None, numbers: bool) -> GraphFile:
    """Return the graph of a file. O(bytes).

    Nodes are strings, or with `numbers` integers. An edge without the attribute `weight` has the default of its key. If
    a graph is to be `weighted`, it is the attribute "weight" by default; None is for a graph that is weighted if
    `weight` is given.
    """
    # Choose the attribute for the weights.
    graph, keys = _graph(body)
    if weighted is False:
        weight = None
    elif weight is None and "weight" in keys:
        weight = "weight" if weighted else None
        warn_unused([] if weighted else ["weight"], "the file")
    # Read nodes, edges and weights.
    directed = {"directed": True, "undirected": False}.get(graph.get("edgedefault", ""))
    if directed is None:
        raise ReadError(f"edgedefault is {graph.get('edgedefault')!r}; it must be directed or undirected")
    nodes, ends = _nodes(graph), _edges(graph, directed)
    columns: dict[str, Any] = {name: _column([pair[at] for pair in ends], numbers) for at, name in enumerate(LABELS)}
    labels = dict(LABELS)
    if weight is not None:
        columns["weight"] = _weights(graph, keys, weight)
        labels["weight"] = f"column {weight!r}"
    return GraphFile(columns, labels, directed, vertices=_column(nodes, numbers))


def _graph(body: bytes) -> tuple[ElementTree.Element, dict[str | None, list[ElementTree.Element]]]:
    """Return the graph element, and the keys of edge attributes by name.

    The tags are without namespaces.
    """
    # Parse the file, and drop the namespaces.
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the last two of encodings
        raise ReadError(f"it is no XML that can be read: {error}") from None
    for element in root.iter():
        element.tag = str(element.tag).rpartition("}")[2]
    # Refuse several graphs, and elements that are not read.
    graphs = list(root.iter("graph"))
    if root.tag != "graphml" or len(graphs) != 1:
        raise ReadError(f"it has {len(graphs)} graphs in <{root.tag}>; one graph in <graphml> is read, none in another")
    if root.find("graph") is None:
        raise ReadError("its graph is not directly in <graphml>")
    for tag in ("hyperedge", "locator"):
        if next(graphs[0].iter(tag), None) is not None:
            raise ReadError(f"it has a <{tag}>, which is not read")
    # Collect the keys of edge attributes.
    keys = [key for key in root.iter("key") if key.get("for") in ("edge", "all", None)]
    named: dict[str | None, list[ElementTree.Element]] = {}
    for key in keys:
        named.setdefault(key.get("attr.name", key.get("id")), []).append(key)
    return graphs[0], named


def _nodes(graph: ElementTree.Element) -> list[str]:
    nodes = [node.get("id") for node in graph.iter("node")]
    for at, node in enumerate(nodes):
        if node is None:
            raise ReadError(f"node {at + 1} has no id")
    if len(set(nodes)) < len(nodes):
        raise ReadError(f"{len(nodes) - len(set(nodes))} nodes have the id of another one")
    return nodes  # type: ignore[return-value]  # none is None


def _edges(graph: ElementTree.Element, directed: bool) -> list[tuple[str, str]]:
    """Return the ends of the edges; `ReadError` for mixed directions and parallel edges."""
    pairs = []
    for at, edge in enumerate(graph.iter("edge"), 1):
        ends = edge.get("source"), edge.get("target")
        if None in ends:
            raise ReadError(f"edge {at} has no {'source' if ends[0] is None else 'target'}")
        if edge.get("directed") in ("true", "false") and (edge.get("directed") == "true") is not directed:
            raise ReadError(f"edge {at} has another direction than the graph; all are directed, or none is")
        pairs.append(ends)
    distinct = set(pairs) if directed else {frozenset(pair) for pair in pairs}
    if len(distinct) < len(pairs):
        raise ReadError(f"it has {len(pairs) - len(distinct)} parallel edges; a graph has one of each")
    return pairs  # type: ignore[return-value]  # no end is None


def _weights(graph: ElementTree.Element, keys: dict[str | None, list[ElementTree.Element]], weight: str) -> np.ndarray:
    """Return the attribute `weight` of each edge: float64[m].

    Several keys may have the name, each for another type.
    """
    # The default is of the first key that has any.
    if weight not in keys:
        names = sorted(map(str, keys))
        raise ReadError(f"the edges have no attribute {weight!r}; they have {', '.join(map(repr, names)) or 'none'}")
    default = next((text for key in keys[weight] if (text := key.findtext("default")) is not None), None)
    places = {key.get("id") for key in keys[weight]}
    # An edge has the attribute or the default; either must be a number.
    values = []
    for at, edge in enumerate(graph.iter("edge"), 1):
        text = next((data.text for data in edge.findall("data") if data.get("key") in places), default)
        try:
            values.append(float(text if text is not None and "_" not in text else "nothing"))
        except ValueError:
            what = f"has no attribute {weight!r}" if text is None else f"has the attribute {weight!r} {text[:60]!r}"
            ends = f"({edge.get('source')!r}, {edge.get('target')!r})"
            raise ReadError(f"edge {at}, {ends}, {what}; every edge needs a number") from None
    return np.array(values, np.float64)


def _column(values: list[str], numbers: bool) -> np.ndarray:
    if not numbers:
        return np.array(values, object)
    try:
        return np.array([int(value) for value in values], object)
    except ValueError:
        bad = next(value for value in values if not value.strip().lstrip("+-").isdigit())
        raise ReadError(
            f"the node {bad[:60]!r} is no whole number; without n_vertices and keys nodes are strings"
        ) from None
