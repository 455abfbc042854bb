"""``python -m workloads stream``: a changing graph under load, batch after batch, with algorithms on the live graph."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from cluster import start
from mgraph import DynamicGraph
from mgraph.batch import EdgeBatch, check_ids
from mgraph.errors import InvalidOption, ReadError, UnknownVertex
from workloads.arguments import add_device, check_least
from workloads.inputs.edges import EdgeStream
from workloads.inputs.generators import from_spec
from workloads.inputs.readers import read
from workloads.inputs.window import Batches
from workloads.results.record import Record
from workloads.stream.display import Display, closing_table, updates_per_second
from workloads.stream.interrupt import Interrupt
from workloads.stream.plot import save_plot

__all__ = ["HELP", "add_arguments", "load", "run"]

HELP = "stream a graph through a cluster in batches and run algorithms on it meanwhile"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add(
        "--data",
        required=True,
        metavar="FILE|SPEC",
        help="a graph file, SHAPE:SCALE:EDGEFACTOR (rmat, uniform, road or hub)",
    )
    add("--structure", default="gpma+", help="the workers' local structure (default: %(default)s)")
    add("--workers", type=int, metavar="N", help="worker processes (default: one per GPU, or one per core)")
    add_device(parser)
    add("--batch", type=int, default=100_000, metavar="N", help="operations per batch (default: %(default)s)")
    add(
        "--initial", type=float, default=0.5, metavar="F", help="share of the stream built first (default: %(default)s)"
    )
    add("--window", type=int, metavar="N", help="keep the last N insertions; delete older ones as new ones arrive")
    add("--run", default="", metavar="A,B", help=f"algorithms to run: {', '.join(ALGORITHMS)}")
    add(
        "--every",
        type=int,
        default=10,
        metavar="K",
        help="batches between runs of the algorithms (default: %(default)s)",
    )
    add("--source", type=int, metavar="V", help="where BFS starts (default: the busiest source of the first million)")
    add("--reverse", action="store_true", help="keep in-edges too: pull PageRank, direction-optimising BFS")
    add("--undirected", action="store_true", help="each edge stands for both directions")
    add("--relabel", action="store_true", help="ids of any kind become 0, 1, 2 ... in order of first appearance")
    add("--columns", metavar="A,B", help="what a text file's columns hold: src, dst, t, op, weight, or _ to skip one")
    add("--seed", type=int, default=0, help="of generated graphs (default: %(default)s)")
    add("--out", type=Path, metavar="DIR", help="write JSON lines and a plot here")


def load(options: argparse.Namespace) -> EdgeStream:
    """Return the stream of ``--data``, in order of time.

    Raises
    ------
    ReadError, InvalidOption
        A file without a graph, a malformed spec, or no edges.
    """
    # A spec, unless a file has that name.
    directed = False if options.undirected else None
    if ":" in options.data and not Path(options.data).exists():
        stream = from_spec(options.data, options.seed).stream()
        if options.undirected:
            stream = EdgeStream(stream.src, stream.dst, stream.n_vertices, directed=False)
    else:
        columns = options.columns.split(",") if options.columns else None
        stream = read(options.data, relabel=options.relabel, columns=columns, directed=directed)
    if not len(stream):
        raise ReadError(f"{options.data}: no edges to stream")
    return stream.in_order()


def _bfs(graph: Any, source: int) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    result = graph.bfs(source)
    seconds = time.perf_counter() - began
    distances = result.to_numpy()
    reached, depth = int((distances >= 0).sum()), int(distances.max())
    says = f"{reached:,} reached from {source} in {depth} steps"
    return seconds, {"epoch": result.epoch, "reached": reached, "depth": depth, "source": source, "says": says}


def _pagerank(graph: Any, source: int) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    result = graph.pagerank()
    seconds = time.perf_counter() - began
    vertex, value = result.top(1)[0]
    says = f"vertex {vertex} first with {value:.3g}, {result.iterations} iterations"
    return seconds, {"epoch": result.epoch, "top": int(vertex), "iterations": int(result.iterations), "says": says}


ALGORITHMS: dict[str, Callable[[Any, int], tuple[float, dict[str, Any]]]] = {"bfs": _bfs, "pagerank": _pagerank}


class _Run:
    """Run of a stream: the graph, its measurements and its display."""

    def __init__(self, options: argparse.Namespace, stream: EdgeStream, record: Record) -> None:
        self.options, self.stream, self.record = options, stream, record
        self.batches = Batches(stream, options.window)
        self.split = int(len(stream) * options.initial)
        self.algorithms = [name for name in options.run.split(",") if name]
        self.source = options.source if options.source is not None else _busiest(stream.src[: 1 << 20])
        check_ids(np.array([self.source]), stream.n_vertices, "--source")
        self._operations, self._seconds = 0, 0.0

    def on_cluster(self, console: Console, interrupt: Interrupt) -> None:
        """Start the workers, create the graph, `go`, and close everything."""
        options, stream = self.options, self.stream
        with (
            start(options.workers, device=options.device) as client,
            DynamicGraph(
                client,
                n_vertices=stream.n_vertices,
                structure=options.structure,
                weighted=stream.weight is not None,
                directed=stream.directed,
                reverse=options.reverse,
            ) as graph,
            Display(console, len(stream)) as display,
            interrupt,
        ):
            self.go(graph, display, interrupt)

    def go(self, graph: Any, display: Display, interrupt: Interrupt) -> None:
        """Build, then apply batch after batch until the stream ends or the user interrupts."""
        if self.split:
            self._build(graph, display)
        # Apply the batches; after every few, run the algorithms.
        consumed = self.split
        for number, batch in enumerate(self.batches.of(self.options.batch, self.split), 1):
            if interrupt.asked:
                return
            consumed = min(consumed + self.options.batch, len(self.stream))
            display.batch(self._update(graph, "batch", batch, consumed), self._operations / self._seconds)
            if number % self.options.every == 0 or consumed == len(self.stream):
                self._analyse(graph, display, interrupt)

    def _build(self, graph: Any, display: Display) -> None:
        line = self._update(graph, "build", self.batches.between(0, self.split), self.split)
        self._operations, self._seconds = 0, 0.0
        display.note(f"built {line['edges']:,} edges in {line['seconds']:.3f} s")

    def _update(self, graph: Any, kind: str, batch: EdgeBatch, consumed: int) -> dict[str, Any]:
        began = time.perf_counter()
        report = graph.update(batch)
        seconds = time.perf_counter() - began
        self._operations, self._seconds = self._operations + len(batch), self._seconds + seconds
        counts = {name: int(getattr(report, name)) for name in ("inserted", "updated", "deleted", "missing", "epoch")}
        edges = int(graph.num_edges)
        return self.record.add(kind, operations=len(batch), seconds=seconds, edges=edges, consumed=consumed, **counts)

    def _analyse(self, graph: Any, display: Display, interrupt: Interrupt) -> None:
        for name in self.algorithms:
            if interrupt.asked:
                return
            seconds, values = ALGORITHMS[name](graph, self.source)
            display.analytic(self.record.add("analytic", name=name, seconds=seconds, **values))


def _busiest(ids: np.ndarray) -> int:
    """Return the most frequent id.

    Sorts, because a histogram of sparse ids would be as long as the largest.
    """
    values, counts = np.unique(ids, return_counts=True)
    return int(values[counts.argmax()])


def _check(options: argparse.Namespace) -> None:
    if options.source is not None and options.source < 0:
        raise UnknownVertex(f"--source is {options.source}; vertices are numbered from 0")
    check_least(options, "batch", "every", "window", "workers")
    if not 0 <= options.initial <= 1:
        raise InvalidOption(f"--initial is {options.initial}; a share from 0 to 1 is needed")
    for name in filter(None, options.run.split(",")):
        if name not in ALGORITHMS:
            raise InvalidOption(f"--run names {name!r}; there are {', '.join(ALGORITHMS)}")


def run(options: argparse.Namespace) -> int:
    """Run the command.

    Returns 0, also after Ctrl-C, with the measurements until then.
    """
    # Check the options, open the record, load the stream.
    _check(options)
    console = Console()
    record = Record("stream", options.out, {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()})
    stream = load(options)
    console.print(f"{options.data}: {stream}", highlight=False, soft_wrap=True)

    # Run. A second Ctrl-C ends it at once.
    work = _Run(options, stream, record)
    interrupt = Interrupt()
    try:
        work.on_cluster(console, interrupt)
    except KeyboardInterrupt:  # a second one, or one while starting and closing
        if not record.of("batch"):
            raise
        interrupt.asked = True
    _close(options, record, console, interrupt.asked)
    return 0


def _close(options: argparse.Namespace, record: Record, console: Console, interrupted: bool) -> None:
    """Print the table, end the record, and save the plot."""
    batches = record.of("batch")
    record.add("summary", interrupted=interrupted, batches=len(batches), updates_per_second=updates_per_second(batches))
    if interrupted:
        console.print("stopped by Ctrl-C; measured until then:")
    title = f"{options.data}, {options.structure}, workers: {options.workers or 'all'}"
    console.print(closing_table(record, title))
    if record.path is not None:
        plot = record.path.with_suffix(".png")
        save_plot(record, plot, title)
        console.print(f"wrote {record.path} and {plot.name}", highlight=False, soft_wrap=True)
