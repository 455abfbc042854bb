"""Who fails during an ingest, a pipeline or a move of the ranges: nothing hangs, and the survivors are clean."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest
from dask import annotate, delayed
from faults import before, hit, refuse, rest
from graph_clusters import assert_clean
from interrupts import after, ctrl_c, when
from test_failures import N, batch, raises_in_time

from mgraph import CapacityError, DynamicGraph, EdgeBatch, GraphLost, InvalidOption, WorkerLost
from mgraph.client.calls.batch_group import SMALL

GRID = np.divmod(np.arange(400), 20)  #: edges among the first 20 vertices, all of which the first worker owns


def ring(rank: int, size: int, step: int) -> tuple[list[int], list[int]]:
    """One edge a rank and step, for ever."""
    return [step % N], [(step + rank) % N]


def slow_ring(rank: int, size: int, step: int) -> tuple[list[int], list[int]]:
    """The same, each part after a moment."""
    time.sleep(0.1)
    return ring(rank, size, step)


@pytest.mark.parametrize("step", [pytest.param("route", marks=pytest.mark.slow), "commit"])
def test_worker_is_killed_in_a_later_step_of_an_ingest(own_client, step):
    with DynamicGraph(own_client, N) as graph:
        graph.update(batch())
        survivor, victim = graph.workers
        own_client.run(before, step, hit, signal.SIGKILL, at=20, workers=[victim])
        with raises_in_time(WorkerLost, "rank 1"):
            graph.ingest(ring)
        with raises_in_time((WorkerLost, GraphLost), limit=1.5):  # type: ignore[arg-type]
            graph.degrees([1])
        assert graph.epoch == 1  # the last that was acknowledged
    assert_clean(own_client, [survivor])


def test_worker_is_killed_while_it_reads_its_part(own_client):
    with DynamicGraph(own_client, N) as graph:
        survivor, victim = graph.workers
        (pid,) = own_client.run(os.getpid, workers=[victim]).values()
        with after(0.5, lambda: os.kill(pid, signal.SIGKILL)), raises_in_time(WorkerLost, "rank 1"):
            graph.ingest(slow_ring)
    assert_clean(own_client, [survivor])


@pytest.mark.slow
def test_worker_is_killed_while_dask_computes_its_parts(own_client):
    def slow() -> tuple[list[int], list[int]]:
        time.sleep(2.5)
        return [1], [2]

    with DynamicGraph(own_client, N) as graph:
        survivor, victim = graph.workers
        (pid,) = own_client.run(os.getpid, workers=[victim]).values()
        futures = [own_client.submit(slow, workers=[worker], pure=False) for worker in graph.workers]
        with after(0.5, lambda: os.kill(pid, signal.SIGKILL)), raises_in_time(WorkerLost, "rank 1", limit=5):
            graph.ingest(futures)
        del futures
    assert_clean(own_client, [survivor])


def test_the_first_part_that_fails_ends_the_wait_for_the_others(client, tmp_path):
    def late(name: str) -> tuple[list[int], list[int]]:
        time.sleep(2.0)
        (tmp_path / name).touch()
        return [1], [2]

    def bad() -> tuple[list[int], list[int]]:
        raise ZeroDivisionError("no part")

    with DynamicGraph(client, N) as graph:
        first, second = graph.workers
        with annotate(workers=[first]):  # two, one after another
            parts = [delayed(late)("0"), delayed(late)("1")]
        with annotate(workers=[second]):
            parts.append(delayed(bad)())
        with raises_in_time(ZeroDivisionError, "no part", limit=1.5) as caught:
            graph.ingest(parts)
        assert caught.value.__notes__ == ["part 2 of 3 of the source; nothing was ingested"]
        del caught
        time.sleep(2.5)
        assert len(list(tmp_path.iterdir())) <= 1  # the one that ran; Dask did not begin the other
        assert graph.epoch == 0
        assert sum(report.inserted for report in graph.ingest([delayed(([1], [2]))])) == 1
    assert_clean(client)


@pytest.mark.parametrize("keys", [None, "int64"])  # whose parts this process reads
def test_a_part_that_was_cancelled_is_named_with_the_reason(client, keys):
    with DynamicGraph(client, N if keys is None else None, keys=keys) as graph:
        part = client.submit(time.sleep, 5, pure=False)
        with after(0.3, part.cancel), raises_in_time(InvalidOption, "part .* was cancelled: .* reason", limit=4):
            graph.ingest([part])
        assert graph.epoch == 0
    assert_clean(client)


def test_keyboard_interrupt_during_an_ingest_keeps_whole_epochs(client, tmp_path):
    def watched_ring(rank, size, step):
        if step == 12:
            (tmp_path / "begun").touch()
        return [step % N], [(step + rank) % N]

    with DynamicGraph(client, N, directed=False) as graph:
        with when((tmp_path / "begun").exists, ctrl_c), raises_in_time(KeyboardInterrupt):
            graph.ingest(watched_ring)
        assert graph.epoch > 5
        graph.degrees()  # each rank says what it has
        assert {state.epoch for state in graph._directory.coordinator.status.states} == {graph.epoch}
        arcs, loops = graph.to_csr(), sum(graph.has_edges(range(N), range(N)))
        assert 2 * graph.num_edges - loops == arcs.offsets[-1]
        assert graph.update(batch(1)).epoch == graph.epoch
    assert_clean(client)


def test_keyboard_interrupt_while_a_part_does_not_come(client, tmp_path):
    def stuck(rank, size, step):
        if step == 2:
            time.sleep(0.5)  # meanwhile the steps before are committed
            (tmp_path / "begun").touch()
            time.sleep(2.0)
        return [step % N], [(step + rank) % N]

    with DynamicGraph(client, N) as graph:
        with when((tmp_path / "begun").exists, ctrl_c), raises_in_time(KeyboardInterrupt):
            graph.ingest(stuck)
        assert graph.epoch == 2
        assert graph.update(batch(1)).epoch == 3
    assert_clean(client)


def test_prepare_fails_in_a_later_step_of_an_ingest_and_the_graph_goes_on(client):
    with DynamicGraph(client, N) as graph:
        client.run(before, "prepare", refuse, at=3, workers=[graph.workers[1]])
        with raises_in_time(
            CapacityError, "no room.*ingest step 3, epoch 4, rank 1; the epochs before it are committed"
        ):
            graph.ingest(ring)
        assert graph.epoch == 3
        assert graph.has_edges([0, 1, 2, 3], [1, 2, 3, 4]).tolist() == [True, True, True, False]
        assert [report.epoch for report in graph.ingest(ring, steps=2)] == [4, 5]
    assert_clean(client)


@pytest.mark.parametrize("step", ["route", pytest.param("commit", marks=pytest.mark.slow)])
def test_worker_is_killed_with_batches_in_flight(own_client, step):
    with DynamicGraph(own_client, N) as graph:
        survivor, victim = graph.workers
        own_client.run(before, step, hit, signal.SIGKILL, workers=[victim])
        pending = []
        with raises_in_time(WorkerLost, r"rank 1.*the batch of epoch [1234] in a pipeline"), graph.pipeline() as pipe:
            pending.extend(pipe.update(batch(seed)) for seed in range(8))
        assert all(p.done() for p in pending)
        assert graph.epoch in (0, 1, 2, 3)  # batches that share a message are answered together
        with raises_in_time((GraphLost, WorkerLost), limit=1.5):  # type: ignore[arg-type]
            graph.update(batch())
    assert_clean(own_client, [survivor])


def test_prepare_fails_with_batches_in_flight_and_the_graph_goes_on(client):
    with DynamicGraph(client, N) as graph:
        client.run(before, "prepare", refuse, at=2, workers=[graph.workers[0]])
        with raises_in_time(CapacityError, "no room.*the batch of epoch 3 in a pipeline"), graph.pipeline() as pipe:
            for k in range(8):
                pipe.update(EdgeBatch(np.full(SMALL, k), np.full(SMALL, k)))  # too large to share a call
        assert graph.epoch == graph.num_edges == 2
        assert graph.update(batch()).epoch == 3
    assert_clean(client)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["move", "switch"])
def test_worker_is_killed_while_ranges_move(own_client, step):
    with DynamicGraph(own_client, N) as graph:
        graph.insert(*GRID)
        survivor, victim = graph.workers
        own_client.run(before, step, hit, signal.SIGKILL, workers=[victim])
        with raises_in_time(WorkerLost, "rank 1"):
            graph.rebalance()
        with raises_in_time(GraphLost if step == "switch" else WorkerLost, limit=1.5):
            graph.degrees([1])
    assert_clean(own_client, [survivor])


@pytest.mark.parametrize("step", ["vote", "switch"])
def test_keyboard_interrupt_while_ranges_move(client, step, tmp_path):
    """In the vote nobody has moved, unless all agreed; while one rank switches the vote is over: all do."""
    with DynamicGraph(client, N) as graph:
        graph.insert(*GRID)
        client.run(before, step, rest, 1.0, tmp_path / "begun", workers=[graph.workers[1]])
        with when((tmp_path / "begun").exists, ctrl_c), raises_in_time(KeyboardInterrupt, limit=5):
            graph.rebalance()
        assert (graph.balance().ratio == 2.0) == (step == "vote")
        assert graph.has_edges(*GRID).all()
        assert graph.rebalance().ratio < 1.2
        assert graph.has_edges(*GRID).all()
    assert_clean(client)


@pytest.mark.slow
def test_stopped_worker_during_an_ingest(own_client):
    with DynamicGraph(own_client, N, patience=4) as graph:
        survivor, victim = graph.workers
        own_client.run(before, "prepare", hit, signal.SIGSTOP, workers=[victim])
        with raises_in_time(WorkerLost, "rank 1"):
            graph.ingest(ring)
    assert_clean(own_client, [survivor])
