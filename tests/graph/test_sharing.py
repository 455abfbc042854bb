"""Published graphs: several clients find one graph by its name, and take turns; it outlives each of them."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import suppress
from functools import wraps

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD, assert_clean, check_graph
from graph_model import GraphModel
from interrupts import at_line
from plain_graph import fresh_rng

import mgraph
from mgraph import (
    DynamicGraph,
    EdgeBatch,
    GraphClosed,
    InvalidOption,
    MgraphError,
    Operations,
    list_graphs,
    unpublish,
)
from mgraph.client.calls import loop_runner
from mgraph.client.published import publishing
from mgraph.worker.sessions.session import Session

N = 60


@pytest.fixture(autouse=True)
def nothing_is_left(client):
    yield
    assert mgraph.list_graphs(client) == []
    assert_clean(client)


@pytest.mark.both_ways(comms="slow")
def test_a_graph_outlives_its_publisher(client, other):
    rng = fresh_rng()
    model = GraphModel(N)
    with DynamicGraph(client, N, order=rng.permutation(N)) as g:
        src, dst = rng.integers(0, N, (2, 200))
        g.insert(src, dst)
        g.rebalance()
        model.update(EdgeBatch(src, dst))
        g.publish("roads")
    (listed,) = mgraph.list_graphs(other)
    assert (listed.name, listed.id, listed.clients, listed.lost) == ("roads", g.id, 0, False)
    assert (listed.epoch, listed.num_vertices, listed.num_edges) == (1, N, len(model.edges))
    assert listed.workers == g.workers
    assert client.run(measured) == dict.fromkeys(g.workers, (1, 1))
    with pytest.raises(GraphClosed):
        g.insert([0], [1])
    with DynamicGraph.attach(other, "roads") as h:
        assert (h.id, h.epoch, h.structure, h.num_edges) == (g.id, 1, g.structure, len(model.edges))
        check_graph(h, model, rng)
        h.unpublish()
        check_graph(h, model, rng)


def measured(dask_worker) -> tuple[int, int]:
    """How many shards the metrics of a worker count, and list; runs there."""
    meter = dask_worker.plugins["mgraph"].meter
    return meter.read()["graphs"], len(meter.shards())


@pytest.mark.both_ways(comms="slow")
def test_two_clients_see_each_others_changes(client, other):
    rng = fresh_rng()
    model = GraphModel(N, weighted=True)
    with DynamicGraph(client, N, weighted=True) as g:
        g.publish("roads")
        with DynamicGraph.attach(other, "roads") as h:
            for step in range(12):
                writer, reader = (g, h) if rng.integers(2) else (h, g)
                src, dst = rng.integers(0, model.n_vertices, (2, 40))
                weight = rng.integers(1, 9, 40).astype(np.float32)
                what = step % 6
                if what == 0:
                    writer.rebalance()
                elif what == 1:
                    writer.reorder()
                elif what == 2:
                    assert writer.add_vertices(3) == range(model.n_vertices, model.n_vertices + 3)
                    model.n_vertices += 3
                elif what == 3:
                    writer.delete(src, dst)
                    model.update(EdgeBatch(src, dst, op=np.full(40, -1)))
                elif what == 4:
                    with writer.pipeline() as pipeline:
                        pipeline.update(EdgeBatch(src, dst, weight))
                    model.update(EdgeBatch(src, dst, weight))
                else:
                    writer.insert(src, dst, weight)
                    model.update(EdgeBatch(src, dst, weight))
                check_graph_of(reader, model, rng)
                assert reader.epoch == writer.epoch
            result = g.pagerank()
            h.rebalance()
            assert len(result.to_numpy()) == model.n_vertices
        g.unpublish()


def check_graph_of(graph, model, rng):
    graph.fingerprint()  # num_edges and num_vertices say what the last call found
    check_graph(graph, model, rng)


def test_growing_and_streams_by_two_clients(client, other):
    with DynamicGraph(client, keys=None) as g:
        g.publish("roads")
        with DynamicGraph.attach(other, "roads") as h:
            g.insert([0], [5])
            h.insert([9], [2])
            assert g.insert([7], [8]).inserted == 1
            assert h.execute(Operations(["insert", "has_edge"], [12, 7], [0, 8])).has_edge.tolist() == [True]
            assert (g.degrees().tolist(), g.num_vertices) == ([1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1], 13)
        g.unpublish()


def test_maintained_results_follow_the_changes_of_others(client, other):
    with DynamicGraph(client, 6) as g:
        g.publish("roads")
        with DynamicGraph.attach(other, "roads") as h, h.maintain("connected_components") as live:
            g.insert([0, 1], [1, 2])
            assert live.result().to_numpy().tolist() == [0, 0, 0, 3, 4, 5]
        g.unpublish()


@pytest.mark.both_ways(comms="slow")
def test_calls_of_many_threads_and_clients(client, other):
    """Each epoch is one client's whole batch, whatever runs beside it."""
    rng = fresh_rng()
    with DynamicGraph(client, N) as g:
        g.publish("roads")
        with DynamicGraph.attach(other, "roads") as h, DynamicGraph.attach(client, "roads") as i:
            batches = rng.integers(0, N, (3, 8, 2, 30))
            epochs, errors = [], []

            def write(graph, mine):
                try:
                    for batch in mine:
                        epochs.append(graph.insert(*batch).epoch)
                        graph.bfs(0)
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=write, args=one) for one in zip((g, h, i), batches, strict=True)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            assert errors == []
            assert sorted(epochs) == list(range(1, 25))
            model = GraphModel(N)
            model.update(EdgeBatch(*batches.transpose(2, 0, 1, 3).reshape(2, -1)))
            check_graph_of(g, model, rng)
        g.unpublish()


def test_what_cannot_be_published(client, other, tmp_path):
    with DynamicGraph(n_vertices=3) as g, pytest.raises(InvalidOption, match="is in this process"):
        g.publish("roads")
    with DynamicGraph(client, 3, order="degree") as g:
        with pytest.raises(InvalidOption, match="insert them first"):
            g.publish("roads")
        with pytest.raises(InvalidOption, match="not empty"):
            g.publish("")
        g.insert([0], [1])
        g.publish("roads")
        with pytest.raises(InvalidOption, match="published as 'roads'; unpublish it first"):
            g.publish("streets")
        with pytest.raises(InvalidOption, match="unpublish it"):
            g.move_to(None)
        with DynamicGraph(other, 3, workers=g.workers[1:]) as h:
            with pytest.raises(InvalidOption, match="published as 'roads' already"):
                h.publish("roads")
            assert h.insert([0], [1]).inserted == 1
        with pytest.raises(InvalidOption, match="no graph is published as 'raods'; there are: 'roads'"):
            DynamicGraph.attach(other, "raods")
        with pytest.raises(InvalidOption, match="no graph is published as 'raods'; there are: 'roads'"):
            mgraph.unpublish(other, "raods")
        mgraph.unpublish(other, "roads")
        assert g.insert([0], [2]).inserted == 1
        with pytest.raises(InvalidOption, match="there are: none"):
            DynamicGraph.attach(other, "roads")
        with pytest.raises(TypeError, match="got None"):
            DynamicGraph.attach(None, "roads")


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_line_of_publishing_is_as_if_it_was_never_called(client):
    files, line, reached = {module.__file__ for module in (publishing, loop_runner)}, 0, True
    with DynamicGraph(client, 10) as g:
        while reached:
            with suppress(KeyboardInterrupt):
                with at_line(line, files, lambda: signal.raise_signal(signal.SIGINT)) as came:
                    g.publish("roads")  # refused if the name was left
                g.unpublish()
            reached, line = came(), line + 1
        assert line > 30
        assert g.insert([0], [1]).epoch == 1


def test_a_pipeline_that_was_there_before(client, other):
    """It has no turn, and so cannot go on."""
    with DynamicGraph(client, 3) as g:
        with pytest.raises(MgraphError, match="was published while"), g.pipeline() as pipeline:
            assert pipeline.update(EdgeBatch([0], [1])).result().inserted == 1
            g.publish("roads")
            pipeline.update(EdgeBatch([1], [2]))
        with DynamicGraph.attach(other, "roads") as h:
            assert (h.insert([1], [2]).epoch, g.insert([2], [0]).epoch) == (2, 3)
        g.unpublish()


def test_a_client_that_leaves_at_once_aborts_no_call_of_others(client, other):
    """Its calls are over once they are answered, though the worker's thread may not have come to note it."""
    with DynamicGraph(client, N) as g:
        g.insert([0], [1])
        g.publish("roads")
        with DynamicGraph.attach(other, "roads") as h:
            client.run(linger, 0.5)
            try:
                h.degrees([0])
                time.sleep(0.15)  # for the end of its turn
            finally:
                client.run(linger, 0)
        assert g.degrees([0]).tolist() == [1]
        g.unpublish()


def linger(seconds: float) -> None:
    """Let the threads of shards wait after each answer by a channel; runs on the workers."""
    send = getattr(Session._send, "__wrapped__", Session._send)

    @wraps(send)
    def late(self, message):
        sent = send(self, message)
        time.sleep(seconds)
        return sent

    Session._send = late if seconds else send


def test_a_thread_with_two_clients_does_not_wait_for_itself(client, other):
    with DynamicGraph(client, N, reverse=True) as g:
        g.insert([0, 1], [1, 2])
        g.publish("roads")
        with DynamicGraph.attach(other, "roads") as h:
            ranks = h.pagerank()
            with pytest.raises(MgraphError, match=r"this thread is in a call .* gather results .* to_numpy\(\)"):
                g.pagerank(start=ranks)
            assert g.pagerank(start=ranks.to_numpy()).iterations < ranks.iterations
            with g.pipeline() as pipeline, pytest.raises(MgraphError, match="in a call or a pipeline of another"):
                pipeline.update(EdgeBatch([2], [3]))
                h.insert([3], [4])
            assert (h.insert([3], [4]).epoch, g.num_edges) == (3, 3)
        g.unpublish()


def test_a_graph_with_a_store(client, other, tmp_path):
    with DynamicGraph(client, N, store=tmp_path / "store") as g:
        g.insert([0], [1])
        g.publish("roads")
    with DynamicGraph.attach(other, "roads") as h:
        h.insert([1], [2])
        assert h.durable_epoch == 2
        with h.at(1) as before:
            assert before.num_edges == 1
        h.unpublish()


def test_coroutines(client):
    async def body():
        async with Client(client.scheduler.address, asynchronous=True) as other:
            async with DynamicGraph(other, N) as g:
                await g.insert([0], [1])
                await g.publish("roads")
            assert [one.name for one in await mgraph.list_graphs(other)] == ["roads"]
            async with DynamicGraph.attach(other, "roads") as h:
                assert (await h.insert([1], [2])).epoch == 2
            await mgraph.unpublish(other, "roads")

    asyncio.run(body())


def test_asking_a_cluster_that_never_had_a_graph_logs_nothing(caplog):
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster) as fresh,
        caplog.at_level("WARNING"),
    ):
        assert list_graphs(fresh) == []
        for call in (lambda: DynamicGraph.attach(fresh, "roads"), lambda: unpublish(fresh, "roads")):
            with pytest.raises(InvalidOption, match="no graph is published as 'roads'; there are: none"):
                call()
    assert [record.getMessage() for record in caplog.records if "mgraph" in record.getMessage()] == []
