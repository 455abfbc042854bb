"""Numbers for those who run graphs: `metrics`, Prometheus' page of each worker, and NVTX ranges of calls."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from dask.distributed import Client
from graph_clusters import processes
from patience import patience

from mgraph import DynamicGraph, EdgeBatch, InvalidBatch
from mgraph.metrics import BATCH_SECONDS, METRICS

N = 100
SERIES = {f"mgraph_{metric.name}" for metric in METRICS if metric.kind == "gauge"}
SERIES |= {"mgraph_operations_total", "mgraph_recoveries_total", "mgraph_queued_calls"}
SERIES |= {f"mgraph_batch_seconds_{part}" for part in ("bucket", "count", "sum")}

Scraped = dict[str, dict[tuple[str, str], Any]]


@pytest.fixture(scope="module")
def client():
    pytest.importorskip("prometheus_client")  # which Dask's worker looks for when it starts
    with processes(2) as client:
        yield client


def scraped(client: Client) -> Scraped:
    """The series of mgraph in ``/metrics`` of all workers, by graph and rank; those of buckets by their bounds."""
    from prometheus_client.parser import text_string_to_metric_families

    series: Scraped = defaultdict(dict)
    for worker in client.scheduler_info(n_workers=-1)["workers"].values():
        url = f"http://{worker['host']}:{worker['services']['dashboard']}/metrics"
        with urlopen(url, timeout=patience(20)) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.name.startswith("mgraph_"):
                    continue
                key = sample.labels["graph"], sample.labels["rank"]
                if sample.name.endswith("_bucket"):
                    series[sample.name].setdefault(key, {})[float(sample.labels["le"])] = sample.value
                else:
                    series[sample.name][key] = sample.value
    return series


def test_counters_and_latest_values_of_a_graph_in_this_process(tmp_path):
    with DynamicGraph(n_vertices=N, store=tmp_path / "store") as graph:
        reports = [graph.insert([0, 1, 1], [1, 2, 2]), graph.delete([0, 5], [1, 5])]
        with pytest.raises(InvalidBatch):
            graph.insert([0], [-1])
        with graph.pipeline() as pipe:
            reports.append(pipe.update(EdgeBatch([6], [7])).result())
        graph.bfs(0)
        numbers, nbytes = graph.metrics(), graph.nbytes
        assert set(numbers) == {metric.name for metric in METRICS} | {"queued"}
        assert all(type(number) in (int, float) for number in numbers.values())
        assert [numbers[name] for name in ("vertices", "edges", "epoch")] == [N, graph.num_edges, graph.epoch]
        assert (numbers["edges"], numbers["epoch"]) == (2, 3)
        assert numbers["durable_epoch"] == graph.durable_epoch == 3
        assert (numbers["batches"], numbers["operations"], numbers["recoveries"], numbers["queued"]) == (3, 5, 0, 0)
        assert 0 < numbers["last_batch_seconds"] <= numbers["batch_seconds"] <= sum(r.seconds for r in reports)
        assert numbers["memory_bytes"] == nbytes
    with DynamicGraph.open(tmp_path / "store") as graph:
        opened = graph.metrics()
        assert (opened["epoch"], opened["durable_epoch"], opened["edges"]) == (3, 3, 2)
        assert (opened["batches"], opened["operations"], opened["batch_seconds"]) == (0, 0, 0.0)


def test_the_durable_epoch_moves_without_a_call(tmp_path):
    with DynamicGraph(n_vertices=N, store=tmp_path / "store", sync="background") as graph:
        graph.insert([0], [1])
        rank = graph._directory.coordinator._session.calls
        end = time.monotonic() + patience(10)
        while rank.live(rank.state._replace(durable=0)).durable < 1 and time.monotonic() < end:
            time.sleep(0.01)
        assert rank.live(rank.state._replace(durable=0)).durable == 1


def test_each_worker_serves_the_numbers_of_its_ranks(client, tmp_path):
    with DynamicGraph(client, N, store=tmp_path / "store") as graph:
        for src in range(5):
            graph.insert([src, 90 - src], [7, 8])
        series = scraped(client)
        assert set(series) == SERIES
        ranks = {(graph.id, "0"), (graph.id, "1")}
        assert all(set(values) == ranks for values in series.values())
        for metric in METRICS:
            if metric.kind != "histogram":
                values = series[f"mgraph_{metric.name}{'_total' if metric.kind == 'counter' else ''}"].values()
                assert metric.join(values) == graph.metrics()[metric.name], metric.name
        assert set(series["mgraph_batch_seconds_count"].values()) == {5.0}
        assert max(series["mgraph_batch_seconds_sum"].values()) == graph.metrics()["batch_seconds"]
        for buckets in series["mgraph_batch_seconds_bucket"].values():
            assert list(buckets) == [*BATCH_SECONDS, float("inf")]
            assert sorted(buckets.values()) == list(buckets.values())
            assert buckets[float("inf")] == 5.0
    assert not any(scraped(client).values())


def test_a_published_graph_has_its_name_and_a_running_call_does_not_hold_a_scrape_back(client, tmp_path):
    def slow(rank, size, step):
        end = time.monotonic() + patience(60)
        while step and not (tmp_path / "seen").exists() and time.monotonic() < end:
            time.sleep(0.02)
        return [rank, 5], [1, 2]

    with DynamicGraph(client, N) as graph:
        graph.publish("roads")
        thread = threading.Thread(target=lambda: graph.ingest(slow, steps=2))
        thread.start()
        end, series = time.monotonic() + patience(30), scraped(client)
        first = {("roads", "0"): 1, ("roads", "1"): 1}
        while series["mgraph_epoch"] != first and time.monotonic() < end:
            time.sleep(0.05)
            series = scraped(client)
        (tmp_path / "seen").touch()
        thread.join()
        assert series["mgraph_epoch"] == first
        assert sum(series["mgraph_edges"].values()) == 3
        graph.unpublish()


def test_a_graph_that_came_back_counts_its_recoveries(client, tmp_path):
    with DynamicGraph(client, N, store=tmp_path / "store", recover="auto") as graph:
        graph.insert([0, 1], [1, 2])
        pid = client.run(os.getpid)[graph.workers[1]]
        os.kill(pid, 9)
        graph.insert([2], [3])
        assert graph.metrics()["recoveries"] == len(graph.recoveries) == 1
        assert (graph.metrics()["epoch"], graph.metrics()["edges"]) == (2, 3)
        client.wait_for_workers(2, timeout=patience(30))
        assert {graph: n for (graph, _), n in scraped(client)["mgraph_recoveries_total"].items()} == {graph.id: 1.0}


CALLS = """
import nvtx
from mgraph import DynamicGraph
with DynamicGraph(n_vertices=10) as graph:
    graph.insert([0], [1])
    graph.bfs(0)
    graph.degrees([0])
assert not nvtx.open_ranges, nvtx.open_ranges
print(*nvtx.names)
"""
FAKE = """
names, open_ranges = [], []
class annotate:
    def __init__(self, name, domain):
        assert domain == "mgraph"
        self.name = name
    def __enter__(self):
        names.append(self.name)
        open_ranges.append(self.name)
    def __exit__(self, *error):
        assert open_ranges.pop() == self.name
"""


def test_calls_are_ranges_where_nvtx_is_installed(tmp_path):
    (tmp_path / "nvtx.py").write_text(FAKE)
    root = Path(__file__).parents[2]
    paths = os.pathsep.join(filter(None, [str(tmp_path), str(root), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    process = subprocess.run(
        [sys.executable, "-c", CALLS], env=environment, capture_output=True, text=True, timeout=100
    )
    assert process.returncode == 0, process.stderr
    names = process.stdout.split()
    assert [name for name in names if name in ("update", "bfs", "degrees")] == ["update", "bfs", "degrees"]
