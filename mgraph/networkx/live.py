"""Functions of NetworkX that need all edges, for live graphs. They run on a copy, like NetworkX's own fallback."""

from __future__ import annotations

from functools import wraps
from typing import Any

import networkx as nx

from mgraph.networkx.calls import offered
from mgraph.networkx.conversion import convert_to_nx
from mgraph.networkx.graph import Graph

__all__ = ["to_numpy_array", "to_pandas_edgelist", "to_scipy_sparse_array"]


def _why_not(G: Any, **others: Any) -> str | None:
    return None if isinstance(G, Graph) else "NetworkX does it without a conversion"


def _on_a_copy(name: str) -> Any:
    function = getattr(nx, name).orig_func

    @offered(_why_not)
    @wraps(function)
    def call(G: Graph, *args: Any, **kwargs: Any) -> Any:
        return function(convert_to_nx(G), *args, **kwargs)

    return call


to_numpy_array = _on_a_copy("to_numpy_array")
to_pandas_edgelist = _on_a_copy("to_pandas_edgelist")
to_scipy_sparse_array = _on_a_copy("to_scipy_sparse_array")
