"""``python -m workloads paper NAME``: a paper's experiments, each structure with the same batches.

Graphs are drawn with a paper's numbers of vertices and edges, divided by ``--divide``, and so are the sizes of its
batches. Real graphs are read from the folder of ``--data``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mgraph.errors import InvalidOption
from mgraph.structures import parse
from workloads.arguments import add_kernel_device, add_record, check_least
from workloads.bench.harness import Bench
from workloads.paper.experiments import Run
from workloads.paper.papers import PAPERS
from workloads.paper.streams import Stream
from workloads.results.result_table import pivot

__all__ = ["HELP", "add_arguments", "measured", "run"]

HELP = "run the experiments of a paper on our structures"
HUNDREDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("paper", choices=PAPERS, help="which paper")
    add("--experiment", metavar="A,B", help="only these (default: all of the paper)")
    add("--structure", metavar="A,B", help="these structures (default: the paper's)")
    add("--graph", metavar="A,B", help="only graphs whose names begin so")
    add("--divide", type=int, metavar="D", help="divide the papers' sizes (default: 1 on a GPU, 100 on a CPU)")
    add("--repeats", type=int, default=10, metavar="N", help="batches of each size (default: %(default)s)")
    add("--seed", type=int, default=1, help="of the graphs that are drawn (default: %(default)s)")
    data = os.environ.get("MGRAPH_DATA")
    add("--data", type=Path, default=data, metavar="DIR", help="the folder of real graphs (default: MGRAPH_DATA)")
    add_kernel_device(parser)
    add_record(parser, "JSON lines")


def run(options: argparse.Namespace) -> int:
    """Run the experiments. Returns 0; raises `Mismatch` if structures differ."""
    # Check the options.
    paper = PAPERS[options.paper]
    check_least(options, "divide", "repeats")
    asked = options.experiment.split(",") if options.experiment else list(paper.experiments)
    for name in asked:
        if name not in paper.experiments:
            raise InvalidOption(f"--experiment names {name!r}; {options.paper} has {', '.join(paper.experiments)}")
    folder, options.data = options.data, options.data is not None  # the record does not name the folder
    bench = Bench(f"paper-{options.paper}", options)
    options.divide = options.divide or (1 if bench.device.kind == "cuda" else HUNDREDTH)
    structures = _there(bench, options.structure.split(",") if options.structure else list(paper.structures))
    bench.say(f"{paper.title}: sizes divided by {options.divide}, {bench.device.kind}")

    # Run the experiments on each graph.
    for source in paper.graphs:
        if not options.graph or source.name.startswith(tuple(options.graph.split(","))):
            stream = source.stream(bench.device, options.divide, options.seed, folder)
            if stream is None:
                bench.say(f"{source.name}: not there, left out; --data names the folder of real graphs")
            else:
                _measure(bench, structures, stream, asked)

    # One table per graph.
    columns, rows = pivot(measured(bench.record.lines))
    for graph in dict.fromkeys(row[0] for row in rows):
        graph_rows = [row[1:] for row in rows if row[0] == graph]
        bench.table(f"{graph}: results of all structures are equal", columns[1:], graph_rows)
    bench.close()
    return 0


def measured(lines: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, Any]]:
    """Yield graph, measure, structure and value of each measurement of a run."""
    for line in lines:
        if line["kind"] == "measured":
            yield line["graph"], line["what"], line["structure"], line["value"]


def _there(bench: Bench, names: list[str]) -> list[str]:
    """Return the structures that the library has. Reports each missing one."""
    available = []
    for name in names:
        try:
            parse(name)
        except InvalidOption as error:
            bench.say(f"{name}: left out, {error}")
        else:
            available.append(name)
    if not available:
        raise InvalidOption(f"none of the structures {', '.join(names)} is there")
    return available


def _measure(bench: Bench, structures: list[str], stream: Stream, asked: list[str]) -> None:
    """Run the experiments on a stream."""
    options = bench.options
    bench.say(f"{stream.name}: {stream.n_vertices:,} vertices, {len(stream):,} edges")
    bench.add("stream", graph=stream.name, vertices=stream.n_vertices, edges=len(stream), divide=options.divide)
    for name in asked:
        PAPERS[options.paper].experiments[name](Run(bench, structures), stream)
        bench.free()
