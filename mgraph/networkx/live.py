"""Functions of NetworkX for live graphs: on attributes, in place; on all edges, on a copy like NetworkX's fallback."""

from __future__ import annotations

from functools import wraps
from typing import Any

import networkx as nx

from mgraph.networkx.calls import offered
from mgraph.networkx.conversion import convert_to_nx
from mgraph.networkx.graph import Graph

__all__ = [
    "get_edge_attributes", "get_node_attributes", "set_edge_attributes", "set_node_attributes", "to_numpy_array",
    "to_pandas_edgelist", "to_scipy_sparse_array",
]  # fmt: skip


def _why_not(G: Any, **others: Any) -> str | None:
    return None if isinstance(G, Graph) else "NetworkX does it without a conversion"


def _in_place(name: str) -> Any:
    function = getattr(nx, name)
    return offered(_why_not)(getattr(function, "orig_func", function))


def _on_a_copy(name: str) -> Any:
    function = getattr(nx, name).orig_func

    @offered(_why_not)
    @wraps(function)
    def call(G: Graph, *args: Any, **kwargs: Any) -> Any:
        return function(convert_to_nx(G), *args, **kwargs)

    return call


get_edge_attributes = _in_place("get_edge_attributes")
get_node_attributes = _in_place("get_node_attributes")
set_edge_attributes = _in_place("set_edge_attributes")
set_node_attributes = _in_place("set_node_attributes")
to_numpy_array = _on_a_copy("to_numpy_array")
to_pandas_edgelist = _on_a_copy("to_pandas_edgelist")
to_scipy_sparse_array = _on_a_copy("to_scipy_sparse_array")
