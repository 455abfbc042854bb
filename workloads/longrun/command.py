"""``python -m workloads longrun``: a graph of billions of edges changes for a while, and its final edges are checked.

The graph is built on the workers. Then come mixed batches of inserts and deletes, also drawn on the workers, with BFS
and PageRank on the live graph after every tenth. At the end the graph must have as many edges as the reports add up to,
and the hash that the workers compute from the sequence of edges alone (`workloads.longrun.replay`). Each worker's
device memory is recorded at every tenth batch: memory outside the graph must not grow.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from distributed import Client
from rich.console import Console

from cluster import start
from mgraph import DynamicGraph, UpdateReport
from mgraph.client.creation.placement import choose_workers
from mgraph.device import Device, gpu_count
from mgraph.growing import mapped_bytes
from mgraph.partition import degree_order
from workloads.arguments import add_born_graph, add_record, check_least
from workloads.bench.harness import Mismatch, open_record, short, show_table, summary
from workloads.inputs.churn import Churn
from workloads.longrun.replay import Sent, replayed
from workloads.results.record import Record
from workloads.scaling.point import Point

__all__ = ["HELP", "add_arguments", "run"]

HELP = "build a graph of billions of edges, change it by many batches, analyse it between them, check what is left"
SLACK = 256 << 20  #: growth of a worker's memory outside the graph, at most, in bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add = parser.add_argument
    add("--gpus", "--workers", dest="workers", type=int, metavar="N", help="workers (default: one per GPU or core)")
    add("--scale", type=int, default=16, metavar="S", help="2**S vertices (default: %(default)s)")
    add("--batch", type=int, default=1_000_000, metavar="N", help="operations per batch in all (default: %(default)s)")
    add("--batches", type=int, default=100, metavar="N", help="how many (default: %(default)s)")
    add("--every", type=int, default=10, metavar="N", help="batches between analyses (default: %(default)s)")
    add_born_graph(parser)
    add_record(parser, "JSON lines")


def run(options: argparse.Namespace) -> int:
    """Run the command. Returns 0; raises `Mismatch` if the final graph is wrong."""
    check_least(options, "part", "batch", "batches", "every")
    record, console = open_record("longrun", options), Console()
    with start(options.workers, device=options.device) as client:
        _LongRun(options, client, record, console).run()
    record.add("end")
    _show(record, console)
    return 0


class _LongRun:
    """Run of a graph from its first edge to its last check."""

    def __init__(self, options: argparse.Namespace, client: Client, record: Record, console: Console) -> None:
        workers = choose_workers(client, None)
        self.options, self.record, self.console = options, record, console
        self.point = Point(options, client, workers, options.scale)
        self.half = max(1, options.batch // (2 * len(workers)))  # inserts, and deletes, per worker
        self.gained, self.operations = 0, 0
        self.root = int(self.point.host(0, 1).src[0])

    def run(self) -> None:
        """Build the graph, apply the batches with analyses between, and check the edges."""
        # Internal ids in the order of degrees, on demand.
        point, options = self.point, self.options
        order = None
        if options.ids == "degree":
            order = point.maker.to_host(degree_order(point.degrees(point.edges.n_edges), len(point.workers)))
            point.free()

        # Build, change and analyse, check.
        with point.graph(directed=options.directed, order=order) as graph:
            seconds, self.gained = point.fill(graph, point.edges.n_edges)
            self._note("built", graph, drawn=point.edges.n_edges, seconds=round(seconds, 3))
            for done, reports, spent in self._batches(graph):
                self.gained += sum(report.inserted - report.deleted for report in reports)
                self._note("batches", graph, done=done, **self._rate(reports, spent), **self._analysed(graph))
            self._check(graph)

    def _batches(self, graph: DynamicGraph) -> Iterator[tuple[int, list[UpdateReport], float]]:
        """Yield the number of batches so far, the reports of the newest, and their seconds."""
        for first in range(0, self.options.batches, self.options.every):
            steps = min(self.options.every, self.options.batches - first)
            began = time.perf_counter()
            reports = graph.ingest(self._churn(first), steps=steps)
            yield first + steps, reports, time.perf_counter() - began

    def _churn(self, first: int) -> Churn:
        """Return a source of batch number `first` and later ones.

        Edges after the built ones are inserted, the built ones deleted.
        """
        skip, source = first * self.half * len(self.point.workers), self.point.edges.source
        return Churn(source(self.point.edges.n_edges + skip, self.half), source(skip, self.half))

    def _rate(self, reports: list[UpdateReport], spent: float) -> dict[str, Any]:
        operations = 2 * self.half * len(self.point.workers) * len(reports)
        self.operations += operations
        return {"updates_per_s": round(operations / spent), "step": summary([report.seconds for report in reports])}

    def _analysed(self, graph: DynamicGraph) -> dict[str, Any]:
        began = time.perf_counter()
        distances = graph.bfs(self.root)
        searched = time.perf_counter()
        ranks = graph.pagerank()
        ranked = time.perf_counter()
        return {
            "bfs_ms": round((searched - began) * 1e3, 3),
            "reached": distances.reached,
            "pagerank_ms": round((ranked - searched) * 1e3, 3),
            "pagerank_iterations": ranks.iterations,
            "pagerank_ms_an_iteration": round((ranked - searched) * 1e3 / max(ranks.iterations, 1), 4),
        }

    def _note(self, kind: str, graph: DynamicGraph, **values: Any) -> None:
        # Measure the memory of each worker: the graph's, and the rest.
        loads = graph.balance()
        nbytes = {load.address: load.nbytes for load in loads.workers}
        taken = self.point.client.run(_taken, workers=self.point.workers)
        beside = [(taken[a]["used"] or nbytes[a]) - nbytes[a] for a in self.point.workers]

        # Record and print the line.
        line = self.record.add(
            kind,
            **values,
            edges=graph.num_edges,
            arcs=sum(load.arcs for load in loads.workers),
            epoch=graph.epoch,
            most_arcs_over_mean=round(loads.ratio, 4),
            nbytes=[nbytes[address] for address in self.point.workers],
            beside=beside,
            pool=[taken[address]["pool"] for address in self.point.workers],
        )
        text = f"{short(line['edges'])} edges, {short(line['arcs'])} arcs, {sum(line['nbytes']) / 1e9:.2f} GB"
        if kind == "batches":
            text = (
                f"{line['done']} batches: {text}; {short(line['updates_per_s'])} updates/s, "
                f"BFS {line['bfs_ms']:.1f} ms, PageRank {line['pagerank_ms_an_iteration']:.2f} ms per iteration"
            )
        self.console.print(text, highlight=False, soft_wrap=True)

    def _check(self, graph: DynamicGraph) -> None:
        """Raise `Mismatch` if the final graph is wrong, or if a worker's other memory grew."""
        # Replay the stream without a graph.
        began = time.perf_counter()
        built, size = self.point.edges, len(self.point.workers)
        churn, directed = self._churn(0), self.options.directed
        sent = Sent(built.source(0, 1), built.n_edges, churn, self.options.batches, size, directed)
        replay = replayed(self.point.client, self.point.workers, sent)

        # Compare edges, arcs and hash.
        actual = {"edges": graph.num_edges, "arcs": self._arcs(graph), "hash": f"{graph.fingerprint():016x}"}
        expected = {"edges": self.gained, "arcs": replay.arcs, "hash": f"{replay.hash:016x}"}
        self.record.add("check", **actual, operations=self.operations, seconds=round(time.perf_counter() - began, 3))
        for what, value in expected.items():
            if actual[what] != value:
                raise Mismatch(f"{what} of the graph: {actual[what]}; what was sent and reported leaves {value}")

        # Compare the memory of the first and the last measurement.
        lines = self.record.of("batches")
        grown = np.subtract(lines[-1]["beside"], lines[0]["beside"])
        if grown.max() > SLACK:
            raise Mismatch(f"memory other than the graph's grew by {grown.tolist()} bytes on the workers")

    @staticmethod
    def _arcs(graph: DynamicGraph) -> int:
        return sum(load.arcs for load in graph.balance().workers)


def _taken() -> dict[str, int | None]:
    """Return bytes of arrays and of the memory pool in a worker's process; None on the CPU."""
    if not gpu_count():
        return {"used": None, "pool": None}
    pool = Device("cuda").xp.get_default_memory_pool()
    return {"used": int(pool.used_bytes()) + mapped_bytes(), "pool": int(pool.total_bytes()) + mapped_bytes()}


def _show(record: Record, console: Console) -> None:
    lines = record.of("batches")
    columns = ["batches", "edges", "M updates/s", "BFS ms", "PageRank ms/iteration", "graph, GB", "other memory, GB"]
    rows = [
        [
            line["done"],
            short(line["edges"]),
            line["updates_per_s"] / 1e6,
            line["bfs_ms"],
            line["pagerank_ms_an_iteration"],
            sum(line["nbytes"]) / 1e9,
            sum(line["beside"]) / 1e9,
        ]
        for line in lines
    ]
    show_table(console, "the long run", columns, rows)
    check = record.of("check")[0]
    console.print(f"edges, arcs and hash {check['hash']} are those of what was sent", highlight=False, soft_wrap=True)
