"""``bench algorithms``: milliseconds of any algorithm, by the program that shards run.

Values must equal those of ``csr``: labels and counts exactly, floats within a relative 1e-4.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import GraphFacts, Vertex, VertexData, Vertices
from mgraph.device import Array
from mgraph.errors import InvalidOption
from mgraph.worker.shard.shard import Shard
from workloads.arguments import check_least
from workloads.bench import shards
from workloads.bench.harness import Bench, Mismatch, summary
from workloads.bench.shards import Graph

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time any algorithms, through the programs that shards run"
#: arguments of a run, by a method's name or a method's with a qualifier
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "betweenness": ("betweenness_centrality", {"k": 16, "seed": 1}),
    "clustering": ("clustering", {}),
    "components": ("connected_components", {}),
    "cores": ("core_number", {}),
    "distances": ("distances", {"sources": list(range(64))}),
    "labels": ("label_propagation", {"max_iter": 10}),
    "leiden": ("leiden", {}),
    "louvain": ("louvain", {}),
    "pagerank": ("pagerank", {"tol": 1e-6, "max_iter": 500}),
    "personalized": ("pagerank", {"tol": 1e-6, "max_iter": 500, "personalization": {0: 1.0}}),
    "strong": ("strongly_connected_components", {}),
    "triangles": ("triangles", {}),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    shards.add_arguments(parser)
    add = parser.add_argument
    add("--names", default=",".join(CASES), metavar="A,B", help="which ones (default: %(default)s)")
    add("--repeats", type=int, default=3, metavar="N", help="runs of each (default: %(default)s)")


def measure(bench: Bench) -> None:
    """Run each algorithm on each structure."""
    # Check the names before any graph is built.
    options, rows = bench.options, []
    names = options.names.split(",")
    for name in names:
        if name not in CASES:
            raise InvalidOption(f"--names has {name!r}; there are {', '.join(CASES)}")
    check_least(options, "repeats")

    # Run each algorithm; the first structure, csr, is the oracle.
    graph = Graph(bench)
    oracle: dict[str, Array] = {}
    for structure, shard in graph.shards():
        for name in names:
            run = _program(shard, *CASES[name])
            columns, info = run()  # compiles
            main = next(iter(columns.values()))
            _check(bench, f"{structure}: {name}", main, oracle.setdefault(name, main))
            seconds = bench.times(run, options.repeats, warm=0)
            line = bench.add(name, structure=structure, arcs=shard.num_edges, **summary(seconds), info=info)
            rows.append([name, structure, line["p50_ms"], line["min_ms"], line["max_ms"]])
        del shard, run, columns, main

    # Print the table in the order of the names.
    rows.sort(key=lambda row: names.index(row[0]))
    title = f"{options.repeats} runs; values equal to csr's"
    bench.table(title, ["algorithm", "structure", "p50 ms", "least ms", "most ms"], rows)


def _program(shard: Shard, name: str, arguments: dict[str, Any]) -> Any:
    """Return a run of an algorithm, with its arguments as a shard that owns every vertex gets them."""
    directed = shard.in_edges is not shard.out_edges
    facts = GraphFacts(shard.n_vertices, directed, shard.out_edges.weighted, shard.in_edges is not None)
    checked = ALGORITHMS[name].check(facts, **arguments)
    return partial(ALGORITHMS[name].run, shard, **{k: _own(shard, v) for k, v in checked.items()})


def _own(shard: Shard, value: Any) -> Any:
    if isinstance(value, Vertex):
        return value.id
    if isinstance(value, Vertices):
        return value.ids
    return shard.device.asarray(np.asarray(value.values)) if isinstance(value, VertexData) else value


def _check(bench: Bench, what: str, values: Array, oracle: Array) -> None:
    """Raise `Mismatch` if a value differs from csr's."""
    exact = values.dtype.kind != "f"
    same = values == oracle if exact else bench.xp.isclose(values, oracle, rtol=1e-4, atol=1e-9, equal_nan=True)
    wrong = int((~same).sum())
    if wrong:
        raise Mismatch(f"{what}: {wrong} of {values.size} values differ from csr's")
