"""``python -m workloads scaling``: ingest, BFS and PageRank on 1, 2, 4 ... workers, through `DynamicGraph`.

Strong scaling keeps the graph; weak scaling keeps the edges of a worker, with twice the vertices on twice the workers.
Times are those of the client's calls, as its user sees them. Batches come from the client's host memory, one a call and
with several in flight, and last from the workers, as many edges from each. The graphs of strong scaling must agree,
whatever the number of workers: counts of every batch from the client, distances of every root, ranks to 1e-5.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from mgraph.device import Device, gpu_count
from mgraph.errors import InvalidOption
from workloads.bench.harness import Mismatch, counts_of, open_record, short, show_table
from workloads.record import Record
from workloads.scaling_plot import save_scaling_plot
from workloads.scaling_run import Measured

__all__ = ["HELP", "add_arguments", "run"]

HELP = "strong and weak scaling of ingest, BFS and PageRank over the workers of this machine"


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
    add("--device", default="auto", choices=("auto", "cpu", "gpu"), help="where the graph lives (default: %(default)s)")
    add("--scaling", default="strong,weak", metavar="A,B", help="strong, weak or both (default: %(default)s)")
    add("--structure", default="gpma+", help="the workers' local structure (default: %(default)s)")
    add("--exchange", default="auto", help="how the workers speak to each other (default: %(default)s)")
    add("--scale", type=int, default=16, metavar="S", help="2**S vertices on one worker (default: %(default)s)")
    add("--edge-factor", type=int, default=16, metavar="F", help="F * 2**S edges drawn (default: %(default)s)")
    add("--uniform", action="store_true", help="uniform random edges instead of RMAT .57/.19/.19/.05")
    add("--seed", type=int, default=1, help="of the edges (default: %(default)s)")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--symmetric", dest="directed", action="store_false", help="undirected (the default)")
    way.add_argument("--directed", dest="directed", action="store_true", help="directed, without in-edges")
    parser.set_defaults(directed=False)
    add("--batch", type=int, default=1_000_000, metavar="N", help="edges a batch (default: %(default)s)")
    add("--batches", type=int, default=10, metavar="N", help="batches inserted, then deleted (default: %(default)s)")
    add(
        "--part",
        type=int,
        default=1 << 24,
        metavar="N",
        help="edges a worker draws at once while building (default: %(default)s)",
    )
    add("--roots", type=int, default=8, metavar="N", help="searches (default: %(default)s)")
    add("--iterations", type=int, default=20, metavar="N", help="of PageRank (default: %(default)s)")
    add("--out", type=Path, metavar="DIR", help="write JSON lines and a plot here")
    add("--archive", action="store_true", help="write them to benchmarks/results, in the folder of this hardware")
    add("--commit", metavar="HASH", help="what ran, where this is no git checkout")


def run(options: argparse.Namespace) -> int:
    """Run the command; 0, or `Mismatch` where two numbers of workers do not agree."""
    _check(options)
    record, console = open_record("scaling", options), Console()
    kinds = options.scaling.split(",")
    workers = _workers(options)
    results: dict[str, Any] = {}
    for count in workers:
        for kind in kinds:
            scale = options.scale if kind == "strong" else options.scale + _doublings(count, workers[0])
            known = results.get(f"{count} {scale}")
            if known is None:
                known = results[f"{count} {scale}"] = Measured(options, count, scale).measure()
            line = record.add("scaling", scaling=kind, workers=count, scale=scale, **known["line"])
            console.print(f"{kind}: {_says(line)}", highlight=False, soft_wrap=True)
            if kind == "strong":
                _compare(results.setdefault("strong", known), known, count)
    record.add("end")
    _close(record, console)
    return 0


def _check(options: argparse.Namespace) -> None:
    for name in ("batch", "batches", "part", "roots", "iterations"):
        if getattr(options, name) < 1:
            raise InvalidOption(f"--{name} is {getattr(options, name)}; at least 1 is needed")
    for kind in options.scaling.split(","):
        if kind not in ("strong", "weak"):
            raise InvalidOption(f"--scaling names {kind!r}; there are strong and weak")


def _workers(options: argparse.Namespace) -> list[int]:
    if options.workers:
        return sorted(set(counts_of(options.workers, "gpus")))
    most = gpu_count() if options.device != "cpu" and gpu_count() else Device("cpu").threads
    return [1 << k for k in range(most.bit_length())]


def _doublings(count: int, first: int) -> int:
    doublings = (count // first).bit_length() - 1
    if first << doublings != count:
        raise InvalidOption(
            f"weak scaling doubles the graph with the workers; {count} is not {first} doubled over and over"
        )
    return doublings


def _compare(one: dict[str, Any], other: dict[str, Any], workers: int) -> None:
    """`Mismatch` where two numbers of workers found different results."""
    for what, value in one["checks"].items():
        found = other["checks"][what]
        if what == "ranks":
            same = float(np.abs(value.astype(np.float64) - found).sum()) < 1e-5
        else:
            same = np.array_equal(value, found)
        if not same:
            raise Mismatch(f"{what}: {workers} workers found {found}, fewer found {value}")


def _says(line: dict[str, Any]) -> str:
    return (
        f"{line['workers']} workers, scale {line['scale']}, {short(line['built'])} edges: "
        f"{short(line['insert']['updates_per_s'])} inserts/s, {short(line['pipelined']['updates_per_s'])} pipelined, "
        f"{short(line['born']['updates_per_s'])} born on the workers, "
        f"BFS {line['bfs']['p50_ms']:.2f} ms, PageRank {line['pagerank']['p50_ms']:.3f} ms an iteration"
    )


ROWS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "scale": lambda line: line["scale"],
    "edges": lambda line: short(line["built"]),
    "M inserts/s, a call each": lambda line: line["insert"]["updates_per_s"] / 1e6,
    "M deletes/s, a call each": lambda line: line["delete"]["updates_per_s"] / 1e6,
    "M inserts/s, pipelined": lambda line: line["pipelined"]["updates_per_s"] / 1e6,
    "M inserts/s, born on the workers": lambda line: line["born"]["updates_per_s"] / 1e6,
    "BFS ms": lambda line: line["bfs"]["p50_ms"],
    "BFS GTEPS": lambda line: line["bfs"]["gteps_median"],
    "PageRank ms an iteration": lambda line: line["pagerank"]["p50_ms"],
    "most arcs of a worker / mean": lambda line: line["most_arcs_over_mean"],
}


def _close(record: Record, console: Console) -> None:
    """The table, and the plot."""
    lines = record.of("scaling")
    rows = [[name, *(value(line) for line in lines)] for name, value in ROWS.items()]
    columns = ["", *(f"{line['scaling']} {line['workers']}" for line in lines)]
    show_table(console, "scaling, by the number of workers; times as the client sees them", columns, rows)
    if record.path is not None:
        plot = record.path.with_suffix(".png")
        save_scaling_plot(record, plot)
        console.print(f"wrote {record.path} and {plot.name}", highlight=False, soft_wrap=True)
