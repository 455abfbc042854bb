"""Several graphs on one cluster: on workers of their own, from several threads and clients, and when a worker dies."""

from __future__ import annotations

import os
import signal
import threading

import graph_clusters
import numpy as np
import pytest
from cluster_processes import N, assert_usable, batch, send
from distributed import Client
from faults import before, rest
from graph_clusters import addresses, assert_clean
from interrupts import after

from mgraph import DynamicGraph, EdgeBatch, InvalidOption, WorkerLost
from mgraph.structures.run import FEW


@pytest.fixture(scope="module")
def shared():
    with graph_clusters.processes(3) as client:
        yield client


def test_a_graph_is_not_disturbed_by_the_loss_of_anothers_worker_during_updates_of_both():
    with graph_clusters.processes(3) as client:
        pids = client.run(os.getpid)
        first, second, victim = sorted(pids)
        with (
            DynamicGraph(client, N, workers=[first, second]) as graph,
            DynamicGraph(client, N, workers=[victim]) as other,
        ):
            assert (graph.workers, other.workers) == ((first, second), (victim,))
            assert (graph.exchange, other.exchange) == ("peer", "loopback")
            graph.update(batch())
            other.update(batch())
            reports, large = [], EdgeBatch(*np.random.default_rng(1).integers(0, N, (2, FEW + 1)))  # prepared and voted
            client.run(before, "prepare", rest, 1.5, None)
            calls = threading.Thread(target=lambda: reports.append(graph.update(batch(1))), daemon=True)
            calls.start()
            with (
                after(0.5, lambda: send(pids[victim], signal.SIGKILL)),
                pytest.raises(WorkerLost, match=f"graph {other.id}: rank 0, the worker at {victim}"),
            ):
                other.update(large)
            assert reports == []  # it is still under way, and ends well
            calls.join(10)
            assert [report.epoch for report in reports] == [2]
            assert_usable(graph)
            assert graph.epoch == 3
        assert_clean(client, [first, second])


def test_ranks_follow_the_order_of_the_addresses(shared):
    chosen = addresses(shared)[:0:-1]
    with DynamicGraph(shared, 4, workers=chosen) as graph:
        assert graph.workers == tuple(chosen)
        graph.insert([0, 3], [3, 0])
        rows = [state.lo for state in graph._directory.coordinator.status.states]
        assert rows == [0, 2]
    assert_clean(shared, chosen)


def test_workers_that_are_not_there_are_refused(shared):
    (address, *_) = addresses(shared)
    with pytest.raises(InvalidOption, match="'tcp://127.0.0.1:1' is not in the cluster"):
        DynamicGraph(shared, 4, workers=[address, "tcp://127.0.0.1:1"])
    with pytest.raises(InvalidOption, match="named 2 times"):
        DynamicGraph(shared, 4, workers=[address, address])
    assert_clean(shared, addresses(shared))


def test_graphs_of_several_threads_and_clients_keep_their_order(shared):
    """Three graphs on overlapping workers: each ends as if it had been alone."""
    chosen = addresses(shared)
    rounds, errors = 8, []
    with Client(shared.scheduler.address) as other:
        graphs = [
            DynamicGraph(shared, N, workers=chosen),
            DynamicGraph(other, N, workers=chosen[::-1]),
            DynamicGraph(other, N, workers=chosen[1:]),
        ]

        def drive(graph: DynamicGraph) -> None:
            try:
                for seed in range(rounds):
                    assert graph.update(batch(seed)).epoch == seed + 1
                    graph.bfs(seed)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=drive, args=(graph,), daemon=True) for graph in graphs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        edges: set[tuple[int, int]] = set()
        for seed in range(rounds):
            part = batch(seed)
            for edge, op in zip(zip(part.src.tolist(), part.dst.tolist(), strict=True), part.op.tolist(), strict=True):
                (edges.add if op > 0 else edges.discard)(edge)
        for graph in graphs:
            csr = graph.to_csr()
            src = np.repeat(np.arange(N), np.diff(csr.offsets))
            assert set(zip(src.tolist(), csr.dst.tolist(), strict=True)) == edges
            graph.close()
    assert_clean(shared, chosen)
