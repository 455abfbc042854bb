"""The page on a real cluster's dashboard, read as a browser reads it."""

from __future__ import annotations

import asyncio
import threading
import time
from urllib.request import urlopen

import pytest
from dask.distributed import Client, LocalCluster
from graph_clusters import NO_DASHBOARD, quick_start
from patience import patience

from mgraph import DynamicGraph, MgraphError
from mgraph.dashboard import add_page
from mgraph.dashboard.samples import Samples
from mgraph.metrics import of_rank
from mgraph.protocol import ShardState


@pytest.fixture
def cluster():
    with (
        quick_start(),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def table(address: str) -> dict[str, list]:
    """The columns of the page's table, as the server sends them to a browser."""
    from bokeh.client import pull_session
    from bokeh.models import DataTable

    session = pull_session(url=address)
    try:
        (found,) = session.document.select({"type": DataTable})
        return dict(found.source.data)
    finally:
        session.close()


@pytest.mark.timeout(180)
def test_the_page_shows_each_rank_and_what_it_does(cluster, tmp_path):
    pytest.importorskip("bokeh")
    address = add_page(cluster)
    assert add_page(cluster) == address
    with urlopen(address, timeout=patience(20)) as answer:
        text = answer.read().decode()
    assert answer.status == 200
    assert '<a href="mgraph">Mgraph</a>' in text
    with urlopen(
        address.replace("/mgraph", "/status"), timeout=patience(20)
    ) as answer:  # Dask's own pages are still there
        assert answer.status == 200

    def slow(rank, size, step):
        end = time.monotonic() + patience(60)
        while step and not (tmp_path / "seen").exists() and time.monotonic() < end:
            time.sleep(0.05)
        return [rank, 5], [1, 2]

    names = "graph", "copy_of", "rank"
    doing = f"{slow.__qualname__}() in step 1 of an ingest"
    with DynamicGraph(cluster, n_vertices=10) as graph:
        thread = threading.Thread(target=lambda: graph.ingest(slow, steps=2))
        thread.start()
        end, shown = time.monotonic() + 50, {}
        while time.monotonic() < end and list(shown.get("doing", ())) != [doing] * 2:
            time.sleep(0.3)  # until heartbeats and a sample during the ingest
            shown = table(address)
        (tmp_path / "seen").touch()
        thread.join(30)
        assert list(shown["graph"]) == [graph.id] * 2
        assert list(shown["rank"]) == [0, 1]
        assert set(shown["doing"]) == {doing}
        assert sorted(shown["worker"]) == sorted(graph.workers)
        while time.monotonic() < end and sum(shown["operations"]) < 6:
            time.sleep(0.3)
            shown = table(address)
        assert (sum(shown["edges"]), sum(shown["operations"]), set(shown["epoch"])) == (3, 6, {2})
        assert set(shown["doing"]) == {"waits for a call"}
        with graph.copy() as copied:
            ranks = {(graph.id, "", 0), (graph.id, "", 1), (copied.id, graph.id, 0), (copied.id, graph.id, 1)}
            end = time.monotonic() + patience(20)
            while time.monotonic() < end and set(zip(*(shown[name] for name in names), strict=True)) != ranks:
                time.sleep(0.3)
                shown = table(address)
            assert set(zip(*(shown[name] for name in names), strict=True)) == ranks


def test_values_that_change_are_drawn_and_graphs_are_counted():
    pytest.importorskip("bokeh")
    from bokeh.document import Document
    from bokeh.models import DataTable, Div

    from mgraph.dashboard.page import fill

    shard = {"graph": "g", "rank": 0, "doing": "", **of_rank(ShardState(epoch=1, edges=5, operations=5, nbytes=9))}
    shard["copy_of"] = "f"
    samples, document = Samples(), Document()
    samples.take(1.0, {"a": {"mgraph": {"shards": [{**shard, "since": 0.0}]}}})
    fill(samples, {}, document)
    (table,) = document.select({"type": DataTable})
    (title,) = document.select({"type": Div})
    # Bokeh 3.9 draws a table again only where its view changes, which new values in as many rows do not do.
    (callback,) = table.source.js_property_callbacks["change:data"]
    assert (callback.args, callback.code) == ({"table": table}, "table.view.change.emit()")
    assert title.text.startswith("<b>1 graph, 5 edges, ")
    samples.take(2.0, {"a": {"mgraph": {"shards": [{**shard, "graph": name, "since": 0.0} for name in "gh"]}}})
    document.session_callbacks[0].callback()
    assert title.text.startswith("<b>2 graphs, 10 edges, ")
    assert table.source.data["graph"] == ["g", "h"]
    assert table.source.data["copy_of"] == ["f", "f"]


def test_an_asynchronous_client_awaits_the_page():
    pytest.importorskip("bokeh")

    async def main():
        async with (
            LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0", asynchronous=True) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            address = await add_page(client)
            assert "mgraph-page" in cluster.scheduler.plugins
            return address

    assert asyncio.run(main()).endswith("/mgraph")


def test_without_bokeh_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed.dashboard.core", None)
    with (
        LocalCluster(n_workers=0, processes=False, **NO_DASHBOARD) as cluster,
        Client(cluster) as client,
        pytest.raises(MgraphError, match=r"the page cannot be added.*dask-mgraph\[cluster,dashboard\]"),
    ):
        add_page(client)
