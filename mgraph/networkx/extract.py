"""Nodes and edges of a NetworkX graph as arrays, in new `Contents`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import chain
from typing import Any

import networkx as nx
import numpy as np

from mgraph.networkx.contents import LARGEST, NUMBERS, Contents, Refused, is_number
from mgraph.tables.ids import EXACT

__all__ = ["NO_DEFAULT", "attribute_names", "filled_contents"]

NO_DEFAULT = object()  #: the default of an attribute that all edges or no edges have
_ABSENT = object()


def attribute_names(graph: Any) -> list[Hashable]:
    """Return the names of the edges' attributes. O(m)."""
    return list(dict.fromkeys(name for *_, data in graph.edges(data=True) for name in data))


def filled_contents(graph: Any, wanted: Mapping[Hashable, Any], merged: str = "least") -> Contents:
    """Return contents with the nodes and edges of a NetworkX graph. O(n + m), in Python.

    Parameters
    ----------
    graph : networkx.Graph
    wanted : mapping
        The name of the attribute to keep, if any, and its default.
    merged : "least" | "sum"
        The value of merged parallel edges.

    Raises
    ------
    Refused
        Two attributes are wanted, a value is no number, or some edges lack an attribute without a default.
    """
    # Collect the rows. A subclass may override them.
    if len(wanted) > 1:
        raise Refused(f"the mgraph backend keeps one attribute of edges, and not {', '.join(map(repr, wanted))}")
    nodes = list(graph)
    contents = Contents(graph.is_directed(), nodes)
    own = type(graph).__getitem__ is not nx.Graph.__getitem__  # a subclass whose edges differ from `_adj`
    rows = [graph[node] if own else graph._adj[node] for node in nodes]

    # Concatenate the rows: arc k goes from src[k] to dst[k].
    if graph.is_multigraph() and any(len(parallel) > 1 for row in rows for parallel in row.values()):
        contents.merged = merged
    ends = [list(row) for row in rows]  # the len of a multigraph's view also counts neighbours without an edge in it
    lengths = np.fromiter(map(len, ends), np.int64, len(nodes))
    src = np.repeat(np.arange(len(nodes)), lengths)
    dst = np.fromiter(map(contents.index.__getitem__, chain.from_iterable(ends)), np.int64, int(lengths.sum()))

    # Read the attribute. An undirected edge counts once: from its smaller end.
    once = slice(None) if contents.directed else src <= dst
    values = None
    for attribute, default in wanted.items():
        values = _values(graph, rows, attribute, default, merged, contents)
        if values is not None:
            if hasattr(graph, "_graph") and not contents.directed and not _alike(src, dst, values):
                raise Refused(f"edges of this view have another {attribute!r} from one end than from the other")
            values = values[once]
            contents.attribute = attribute
            contents.exact = contents.exact and bool(np.array_equal(values.astype(np.float32), values))
    contents.fill(src[once], dst[once], values)
    return contents


def _alike(src: np.ndarray, dst: np.ndarray, values: np.ndarray) -> bool:
    """Return True if each edge has the same value in both rows. An undirected view of a directed graph may have two."""
    out, back = np.flatnonzero(src < dst), np.flatnonzero(src > dst)
    out, back = out[np.lexsort((dst[out], src[out]))], back[np.lexsort((src[back], dst[back]))]
    return np.array_equal(values[out], values[back])


def _values(graph: Any, rows: Any, attribute: Any, default: Any, merged: str, contents: Contents) -> np.ndarray | None:
    """Return the checked value of each arc, float64[arcs]; None if all are 1 by default."""
    # Read the attribute of every arc.
    several = graph.is_multigraph()
    if several:
        parallel = [[data.get(attribute, _ABSENT) for data in keyed.values()] for row in rows for keyed in row.values()]
        arc_values = list(chain.from_iterable(parallel))
    else:
        arc_values = [data.get(attribute, _ABSENT) for row in rows for data in row.values()]

    # Check the types once each, instead of every value.
    kinds = set(map(type, arc_values))
    if kinds <= {type(_ABSENT)} and default == 1 and not (several and merged == "sum"):
        return None
    if type(_ABSENT) in kinds:
        if default is NO_DEFAULT:
            raise Refused(f"some edges have no attribute {attribute!r}; in the mgraph backend all have it, or none")
        kinds = (kinds - {type(_ABSENT)}) | {type(default)}
    if not all(issubclass(kind, NUMBERS) for kind in kinds):
        raise _refusal(graph, attribute)

    # Fill in the default, and merge parallel edges.
    if several:
        merge = sum if merged == "sum" else min
        arc_values = [merge(default if value is _ABSENT else value for value in parts) for parts in parallel]
    else:
        arc_values = [default if value is _ABSENT else value for value in arc_values]

    # Check the range, and note if all values are integers and exact in float64.
    try:
        values = np.array(arc_values, np.float64)
    except OverflowError:  # an integer past float64
        raise _refusal(graph, attribute) from None
    if not (np.abs(values) <= LARGEST).all():
        raise _refusal(graph, attribute)
    integers = [issubclass(kind, int | np.integer) for kind in kinds]
    small = not any(integers) or bool((np.abs(values) < EXACT).all())
    contents.whole, contents.exact = all(integers) and small, small
    return values


def _refusal(graph: Any, attribute: Any) -> Refused:
    """Return the error for the first edge with a value that float32 cannot hold."""
    for u, v, value in graph.edges(data=attribute, default=0):
        if not is_number(value):
            return Refused.of_value(attribute, (u, v), value)
    return Refused(f"the sum of parallel edges' {attribute!r} is past {LARGEST:.8g}, the largest number of float32")
