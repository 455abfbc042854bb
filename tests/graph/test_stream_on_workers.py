"""`stream` on two workers: batches in flight, Ctrl-C among them, and Dask's collections."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from graph_clusters import check_graph
from graph_model import GraphModel, random_batch
from interrupts import ctrl_c, when
from plain_graph import fresh_rng

from mgraph import DynamicGraph

N = 200


def test_batches_in_flight_and_a_dask_frame(client):
    dd, pd = pytest.importorskip("dask.dataframe"), pytest.importorskip("pandas")
    rng, model, reports = fresh_rng(), GraphModel(N), []
    batches = [random_batch(rng, N, 300, False) for _ in range(30)]
    counts = np.sum([model.update(batch) for batch in batches], axis=0)
    rows = {"src": rng.integers(0, N, 500), "dst": rng.integers(0, N, 500)}
    with DynamicGraph(client, n_vertices=N) as graph:
        done = graph.stream(iter(batches), on_batch=reports.append, max_bytes=4000)
        assert [report.epoch for report in reports] == list(range(1, 31))
        assert (done.inserted, done.updated, done.deleted, done.missing) == tuple(counts)
        assert 0 < done.latency[0] <= done.latency[1] <= done.latency[2] <= done.seconds
        check_graph(graph, model, rng)
        done = graph.stream(dd.from_pandas(pd.DataFrame(rows), npartitions=7))
        assert (done.batches, done.epoch) == (7, 37)
        model.edges |= dict.fromkeys(zip(rows["src"].tolist(), rows["dst"].tolist(), strict=True), 1.0)
        assert sorted(model.edges) == sorted(map(tuple, graph.to_pandas().values.tolist()))


def test_ctrl_c_among_batches_in_flight(client):
    rng, model, reports, many = fresh_rng(), GraphModel(N), [], threading.Event()
    batches = [random_batch(rng, N, 300, False) for _ in range(2000)]

    def source():
        for i, batch in enumerate(batches):
            if i == 100:
                many.set()
            time.sleep(0.002)
            yield batch

    with DynamicGraph(client, n_vertices=N) as graph:
        with when(many.is_set, ctrl_c), pytest.raises(KeyboardInterrupt) as raised:
            graph.stream(source(), on_batch=reports.append)
        assert "the stream ended early; applied until then:" in raised.value.__notes__[-1]
        assert raised.value.__notes__[-1].endswith(f"epoch {graph.epoch}")
        assert len(reports) <= graph.epoch <= 2000
        for batch in batches[: graph.epoch]:
            model.update(batch)
        check_graph(graph, model, rng)
        assert graph.stream(batches[graph.epoch : graph.epoch + 5]).batches == 5


def test_the_client_hears_how_far_an_ingest_is(client):
    def slow(rank, size, step):
        time.sleep(0.4)
        return [rank], [step]

    with DynamicGraph(client, n_vertices=N) as graph:
        graph.insert([5], [6])
        caller, seen, over = graph._directory.coordinator, [1], threading.Event()

        def look():
            while not over.wait(0.1):
                seen.append(caller.reached)

        thread = threading.Thread(target=look)
        thread.start()
        graph.ingest(slow, steps=8)
        over.set()
        thread.join(10)
        assert seen == sorted(seen)
        assert any(1 < epoch < 9 for epoch in seen)
        assert caller.reached == graph.epoch == 9
