"""Helpers of the backend's functions: the graph to run on, its weights, refusals, results by node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

import networkx as nx
import numpy as np

from mgraph.errors import MgraphError
from mgraph.graph import DynamicGraph
from mgraph.networkx.contents import Refused
from mgraph.networkx.graph import Graph

__all__ = [
    "by_node",
    "check_no_loops",
    "chosen",
    "id_of",
    "offered",
    "part",
    "refusing",
    "weighted",
    "why_no_weight",
]

F = TypeVar("F", bound=Callable[..., Any])


def offered(why_not: Callable[..., str | None] | None = None) -> Callable[[F], F]:
    """Mark a function as one for NetworkX to call. `why_not` takes its arguments and returns the reason against it.

    The function finds graphs without holes: removed nodes leave their ids to others, so it must not take ids before.
    """

    def mark(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for value in (*args, *kwargs.values()):
                if isinstance(value, DynamicGraph):
                    raise TypeError("a DynamicGraph is no graph of NetworkX: call its own methods, or to_networkx()")
                if isinstance(value, Graph):
                    with refusing(value):
                        pass
            return function(*args, **kwargs)

        call.why_not = why_not  # type: ignore[attr-defined]
        return cast(F, call)

    return mark


@contextmanager
def refusing(graph: Graph) -> Iterator[DynamicGraph]:
    """Yield the graph to run an algorithm on. Errors of mgraph become `Refused`, so that NetworkX can fall back.

    The message names nodes, not their ids.
    """
    try:
        yield graph._contents.graph()
    except MgraphError as error:
        nodes = graph._contents.nodes
        named = error.named(lambda ids: np.fromiter((nodes[i] for i in ids), object)) if error.vertices else error
        raise Refused(str(named)) from error


def weighted(graph: Graph, weight: Hashable | None, exactly: bool = False, merged: str = "least") -> bool:
    """Return True if edges have the attribute `weight`; without it, each counts 1.

    Raises `Refused` if float32 has rounded a value that is needed `exactly`, or if parallel edges would count 1 each.
    If they were `merged` by another function's rule, the graph's contents are replaced: take its `DynamicGraph` after
    this call.
    """
    # Merge parallel edges by the rule of this function. A sum counts them, also those without the attribute.
    contents = graph._contents
    if weight is None and merged == "sum" and contents.merged is not None:
        raise Refused("each of parallel edges counts, and the backend keeps one")
    other = contents.merged != merged or (merged == "sum" and contents.attribute != weight)
    if weight is not None and contents.merged is not None and other:
        graph._merge(merged, weight)
        contents = graph._contents

    # Refuse rounded values, unless the user allows them.
    if weight is None or contents.attribute != weight:
        return False
    if exactly and not contents.exact and not nx.config.backends.mgraph.round_weights:
        raise Refused(
            f"attribute {weight!r} has a value that float32 does not hold exactly, so that lengths would differ; set "
            "nx.config.backends.mgraph.round_weights = True to take the nearest one"
        )
    return True


def why_no_weight(weight: Any) -> str | None:
    """Return the reason why edges cannot be weighted by this argument; None if they can."""
    return "weight is a function, and the backend keeps an attribute" if callable(weight) else None


def by_node(graph: Graph, values: np.ndarray) -> dict[Any, Any]:
    """Return values in the order of ids as a dict by node, in the order of nodes."""
    return dict(zip(graph._contents.nodes, values.tolist(), strict=True))


def id_of(graph: Graph, node: Hashable, message: str) -> int:
    """Return the id of a node. Raises `NodeNotFound` with `message` for an unknown node."""
    try:
        return graph._contents.index[node]
    except (KeyError, TypeError):
        raise nx.NodeNotFound(message) from None


def chosen(graph: Graph, result: Any, nodes: Any) -> Any:
    """Return a result of all nodes, of the iterable `nodes`, or the value of the single node `nodes`."""
    index = graph._contents.index
    # All nodes, or a single node.
    if nodes is None:
        return by_node(graph, result.to_numpy())
    if nodes in graph:
        return result[index[nodes]]

    # An iterable: each node counts once, and unknown nodes are ignored.
    wanted: Iterable[Any] = dict.fromkeys(graph.nbunch_iter(nodes))
    ids = [index[node] for node in wanted]
    return dict(zip(wanted, result[ids].tolist() if ids else [], strict=True))


def check_no_loops(graph: DynamicGraph) -> None:
    """Raise `NetworkXNotImplemented` if a node has an edge to itself."""
    every = np.arange(graph.num_vertices)
    if graph.has_edges(every, every).any():
        raise nx.NetworkXNotImplemented(
            "Input graph has self loops which is not permitted; "
            "Consider using G.remove_edges_from(nx.selfloop_edges(G))."
        )


def part(graph: Graph, inside: np.ndarray) -> Graph:
    """Return a new graph of the nodes that are `inside`, bool[n], their edges and all attributes.

    Raises `Refused` if float32 has rounded a value of an edge.
    """
    if not graph._contents.exact:
        raise Refused("float32 does not hold all values of the edges' attribute, which the part would have")
    contents = graph._contents.part(inside)
    subgraph: Graph = type(graph)._of(contents, {node: dict(graph._node[node]) for node in contents.nodes})
    subgraph.graph.update(graph.graph)
    return subgraph
