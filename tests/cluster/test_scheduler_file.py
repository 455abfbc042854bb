"""Finding a cluster by its scheduler file: one that is there, one that comes late, and those that never do."""

import json
import time

import pytest
from cluster_processes import N, assert_usable, processes
from graph_clusters import addresses
from interrupts import after
from patience import patience

from cluster import ClusterNotReady, connect
from cluster.__main__ import main
from mgraph import DynamicGraph, InvalidOption


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with processes(tmp_path_factory.mktemp("cluster"), 2) as cluster:
        yield cluster


def test_a_graph_on_a_cluster_that_others_started(cluster):
    with connect(cluster.file, workers=2, timeout=20) as client, DynamicGraph(client, N) as graph:
        assert sorted(graph.workers) == sorted(cluster.workers)
        assert_usable(graph)
    assert len(addresses(cluster.client)) == 2  # closing a client ends no cluster


def test_the_command_names_the_workers(cluster, capsys):
    assert main(["wait", "--scheduler-file", str(cluster.file), "--workers", "2", "--timeout", "20"]) == 0
    assert capsys.readouterr().out.split() == sorted(cluster.workers)


def test_a_file_that_is_of_an_earlier_job_and_then_written_anew(cluster, tmp_path):
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": "tcp://127.0.0.1:9"}))
    written = after(0.3, lambda: file.write_text(cluster.file.read_text()))
    with written, connect(file, workers=2, timeout=20) as client:
        assert client.scheduler.address == cluster.client.scheduler.address


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, "no scheduler file"),
        ("{", "does not name a scheduler"),
        ("[1]", "does not name a scheduler"),
        ('{"address": "tcp://127.0.0.1:9"}', "nobody answers at tcp://127.0.0.1:9"),
    ],
)
def test_nobody_there_ends_in_time(tmp_path, content, named):
    file = tmp_path / "scheduler.json"
    if content is not None:
        file.write_text(content)
    began = time.monotonic()
    with pytest.raises(ClusterNotReady, match=named):
        connect(file, timeout=0.3)
    assert 0.25 < time.monotonic() - began < patience(5)


def test_missing_workers_are_counted(cluster, capsys):
    assert main(["wait", "--scheduler-file", str(cluster.file), "--workers", "3", "--timeout", "0.5"]) == 2
    assert "2 of 3 workers joined" in capsys.readouterr().err


def test_refuses(tmp_path, monkeypatch):
    monkeypatch.delenv("MGRAPH_SCHEDULER_FILE", raising=False)
    assert main(["wait"]) == 2
    for options in ({"workers": 0}, {"timeout": 0.0}, {"timeout": float("nan")}):
        with pytest.raises(InvalidOption):
            connect(tmp_path / "f", **options)
