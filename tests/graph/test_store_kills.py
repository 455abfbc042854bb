"""Workers and clients are killed at random moments of random streams: what was acknowledged is there, whole.

`test_kill_sweep.py` does this with a graph that comes back by itself, and has the quick sample.
"""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from dask.distributed import Client
from graph_clusters import addresses, assert_clean, processes
from graph_model import GraphModel, random_batch
from patience import patience
from plain_graph import fresh_rng
from test_store import assert_graph

from mgraph import DynamicGraph, EdgeBatch, GraphClosed, GraphLost, MgraphError, StoreError, WorkerLost

N = 200


class Stream:
    """Random changes of a graph, and what the graph must be.

    Attributes
    ----------
    model : GraphModel
        As of the last acknowledged epoch.
    coming : list of GraphModel
        As of the epochs that were on their way: how many of them are there is known when the graph is opened again.
    """

    def __init__(self, rng: np.random.Generator, path: Path) -> None:
        self.rng, self.path, self.model, self.epoch = rng, path, GraphModel(N, weighted=True), 0
        self.coming: list[GraphModel] = []

    def batches(self, n: int) -> list[EdgeBatch]:
        """Batches that are on their way from now on."""
        made, model = [], copy.deepcopy(self.model)
        for _ in range(n):
            made.append(random_batch(self.rng, model.n_vertices, int(self.rng.integers(1, 2000)), True))
            model = copy.deepcopy(model)
            model.update(made[-1])
            self.coming.append(model)
        return made

    def run(self, graph: DynamicGraph) -> None:
        """Change the graph until it is lost."""
        while True:
            kind = self.rng.choice(["update", "pipeline", "ingest", "add", "delete"], p=[0.4, 0.2, 0.2, 0.1, 0.1])
            if kind == "update":
                graph.update(*self.batches(1))
            elif kind == "pipeline":
                with graph.pipeline() as flight:
                    for batch in self.batches(4):
                        flight.update(batch)
            elif kind == "ingest":
                parts = self.batches(4)
                graph.ingest(lambda rank, size, step, parts=parts: _part(parts, rank, size, step))
            elif kind == "add":
                self.coming.append(copy.deepcopy(self.model))
                self.coming[-1].n_vertices += 2
                graph.add_vertices(2)
            else:
                ids = self.rng.integers(0, self.model.n_vertices, 5)
                self.coming.append(copy.deepcopy(self.model))
                self.coming[-1].delete_vertices(ids.tolist())
                graph.delete_vertices(ids)
            self.model, self.epoch = self.coming[-1], self.epoch + len(self.coming)
            self.coming = []
            assert graph.epoch == self.epoch

    def check(self, graph: DynamicGraph) -> None:
        """What was acknowledged is there, and of what was on its way a beginning."""
        assert self.epoch <= graph.epoch <= self.epoch + len(self.coming)
        self.model = [self.model, *self.coming][graph.epoch - self.epoch]
        self.epoch, self.coming = graph.epoch, []
        assert_graph(graph, self.model)


def _part(parts: list[EdgeBatch], rank: int, size: int, step: int) -> EdgeBatch | None:
    """Contiguous shares of each batch, so that rank order is stream order."""
    if step == len(parts):
        return None
    n = len(parts[step])
    return parts[step][n * rank // size : n * (rank + 1) // size]


class NoWorkers(Exception):
    """Dask's nannies have given up: now and then they do where their workers are killed again and again."""


def workers(client: Client, seconds: float = 20) -> list[str]:
    """The workers of now."""
    end = time.monotonic() + patience(seconds)
    while not (found := addresses(client)):
        if time.monotonic() > end:
            raise NoWorkers
        time.sleep(0.05)
    return found


def kill_some(client: Client, stream: Stream, kills: int, seconds: list[float]) -> None:
    """Kill one worker or all, so many times; adds the seconds that each opening took."""
    rng = stream.rng
    if stream.path.exists():
        graph = opened(client, rng, stream.path)
        stream.check(graph)
    else:
        graph = DynamicGraph(client, N, weighted=True, store=stream.path, snapshot_bytes=200_000)
    for _ in range(kills):
        pids = list(client.run(os.getpid, workers=list(graph.workers)).values())
        victims = pids if rng.random() < 0.2 else [int(rng.choice(pids))]
        killer = threading.Timer(float(rng.random() * 1.0), lambda victims=victims: [_kill(pid) for pid in victims])
        killer.start()
        with pytest.raises((WorkerLost, GraphLost, GraphClosed)):
            stream.run(graph)
        killer.join()
        graph.close()
        began = time.monotonic()
        graph = opened(client, rng, stream.path)
        seconds.append(time.monotonic() - began)
        stream.check(graph)
    graph.close()


def opened(client: Client, rng: np.random.Generator, path: Path, patience: float = 30) -> DynamicGraph:
    """The graph, on workers that are there; a worker that is just ending may still be listed."""
    end = time.monotonic() + patience
    while True:
        there = workers(client)
        try:
            return DynamicGraph.open(
                client, path, workers=there[: int(rng.integers(1, len(there) + 1))], snapshot_bytes=200_000,
                sync=str(rng.choice(["always", "background"])),
            )  # fmt: skip
        except MgraphError as error:
            if time.monotonic() > end or (isinstance(error, StoreError) and error.reason != "in use"):
                raise
            time.sleep(0.1)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_workers_are_killed_often(tmp_path):
    """One store through all kills, on one cluster after another."""
    stream, seconds = Stream(fresh_rng(), tmp_path / "store"), []
    while len(seconds) < 60:
        with processes(2) as client, suppress(NoWorkers):
            kill_some(client, stream, 5, seconds)
    print(len(seconds), "kills,", stream.epoch, "epochs; opened in", np.quantile(seconds, [0.5, 1]))


CLIENT = """
import sys
import numpy as np
from dask.distributed import Client
from mgraph import DynamicGraph
from graph_model import random_batch
address, path, seed, sync = sys.argv[1:]
with Client(address) as client:
    graph = DynamicGraph(client, 200, store=path, sync=sync)
    rng = np.random.default_rng(int(seed))
    while True:
        print(graph.update(random_batch(rng, 200, 500, False)).epoch, flush=True)
"""


def kill_clients(client: Client, rng: np.random.Generator, folder: Path, kills: int) -> None:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "tests" / "support")])
    for turn in range(kills):
        path, seed = folder / str(turn), int(rng.integers(1 << 30))
        sync = ["always", "background"][turn % 2]
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, client.scheduler.address, str(path), str(seed), sync],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(int(rng.integers(1, 8)))]
        time.sleep(float(rng.random()) * 0.05)
        process.kill()
        lines += process.stdout.readlines()
        process.stdout.close()
        process.wait(10)
        acknowledged = max(int(line) for line in lines if line.endswith("\n"))
        with DynamicGraph.open(client, path) as graph:  # the workers still end the graph of the dead client
            assert acknowledged <= graph.epoch <= acknowledged + 1
            again, model = np.random.default_rng(seed), GraphModel(N)
            for _ in range(graph.epoch):
                model.update(random_batch(again, N, 500, False))
            assert_graph(graph, model)


@pytest.mark.slow
def test_clients_are_killed(own_client, tmp_path):
    kill_clients(own_client, fresh_rng(), tmp_path, 1)
    assert_clean(own_client)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_clients_are_killed_often(own_client, tmp_path):
    kill_clients(own_client, fresh_rng(), tmp_path, 30)
    assert_clean(own_client)
