"""``python -m workloads graphalytics``: LDBC Graphalytics' six algorithms on EVLP files or on drawn graphs.

The results are unaudited: this is no run of LDBC's driver. The processing time is that of a call, until the result lies
on the device; reading and creating the graph are the loading time. Weights are stored as float32.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from mgraph import DynamicGraph
from mgraph.errors import InvalidOption, ReadError
from workloads.arguments import add_device, add_record, check_least
from workloads.bench.harness import Bench, Mismatch, summary
from workloads.graphalytics import evlp
from workloads.graphalytics.algorithms import ALGORITHMS, Algorithm
from workloads.graphalytics.evlp import Dataset
from workloads.graphalytics.graph500 import SIZES, graph500, scale_of
from workloads.graphalytics.reference import REFERENCE
from workloads.results.archive import provenance

__all__ = ["HELP", "add_arguments", "run"]

HELP = "run the six algorithms of LDBC Graphalytics, unaudited"
NOT_VALIDATED = "not validated"
PART = 1 << 28  #: edges per insert


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--size", choices=SIZES, help="a Graph500 graph of this size, drawn here")
    which.add_argument("--scale", type=int, metavar="S", help="a Graph500 graph of 2**S vertices (default: 16)")
    which.add_argument("--data", type=Path, metavar="FILE", help="NAME.properties, beside NAME.v and NAME.e")
    add("--seed", type=int, default=1, help="of a graph that is drawn (default: %(default)s)")
    names = ",".join(a.name for a in ALGORITHMS)
    add("--algorithm", default=names, metavar="A,B", help="which (default: %(default)s)")
    add("--repeats", type=int, default=3, metavar="N", help="runs of each algorithm (default: %(default)s)")
    add(
        "--reference-edges",
        type=int,
        default=1 << 21,
        metavar="N",
        help="up to so many edges, a graph without reference output is validated by SciPy (default: %(default)s)",
    )
    add("--write", type=Path, metavar="DIR", help="write the graph's EVLP files here")
    add("--output", type=Path, metavar="DIR", help="write the algorithms' output here, as NAME-BFS and so on")
    add("--structure", default="gpma+", help="the graph's structure (default: %(default)s)")
    add_device(parser)
    add_record(parser, "JSON lines")
    parser.set_defaults(threads=None)


def run(options: argparse.Namespace) -> int:
    """Run the algorithms.

    Returns 0; raises `Mismatch` if an output does not match its reference.
    """
    # Check the options.
    check_least(options, "repeats")
    asked = [name for name in options.algorithm.split(",") if name]
    for name in asked:
        if name not in REFERENCE:
            raise InvalidOption(f"--algorithm names {name!r}; there are {', '.join(REFERENCE)}")

    # Open the record: it does not name folders.
    folders = {name: getattr(options, name) for name in ("data", "write", "output")}
    for name, folder in folders.items():
        setattr(options, name, folder is not None)
    bench = Bench("graphalytics", options)
    options.__dict__.update(folders)

    # Read or draw the graph.
    reading, graph = bench.time(partial(_graph, bench))
    if options.write is not None:
        bench.say(f"wrote {evlp.write(graph, options.write)}")
    n, m, weighted = len(graph.ids), len(graph.src), graph.weight is not None
    bench.say(f"{graph.name}: {n:,} vertices, {m:,} edges, scale {scale_of(graph)}, {bench.device.kind}")

    # Load it, and run the algorithms.
    with DynamicGraph(
        n_vertices=n,
        directed=graph.directed,
        weighted=weighted,
        reverse=graph.directed,
        structure=options.structure,
        device=bench.device.kind,
    ) as g:
        loading, _ = bench.time(partial(_load, g, graph))
        facts = {
            "graph": graph.name,
            "data": "own" if options.data is None else "read",
            "vertices": n,
            "edges": m,
            "scale": scale_of(graph),
        }
        bench.add("graph", **facts, directed=graph.directed, read_seconds=reading, load_seconds=loading)
        for algorithm in ALGORITHMS:
            if algorithm.name in asked and (weighted or algorithm.name != "SSSP"):
                _run(bench, g, graph, algorithm)
    _table(bench, graph)
    bench.close()
    return 0


def _graph(bench: Bench) -> Dataset:
    options = bench.options
    if options.data is not None:
        return evlp.read(options.data)
    return graph500(SIZES[options.size] if options.size else options.scale or 16, bench.device, options.seed)


def _load(g: DynamicGraph, graph: Dataset) -> None:
    columns = [graph.src, graph.dst, *([] if graph.weight is None else [graph.weight.astype(np.float32)])]
    for at in range(0, len(graph.src), PART):
        g.insert(*(column[at : at + PART] for column in columns))
    if g.num_edges != len(graph.src):
        raise ReadError(f"graph {graph.name} has {len(graph.src) - g.num_edges} edges more than once")


def _run(bench: Bench, g: DynamicGraph, graph: Dataset, algorithm: Algorithm) -> None:
    # Time the algorithm.
    call = partial(algorithm.run, g, graph)
    seconds = bench.times(call, bench.options.repeats)
    output = algorithm.values(graph, call().to_numpy())

    # Write and validate its output.
    if bench.options.output is not None:
        bench.options.output.mkdir(parents=True, exist_ok=True)
        evlp.write_output(bench.options.output / f"{graph.name}-{algorithm.name}", graph.ids, output)
    size, mean = len(graph.ids) + len(graph.src), float(np.mean(seconds))
    rates = {"eps": round(len(graph.src) / mean), "evps": round(size / mean)}
    validation = _validated(bench, graph, algorithm, output)
    bench.add("algorithm", algorithm=algorithm.name, **summary(seconds), **rates, validation=validation)


def _validated(bench: Bench, graph: Dataset, algorithm: Algorithm, actual: np.ndarray) -> str:
    """Validate an output, and return by which reference.

    Raises `Mismatch` if it does not match.
    """
    # Choose the reference: a file, or SciPy for small graphs.
    data = bench.options.data
    beside = None if data is None else data.parent / f"{graph.name}-{algorithm.name}"
    if beside is not None and beside.exists():
        expected, source = evlp.read_output(beside, graph.ids, algorithm.real), "reference output"
    elif len(graph.src) <= bench.options.reference_edges and find_spec("scipy") is not None:
        expected, source = REFERENCE[algorithm.name](graph), "SciPy"
    else:
        return NOT_VALIDATED

    # Compare.
    wrong = algorithm.wrong(expected, actual)
    if wrong.any():
        at = int(wrong.argmax())
        raise Mismatch(
            f"{algorithm.name} on {graph.name}: {int(wrong.sum())} values do not match, the first one of vertex "
            f"{graph.ids[at]}, {actual[at]}, where the {source} has {expected[at]}"
        )
    return source


def _table(bench: Bench, graph: Dataset) -> None:
    rows = [
        [line["algorithm"], line["mean_ms"], line["evps"] / 1e6, line["validation"]]
        for line in bench.record.of("algorithm")
    ]
    own = "" if bench.options.data is not None else ", own data"
    title = f"Graphalytics {graph.name}, unaudited{own}; {provenance(bench.record.lines[0])}"
    bench.table(title, ["algorithm", "mean ms", "million EVPS", "validated by"], rows)
