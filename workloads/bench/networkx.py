"""``bench networkx``: milliseconds of NetworkX's functions, by NetworkX and by its backend, conversions included.

The same undirected graph, drawn at each scale, is given to both as a ``networkx.Graph`` with integer weights, and its
directed form where a function needs one. The results must agree.
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
#: of the table: the value of a line by its heading
COLUMNS = {"function": "function", "NetworkX": "networkx_ms", "mgraph": "mgraph_ms", "times faster": "times"}
COLUMNS |= {"live graph": "live_ms"}
Call = Callable[[Any, Any, str], Any]  #: takes the module NetworkX, a graph and the name of a backend


@dataclass(frozen=True)
class _Function:
    """A call of one of NetworkX's functions, and whether it needs a directed graph."""

    call: Call
    directed: bool = False


def _first(graph: Any) -> Any:
    """A node with many neighbours, the same for every backend."""
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
    """The size of each node's component."""
    return {node: len(component) for component in components for node in component}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sizes and how long NetworkX may take."""
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
    options, slow = bench.options, set[str]()
    with nx.config.backends.mgraph(device=bench.device.kind), nx.config(cache_converted_graphs=False):
        for scale in counts_of(options.scales, "scales"):
            graph = _graph(nx, scale, options.edge_factor, options.seed)
            forms = {False: graph, True: graph.to_directed()}
            rows = [_measured(bench, nx, name, forms, scale, slow) for name in FUNCTIONS]
            title = f"{short(len(graph))} nodes, {short(graph.number_of_edges())} edges, ms on {bench.device.kind}"
            bench.table(title, list(COLUMNS), rows)


def _graph(nx: Any, scale: int, edge_factor: int, seed: int) -> Any:
    """A graph without self-loops; its first node has the most neighbours."""
    drawn = of_shape("rmat", scale, edge_factor, seed)
    ends = np.column_stack(drawn.edges(0, drawn.n_edges, np))
    ends = ends[ends[:, 0] != ends[:, 1]]
    weights = np.random.default_rng(seed).integers(1, WEIGHTS, len(ends), endpoint=True)
    most = int(np.bincount(ends.ravel()).argmax())
    graph = nx.Graph()
    graph.add_nodes_from([most, *range(1 << scale)])
    graph.add_weighted_edges_from(zip(*ends.T.tolist(), weights.tolist(), strict=True))
    return graph


def _measured(bench: Bench, nx: Any, name: str, forms: dict[bool, Any], scale: int, slow: set[str]) -> list[Any]:
    """A row of the table: milliseconds of NetworkX, of the backend with the conversion, and on a live graph."""
    from mgraph.networkx.backend import convert_from_nx

    function = FUNCTIONS[name]
    graph = forms[function.directed]
    live = convert_from_nx(graph, edge_attrs={"weight": 1}, name=name)
    ms, found = {}, None
    for where, given in (("mgraph", graph), ("live", live)):
        function.call(nx, given, "mgraph")  # compiles
        times = []
        for _ in range(bench.options.repeats):
            seconds, found = _timed(partial(function.call, nx, given, "mgraph"))
            times.append(seconds)
        ms[where] = float(np.median(times)) * 1e3
    plain = None
    if name not in slow:
        function.call(nx, nx.complete_graph(SEARCHES, nx.DiGraph if function.directed else None), "networkx")  # imports
        seconds, want = _timed(partial(function.call, nx, graph, "networkx"))
        plain = seconds * 1e3
        _check(name, want, found, len(graph))
        if seconds > bench.options.patience:
            slow.add(name)
    shape = {"nodes": len(graph), "edges": graph.number_of_edges(), "directed": function.directed}
    figures = {"networkx_ms": plain, "mgraph_ms": ms["mgraph"], "times": plain and plain / ms["mgraph"]}
    line = bench.add("networkx", function=name, scale=scale, **shape, **figures, live_ms=ms["live"])
    return ["" if line[column] is None else line[column] for column in COLUMNS.values()]


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and its result, which is in Python's memory."""
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def _check(name: str, want: dict[Any, Any], found: Any, n: int) -> None:
    """`Mismatch` where the results differ by more than the functions' tolerances allow."""
    if want.keys() != found.keys():
        raise Mismatch(f"{name}: {len(found)} nodes have a value, with NetworkX {len(want)}")
    a, b = (np.array([values[node] for node in want], np.float64) for values in (want, found))
    near = np.isclose(b, a, rtol=1e-9, atol=1e-6 / n if name in ("hits", "pagerank") else 0)
    if not near.all():
        at = int((~near).argmax())
        raise Mismatch(f"{name}: node {list(want)[at]} has {b[at]}, with NetworkX {a[at]}")
