"""``bench networkx``: milliseconds of NetworkX's functions, by NetworkX and by its backend, with conversions.

Both get the same undirected graph of each scale, a ``networkx.Graph`` with integer weights, or its directed form. The
results must agree.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mgraph.errors import MgraphError
from workloads.bench.harness import Bench, Mismatch, counts_of, short
from workloads.inputs.generators import of_shape

__all__ = ["FUNCTIONS", "HELP", "add_arguments", "measure"]

HELP = "time NetworkX's functions against backend='mgraph'"
WEIGHTS = 255  #: weights are whole numbers from 1 to this
SEARCHES = 8  #: sources of betweenness centrality
#: values of a line, by the heading of their column in the table
COLUMNS = {"function": "function", "NetworkX": "networkx_ms", "mgraph": "mgraph_ms", "times faster": "times"}
COLUMNS |= {"live graph": "live_ms"}
Call = Callable[[Any, Any, str], Any]  #: takes the module NetworkX, a graph and the name of a backend


@dataclass(frozen=True)
class _Function:
    """Call of one of NetworkX's functions, and the direction that it needs."""

    call: Call
    directed: bool = False


def _first(graph: Any) -> Any:
    """Return a node with many neighbours, the same for every backend."""
    return next(iter(graph))


FUNCTIONS: dict[str, _Function] = {
    "pagerank": _Function(lambda nx, g, b: nx.pagerank(g, backend=b), directed=True),
    "hits": _Function(lambda nx, g, b: nx.hits(g, backend=b)[0], directed=True),
    "connected_components": _Function(lambda nx, g, b: _sets(nx.connected_components(g, backend=b))),
    "strongly_connected_components": _Function(
        lambda nx, g, b: _sets(nx.strongly_connected_components(g, backend=b)), directed=True
    ),
    "triangles": _Function(lambda nx, g, b: nx.triangles(g, backend=b)),
    "clustering": _Function(lambda nx, g, b: nx.clustering(g, backend=b)),
    "core_number": _Function(lambda nx, g, b: nx.core_number(g, backend=b)),
    "betweenness_centrality": _Function(lambda nx, g, b: nx.betweenness_centrality(g, SEARCHES, seed=1, backend=b)),
    "single_source_shortest_path_length": _Function(
        lambda nx, g, b: nx.single_source_shortest_path_length(g, _first(g), backend=b)
    ),
    "single_source_dijkstra_path_length": _Function(
        lambda nx, g, b: nx.single_source_dijkstra_path_length(g, _first(g), backend=b)
    ),
}


def _sets(components: Any) -> dict[Any, int]:
    """Return the size of each node's component."""
    return {node: len(component) for component in components for node in component}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sizes and NetworkX's time limit."""
    add = parser.add_argument
    add("--scales", default="10,12,14", metavar="A,B", help="2**S nodes each (default: %(default)s)")
    add("--edge-factor", type=int, default=8, metavar="F", help="F * 2**S edges drawn (default: %(default)s)")
    add("--repeats", type=int, default=3, metavar="N", help="calls of the backend (default: %(default)s)")
    add(
        "--patience",
        type=float,
        default=60,
        metavar="S",
        help="leave NetworkX out at larger sizes once a function took so many seconds (default: %(default)s)",
    )
    add("--seed", type=int, default=1, help="of the edges (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Time each function at each size."""
    try:
        import networkx as nx  # here, so that the other commands do not need it
    except ImportError as error:
        raise MgraphError(f"bench networkx needs NetworkX (pip install networkx): {error}") from None
    if "mgraph" not in nx.config.backends:
        raise MgraphError(
            "NetworkX does not know the backend mgraph: it finds those of installed packages, and mgraph is only "
            "on Python's path; run pip install . in the checkout"
        )
    options, slow = bench.options, set[str]()
    with nx.config.backends.mgraph(device=bench.device.kind), nx.config(cache_converted_graphs=False):
        for scale in counts_of(options.scales, "scales"):
            graph = _graph(nx, scale, options.edge_factor, options.seed)
            forms = {False: graph, True: graph.to_directed()}
            rows = [_measured(bench, nx, name, forms, scale, slow) for name in FUNCTIONS]
            title = f"{short(len(graph))} nodes, {short(graph.number_of_edges())} edges, ms on {bench.device.kind}"
            bench.table(title, list(COLUMNS), rows)


def _graph(nx: Any, scale: int, edge_factor: int, seed: int) -> Any:
    """Draw a graph without self-loops.

    Its first node has the most neighbours.
    """
    # Draw edges and weights.
    drawn = of_shape("rmat", scale, edge_factor, seed)
    ends = np.column_stack(drawn.edges(0, drawn.n_edges, np))
    ends = ends[ends[:, 0] != ends[:, 1]]
    weights = np.random.default_rng(seed).integers(1, WEIGHTS, len(ends), endpoint=True)

    # Add the node of most edges first.
    most = int(np.bincount(ends.ravel()).argmax())
    graph = nx.Graph()
    graph.add_nodes_from([most, *range(1 << scale)])
    graph.add_weighted_edges_from(zip(*ends.T.tolist(), weights.tolist(), strict=True))
    return graph


def _measured(bench: Bench, nx: Any, name: str, forms: dict[bool, Any], scale: int, slow: set[str]) -> list[Any]:
    """Measure a function.

    Returns a row: ms of NetworkX, of the backend with conversion, and on a live graph.
    """
    from mgraph.networkx.backend import convert_from_nx

    function = FUNCTIONS[name]
    graph = forms[function.directed]
    live = convert_from_nx(graph, edge_attrs={"weight": 1}, name=name)
    # Time the backend, with conversion and on a live graph.
    ms, result = {}, None
    for where, form in (("mgraph", graph), ("live", live)):
        function.call(nx, form, "mgraph")  # compiles
        times = []
        for _ in range(bench.options.repeats):
            seconds, result = _timed(partial(function.call, nx, form, "mgraph"))
            times.append(seconds)
        ms[where] = float(np.median(times)) * 1e3

    # Time NetworkX once, unless it was too slow at a smaller size.
    plain = None
    if name not in slow:
        function.call(nx, nx.complete_graph(SEARCHES, nx.DiGraph if function.directed else None), "networkx")  # imports
        seconds, expected = _timed(partial(function.call, nx, graph, "networkx"))
        plain = seconds * 1e3
        _check(name, expected, result, len(graph))
        if seconds > bench.options.patience:
            slow.add(name)

    # Record the line.
    shape = {"nodes": len(graph), "edges": graph.number_of_edges(), "directed": function.directed}
    figures = {"networkx_ms": plain, "mgraph_ms": ms["mgraph"], "times": plain and plain / ms["mgraph"]}
    line = bench.add("networkx", function=name, scale=scale, **shape, **figures, live_ms=ms["live"])
    return ["" if line[column] is None else line[column] for column in COLUMNS.values()]


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and its result in Python's memory."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def _check(name: str, expected: dict[Any, Any], result: Any, n: int) -> None:
    """Raise `Mismatch` if the results differ by more than the functions' tolerances allow."""
    if expected.keys() != result.keys():
        raise Mismatch(f"{name}: {len(result)} nodes have a value, with NetworkX {len(expected)}")
    a, b = (np.array([values[node] for node in expected], np.float64) for values in (expected, result))
    near = np.isclose(b, a, rtol=1e-9, atol=1e-6 / n if name in ("hits", "pagerank") else 0)
    if not near.all():
        at = int((~near).argmax())
        raise Mismatch(f"{name}: node {list(expected)[at]} has {b[at]}, with NetworkX {a[at]}")
