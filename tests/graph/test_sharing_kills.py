"""Clients of a published graph are killed at any moment, and others go on with a whole graph."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
import sharing_client
from dask.distributed import Client
from graph_clusters import assert_clean, check_graph, processes, workers_of
from graph_model import GraphModel
from patience import patience
from plain_graph import fresh_rng

import mgraph
from mgraph import DynamicGraph, GraphLost, WorkerLost

KILLS = {"update": 1, "pipeline": 3, "move": 1, "read": 1}


@pytest.fixture(scope="module")
def others():
    """Clients in other processes."""
    with sharing_client.clients() as others:
        yield others


def assert_is(graph: DynamicGraph, model: GraphModel, seed: int, upto: int, epoch: int) -> None:
    """The graph has the whole batches up to its epoch; the model has those up to `upto`."""
    for one in range(upto + 1, epoch + 1):
        model.update(sharing_client.batch(seed, one))
    check_graph(graph, model, fresh_rng())
    assert len({(state.epoch, state.changes) for state in graph._directory.coordinator.status.states}) == 1


@pytest.mark.parametrize(
    "kind", ["update", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KILLS if kind != "update")]
)
def test_a_client_is_killed_in_its_turn(client, others, kind):
    rng, model, known = fresh_rng(), GraphModel(sharing_client.N), 0
    seed = int(rng.integers(1 << 30))
    with DynamicGraph(client, sharing_client.N) as g:
        g.publish("roads")
        for _ in range(KILLS[kind]):
            pid = others.start(client.scheduler.address, "roads", seed, kind)
            sharing_client.write(g, seed)
            time.sleep(rng.random() / 4)
            os.kill(pid, signal.SIGKILL)
            sharing_client.write(g, seed)
            assert_is(g, model, seed, known, g.epoch)
            known = g.epoch
        g.unpublish()
    assert_clean(client)


def test_the_publisher_is_gone_and_others_go_on(client, others):
    """Its batches were whole, its results are freed, and a client that waited gets its turn."""
    rng, model = fresh_rng(), GraphModel(sharing_client.N)
    seed, address = int(rng.integers(1 << 30)), client.scheduler.address
    with DynamicGraph(client, sharing_client.N) as g:
        g.publish("roads")
    writer, reader = (others.start(address, "roads", seed, kind) for kind in ("update", "read"))
    others.end(writer)
    with DynamicGraph.attach(client, "roads") as h:
        sharing_client.write(h, seed)
        assert_is(h, model, seed, 0, h.epoch)
    others.end(reader)
    with DynamicGraph.attach(client, "roads") as h:
        h.fingerprint()
        assert client.run(results) == dict.fromkeys(workers_of(client), 0)
        h.unpublish()
    assert_clean(client)


def results(dask_worker) -> int:
    """How many results the published shards of a worker hold; runs there."""
    shards = dask_worker.plugins["mgraph"].table.published.values()
    return sum(len(shard.thread._servant.shard.results) for shard in shards)


def test_a_stopped_client_is_waited_for_and_ctrl_c_ends_the_wait(client, others):
    with DynamicGraph(client, sharing_client.N) as g:
        g.publish("roads")
        pid = others.start(client.scheduler.address, "roads", 1, "pipeline")
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            while True:
                g.fingerprint()
        os.kill(pid, signal.SIGKILL)
        assert g.degrees().shape == (sharing_client.N,)
        g.unpublish()
    assert_clean(client)


def test_a_worker_of_a_published_graph_dies(tmp_path):
    with processes(2) as client, Client(client.scheduler.address) as other:
        with DynamicGraph(client, 8) as g:
            g.insert([0, 7], [1, 2])
            g.publish("roads")
            with DynamicGraph.attach(other, "roads") as h:
                dead = g.workers[1]
                os.kill(client.run(os.getpid, workers=[dead])[dead], signal.SIGKILL)
                for graph in (g, h):
                    with pytest.raises((WorkerLost, GraphLost)):
                        while True:
                            graph.insert([0], [1])
        deadline = time.monotonic() + patience(20)
        while not mgraph.list_graphs(other)[0].lost and time.monotonic() < deadline:
            time.sleep(0.1)
        with pytest.raises(GraphLost, match="was lost: 1 of 2 workers that held it answer; mgraph.unpublish"):
            DynamicGraph.attach(other, "roads")
        with DynamicGraph(client, 8) as g, pytest.raises(mgraph.InvalidOption, match="already"):
            g.publish("roads")
        mgraph.unpublish(other, "roads")
        assert mgraph.list_graphs(client) == []
        assert_clean(client)
