"""``python -m workloads demo``: Debian's package dependencies change over three releases, and are analysed after each.

An edge goes from a package to one that it depends on, so PageRank flows to what others rest on, and the packages that
reach libc6 are found by a BFS from libc6 along in-edges.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from cluster import start
from mgraph import DynamicGraph
from mgraph.device import gpu_count
from mgraph.errors import InvalidOption
from workloads.edges import EdgeStream
from workloads.readers import read
from workloads.window import Batches

__all__ = ["HELP", "add_arguments", "run"]

HELP = "stream Debian's package dependencies over three releases and analyse each"
DATA = Path(__file__).parents[1] / "data" / "debian-deps.npz"
RELEASES = ("bookworm", "trixie", "sid")
COUNTS = ("inserted", "updated", "deleted", "missing")


@dataclass(frozen=True)
class Streamed:
    """What one release's batches came to."""

    counts: dict[str, int]
    rates: list[float]
    seconds: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("--workers", type=int, metavar="N", help="worker processes (default: 2, or 1 where there is one GPU)")
    add("--device", default="auto", choices=("auto", "cpu", "gpu"), help="where the graph lives (default: %(default)s)")
    add("--structure", default="gpma+", help="the workers' local structure (default: %(default)s)")
    add("--batch", type=int, default=50_000, metavar="N", help="operations a batch (default: %(default)s)")
    add("--target", default="libc6", metavar="NAME", help="the package to be reached (default: %(default)s)")
    add("--data", type=Path, default=DATA, metavar="FILE", help="another stream with times 0, 1, 2 and names")


def run(options: argparse.Namespace) -> int:
    """Run the demo; returns 0."""
    if options.batch < 1:
        raise InvalidOption(f"--batch is {options.batch}; at least 1 is needed")
    console = Console()
    stream = read(options.data).in_order()
    target = stream.find(options.target)
    if stream.t is None:
        raise InvalidOption(f"{options.data} has no times; t is the release of each operation")
    workers = options.workers or (2 if options.device == "cpu" else min(2, gpu_count() or 2))
    _say(console, f"Debian's package dependencies: {len(stream):,} operations on {stream.n_vertices:,} packages")
    with (
        start(workers, device=options.device) as client,
        DynamicGraph(client, n_vertices=stream.n_vertices, structure=options.structure, reverse=True) as graph,
    ):
        _say(console, f"{graph!r}")
        for release in np.unique(stream.t):
            part = stream[stream.t == release]
            _release(console, graph, stream, part, int(release), target, options.batch)
    return 0


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)


def _release(
    console: Console, graph: Any, stream: EdgeStream, part: EdgeStream, release: int, target: int, batch: int
) -> None:
    """Stream one release, then run the algorithms and print what they say."""
    streamed = _stream(graph, part, batch)
    began = time.perf_counter()
    ranks = graph.pagerank()
    middle = time.perf_counter()
    distances = graph.bfs(target, direction="in")
    end = time.perf_counter()
    name = RELEASES[release] if 0 <= release < len(RELEASES) else str(release)
    _say(console, f"\n[bold]{name}[/bold]: {graph.num_edges:,} dependencies at epoch {graph.epoch}")
    _say(console, "  " + ", ".join(f"{streamed.counts[count]:,} {count}" for count in COUNTS))
    rates = " ".join(f"{rate / 1e6:.2f}" for rate in streamed.rates)
    overall = len(part) / streamed.seconds / 1e6
    _say(console, f"  {len(part):,} operations in {streamed.seconds:.3f} s, {overall:.2f} M/s; by batch: {rates} M/s")
    took = f"{(middle - began) * 1e3:.0f} ms, {ranks.iterations} iterations"
    console.print(_ranking(stream, ranks.top(10), f"  highest PageRank ({took})"))
    _say(console, f"  reach {stream.name(target)} (BFS {(end - middle) * 1e3:.0f} ms) {_reach(distances.to_numpy())}")


def _stream(graph: Any, part: EdgeStream, size: int) -> Streamed:
    totals, rates, seconds = dict.fromkeys(COUNTS, 0), [], 0.0
    for batch in Batches(part).of(size):
        began = time.perf_counter()
        report = graph.update(batch)
        spent = time.perf_counter() - began
        seconds += spent
        rates.append(len(batch) / spent)
        for count in COUNTS:
            totals[count] += int(getattr(report, count))
    return Streamed(totals, rates, seconds)


def _ranking(stream: EdgeStream, top: list[tuple[int, float]], title: str) -> Table:
    """The ten first in two columns of five."""
    table = Table(title=title, title_justify="left", box=None, show_header=False, padding=(0, 2))
    half = (len(top) + 1) // 2
    for left in range(half):
        row = []
        for at in (left, left + half):
            row += [f"{at + 1}", stream.name(top[at][0]), f"{top[at][1]:.5f}"] if at < len(top) else []
        table.add_row(*row)
    return table


def _reach(distances: np.ndarray) -> str:
    """How many vertices are within 1, 2, 3 ... steps of the source."""
    within = np.cumsum(np.bincount(distances[distances > 0]))[1:]
    return "within " + ", ".join(f"{steps}: {count:,}" for steps, count in enumerate(within, 1))
