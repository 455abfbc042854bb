"""Clusters of processes for the tests of whole graphs, and the checks of a graph and of what it leaves behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
import numpy as np
from dask.distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from graph_model import GraphModel
from patience import patience

from mgraph import DynamicGraph
from mgraph.algorithms import ALGORITHMS, Algorithm

#: options of a cluster: the dashboard takes a second to load, and the health page takes a port that is free
NO_DASHBOARD: dict[str, Any] = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}


@contextmanager
def quick_start() -> Iterator[None]:
    """Workers that start meanwhile are forked from a process that has imported mgraph, in a tenth of the time.

    After a loss Dask waits 15 s and then ends a nanny whose worker is away, even one that was lost again since and is
    about to return; tests that kill twice give it longer.
    """
    options = {
        "distributed.worker.multiprocessing-method": "forkserver",
        "distributed.deploy.lost-worker-timeout": "10 minutes",
    }
    with dask.config.set(options):
        get_mp_context().set_forkserver_preload(["mgraph.worker.plugin"])
        yield


@contextmanager
def processes(n_workers: int) -> Iterator[Client]:
    """A cluster of worker processes; ends even where some of them are stopped."""
    with worker_processes(n_workers) as cluster, Client(cluster) as client, going_on(client):
        yield client


@contextmanager
def worker_processes(n_workers: int) -> Iterator[LocalCluster]:
    with (
        quick_start(),
        LocalCluster(n_workers=n_workers, threads_per_worker=1, memory_limit="2GiB", **NO_DASHBOARD) as cluster,
    ):
        yield cluster


@contextmanager
def gpu_processes(n_gpus: int) -> Iterator[LocalCluster]:
    """Worker processes, each with a GPU of its own."""
    with LocalCluster(n_workers=0, threads_per_worker=1, **NO_DASHBOARD, memory_limit=0) as cluster:
        for index in range(n_gpus):  # CUDA reads its variable once, at the first use in a process
            cluster.new_spec["options"]["env"] = {"CUDA_VISIBLE_DEVICES": str(index)}
            cluster.scale(index + 1)
            cluster.sync(cluster._correct_state)
        with Client(cluster) as client:
            client.wait_for_workers(n_gpus, timeout=patience(60))
            visible = client.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"])
            assert sorted(visible.values()) == [str(index) for index in range(n_gpus)]
        yield cluster


@contextmanager
def gpu_workers(n: int) -> Iterator[Client]:
    """Worker processes for one user, each with a GPU of its own."""
    with gpu_processes(n) as cluster, Client(cluster) as client:
        yield client


@contextmanager
def going_on(client: Client) -> Iterator[set[int]]:
    """The workers' process ids; those of them that are stopped at the end go on."""
    began = {pid: start_of(pid) for pid in client.run(os.getpid).values()}
    try:
        yield set(began)
    finally:
        for pid, start in began.items():
            if start == start_of(pid):  # the number of a process that ended may be that of another run's now
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def start_of(pid: int) -> str:
    """The time at which a process began, in ticks since the machine did; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


class Clusters:
    """Worker processes that modules have in turn, each with a client of its own, until a module ends one of them."""

    def __init__(self) -> None:
        self.open: dict[tuple[int, bool], tuple[LocalCluster, ExitStack]] = {}

    @contextmanager
    def lend(self, n_workers: int, gpus: bool = False) -> Iterator[Client]:
        """Lend `n_workers` processes; with `gpus` each has a GPU of its own."""
        kind = n_workers, gpus
        if kind not in self.open:
            stack = ExitStack()
            start = gpu_processes if gpus else worker_processes
            self.open[kind] = stack.enter_context(start(n_workers)), stack
        cluster, stack = self.open[kind]
        alike = False
        try:
            with Client(cluster) as client:
                with going_on(client) as pids:
                    yield client
                with suppress(Exception):  # of a client that a test closed
                    end = time.monotonic() + 1
                    while any(sessions(client)) and time.monotonic() < end:  # these go a little later than the answer
                        time.sleep(0.02)
                    alike = set(client.run(os.getpid).values()) == pids and not any(sessions(client))
        finally:
            if not alike:
                del self.open[kind]
                stack.close()

    def close(self) -> None:
        while self.open:
            self.open.popitem()[1][1].close()


def workers_of(client: Client) -> dict[str, Any]:
    """What Dask's scheduler says of each worker.

    `scheduler_info` may lack them: the client's own updates overwrite its answer now and then.
    """
    return dict(client.sync(client.scheduler.identity, n_workers=-1)["workers"])


def addresses(client: Client) -> list[str]:
    """The workers."""
    return sorted(workers_of(client))


HERE = 0  #: among numbers of workers: a graph in this process


def on(client: Client, size: int) -> dict[str, Any]:
    """The arguments of a graph on the first `size` workers of a cluster, or in this process."""
    return {} if size == HERE else {"client": client, "workers": addresses(client)[:size]}


def add_algorithm(name: str, program: Any, columns: list[str], scalars: list[str]) -> None:
    """Add an algorithm of a test's own to this process, whose arguments are not checked."""
    kinds = dict.fromkeys(columns, "value")
    ALGORITHMS[name] = Algorithm(name, lambda facts, **given: given, program, kinds, tuple(scalars), lambda shard: None)


def leftovers(dask_worker: Any) -> dict[str, Any]:
    """What mgraph holds in a worker process; runs there."""
    plugin = dask_worker.plugins.get("mgraph")
    return {
        "sessions": len(plugin.table.sessions) if plugin else 0,
        "exchanges": len(plugin.dispatcher) if plugin else 0,
        "threads": [thread.name for thread in threading.enumerate() if thread.name.startswith("mgraph")],
        "comms": [op for op in dask_worker._comms.values() if op and op.startswith("mgraph")],
    }


def sessions(client: Client) -> list[int]:
    """How many sessions each worker has. One that its client has closed goes a little later than the answer."""
    return [found["sessions"] for found in client.run(leftovers).values()]


def assert_clean(client: Client | None, workers: list[str] | None = None, timeout: float = 5.0) -> None:
    """No shards, no threads, no comms of mgraph on these workers, soon; without a client no threads here."""
    end = time.monotonic() + patience(timeout)
    if client is None:
        while left := [thread.name for thread in threading.enumerate() if thread.name.startswith("mgraph")]:
            assert time.monotonic() < end, left
            time.sleep(0.005)
        return
    clean = {"sessions": 0, "exchanges": 0, "threads": [], "comms": []}
    while time.monotonic() < end:
        found = client.run(leftovers, workers=workers)
        if all(worker == clean for worker in found.values()):
            return
        time.sleep(0.05)
    assert all(worker == clean for worker in found.values()), found


def check_graph(graph: DynamicGraph, model: GraphModel, rng: np.random.Generator) -> None:
    """All that can be read is what the model says."""
    assert graph.num_edges == len(model.edges)
    assert graph.num_vertices == model.n_vertices
    offsets, dst, weight = model.csr()
    csr = graph.to_csr()
    np.testing.assert_array_equal(csr.offsets, offsets)
    np.testing.assert_array_equal(csr.dst, dst)
    ids = rng.integers(0, model.n_vertices, 30)
    np.testing.assert_array_equal(graph.degrees(ids), np.diff(offsets)[ids])
    np.testing.assert_array_equal(graph.degrees(), np.diff(offsets))
    arcs = model.arcs()
    for direction in ("out", "in") if graph.reverse else ("out",):
        near = arcs if direction == "out" else {(v, u): w for (u, v), w in arcs.items()}
        rows = graph.neighbors(ids, direction)
        assert graph.degrees(ids, direction).tolist() == np.diff(rows.offsets).tolist()
        for i, u in enumerate(ids.tolist()):
            part = slice(rows.offsets[i], rows.offsets[i + 1])
            assert sorted(rows.dst[part].tolist()) == sorted(v for w, v in near if w == u)
            if graph.weighted:
                assert [near[u, int(v)] for v in rows.dst[part]] == rows.weight[part].tolist()
    if graph.weighted:
        np.testing.assert_array_equal(csr.weight, weight)
    src, dst = rng.integers(0, model.n_vertices, (2, 60))
    found = graph.has_edges(src, dst)
    assert found.dtype == bool
    assert found.tolist() == [pair in arcs for pair in zip(src.tolist(), dst.tolist(), strict=True)]
