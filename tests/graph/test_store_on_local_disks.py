"""Workers that each see a disk of their own under the same path: opened, killed, and told which disk is missing."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from dask.distributed import Client, Nanny, Scheduler, SpecCluster
from faults import before, hit
from graph_clusters import NO_DASHBOARD, assert_clean, quick_start
from graph_model import GraphModel, random_batch
from patience import patience
from plain_graph import fresh_rng
from test_store import assert_graph

from mgraph import DynamicGraph, InvalidOption, StoreError, WorkerLost
from mgraph.client.creation import restoring

N = 60
PATH = "$MGRAPH_TEST_DISK/roads"


@contextmanager
def workers_with_disks(disks: list[Path]) -> Iterator[tuple[Client, list[str]]]:
    """A cluster with a worker for each of these folders, and the workers in that order."""
    spec = {
        number: {"cls": Nanny, "options": {"nthreads": 1, "env": {"MGRAPH_TEST_DISK": str(disk)}}}
        for number, disk in enumerate(disks)
    }
    scheduler = {
        "cls": Scheduler,
        "options": {"dashboard_address": NO_DASHBOARD["scheduler_kwargs"]["dashboard_address"]},
    }
    with quick_start(), SpecCluster(workers=spec, scheduler=scheduler) as cluster, Client(cluster) as client:
        client.wait_for_workers(len(disks), timeout=patience(60))
        there = {disk: address for address, disk in client.run(os.getenv, "MGRAPH_TEST_DISK").items()}
        yield client, [there[str(disk)] for disk in disks]


def test_each_worker_keeps_its_part_and_comes_back_to_it(tmp_path, monkeypatch):
    rng, model = fresh_rng(), GraphModel(N, weighted=True)
    disks = [tmp_path / "a", tmp_path / "b"]
    with workers_with_disks(disks) as (client, workers):

        def update(graph: DynamicGraph) -> None:
            batch = random_batch(rng, N, 200, True, 0.5)
            model.update(batch)
            graph.update(batch)

        with DynamicGraph(client, N, weighted=True, workers=workers, store=PATH, disks="local") as graph:
            for _ in range(3):
                update(graph)
            assert graph.snapshot() == 3
            assert (graph.store.disks, graph.store.snapshots, graph.store.segments) == ("local", (3,), 4)
            update(graph)
        assert not (Path.cwd() / "$MGRAPH_TEST_DISK").exists()
        for disk in disks:
            assert len(list(disk.glob("roads/term-*/rank-*.json"))) == 1
        with pytest.raises(
            StoreError, match=f"part of term . is missing: it was on host .* in {disks[1]}/roads, and no"
        ):
            DynamicGraph.open(client, PATH, workers=workers[:1])
        with DynamicGraph.open(client, PATH, workers=workers[::-1], recover="auto") as graph:
            assert graph.epoch == 4
            assert_graph(graph, model)
            client.run(before, "commit", hit, signal.SIGKILL, at=0, workers=[graph.workers[0]])
            update(graph)  # its nanny starts a worker with the same disk
            assert len(graph.recoveries) == 1
            assert_graph(graph, model)
            with graph.at(2) as then:
                assert then.epoch == 2
            monkeypatch.setattr(restoring, "WORKERS_SECONDS", 3.0)
            disk = Path(_disk_of(client, graph.workers[1]))
            client.run(before, "commit", hit, signal.SIGKILL, at=0, workers=[graph.workers[1]])
            shutil.move(disk, tmp_path / "gone")
            with pytest.raises(
                WorkerLost, match=f"could not be opened again: .*missing: .* in {disk}/roads, and no worker"
            ):
                graph.insert([1], [2])
        shutil.rmtree(disk, ignore_errors=True)
        shutil.move(tmp_path / "gone", disk)
        client.wait_for_workers(2, timeout=patience(60))  # the nanny may still start one
        with DynamicGraph.open(client, PATH) as graph:
            assert 5 <= graph.epoch <= 6
            assert_graph(graph, model) if graph.epoch == 5 else None
        assert_clean(client)


def _disk_of(client: Client, worker: str) -> str:
    return str(client.run(os.getenv, "MGRAPH_TEST_DISK", workers=[worker])[worker])


def test_what_local_disks_need(tmp_path):
    with pytest.raises(InvalidOption, match='disks is \'own\'; it must be "shared" or "local"'):
        DynamicGraph(None, N, store=tmp_path / "s", disks="own")
    with pytest.raises(InvalidOption, match="store is \\$MGRAPH_NO_SUCH/s: this worker's environment has no such"):
        DynamicGraph(None, N, store="$MGRAPH_NO_SUCH/s", disks="local")
    with DynamicGraph(None, N, store=tmp_path / "s", disks="local") as graph:
        graph.insert(np.array([1, 2]), np.array([2, 3]))
    with DynamicGraph.open(None, tmp_path / "s") as graph:
        assert (graph.epoch, graph.num_edges, graph.store.disks) == (1, 2, "local")


@pytest.mark.slow
def test_keys_and_windows_come_back_from_local_disks(tmp_path):
    disks = [tmp_path / "a", tmp_path / "b"]
    with workers_with_disks(disks) as (client, workers):
        for keys, names in (
            ("int64", np.array([10**12, 7, 10**15, 4])),
            ("string", np.array(["x", "y", "z", "Stra\u00dfe"])),
        ):
            path, kind = (
                f"$MGRAPH_TEST_DISK/{keys}",
                {"keys": keys, "directed": False, "combine": "sum", "weighted": True},
            )
            with DynamicGraph(client, workers=workers, store=path, disks="local", window=10, **kind) as graph:
                graph.insert(names[:2], names[1:3], weight=[1.0, 2.0], time=[0, 5])
                graph.snapshot()
                graph.insert(names[2:3], names[3:4], weight=[4.0], time=[8])
                graph.insert(names[1:2], names[2:3], weight=[1.5], time=[9])
                graph.delete(names[:1], names[1:2])
                assert graph.drop_isolated() == 1
                edges = sorted(zip(*(column.tolist() for column in _edges(graph)), strict=True))
            with DynamicGraph.open(client, path, workers=workers[::-1]) as graph:
                assert sorted(zip(*(column.tolist() for column in _edges(graph)), strict=True)) == edges
                assert graph.weights(names[1:2], names[2:3]).tolist() == [3.5]
                graph.insert(names[:1], names[1:2], weight=[1.0], time=[16])
                assert graph.weights(names[1:2], names[2:3]).tolist() == [1.5]  # the insertion of 5 has left
        assert_clean(client)


def _edges(graph: DynamicGraph) -> list[np.ndarray]:
    frame = graph.to_pandas()
    return [frame[name].to_numpy() for name in frame.columns]
