"""The writer of `kill_sweep.py`: streams of changes that follow from a seed, and the process that makes them.

What an epoch changes follows from the seed and its number, so that the graph of any epoch is known.

    python tests/support/kill_writer.py SCHEDULER STORE SEED SYNC DEVICE STREAM DISKS

changes the graph in the store until the process is killed, and prints which epochs were acknowledged. Without a
scheduler the graph is in this process.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from cluster_processes import processes
from distributed import Client
from graph_model import GraphModel, random_batch

from mgraph import DynamicGraph, EdgeBatch, MgraphError, StoreError

N = 150
MOST = 100  #: changes at once: small batches of a pipeline share calls
OPEN_SECONDS = 60.0  #: in which a store can be opened after a kill, on a machine that does other things, too
PATIENCE = {"cpu": 3.0, "cuda": 15.0}  #: seconds; a worker on a GPU loads kernels in its first calls


# ---- what an epoch changes -------------------------------------------------------------------------------------------


class Ids:
    """A weighted graph of numbered vertices."""

    def __init__(self) -> None:
        self.model = GraphModel(N, weighted=True)

    @staticmethod
    def options() -> dict[str, Any]:
        return {"n_vertices": N, "weighted": True}

    @staticmethod
    def change(seed: int, epoch: int) -> tuple[str, Any]:
        """What an epoch changes: its kind, and a batch, ids, or a number of vertices."""
        rng = np.random.default_rng([seed, epoch])
        kind = str(rng.choice(["batch", "add", "delete"], p=[0.9, 0.05, 0.05]))
        if kind == "batch":
            return kind, random_batch(rng, N, int(rng.integers(1, rng.choice([30, 1500]))), True)
        return kind, (2 if kind == "add" else rng.integers(0, N, 5))

    @staticmethod
    def chosen(graph: DynamicGraph, what: Any) -> Any:
        """The vertices that are to be deleted."""
        return what

    def apply(self, epoch: int, kind: str, what: Any) -> None:
        """One epoch more."""
        model = self.model
        if kind == "batch":
            model.update(what)
        elif kind == "add":
            model.n_vertices += what
        else:
            model.delete_vertices(what.tolist())

    def check(self, graph: DynamicGraph) -> None:
        csr = graph.to_csr()
        src = np.repeat(np.arange(graph.num_vertices), np.diff(csr.offsets))
        assert csr.weight is not None
        found = dict(zip(zip(src.tolist(), csr.dst.tolist(), strict=True), csr.weight.tolist(), strict=True))
        assert graph.num_vertices == self.model.n_vertices
        assert found == self.model.arcs()


class Keys:
    """A weighted graph of string keys with a window, in epochs, whose vertices leave with their last edge."""

    WINDOW = 20

    def __init__(self) -> None:
        self.edges: dict[tuple[str, str], tuple[int, float]] = {}
        self.vertices: set[str] = set()

    @classmethod
    def options(cls) -> dict[str, Any]:
        return {"keys": "string", "weighted": True, "window": cls.WINDOW, "drop_isolated": True}

    @staticmethod
    def change(seed: int, epoch: int) -> tuple[str, Any]:
        """What an epoch changes: its kind, and a batch, places among the vertices, or keys."""
        rng = np.random.default_rng([seed, epoch])
        kind = str(rng.choice(["batch", "add", "delete"], p=[0.9, 0.05, 0.05])) if epoch > 1 else "batch"
        if kind != "batch":
            return kind, ([f"new {epoch}", f"new {-epoch}"] if kind == "add" else rng.random(3))
        n = int(rng.integers(1, 100))
        src, dst = ([f"é{i}" for i in ends] for ends in rng.integers(0, 2000, (2, n)))
        op, weight = np.where(rng.random(n) < 0.2, -1, 1), rng.integers(0, 100, n)
        return kind, EdgeBatch(src, dst, weight, op, keys="string", time=np.full(n, epoch))

    @staticmethod
    def chosen(graph: DynamicGraph, what: Any) -> Any:
        """The vertices that are to be deleted."""
        return Keys.at(sorted(graph.vertices().tolist()), what)

    @staticmethod
    def at(vertices: list[str], places: Any) -> list[str]:
        return sorted({vertices[int(place * len(vertices))] for place in places}) if vertices else []

    def apply(self, epoch: int, kind: str, what: Any) -> None:
        """One epoch more."""
        if kind == "add":
            self.vertices |= set(what)
            return
        if kind == "delete":
            gone = set(self.at(sorted(self.vertices), what))
            self.edges = {edge: at for edge, at in self.edges.items() if not gone & set(edge)}
        else:
            ends = (end.to_arrow().to_pylist() for end in (what.src, what.dst))
            rows = zip(*ends, what.op.tolist(), what.weight.tolist(), strict=True)
            for src, dst, op, weight in rows:
                if op > 0:
                    self.edges[src, dst] = epoch, weight
                else:
                    self.edges.pop((src, dst), None)
            if (what.op > 0).any():
                self.edges = {edge: at for edge, at in self.edges.items() if at[0] > epoch - self.WINDOW}
        self.vertices = {end for edge in self.edges for end in edge}

    def check(self, graph: DynamicGraph) -> None:
        frame = graph.to_pandas()
        rows = zip(*(frame[name].tolist() for name in ("source", "target", "time", "weight")), strict=True)
        assert {(src, dst): (time, weight) for src, dst, time, weight in rows} == self.edges
        assert sorted(graph.vertices().tolist()) == sorted(self.vertices)


# ---- the writer ------------------------------------------------------------------------------------------------------


def write(address: str, path: str, seed: int, sync: str, device: str, stream: type[Ids | Keys], disks: str) -> None:
    """Open or make the graph, and change it until this process is killed."""
    rng = random.Random()
    options: dict[str, Any] = {"sync": sync, "snapshot_bytes": 300_000, "device": device}
    if address:
        options |= {"recover": "auto", "max_recoveries": 8, "patience": PATIENCE[device]}
    with Client(address) if address else nullcontext() as client:
        if any(Path(path).glob("**/*.json")):  # of the store, or of its ranks
            graph = again(lambda: DynamicGraph.open(client, path, **options))
        else:
            graph = DynamicGraph(client, store=path, disks=disks, **stream.options(), **options)
        while True:
            print("ack", graph.epoch, len(graph.recoveries), flush=True)
            changes = [stream.change(seed, graph.epoch + i) for i in range(1, 1 + rng.choice([1, 4, MOST]))]
            batches = [what for _, what in takewhile(lambda change: change[0] == "batch", changes)]
            if len(batches) < 2:
                one(graph, stream, *changes[0])
            elif rng.random() < 0.5:
                with graph.pipeline() as flight:
                    for batch in batches:
                        flight.update(batch)
            elif stream is Keys:
                graph.ingest(batches)
            else:
                graph.ingest(lambda rank, size, step, batches=batches: part(batches, rank, size, step))
            if rng.random() < 0.2:
                graph.connected_components().to_numpy() if rng.random() < 0.5 else graph.degrees()


def one(graph: DynamicGraph, stream: type[Ids | Keys], kind: str, what: Any) -> None:
    if kind == "batch":
        graph.update(what)
    elif kind == "add":
        graph.add_vertices(what)
    else:
        graph.delete_vertices(stream.chosen(graph, what))


def part(batches: list[Any], rank: int, size: int, step: int) -> Any:
    if step == len(batches):
        return None
    n = len(batches[step])
    return batches[step][n * rank // size : n * (rank + 1) // size]


def again(opened: Any, seconds: float = OPEN_SECONDS) -> DynamicGraph:
    """What `opened` returns; tried again while workers start or a killed graph is still being closed."""
    end = time.monotonic() + seconds
    while True:
        try:
            return opened()
        except MgraphError as error:
            damaged = isinstance(error, StoreError) and error.reason != "in use"
            if damaged or time.monotonic() > end:
                raise
            time.sleep(0.1)


def warm(device: str, on: Sequence[str | None]) -> None:
    """Have all kernels compiled, in the cache that all processes share."""
    with tempfile.TemporaryDirectory() as folder, processes(Path(folder), on=on) as cluster:
        for stream in (Ids, Keys):
            path = Path(folder) / stream.__name__
            with DynamicGraph(cluster.client, store=path, device=device, **stream.options()) as graph:
                for epoch in range(1, 30):
                    one(graph, stream, *stream.change(0, epoch))
                graph.connected_components().to_numpy()
            with DynamicGraph.open(cluster.client, path, device=device) as graph:
                graph.degrees()


STREAMS: dict[str, type[Ids | Keys]] = {"Ids": Ids, "Keys": Keys}

if __name__ == "__main__":
    address, path, seed, sync, device, stream, disks = sys.argv[1:]
    write(address, path, int(seed), sync, device, STREAMS[stream], disks)
