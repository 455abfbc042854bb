"""State of a run of ``bench store``: its folder, edges, kept store, and lines."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgraph import DynamicGraph, EdgeBatch
from mgraph.errors import MgraphError
from workloads.bench.harness import Bench, Mismatch
from workloads.bench.inputs import Edges

__all__ = ["Kept", "Stored", "wait_until"]

POLL_SECONDS = 0.005
WAIT_SECONDS = 300.0  #: that a disk may take to sync a log


@dataclass(frozen=True)
class Kept:
    """A store that a part leaves to the next: its path, its edges, and whether it has a snapshot of them."""

    path: Path
    drawn: int
    edges: int
    snapshot: bool = False

    @property
    def name(self) -> str:
        """The name under which contents are compared."""
        return f"the graph in {self.path.name}"


class Stored:
    """Shared state of the parts.

    Parameters
    ----------
    bench : Bench
    root : Path
        A folder for the stores.
    client : distributed.Client or None
    edges : Edges

    Attributes
    ----------
    disk : dict of str to float
        Bytes per second of the disk, for each `sync`.
    kept : Kept or None
    """

    def __init__(self, bench: Bench, root: Path, client: Any, edges: Edges) -> None:
        self.bench, self.root, self.client, self.edges = bench, root, client, edges
        self.disk: dict[str, float] = {}
        self.kept: Kept | None = None
        self.resident = int(bench.options.resident or edges.n_edges)
        self._checks: dict[str, Any] = {}

    # ---- graphs ------------------------------------------------------------------------------------------------------

    def graph(self, sync: str | None = None, path: Path | None = None, **logging: Any) -> DynamicGraph:
        """Create a graph, with a store if `sync` is given."""
        options, kind = self.bench.options, self.bench.device.kind
        graph_options: dict[str, Any] = {"structure": options.structure, "device": kind}
        if sync is not None:
            graph_options |= {"store": path, "sync": sync, "lag_bytes": options.lag_bytes, **logging}
        return DynamicGraph(self.client, self.edges.n_vertices, **graph_options)

    def opened(self, kept: Kept) -> DynamicGraph:
        """Open the graph of a store."""
        place: Any = {"device": self.bench.device.kind, "snapshot_bytes": 0, "retain": 0}
        return DynamicGraph.open(self.client, kept.path, sync="background", **place)

    def fill(self, graph: DynamicGraph, first: int, stop: int) -> float:
        """Insert the edges from number `first` to `stop`, drawn where the graph is.

        Returns the seconds.
        """
        # Steps of equal size, and a last batch of the rest.
        size = len(graph.workers)
        step = max(1, min(self.bench.options.part, (stop - first) // size))
        steps = (stop - first) // (step * size)
        began = time.perf_counter()
        graph.ingest(self.edges.source(first, step), steps=steps)
        if first + steps * step * size < stop:
            graph.update(self.batch(first + steps * step * size, stop))
        return time.perf_counter() - began

    def batch(self, first: int, stop: int) -> EdgeBatch:
        """Return edges by their numbers: on the device, or in host memory for workers."""
        src, dst = self.edges.between(first, stop)
        if self.client is not None:
            src, dst = self.bench.device.to_host(src), self.bench.device.to_host(dst)
        return EdgeBatch(src, dst)

    def same(self, what: str, graph: DynamicGraph) -> tuple[int, int]:
        """Return the number of edges of a graph and their hash.

        Raises `Mismatch` if they differ under the same name.
        """
        state = graph.num_edges, graph.fingerprint()
        if state != (before := self._checks.setdefault(what, state)):
            raise Mismatch(
                f"{what}: {state[0]:,} edges with hash {state[1]:016x}; they were {before[0]:,}, {before[1]:016x}"
            )
        return state

    def keep(self, path: Path, drawn: int, graph: DynamicGraph) -> None:
        """Leave the store of a graph to the next part.

        The graph is closed then.
        """
        self.drop()
        edges, _ = self.same(f"the graph in {path.name}", graph)
        self.kept = Kept(path, drawn, edges)

    def need(self) -> Kept:
        """Return a store of the resident edges.

        A new one has no snapshot.
        """
        if self.kept is None:
            path = self.root / "resident"
            with self.graph("background", path, snapshot_bytes=0) as graph:
                seconds = self.fill(graph, 0, self.resident)
                self.keep(path, self.resident, graph)
            self.add("fill", "background", edges=self.resident, seconds=seconds)
        assert self.kept is not None
        return self.kept

    def drop(self) -> None:
        """Remove the kept store, and free the device's memory."""
        if self.kept is not None:
            shutil.rmtree(self.kept.path, ignore_errors=True)
        self.kept = None
        self.bench.free()

    # ---- lines -------------------------------------------------------------------------------------------------------

    def add(self, part: str, what: str, **values: Any) -> dict[str, Any]:
        """Add a line, with rates by its seconds, and print it at once."""
        # Add the rates.
        seconds = values.get("seconds")
        if seconds and "nbytes" in values:
            values.setdefault("mb_per_s", values["nbytes"] / seconds / 1e6)
        if seconds and "edges" in values and part != "recover":
            values.setdefault("edges_per_s", int(values["edges"] / seconds))

        # Round, print, record.
        line = {name: float(f"{v:.4g}") if isinstance(v, float) else v for name, v in values.items()}
        self.bench.say(f"{part}, {what}: " + ", ".join(f"{name} {value}" for name, value in line.items()))
        return self.bench.add("store", part=part, what=what, **line)

    def rows(self, names: Iterable[str]) -> list[list[Any]]:
        """Return the lines as rows of a table."""
        names = list(names)
        return [[line.get(name, "") for name in names] for line in self.bench.record.of("store")]


def wait_until(done: Any, what: str) -> float:
    """Poll until `done` returns True.

    Returns the seconds; raises `MgraphError` after `WAIT_SECONDS`.
    """
    began = time.perf_counter()
    while not done():
        if time.perf_counter() - began > WAIT_SECONDS:
            raise MgraphError(f"{what}: not within {WAIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
    return time.perf_counter() - began
