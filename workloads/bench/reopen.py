"""Snapshots of a stored graph, and openings from its log and from a snapshot.

An opening is compared with reading the same files into memory, and building the same edges from host memory.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.log.records import segment_start
from mgraph.structures import create
from workloads.bench.disk import drop_cached, files_in, read_seconds, size_of
from workloads.bench.store_run import Kept, Stored, wait_until

__all__ = ["measure_open", "measure_snapshot"]

BUILDS = 2  #: the faster counts: the first waits for memory
WARM = 10_000  #: edges of a warm-up build
PLAIN = 5  #: batches before the snapshot, to compare with the batch after it


def measure_snapshot(run: Stored) -> None:
    """Take a snapshot and submit a batch at once.

    Times the batch's wait, and the whole snapshot.
    """
    kept = run.need()
    size = max(1, min(run.bench.options.batch, kept.drawn // (PLAIN + 1)))
    with run.opened(kept) as graph:
        batches = [run.batch(k * size, (k + 1) * size) for k in range(PLAIN + 1)]
        # Time plain batches.
        spent = []
        for batch in batches[1:]:  # present edges: the graph stays the same
            began = time.perf_counter()
            graph.update(batch)
            spent.append(time.perf_counter() - began)

        # Time the snapshot's call, the next batch, and the whole snapshot.
        began = time.perf_counter()
        epoch = graph.snapshot(wait=False)
        called = time.perf_counter() - began
        graph.update(batches[0])
        waited = time.perf_counter() - began - float(np.median(spent))
        rest = wait_until(lambda: _has(graph, epoch), f"the snapshot of epoch {epoch}")
        whole = time.perf_counter() - began
        run.same(kept.name, graph)

    # Record the times.
    files = _snapshot_files(kept.path)
    values = {"edges": kept.edges, "pause_s": waited, "call_s": called, "seconds": whole, "nbytes": size_of(files)}
    run.add("snapshot", "written while the graph goes on", **values, waited_for_s=rest)
    run.kept = replace(kept, snapshot=True)


def _has(graph: object, epoch: int) -> bool:
    store = graph.store  # type: ignore[attr-defined]
    return store is not None and epoch in store.snapshots


def _snapshot_files(path: Path) -> list[Path]:
    return [file for file in files_in(path) if file.suffix == ".arrow"]


def _log_files(path: Path) -> list[Path]:
    return [file for file in files_in(path) if segment_start(file.name) is not None]


def measure_open(run: Stored, source: str) -> None:
    """Open the kept store with cold files, read its files, and build its edges without a store."""
    # Read the files alone, cold.
    kept = run.need()
    files = _snapshot_files(kept.path) if kept.snapshot else _log_files(kept.path)
    drop_cached(files)
    read = read_seconds(files)

    # Open the store, cold.
    drop_cached(files)
    began = time.perf_counter()
    with run.opened(kept) as graph:
        seconds = time.perf_counter() - began
        run.same(kept.name, graph)

    # Build the same edges without a store.
    run.bench.free()
    drawn = kept.edges if kept.snapshot else kept.drawn
    build = _build_seconds(run, kept)
    values = {"edges": drawn, "seconds": seconds, "read_s": read, "build_s": build}
    run.add("open", source, **values, nbytes=size_of(files), ratio=seconds / (read + build))


def _build_seconds(run: Stored, kept: Kept) -> float:
    """Return the seconds of copying the drawn edges to the device and building the structure there."""
    bench = run.bench
    src, dst = (bench.device.to_host(ids) for ids in run.edges.between(0, kept.drawn))
    bench.free()

    def build(n: int) -> None:
        structure = create(bench.options.structure, run.edges.n_vertices, device=bench.device)
        structure.build(EdgeBatch(bench.xp.asarray(src[:n]), bench.xp.asarray(dst[:n])))

    build(WARM)  # compiles
    seconds = min(bench.times(lambda: build(len(src)), BUILDS, warm=0))
    bench.free()
    return seconds
