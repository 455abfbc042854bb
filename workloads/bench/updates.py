"""``bench updates``: the same batches into a large graph in each structure, in ``csr``, and by a plain rebuild.

A batch is timed from unsorted edges on the device to committed, exact counts, and from a sorted run without repeats.
Every phase's counts must equal those of ``csr``, and at the end the number of edges and the hash of all edges.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.device import Array
from mgraph.distinct import distinct
from mgraph.structures import Counts, Run, create
from mgraph.structures.run import sort_batch
from mgraph.worker.shard.fingerprint import edge_hash
from workloads.arguments import check_least
from workloads.bench.harness import Bench, Mismatch, counts_of, short, summary
from workloads.bench.inputs import Edges, add_graph_arguments, chosen_structures
from workloads.bench.rebuild import Rebuild

__all__ = ["HELP", "add_arguments", "measure"]

HELP = "time builds and batches of inserts and deletes, each structure with the same ones"
REBUILD = "rebuild"
WARM = 2  #: warm-up batches of each size: the memory pool learns their sizes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the benchmark's options."""
    add = parser.add_argument
    add_graph_arguments(parser)
    add(
        "--resident", "--edges", dest="resident", type=int, metavar="N", help="edges drawn for the graph (default: all)"
    )
    add("--batches", default="10000,100000,1000000", metavar="N,N", help="batch sizes (default: %(default)s)")
    add("--repeats", type=int, default=10, metavar="N", help="batches of each size (default: %(default)s)")
    add("--builds", type=int, default=3, metavar="N", help="builds to time (default: %(default)s)")
    add("--double", action="store_true", help="then time each batch while the number of edges doubles")
    add(
        "--double-batch", type=int, default=1_000_000, metavar="N", help="edges of these batches (default: %(default)s)"
    )
    add("--no-rebuild", action="store_true", help="leave out the rebuild by NumPy, which is part of CPU runs")


def measure(bench: Bench) -> None:
    """Time each structure in turn, and compare its results with those of ``csr``."""
    # Check the options.
    options = bench.options
    check_least(options, "repeats", "builds", "double_batch", "resident")
    names = chosen_structures(options, (REBUILD,))
    if bench.device.kind == "cpu" and not options.no_rebuild and REBUILD not in names:
        names.append(REBUILD)

    # Draw the edges.
    edges, sizes = Edges(options, bench.device), counts_of(options.batches, "batches")
    resident = options.resident or edges.n_edges
    bench.say(f"{resident:,} edges drawn on {edges.n_vertices:,} vertices, {bench.device}")
    src, dst = edges.between(0, resident)

    # Measure each structure. Batches of a size begin after those of smaller sizes, unused by any other.
    oracle: _Subject | None = None
    for name in names:
        subject = _Subject(bench, name, edges, oracle)
        subject.build(src, dst)
        for size in sizes:
            subject.batches(size, resident + sum(sizes[: sizes.index(size)]) * 2 * (WARM + options.repeats))
        subject.finish()
        if options.double:
            subject.double(src, dst, resident + sum(sizes) * 2 * (WARM + options.repeats))
        oracle = oracle or subject
        bench.free()
    _table(bench)


class _Subject:
    """Measurement of a structure, with its oracle."""

    def __init__(self, bench: Bench, name: str, edges: Edges, oracle: _Subject | None) -> None:
        self.bench, self.edges, self.oracle = bench, edges, oracle
        self.label = name if name != REBUILD else f"rebuild ({bench.xp.__name__})"
        n, device = edges.n_vertices, bench.device
        self.make: Callable[[], Any] = partial(Rebuild, n, device)
        if name != REBUILD:
            self.make = partial(create, name, n, device=device)
        self.structure: Any = None
        self.results: dict[Any, Any] = {}  # results that must be equal, by their place

    def _same(self, what: Any, value: Any) -> Any:
        """Keep a result. Raises `Mismatch` if the oracle's differs."""
        self.results[what] = value
        if self.oracle is not None and self.oracle.results[what] != value:
            raise Mismatch(f"{self.label}: {what} is {value}, with csr {self.oracle.results[what]}")
        return value

    def _add(self, kind: str, key: tuple[Any, ...], seconds: list[float], **values: Any) -> None:
        times_ms = summary(seconds)
        self.results["median", *key] = times_ms["p50_ms"]
        csr = self.oracle.results["median", *key] if self.oracle is not None else times_ms["p50_ms"]
        self.bench.add(kind, structure=self.label, **values, **times_ms, csr_ratio=round(csr / times_ms["p50_ms"], 3))

    # ---- phases ------------------------------------------------------------------------------------------------------

    def build(self, src: Array, dst: Array) -> None:
        """Build fresh structures from unsorted edges with repeats."""
        # Warm up: compile the kernels of builds and batches.
        warm = self.make()
        warm.build(EdgeBatch(src[:10_000], dst[:10_000]))  # compiles
        for size in (1, 1000):
            warm.apply(EdgeBatch(src[-size:], dst[-size:]))
            warm.apply(EdgeBatch(src[-size:], dst[-size:], op=-1))

        # Time the builds.
        seconds = []
        for _ in range(self.bench.options.builds):
            self.structure = None
            self.structure = self.make()
            spent, counts = self.bench.time(lambda: self.structure.build(EdgeBatch(src, dst)))
            seconds.append(spent)

        # Compare the number of edges.
        edges = self._same("edges built", counts.inserted)
        self._add("build", ("build",), seconds, drawn=len(src), edges=edges, first_ms=round(seconds[0] * 1e3, 4))
        per_edge = self.structure.nbytes / max(edges, 1)
        self.bench.say(
            f"{self.label}: {edges:,} edges in {np.median(seconds) * 1e3:.1f} ms, {per_edge:.2f} bytes per edge"
        )

    def batches(self, size: int, start: int) -> None:
        """Insert batches and delete them again, unsorted; then others, as sorted runs."""
        count = WARM + self.bench.options.repeats
        for ordered in (False, True):
            first = start + ordered * count * size
            for op in (1, -1):
                self._phase(size, ordered, op, first, count)

    def _phase(self, size: int, ordered: bool, op: int, start: int, count: int) -> None:
        # Time the batches.
        seconds: list[float] = []
        total = Counts()
        for src, dst in self.edges.batches(start, size, count):
            spent, counts = self._apply(EdgeBatch(src, dst, op=None if op == 1 else op), ordered)
            seconds.append(spent)
            total = total + counts

        # Compare their counts.
        key = (size, ordered, op)
        sums = {name: getattr(total, name) for name in total._fields}
        self._same(key, sums)
        self._add("batch", key, seconds[WARM:], size=size, op="insert" if op == 1 else "delete", sorted=ordered, **sums)

    def _apply(self, batch: EdgeBatch, ordered: bool) -> tuple[float, Counts]:
        if not ordered:
            return self.bench.time(lambda: self.structure.apply(batch))
        run = sort_batch(self.bench.device, batch, self.edges.n_vertices, self.edges.n_vertices)
        keys = distinct(run.keys)
        run = Run(keys, None if run.op is None else run.op[: len(keys)])
        return self.bench.time(lambda: self.structure.apply_run(run))

    def double(self, src: Array, dst: Array, start: int) -> None:
        """Insert until the number of edges has doubled, and compare the slowest batch with a copy of all.

        Twice. First the pool is empty at the start. Then its final size is reserved before, in one block.
        """
        peak = self._double(src, dst, start, 0)
        if self.bench.device.kind == "cuda":
            self._double(src, dst, start, peak)

    def _double(self, src: Array, dst: Array, start: int, reserve: int) -> int:
        # Build the structure, with `reserve` bytes in the pool.
        self.bench.free()
        self.bench.device.reserve(reserve)
        self.structure = self.make()
        self.structure.build(EdgeBatch(src, dst))
        size, goal = self.bench.options.double_batch, 2 * self.structure.num_edges

        # Insert until it has doubled.
        seconds: list[float] = []
        slowest = 0
        for batch in _endless(self.edges, start, size):
            if self.structure.num_edges >= goal or len(seconds) > 100 * max(1, goal // size):  # most may be repeats
                break
            spent, _ = self._apply(EdgeBatch(*batch), False)
            if not seconds or spent > max(seconds):
                slowest = self.structure.nbytes
            seconds.append(spent)

        # Compare the slowest batch with a copy of the structure then.
        pool_bytes = self.bench.pool_bytes()
        copy = self.bench.copy_seconds(slowest)
        self._same("batches to double", len(seconds))
        ratio = round(max(seconds) / copy, 2)
        last = {"edges": self.structure.num_edges, "nbytes": self.structure.nbytes, "reserved_bytes": reserve}
        self._add(
            "double",
            ("double", reserve > 0),
            seconds,
            size=size,
            copy_ms=round(copy * 1e3, 4),
            slowest_copies=ratio,
            each_ms=[round(spent * 1e3, 4) for spent in seconds],
            **last,
        )
        self.finish("doubled")
        return pool_bytes

    def finish(self, after: str = "batches") -> None:
        """Compare the remaining edges, and free the structure."""
        # Compare the edges.
        edges = self._same(f"edges after {after}", self.structure.num_edges)
        edges_hash = self._same(f"hash of the edges after {after}", f"{edge_hash(self.structure):016x}")
        per_edge = round(self.structure.nbytes / max(edges, 1), 3)
        checked = self.oracle is not None
        self.bench.add(
            "check",
            structure=self.label,
            after=after,
            edges=edges,
            hash=edges_hash,
            bytes_per_edge=per_edge,
            checked=checked,
        )
        self.structure = None


def _endless(edges: Edges, start: int, size: int) -> Iterator[tuple[Array, Array]]:
    while True:
        yield edges.between(start, start + size)
        start += size


def _table(bench: Bench) -> None:
    # One row per phase.
    rows = []
    for line in bench.record.lines:
        if line["kind"] in ("build", "batch", "double"):
            what = {"build": "build", "double": "insert, doubling"}.get(line["kind"], line.get("op", ""))
            what += ", reserved" if line.get("reserved_bytes") else ""
            what += f" {short(line.get('size') or line['drawn'])}" + (", sorted" if line.get("sorted") else "")
            rows.append([what, line["structure"], line["p50_ms"], line["p99_ms"], line["max_ms"], line["csr_ratio"]])
    # Group the rows to compare.
    order = list(dict.fromkeys(row[0] for row in rows))  # rows to compare stand together
    rows.sort(key=lambda row: order.index(row[0]))
    bench.table("edges checked against csr", ["what", "structure", "p50 ms", "p99 ms", "max ms", "csr / this"], rows)
