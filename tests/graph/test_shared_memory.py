"""Graphs whose client shares memory with their workers: equal to one whose arrays go by comms, whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import dask
import numpy as np
import pytest
from faults import before, cut, hit, refuse
from graph_clusters import assert_clean
from interrupts import after, ctrl_c
from patience import patience
from plain_graph import fresh_rng

from mgraph import CapacityError, DynamicGraph, EdgeBatch, WorkerLost
from mgraph.client.batches import split
from mgraph.client.connections import local_memory

N, M = 30_000, 40_000  # a column of a batch, and a worker's part of a result, are large


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """The first large array is worth it; nothing is left in /dev/shm, where other programs may make names, too."""
    there = names()
    monkeypatch.setattr(local_memory, "WORTH", 1)
    with dask.config.set({"mgraph.shared-memory": "8 MiB"}):
        yield
    end, left = time.monotonic() + patience(5), names() - there
    while left and time.monotonic() < end:
        time.sleep(0.01)
        left &= names()
    assert not left


def names() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("mgraph-")}


def random_batch(rng: np.random.Generator) -> EdgeBatch:
    src, dst = rng.integers(0, N, (2, M), np.uint32)
    return EdgeBatch(src, dst, rng.random(M, np.float32), rng.choice([1, 1, -1], M).astype(np.int8))


def shares(graph: DynamicGraph) -> list[bool]:
    return [session._memory.shared is not None for session in graph._directory.coordinator.sessions.all]


def test_it_is_the_graph_that_comes_of_comms(client):
    rng = fresh_rng()
    batches = [random_batch(rng) for _ in range(4)]
    src, dst, ids = batches[0].src, batches[0].dst, rng.permutation(N)
    found = []
    for nbytes in ("8 MiB", 0):
        with (
            dask.config.set({"mgraph.shared-memory": nbytes}),
            DynamicGraph(client, N, weighted=True, order="degree") as graph,
        ):
            reports = [graph.update(batches[0])]
            with graph.pipeline() as pipe:
                sent = [pipe.update(batch) for batch in batches[1:]]
            assert shares(graph) == [nbytes != 0] * 2
            reports += [one.result() for one in sent]
            csr, ranks = graph.to_csr(), graph.pagerank()
            values = [csr.offsets, csr.dst, csr.weight, graph.bfs(0).to_numpy(), graph.has_edges(src, dst)]
            values += [graph.weights(src, dst), graph.degrees(ids), (ranks + ranks.to_numpy()).to_numpy()]
            found.append(([(r.epoch, r.inserted, r.deleted, r.missing) for r in reports], values))
    (told, here), (others, there) = found
    assert told == others
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one, other)
    assert_clean(client)


@pytest.fixture
def whole(monkeypatch):
    """Batches go whole to CPUs, too, if they are written once."""
    monkeypatch.setitem(split.ONCE, "cpu", 2 << 20)


def written_once(graph: DynamicGraph) -> bool:
    return graph._directory.coordinator.sessions.common is not None


@pytest.mark.parametrize("kind", [{"order": "degree"}, {"directed": False}, {"reverse": True}], ids=str)
def test_batches_that_are_written_once_make_the_graph_of_dealt_ones(client3, whole, kind):
    rng = fresh_rng()
    batches, found = [random_batch(rng) for _ in range(6)], []
    for way in ("dealt", "whole"):
        with DynamicGraph(client3, N, weighted=True, **kind) as graph, pytest.MonkeyPatch.context() as patch:
            if way == "dealt":
                patch.setitem(split.ONCE, "cpu", 0)
            reports = [graph.update(batch) for batch in batches]
            assert written_once(graph) == (way == "whole")
            with graph.pipeline() as pipe:  # which deals
                sent = [pipe.update(batch) for batch in batches[:2]]
            reports += [one.result() for one in sent]
            found.append(([(r.epoch, r.inserted, r.updated, r.deleted, r.missing) for r in reports], graph.to_csr()))
            if written_once(graph):
                room = graph._directory.coordinator.sessions.common._room
                end = time.monotonic() + patience(5)
                while room._taken and time.monotonic() < end:
                    time.sleep(0.01)
                assert room._taken == {}
    (told, csr), (others, other) = found
    assert told == others
    for name in ("offsets", "dst", "weight"):
        np.testing.assert_array_equal(getattr(csr, name), getattr(other, name))
    assert_clean(client3)


def test_a_rank_that_cannot_prepare_a_whole_batch_leaves_the_graph_as_it_was(client, whole):
    rng = fresh_rng()
    with DynamicGraph(client, N, weighted=True) as graph:
        while not written_once(graph):
            graph.update(random_batch(rng))
        fingerprint, epoch = graph.fingerprint(), graph.epoch
        client.run(before, "prepare", refuse, workers=[graph.workers[1]])
        batch = random_batch(rng)
        with pytest.raises(CapacityError):
            graph.update(batch)
        assert (graph.fingerprint(), graph.epoch) == (fingerprint, epoch)
        assert graph.update(batch).epoch == epoch + 1
    assert_clean(client)


def test_a_worker_is_killed_in_a_whole_batch(own_client, whole):
    rng = fresh_rng()
    with DynamicGraph(own_client, N, weighted=True) as graph:
        while not written_once(graph):
            graph.update(random_batch(rng))
        survivor, victim = graph.workers
        own_client.run(before, "prepare", hit, signal.SIGKILL, workers=[victim])
        with pytest.raises(WorkerLost, match="rank 1"):
            graph.update(random_batch(rng))
    assert_clean(own_client, [survivor])


def test_a_graph_that_comes_back_writes_batches_once_again(client, whole, tmp_path):
    """With a store, each rank logs its share of a whole batch."""
    rng, batches = fresh_rng(), list[EdgeBatch]()

    def update(graph: DynamicGraph) -> None:
        batches.append(random_batch(rng))
        assert graph.update(batches[-1]).epoch == len(batches)

    with DynamicGraph(client, N, weighted=True, store=tmp_path / "store", recover="auto") as graph:
        for loss in range(2):
            for _ in range(4):
                update(graph)
            if loss == 0:
                client.run(before, "prepare", cut, workers=[graph.workers[1]])
                update(graph)
        assert graph._directory.coordinator.write_once
        fingerprint = graph.fingerprint()
    with DynamicGraph(n_vertices=N, weighted=True) as model:
        for batch in batches:
            model.update(batch)
        assert model.fingerprint() == fingerprint
    with DynamicGraph.open(client, tmp_path / "store") as graph:
        assert (graph.epoch, graph.fingerprint()) == (len(batches), fingerprint)
    assert_clean(client)


def test_two_clients_and_several_threads_share_memory_of_their_own(client, other):
    rng = fresh_rng()
    batches = [random_batch(rng) for _ in range(8)]
    with DynamicGraph(client, N, weighted=True) as graph:
        graph.publish("shared")
        with DynamicGraph.attach(other, "shared") as again:
            threads = [
                threading.Thread(target=lambda g, part: [g.update(b) for b in part], args=(g, part))
                for g, part in ((graph, batches[:3]), (graph, batches[3:5]), (again, batches[5:]))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert shares(graph) == shares(again) == [True, True]
            assert graph.fingerprint() == again.fingerprint()
            assert graph.epoch == again.epoch == 8
            np.testing.assert_array_equal(graph.degrees(), again.degrees())
        graph.unpublish()
    assert_clean(client)


def test_two_clients_write_batches_once_for_all_ranks(client, other, whole):
    rng = fresh_rng()
    with DynamicGraph(client, N, weighted=True) as graph:
        graph.publish("written once")
        with DynamicGraph.attach(other, "written once") as again:
            for _ in range(5):
                graph.update(random_batch(rng))
                again.update(random_batch(rng))
            assert written_once(graph) and written_once(again)
            assert graph.fingerprint() == again.fingerprint()
            assert graph.epoch == again.epoch == 10
        graph.unpublish()
    assert_clean(client)


def test_ctrl_c_and_the_graph_goes_on(client):
    rng = fresh_rng()
    with DynamicGraph(client, N, weighted=True) as graph:
        graph.update(random_batch(rng))
        with after(0.5, ctrl_c), pytest.raises(KeyboardInterrupt), graph.pipeline() as pipe:
            while True:
                pipe.update(random_batch(rng))
        epoch = graph.update(random_batch(rng)).epoch
        assert graph.epoch == epoch and shares(graph) == [True, True]
        assert graph.num_edges == graph.degrees().sum()
    assert_clean(client)


def test_a_worker_is_killed_while_batches_are_in_flight(own_client):
    rng = fresh_rng()
    with DynamicGraph(own_client, N, weighted=True) as graph:
        graph.update(random_batch(rng))
        survivor, victim = graph.workers
        own_client.run(before, "prepare", hit, signal.SIGKILL, workers=[victim])
        with pytest.raises(WorkerLost, match="rank 1"), graph.pipeline() as pipe:
            for _ in range(20):
                pipe.update(random_batch(rng))
    assert_clean(own_client, [survivor])


CLIENT = """
import sys
import numpy as np
from dask.distributed import Client
from mgraph import DynamicGraph, EdgeBatch
graph = DynamicGraph(Client(sys.argv[1]), 1000)
batch = EdgeBatch(*np.random.default_rng(1).integers(0, 1000, (2, 2_000_000), np.uint32))
graph.update(batch)
print([session._memory.shared is not None for session in graph._directory.coordinator.sessions.all], flush=True)
with graph.pipeline() as pipe:
    while True:
        pipe.update(batch)
"""


def test_a_client_is_killed_while_batches_are_in_flight(client):
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, client.scheduler.address],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "[True, True]"
    process.kill()
    process.wait(10)
    process.stdout.close()
    assert_clean(client)
