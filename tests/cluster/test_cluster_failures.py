"""Who dies during what, each a process of its own: a typed error in under ten seconds, and survivors idle and clean.

Workers that die are in the tests of graphs; here die the scheduler, a nanny and the client.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cluster_processes import (
    N,
    Processes,
    alive,
    assert_usable,
    batch,
    environment,
    processes,
    send,
    wait_until,
)
from faults import before, rest
from graph_clusters import assert_clean
from interrupts import after
from patience import patience

from mgraph import DynamicGraph, GraphLost, WorkerLost

LIMIT = 10.0
SLOW = 1.5  #: how long the step takes in which somebody dies
STAGES = ("sort", "route", "prepare", "vote", "commit", "superstep", "gather")


def each_step(*quick: str) -> list:
    """All stages of a batch and of an algorithm; those not named are left out with ``-m 'not slow'``."""
    return [step if step in quick else pytest.param(step, marks=pytest.mark.slow) for step in STAGES]


@pytest.fixture(scope="module")
def lasting(tmp_path_factory) -> Iterator[Processes]:
    """For the deaths that workers survive."""
    with processes(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(tmp_path) -> Iterator[Processes]:
    with processes(tmp_path) as cluster:
        yield cluster


@contextmanager
def raises_in_time(*errors: type[BaseException], match: str | None = None) -> Iterator[None]:
    began = time.monotonic()
    with pytest.raises(errors, match=match):
        yield
    assert time.monotonic() - began < patience(LIMIT)


def slow(cluster: Processes, step: str, address: str) -> None:
    cluster.client.run(before, step, rest, SLOW, None, workers=[address])


def work(graph: DynamicGraph, step: str) -> None:
    if step in ("superstep", "gather"):
        graph.bfs(0).to_numpy()
    else:
        graph.update(batch(1))


@pytest.mark.parametrize("step", each_step())
def test_nanny_is_killed_during_a(cluster, step):
    """Its worker ends with it, as a worker does that loses its nanny."""
    with DynamicGraph(cluster.client, N) as graph:
        graph.update(batch())
        survivor, victim = graph.workers
        slow(cluster, step, victim)
        with (
            after(0.5, lambda: send(cluster.nannies[victim], signal.SIGKILL)),
            raises_in_time(WorkerLost, match=f"rank 1, the worker at {victim}"),
        ):
            work(graph, step)
        assert graph.epoch == 1
        if step == "commit":
            with raises_in_time(GraphLost, match="the last epoch acknowledged by all is 1"):
                graph.degrees([0])
    assert_clean(cluster.client, [survivor])
    assert not alive(cluster.workers[victim])
    with DynamicGraph(cluster.client, N, workers=[survivor]) as another:
        assert_usable(another)


@pytest.mark.slow
def test_nanny_is_stopped_and_its_worker_goes_on(cluster):
    with DynamicGraph(cluster.client, N) as graph:
        graph.update(batch())
        send(cluster.nannies[graph.workers[1]], signal.SIGSTOP)
        assert_usable(graph)
    assert_clean(cluster.client, list(cluster.workers))


@pytest.mark.parametrize("step", each_step("commit"))
def test_scheduler_is_killed_during_a(cluster, step):
    """Dask's workers end without their scheduler, so that the graph is lost with them, and nobody survives."""
    graph = DynamicGraph(cluster.client, N)
    graph.update(batch())
    slow(cluster, step, graph.workers[1])
    with after(0.5, cluster.scheduler.kill), raises_in_time(WorkerLost, GraphLost, match=graph.id):
        work(graph, step)
        for _ in range(100):  # the step may have ended first: then the next call fails
            graph.degrees([0])
            time.sleep(0.05)
    with raises_in_time(WorkerLost, GraphLost, match="epoch"):
        graph.update(batch(2))
    began = time.monotonic()
    graph.close()
    assert time.monotonic() - began < patience(LIMIT)
    assert wait_until(lambda: not any(map(alive, cluster.workers.values())), LIMIT)


def test_scheduler_is_stopped_and_the_graph_goes_on(lasting):
    """A graph's calls go from client to workers; no scheduler takes part."""
    cluster = lasting
    with DynamicGraph(cluster.client, N) as graph:
        graph.update(batch())
        cluster.scheduler.send_signal(signal.SIGSTOP)
        try:
            assert_usable(graph)
        finally:
            cluster.scheduler.send_signal(signal.SIGCONT)
    assert_clean(cluster.client, list(cluster.workers))


CLIENT = """
import sys
from cluster import connect
from cluster_processes import N, batch
from mgraph import DynamicGraph
client = connect(sys.argv[1], workers=2, timeout=20)
graph = DynamicGraph(client, N)
graph.update(batch())
print(*graph.workers, flush=True)
sys.stdin.readline()
print("working", flush=True)
graph.bfs(0).to_numpy() if sys.argv[2] in ("superstep", "gather") else graph.update(batch(1))
print("not killed", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", [*STAGES, "route, while stopped"])
def test_client_is_killed_during_a(lasting, step):
    """The workers free its graph: at once where it died, and once it is gone where it was only stopped."""
    cluster = lasting
    step, _, stopped = step.partition(", while ")
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(cluster.file), step],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), cwd=cluster.folder,
    )  # fmt: skip
    try:
        assert client.stdout is not None
        assert client.stdin is not None
        addresses = client.stdout.readline().split()
        assert sorted(addresses) == sorted(cluster.workers)
        slow(cluster, step, addresses[1])
        client.stdin.write("go\n")
        client.stdin.flush()
        assert client.stdout.readline() == "working\n"
        time.sleep(0.5)
        if stopped:
            client.send_signal(signal.SIGSTOP)
            with DynamicGraph(cluster.client, N) as another:  # others are not held up by it
                another.has_edges([0], [1])
        client.kill()
        assert "not killed" not in client.communicate(timeout=patience(10))[0]
    finally:
        client.kill()
        client.wait(10)
    assert_clean(cluster.client, addresses, LIMIT)
    with DynamicGraph(cluster.client, N) as another:
        assert another.epoch == 0
        assert_usable(another)
    assert_clean(cluster.client, addresses)
