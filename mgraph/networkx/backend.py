"""Entry point of NetworkX: conversions, functions, and whether those can and should run."""

from __future__ import annotations

import inspect
from typing import Any

import networkx as nx

from mgraph.networkx.centrality import *  # noqa: F403
from mgraph.networkx.communities import *  # noqa: F403
from mgraph.networkx.components import *  # noqa: F403
from mgraph.networkx.conversion import convert_from_nx, convert_to_nx
from mgraph.networkx.density import *  # noqa: F403
from mgraph.networkx.distances import *  # noqa: F403
from mgraph.networkx.graph import DiGraph, Graph
from mgraph.networkx.link_analysis import *  # noqa: F403
from mgraph.networkx.link_prediction import *  # noqa: F403
from mgraph.networkx.live import *  # noqa: F403
from mgraph.networkx.paths import *  # noqa: F403
from mgraph.networkx.subgraphs import *  # noqa: F403

__all__ = [
    "can_run",
    "convert_from_nx",
    "convert_to_nx",
    "digraph__new__",
    "graph__new__",
    "on_start_tests",
    "should_run",
]

#: NetworkX's tests that fail with the backend, by class and name, and the reasons
XFAILED = {
    "test_louvain.py::test_multigraph": "an edge weighs 10 in one of its graphs, and 13 in the other; NetworkX happens "
    "to find the same communities in both",
    "TestStronglyConnected::test_condensation_mapping_and_members": "it numbers components in the order of "
    "NetworkX's algorithm; the backend gives them in the order of their first nodes",
    **dict.fromkeys(
        [
            f"test_louvain.py::test_{of}"
            for of in ("karate_club_partition", "undirected_selfloops", "none_weight_param", "directed_partition")
        ],
        "it has the communities in the order of NetworkX's algorithm; the backend gives the same ones in the order of "
        "their first nodes",
    ),
}


def can_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Return True if a function of this module can run with NetworkX's arguments, else the reason."""
    function = globals()[name]
    why_not = getattr(function, "why_not", None)
    if why_not is None:
        return True
    bound = inspect.signature(function).bind(*args, **kwargs)
    return why_not(**bound.arguments) or True


def should_run(name: str, args: Any, kwargs: Any) -> bool | str:
    """Return True if the graph is large enough for a conversion to pay; else the reason."""
    bound = inspect.signature(globals()[name]).bind(*args, **kwargs)
    graph = bound.arguments.get("G")
    min_edges = nx.config.backends.mgraph.min_edges
    if graph is None or graph.number_of_edges() >= min_edges:
        return True
    return f"the graph has {graph.number_of_edges()} edges, less than nx.config.backends.mgraph.min_edges = {min_edges}"


def graph__new__(cls: type, *args: Any, backend: str | None = None, **attr: Any) -> Graph:
    """Return the uninitialised object of ``nx.Graph(backend="mgraph")``."""
    return _new(Graph, cls, nx.Graph)


def digraph__new__(cls: type, *args: Any, backend: str | None = None, **attr: Any) -> DiGraph:
    """Return the uninitialised object of ``nx.DiGraph(backend="mgraph")``."""
    return _new(DiGraph, cls, nx.DiGraph)


def _new(own: type, cls: type, plain: type) -> Any:
    if cls is not plain:
        raise NotImplementedError(f"the mgraph backend makes {plain.__name__}s, and no {cls.__name__}")
    return object.__new__(own)


def on_start_tests(items: Any) -> None:
    """Mark NetworkX's tests that fail with the backend, when NetworkX tests itself with it."""
    import pytest

    for item in items:
        for name, reason in XFAILED.items():
            if item.nodeid.endswith(name):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
