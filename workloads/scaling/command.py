"""``python -m workloads scaling``: ingest and algorithms on 1, 2, 4 ... workers, through `DynamicGraph`.

Strong scaling keeps the graph; weak scaling keeps the edges per worker, with twice the vertices on twice the workers.
Times are those of the client's calls. BFS and PageRank run on an undirected graph whose hubs have the first internal
ids. Batches go into a directed one of half as many edges: from the client's host memory, one per call and with several
in flight, and from the workers, as many operations from each. All points share a cluster; a graph is placed on the
first of its workers. The graphs of strong scaling must agree, whatever the number of workers: counts of every batch
from the client, distances, ranks to 1e-5.

``--measure algorithms`` times every algorithm, and marks each time that is longer on twice the workers. On a grid
(``--shape grid``) it marks what is 35% longer than on the fewest workers. Such a pair of points is measured a second
time; the mark stays if it is slower again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
from distributed import Client
from rich.console import Console

from cluster import start
from mgraph.client.creation.placement import choose_workers
from mgraph.device import Device, gpu_count
from mgraph.errors import InvalidOption
from workloads.arguments import add_born_graph, add_record, check_least, device_of
from workloads.bench.harness import Mismatch, counts_of, open_record, short, show_table, three_digits
from workloads.inputs.generators import SHAPES
from workloads.report.command import shown
from workloads.results.record import Record
from workloads.scaling.algorithms import NAMES, Algorithms, slower_pairs
from workloads.scaling.plot import save_scaling_plot
from workloads.scaling.point import Analytics, Point
from workloads.scaling.updates import Updates

__all__ = ["HELP", "add_arguments", "run"]

PARTS = ("analytics", "updates", "algorithms")
DEFAULT = "analytics,updates"
MEASURED: dict[str, Any] = {"analytics": Analytics, "updates": Updates, "algorithms": Algorithms}
HELP = "strong and weak scaling of ingest and algorithms over the workers of this machine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add(
        "--gpus",
        "--workers",
        dest="workers",
        metavar="N,N",
        help="numbers of workers (default: 1,2,4 ... as there are)",
    )
    add("--scaling", default="strong,weak", metavar="A,B", help="strong, weak or both (default: %(default)s)")
    add("--measure", default=DEFAULT, metavar="A,B", help="analytics, updates, algorithms (default: %(default)s)")
    add("--scale", type=int, default=16, metavar="S", help="2**S vertices on one worker (default: %(default)s)")
    add("--resident", type=int, metavar="N", help="edges drawn before the batches (default: half of the graph's)")
    add(
        "--batch",
        type=int,
        default=1_000_000,
        metavar="N",
        help="operations per batch from the client, and from each worker in a step (default: %(default)s)",
    )
    add("--batches", type=int, default=10, metavar="N", help="batches of each kind (default: %(default)s)")
    add("--roots", type=int, default=8, metavar="N", help="searches (default: %(default)s)")
    add("--names", nargs="+", default=NAMES, metavar="NAME", help="algorithms to measure (default: all)")
    add("--iterations", type=int, default=20, metavar="N", help="iterations of PageRank (default: %(default)s)")
    shape = add_born_graph(parser)
    shape.add_argument("--shape", choices=SHAPES, help="another shape: road-like, one hub, communities, or a grid")
    add_record(parser, "JSON lines and a plot")


def run(options: argparse.Namespace) -> int:
    """Run the command. Returns 0; raises `Mismatch` if two numbers of workers disagree."""
    # Check the options.
    _check(options)
    record, console = open_record("scaling", options), Console()
    workers = _workers(options)

    # Measure each point, strong and weak; equal points once.
    with start(workers[-1], device=options.device) as client:
        addresses = choose_workers(client, None)
        results: dict[Any, Any] = {}
        for count in workers:
            for kind in options.scaling.split(","):
                scale = options.scale if kind == "strong" else options.scale + _doublings(count, workers[0])
                point = results.get((count, scale))
                if point is None:
                    part = Point(options, client, addresses[:count], scale, console.print)
                    point = results[count, scale] = _measured(options, part)
                line = record.add("scaling", scaling=kind, workers=count, scale=scale, **point["line"])
                console.print(f"{kind}: {_says(line)}", highlight=False, soft_wrap=True)
                if kind == "strong":
                    _compare(results.setdefault("strong", point), point, count)
        # Measure what is slower on more workers a second time.
        if "algorithms" in options.measure.split(","):
            points = {count: results[count, options.scale]["line"]["algorithms"] for count in workers}
            losses = _measured_again(options, client, addresses, slower_pairs(points, options.shape == "grid"))
            record.add("losses", pairs=losses)
            _show_algorithms(console, points, losses, "the fewest" if options.shape == "grid" else "half of them")
    record.add("end")
    _close(record, console)
    return 0


def _measured(options: argparse.Namespace, point: Point) -> dict[str, Any]:
    """Measure a point.

    Returns its figures as a line, and results that must not depend on the number of workers.
    """
    line: dict[str, Any] = {"device": point.maker.kind}
    for part in options.measure.split(","):
        line |= MEASURED[part](point).measure()
    return {"line": line, "checks": point.checks}


def _measured_again(
    options: argparse.Namespace, client: Client, addresses: Sequence[str], pairs: list[tuple[int, int, str]]
) -> list[tuple[int, int, str]]:
    """Measure each pair of points again for its algorithms. Returns those that are slower again."""
    again: list[tuple[int, int, str]] = []
    for few, many in dict.fromkeys((few, many) for few, many, _ in pairs):
        names = tuple(name for *counts, name in pairs if counts == [few, many])
        figures = {
            count: Algorithms(Point(options, client, addresses[:count], options.scale)).times(names)
            for count in (few, many)
        }
        again += slower_pairs(figures, options.shape == "grid")
    return again


def _show_algorithms(
    console: Console, points: dict[int, dict[str, Any]], losses: Sequence[tuple[int, int, str]], few: str
) -> None:
    """Print the table of algorithms. A star marks a time that is longer than on `few`, twice."""
    rows = []
    for name in dict.fromkeys(name for figures in points.values() for name in figures):
        stars = {many for _, many, lost in losses if lost == name}
        cells = [
            three_digits(figures[name]["p50_ms"]) + " *" * (count in stars) if name in figures else "no memory"
            for count, figures in points.items()
        ]
        rows.append([name, *cells])
    title = f"algorithms through the client, medians in ms, by the number of workers; *: slower than on {few}"
    show_table(console, title, ["", *map(str, points)], rows)


def _check(options: argparse.Namespace) -> None:
    check_least(options, "batch", "batches", "part", "roots", "iterations")
    for kind in options.scaling.split(","):
        if kind not in ("strong", "weak"):
            raise InvalidOption(f"--scaling names {kind!r}; there are strong and weak")
    for part in options.measure.split(","):
        if part not in PARTS:
            raise InvalidOption(f"--measure names {part!r}; there are {', '.join(PARTS)}")
    for name in options.names:
        if name not in NAMES:
            raise InvalidOption(f"--names has {name!r}; there are {', '.join(map(repr, NAMES))}")


def _workers(options: argparse.Namespace) -> list[int]:
    if options.workers:
        return sorted(set(counts_of(options.workers, "gpus")))
    most = gpu_count() if device_of(options.device).kind == "cuda" else Device("cpu").threads
    return [1 << k for k in range(most.bit_length())]


def _doublings(count: int, first: int) -> int:
    doublings = (count // first).bit_length() - 1
    if first << doublings != count:
        raise InvalidOption(
            f"weak scaling doubles the graph with the workers; {count} is not {first} times a power of 2"
        )
    return doublings


def _compare(first: dict[str, Any], second: dict[str, Any], workers: int) -> None:
    """Raise `Mismatch` if two numbers of workers gave different results."""
    for what, actual in second["checks"].items():
        value = first["checks"].setdefault(what, actual)  # fewer workers had too little memory
        if what == "ranks":
            same = float(np.abs(value.astype(np.float64) - actual).sum()) < 1e-5
        elif getattr(value, "dtype", None) is not None and value.dtype.kind == "f":
            same = value.shape == actual.shape and np.allclose(value, actual, rtol=1e-4, atol=1e-6, equal_nan=True)
        else:
            same = np.array_equal(value, actual)
        if not same:
            raise Mismatch(f"{what}: {workers} workers found {actual}, fewer found {value}")


def _says(line: dict[str, Any]) -> str:
    parts = [f"{line['workers']} workers, scale {line['scale']}"]
    if "bfs" in line:
        parts.append(f"{short(line['built'])} edges, built in {line['build_s']:.2f} s")
        parts.append(f"BFS {line['bfs']['p50_ms']:.2f} ms, PageRank {line['pagerank']['p50_ms']:.3f} ms per iteration")
    if "born" in line:
        parts.append(f"{short(line['insert']['updates_per_s'])} inserts/s by calls")
        pipelined = line["pipelined"]
        parts.append(f"{short(pipelined['updates_per_s'])} pipelined, {pipelined['share_of_link']:.0%} of the link")
        for name, label in (("born", "from the workers"), ("mixed", "with 50% deletes")):
            parts.append(f"{short(line[name]['updates_per_s'])} {label}, {line[name]['p50_ms']:.2f} ms per step")
    return "; ".join(parts)


ROWS: dict[str, str] = {
    "scale": "scale",
    "edges": "built",
    "BFS ms": "bfs.p50_ms",
    "BFS GTEPS": "bfs.gteps_median",
    "PageRank ms per iteration": "pagerank.p50_ms",
    "largest shard / mean": "most_arcs_over_mean",
    "edges before the batches": "resident",
    "inserts/s, a call each": "insert.updates_per_s",
    "deletes/s, a call each": "delete.updates_per_s",
    "inserts/s, pipelined from the client": "pipelined.updates_per_s",
    "share of the link's bandwidth": "pipelined.share_of_link",
    "inserts/s, from the workers": "born.updates_per_s",
    "updates/s, 50% deletes, from the workers": "mixed.updates_per_s",
}


def _close(record: Record, console: Console) -> None:
    """Print the table, and save the plot."""
    # A row per figure, a column per point.
    lines = record.of("scaling")
    rows = [[name, *(shown(line, value) for line in lines)] for name, value in ROWS.items()]
    rows = [row for row in rows if any(cell != "" for cell in row[1:])]
    columns = ["", *(f"{line['scaling']} {line['workers']}" for line in lines)]
    show_table(console, "scaling, by the number of workers; times as the client sees them", columns, rows)

    # The plot.
    if record.path is not None:
        plot = record.path.with_suffix(".png")
        save_scaling_plot(record, plot)
        console.print(f"wrote {record.path} and {plot.name}", highlight=False, soft_wrap=True)
