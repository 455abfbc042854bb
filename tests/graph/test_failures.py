"""Who fails during what: the call raises in under ten seconds, nothing hangs, and the survivors are clean."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from faults import before, hit, refuse, rest
from graph_clusters import add_algorithm, assert_clean
from graph_model import random_batch
from interrupts import ctrl_c, when
from patience import patience

from mgraph import CapacityError, DynamicGraph, EdgeBatch, GraphLost, UnknownVertex, WorkerLost

pytestmark = pytest.mark.both_ways(comms="slow")

N = 50


def register_fatal_program() -> None:
    """Add a program in which rank 1 dies while the others wait for it; runs in a worker."""

    def fatal(shard):
        if shard.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        shard.exchange.barrier()
        shard.exchange.barrier()

    add_algorithm("fatal", fatal, [], [])


@contextmanager
def raises_in_time(
    error: type[BaseException], match: str | None = None, limit: float = 10.0
) -> Iterator[pytest.ExceptionInfo]:
    began = time.monotonic()
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert time.monotonic() - began < patience(limit)


def batch(seed: int = 0) -> EdgeBatch:
    return random_batch(np.random.default_rng(seed), N, 200, False, 0)


@pytest.mark.both_ways
@pytest.mark.parametrize("step", ["route", "prepare"])
def test_worker_is_killed_during_a_batch_before_its_vote(own_client, step):
    with DynamicGraph(own_client, N) as graph:
        graph.update(batch())
        survivor, victim = graph.workers
        own_client.run(before, step, hit, signal.SIGKILL, workers=[victim])
        with raises_in_time(WorkerLost, f"rank 1, the worker at {victim}"):
            graph.update(batch(1))
        assert graph.epoch == 1
        with raises_in_time(WorkerLost, "rank 1", limit=1.5):
            graph.degrees([1])
    assert_clean(own_client, [survivor])


@pytest.mark.both_ways
def test_worker_is_killed_during_the_commit(own_client):
    with DynamicGraph(own_client, N) as graph:
        graph.update(batch())
        survivor, victim = graph.workers
        own_client.run(before, "commit", hit, signal.SIGKILL, workers=[victim])
        with raises_in_time(WorkerLost, "rank 1"):
            graph.update(batch(1))
        for _ in range(2):
            with raises_in_time(GraphLost, "the last epoch acknowledged by all is 1", limit=1.5):
                graph.update(batch(2))
    assert_clean(own_client, [survivor])


def test_worker_is_killed_between_calls(own_client):
    with DynamicGraph(own_client, N) as graph:
        graph.update(batch())
        survivor, victim = graph.workers
        pid = own_client.run(os.getpid, workers=[victim])[victim]
        os.kill(pid, signal.SIGKILL)
        with raises_in_time(WorkerLost, "rank 1"):
            graph.update(batch(1))
        with raises_in_time(WorkerLost, "rank 1", limit=1.5):
            graph.has_edges([1], [2])
    assert_clean(own_client, [survivor])


def test_worker_is_killed_during_an_algorithm(own_client):
    with DynamicGraph(own_client, N) as graph:
        own_client.run(register_fatal_program)
        register_fatal_program()
        with raises_in_time(WorkerLost, "rank 1"):
            graph.run("fatal")
    assert_clean(own_client, [graph.workers[0]])


def test_worker_is_lost_while_the_other_polls_nothing(own_client):
    with DynamicGraph(own_client, N) as graph:
        survivor, victim = graph.workers
        own_client.run(before, "prepare", rest, 2.0, None, workers=[survivor])
        own_client.run(before, "prepare", hit, signal.SIGKILL, workers=[victim])
        with raises_in_time(WorkerLost, "rank 1"):
            graph.update(batch())
    assert_clean(own_client, [survivor])


def test_a_stopped_worker_frees_its_shard_when_it_goes_on(own_client):
    graph = DynamicGraph(own_client, N, patience=2)
    victim = graph.workers[1]
    pid = own_client.run(os.getpid, workers=[victim])[victim]
    os.kill(pid, signal.SIGSTOP)
    with raises_in_time(WorkerLost):
        graph.update(batch())
    graph.close()
    os.kill(pid, signal.SIGCONT)
    assert_clean(own_client)
    with DynamicGraph(own_client, N) as another:
        assert another.update(batch()).epoch == 1


def test_worker_is_retired(own_client):
    with DynamicGraph(own_client, N) as graph:
        graph.update(batch())
        own_client.retire_workers([graph.workers[1]], close_workers=True)
        with raises_in_time(WorkerLost, "rank 1"):
            for seed in range(100):  # it is closed in the background
                graph.update(batch(seed))
                time.sleep(0.1)
    assert_clean(own_client)


def test_prepare_fails_on_one_rank_and_the_graph_goes_on(client):
    with DynamicGraph(client, N, directed=False) as graph:
        graph.update(batch())
        held = graph.to_csr()
        for _ in range(2):
            client.run(before, "prepare", refuse, workers=[graph.workers[1]])
            with raises_in_time(CapacityError, f"graph {graph.id}, epoch 1, rank 1: no room"):
                graph.update(batch(1))
            after = graph.to_csr()
            np.testing.assert_array_equal(after.offsets, held.offsets)
            np.testing.assert_array_equal(after.dst, held.dst)
            assert graph.epoch == 1
        assert graph.update(batch(1)).epoch == 2
    assert_clean(client)


@pytest.mark.both_ways
@pytest.mark.parametrize("step", ["route", "prepare"])
def test_keyboard_interrupt_during_a_batch(client, step, tmp_path):
    with DynamicGraph(client, N) as graph:
        graph.update(batch())
        client.run(before, step, rest, 1.0, tmp_path / "begun", workers=[graph.workers[1]])
        with when((tmp_path / "begun").exists, ctrl_c), raises_in_time(KeyboardInterrupt, limit=5):
            graph.update(batch(1))
        assert graph.epoch == 1
        assert graph.num_edges == graph.to_csr().offsets[-1]
        assert graph.update(batch(1)).epoch == 2
    assert_clean(client)


@pytest.mark.both_ways
def test_keyboard_interrupt_while_one_rank_commits(client, tmp_path):
    with DynamicGraph(client, N) as graph:
        client.run(before, "commit", rest, 1.0, tmp_path / "begun", workers=[graph.workers[1]])
        with when((tmp_path / "begun").exists, ctrl_c), raises_in_time(KeyboardInterrupt, limit=5):
            graph.update(batch())
        assert graph.epoch == 1  # the vote was over: it is committed everywhere
        assert graph.num_edges == graph.to_csr().offsets[-1] > 0
        assert graph.update(batch()).inserted == 0
    assert_clean(client)


@pytest.mark.parametrize(
    ("stage", "first"),
    [
        ("commit vertices", "insert"),
        pytest.param("commit vertices", "num_vertices", marks=pytest.mark.slow),
        pytest.param("prepare vertices", "insert", marks=pytest.mark.slow),
        pytest.param("commit vertices", "degrees", marks=pytest.mark.slow),
        pytest.param("prepare vertices", "num_vertices", marks=pytest.mark.slow),
        pytest.param("commit vertices", "add_vertices", marks=pytest.mark.slow),
        pytest.param("commit vertices", "bfs", marks=pytest.mark.slow),
    ],
)
def test_keyboard_interrupt_twice_while_vertices_are_added(client, stage, first, tmp_path):
    """The second while the first is cleaned up: whoever asks next hears what became of them."""
    with DynamicGraph(client, N) as graph:
        graph.update(batch())
        attempt, victim = graph._directory.coordinator.exchange, graph.workers[1]
        client.run(before, stage, rest, 1.5, tmp_path / "begun", workers=[victim])
        with (
            when((tmp_path / "begun").exists, ctrl_c),
            when(lambda: attempt.aborting, ctrl_c),
            raises_in_time(KeyboardInterrupt, limit=1.4),
        ):
            graph.add_vertices(5)
        n = N + 5 * (stage == "commit vertices")  # the vote was over, or never was
        if first == "num_vertices":
            assert graph.num_vertices == n
        elif first == "degrees":
            assert len(graph.degrees()) == n
        elif first == "add_vertices":
            assert graph.add_vertices(2) == range(n, n + 2)
            n += 2
        elif first == "bfs":
            assert len(graph.bfs(0)) == n
        elif n > N:
            assert graph.insert([n - 1], [n - 2]).inserted == 1
        else:
            with pytest.raises(UnknownVertex, match=f"the graph has {N} vertices"):
                graph.insert([N], [0])
        assert graph.num_vertices == len(graph.degrees()) == n
        assert graph.insert([0], [n - 1]).missing == 0
        assert graph.epoch == 2 + (stage == "commit vertices") + (first == "add_vertices") + (
            first == "insert" and n > N
        )
    assert_clean(client)


@pytest.mark.parametrize(
    ("stage", "first"),
    [
        ("commit", "epoch"),
        ("prepare", "epoch"),
        pytest.param("commit", "num_edges", marks=pytest.mark.slow),
        pytest.param("prepare", "num_edges", marks=pytest.mark.slow),
        pytest.param("commit", "nbytes", marks=pytest.mark.slow),
        pytest.param("route", "epoch", marks=pytest.mark.slow),
    ],
)
def test_keyboard_interrupt_twice_and_what_is_read_next_is_what_the_ranks_have(client, stage, first, tmp_path):
    """A program that decides by the epoch whether it sends its batch again must not send it twice."""
    with DynamicGraph(client, N) as graph, DynamicGraph(client, N) as other:
        exchange, victim = graph._directory.coordinator.exchange, graph.workers[1]
        committed = stage == "commit"  # the vote was over, or never was
        if committed:
            other.update(batch())
        client.run(before, stage, rest, 1.5, tmp_path / "begun", workers=[victim])
        with (
            when((tmp_path / "begun").exists, ctrl_c),
            when(lambda: exchange.aborting, ctrl_c),
            raises_in_time(KeyboardInterrupt, limit=1.4),
        ):
            graph.update(batch())
        assert getattr(graph, first) == getattr(other, first)
        assert (graph.epoch, graph.num_edges) == (other.epoch, other.num_edges)
        assert graph.epoch == committed
    assert_clean(client)


TERMINAL = """
import sys
from dask.distributed import Client, LocalCluster
from mgraph import DynamicGraph
if __name__ == "__main__":
    page = {"dashboard_address": "127.0.0.1:0"}
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "scheduler_kwargs": page}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        with DynamicGraph(client, 50) as graph:
            try:
                graph.insert([1], [2])
                print("ready", flush=True)
                while True:
                    graph.insert(range(50), range(50))
            except KeyboardInterrupt:
                report = graph.delete(range(50), range(50))
                print(report.deleted >= 0, report.epoch == graph.epoch, graph.num_edges, flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_reaches_the_workers_too_and_the_graph_goes_on(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TERMINAL)
    process = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=patience(30))
    assert out.split() == ["True", "True", "1"], err
    assert process.returncode == 0


CLIENT = """
import sys, time
from dask.distributed import Client
from mgraph import DynamicGraph
client = Client(sys.argv[1])
graph = DynamicGraph(client, 50)
graph.insert([1], [2])
print("ready", flush=True)
time.sleep(60)
"""


def test_client_is_killed_and_the_workers_free_its_graph(client):
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, client.scheduler.address],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    process.kill()
    process.wait(10)
    process.stdout.close()
    assert_clean(client)


def test_client_is_closed_before_the_graph(client):
    from dask.distributed import Client

    from mgraph import GraphClosed

    with Client(client.scheduler.address) as other:
        graph = DynamicGraph(other, N)
        graph.update(batch())
    with raises_in_time(GraphClosed, limit=2):
        graph.degrees([1])
    graph.close()
    assert_clean(client)


def test_cluster_closes_under_an_open_graph():
    from graph_clusters import processes

    with processes(2) as client:
        graph = DynamicGraph(client, N)
        graph.update(batch())
        began = time.monotonic()
    assert time.monotonic() - began < patience(20)
    with raises_in_time((WorkerLost, RuntimeError), limit=10):  # type: ignore[arg-type]
        graph.degrees([1])
    graph.close()
