"""``python -m workloads demo``: Debian's package dependencies change over three releases, with analyses after each.

An edge leads from a package to a package that it depends on. So PageRank flows to the packages that others rest on, and
a BFS from libc6 along in-edges finds the packages that need libc6. The demo prints three blocks: input, speed, and
results.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from cluster import start
from mgraph import DynamicGraph
from mgraph.device import gpu_count
from mgraph.distinct import distinct
from mgraph.errors import InvalidOption
from workloads.arguments import add_device, check_least
from workloads.inputs.edges import EdgeStream
from workloads.inputs.readers import read
from workloads.inputs.window import Batches

__all__ = ["HELP", "add_arguments", "run"]

HELP = "stream Debian's package dependencies over three releases and analyse each"
DATA = Path(__file__).parents[1] / "data" / "debian-deps.npz"
RELEASES = ("bookworm", "trixie", "sid")
WITHIN = 3  #: distances up to this have a column of their own in the last block
TOP = 8
WIDTH = 72


@dataclass(frozen=True)
class Release:
    """Changes of a release, their times, and the results of the algorithms after them.

    Seconds are wall time of this process.
    """

    name: str
    changes: int
    inserted: int
    deleted: int
    edges: int
    update_seconds: float
    pagerank_seconds: float
    bfs_seconds: float
    top: list[tuple[int, float]]
    within: list[int]  #: vertices that reach the target in at most 1, 2, 3 ... steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("--workers", type=int, metavar="N", help="worker processes (default: 2, or 1 where there is one GPU)")
    add_device(parser)
    add("--structure", default="gpma+", help="the workers' local structure (default: %(default)s)")
    add("--batch", type=int, default=50_000, metavar="N", help="changes per batch (default: %(default)s)")
    add("--target", default="libc6", metavar="NAME", help="the package that others may need (default: %(default)s)")
    add("--data", type=Path, default=DATA, metavar="FILE", help="another stream with times 0, 1, 2 and names")


def run(options: argparse.Namespace) -> int:
    """Run the demo. Returns 0."""
    # Read the stream, and check the options.
    check_least(options, "batch")
    console = Console(highlight=False, soft_wrap=True)
    stream = read(options.data).in_order()
    target = stream.find(options.target)
    if stream.t is None:
        raise InvalidOption(f"{options.data} has no times; t is the release of each operation")
    workers = options.workers or (2 if options.device == "cpu" else min(2, gpu_count() or 2))

    # Start the workers, and stream the releases.
    _what_goes_in(console, stream, options)
    with _Stage(console, len(stream)) as stage:
        stage.says("starting workers; the first run also compiles the kernels")
        with (
            start(workers, device=options.device) as client,
            DynamicGraph(client, n_vertices=stream.n_vertices, structure=options.structure, reverse=True) as graph,
        ):
            where = f"{workers} worker{'s' * (workers > 1)} on the {'GPU' if graph.device == 'cuda' else 'CPU'}"
            releases = list(_releases(stage, graph, stream, target, options.batch))
            stage.says("closing the graph and its workers")

    # Print the results.
    _how_fast(console, releases, where)
    _what_came_out(console, stream, releases, options.target)
    return 0


# ---- the work --------------------------------------------------------------------------------------------------------


class _Stage:
    """Progress display: a bar on a terminal, which goes at the end, and plain lines elsewhere."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._live = console, console.is_terminal
        columns = (TextColumn("  "), BarColumn(24), TextColumn("{task.description}"))
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task("", total=total)

    def __enter__(self) -> _Stage:
        if self._live:
            self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live:
            self._progress.stop()

    def says(self, text: str) -> None:
        """Show the next step."""
        if self._live:
            self._progress.update(self._task, description=text)
        else:
            self._console.print(f"   ... {text}")

    def advances(self, n: int) -> None:
        """Count `n` more changes."""
        self._progress.advance(self._task, n)


def _releases(stage: _Stage, graph: Any, stream: EdgeStream, target: int, batch: int) -> Iterator[Release]:
    """Stream the releases in succession, and run the algorithms after each."""
    assert stream.t is not None
    # Apply the changes of a release in batches.
    for number in distinct(stream.t):
        part = stream[stream.t == number]
        name = RELEASES[int(number)] if 0 <= number < len(RELEASES) else str(number)
        stage.says(f"{name}: {len(part):,} changes")
        inserted, deleted, began = 0, 0, time.perf_counter()
        for edges in Batches(part).of(batch):
            report = graph.update(edges)
            inserted, deleted = inserted + report.inserted, deleted + report.deleted
            stage.advances(len(edges))

        # Run the algorithms.
        updated = time.perf_counter()
        stage.says(f"{name}: PageRank and BFS on {graph.num_edges:,} edges")
        ranks = graph.pagerank()
        ranked = time.perf_counter()
        distances = graph.bfs(target, direction="in")
        searched = time.perf_counter()
        seconds = (updated - began, ranked - updated, searched - ranked)
        within = _within(distances.to_numpy())
        yield Release(name, len(part), inserted, deleted, graph.num_edges, *seconds, ranks.top(TOP), within)


def _within(distances: np.ndarray) -> list[int]:
    """Count the vertices at most 1, 2, 3 ... steps away, without the source. O(n)."""
    return [int(count) for count in np.cumsum(np.bincount(distances[distances > 0]))[1:]]


# ---- the three blocks ------------------------------------------------------------------------------------------------


def _heading(console: Console, text: str) -> None:
    console.print(f"\n[bold]{text}[/bold] {'-' * (WIDTH - len(text) - 1)}")


def _table(*columns: str) -> Table:
    """Return a table without lines.

    All columns but the first two are numbers.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="")
    for number, column in enumerate(("", *columns)):
        table.add_column(column, justify="right" if number > 1 else "left", no_wrap=True, min_width=1)
    return table


def _what_goes_in(console: Console, stream: EdgeStream, options: argparse.Namespace) -> None:
    _heading(console, "1. What goes in")
    what = "Debian packages" if options.data == DATA else f"packages of {options.data}"
    releases = distinct(stream.t).size
    console.print(f"   A graph of {stream.n_vertices:,} {what}. An edge leads from a package to one that it needs.")
    console.print(f"   {len(stream):,} changes make {releases} releases of it: edges to insert and edges to delete.")
    console.print(f"   They arrive in batches of {options.batch:,}. PageRank and BFS run after each release.")


def _how_fast(console: Console, releases: list[Release], where: str) -> None:
    _heading(console, f"2. How fast, with {where}")
    table = _table("release", "inserted", "deleted", "edges then", "changes/s", "PageRank", "BFS")
    for release in releases:
        rate = release.changes / release.update_seconds
        table.add_row(
            "", release.name, f"{release.inserted:,}", f"{release.deleted:,}", f"{release.edges:,}", f"{rate:,.0f}",
            f"{release.pagerank_seconds * 1e3:,.0f} ms", f"{release.bfs_seconds * 1e3:,.0f} ms",
        )  # fmt: skip
    console.print(table)
    console.print("   All changes went into one graph; no release was loaded anew.")


def _what_came_out(console: Console, stream: EdgeStream, releases: list[Release], target: str) -> None:
    # The packages of highest rank, and their places in the first release.
    _heading(console, "3. What came out")
    console.print(f"   The packages that most others depend on, by PageRank in {releases[-1].name}:")
    before = [vertex for vertex, _ in releases[0].top]
    for place, (vertex, rank) in enumerate(releases[-1].top, 1):
        then = f"place {before.index(vertex) + 1}" if vertex in before else f"not among the first {len(before)}"
        console.print(f"   {place:3}. {stream.name(vertex):20} {rank:7.2%}   in {releases[0].name}: {then}")

    # The packages near the target.
    console.print(f"\n   How many packages need {target}, directly or through others, by BFS against the edges:")
    table = _table("release", "directly", *(f"within {steps}" for steps in range(2, WITHIN + 1)), "at all", "farthest")
    for release in releases:
        counts = [
            release.within[min(steps, len(release.within)) - 1] if release.within else 0
            for steps in range(1, WITHIN + 1)
        ]
        total = release.within[-1] if release.within else 0
        cells = [f"{count:,}" for count in (*counts, total)]
        table.add_row("", release.name, *cells, f"{len(release.within)} steps")
    console.print(table)
