"""The benchmark of results that follow a graph, at a tiny size: its lines, and a wrong result."""

from __future__ import annotations

import numpy as np
import pytest
from bench_runs import SMALL, bench, of

from mgraph.client.results.maintained import Live
from workloads.__main__ import main
from workloads.bench.goals import goals_of, verdict
from workloads.bench.live import _shares

OPTIONS = ["--batches", "5,200", "--repeats", "2"]


def test_each_result_follows_batches_of_each_kind(tmp_path):
    lines = bench(
        tmp_path, "live", *OPTIONS, "--names", "connected_components,pagerank,sssp", "--kinds", "inserts,mixed"
    )
    for name in ("connected_components", "pagerank", "sssp"):
        points = of(lines, "live", name=name)
        assert [(line["batches"], line["batch"]) for line in points] == [
            (kind, size) for kind in ("inserts", "mixed") for size in (5, 200)
        ]
        assert all(line["n"] == 2 and line["worst"] >= line["share"] > 0 for line in points)
        assert all(sum(int(part.split()[0]) for part in line["how"].split(", ")) == 2 for line in points)


def test_communities_have_the_quality_of_fresh_runs(tmp_path):
    lines = of(bench(tmp_path, "live", *OPTIONS, "--names", "leiden,louvain", "--kinds", "mixed"), "live")
    assert [line["name"] for line in lines] == ["leiden", "leiden", "louvain", "louvain"]
    assert all(line["quality"] > 0.9 * line["fresh_quality"] > 0 for line in lines)
    for line in lines:  # the last of two reads
        assert line["worst_loss"] >= 1 - line["quality"] / line["fresh_quality"] - 1e-4
        assert line["worst_loss"] >= line["loss"] and line["spread"] < 0.1


def test_goals_of_the_graphs_for_which_they_are_stated():
    shares, arcs = {"share": 1.0, "worst": 1.5}, 525_000_000
    assert goals_of("leiden", "planted", 100, arcs, "cuda") == {**shares, "p50_ms": 10}
    assert goals_of("leiden", "planted", 10_000, arcs, "cuda") == {**shares, "p50_ms": 50}
    assert goals_of("leiden", "planted", 10_001, arcs, "cuda") == shares
    assert goals_of("leiden", "rmat", 100, arcs, "cuda") == {**shares, "worst": 1.1}
    assert goals_of("pagerank", "rmat", 5000, arcs, "cuda") == {**shares, "p50_ms": 10}
    assert goals_of("pagerank", "rmat", 5000, 2 * arcs, "cuda") == shares
    assert goals_of("leiden", "planted", 100, 1_000_000, "cpu") == {"cpu_share": 1, "cpu_worst": 1.5, "p50_ms": 5}
    assert goals_of("bfs", "road", 100, 1_000_000, "cpu") == {"cpu_share": 1, "cpu_worst": 1.5}


def test_a_missed_goal_is_marked(tmp_path, capsys):
    line = {"share": 0.9, "worst": 1.6, "p50_ms": 10.0}
    assert verdict({"share": 1.0, "worst": 1.5, "p50_ms": 10.0}, line) == "share 1, worst 1.5 missed, p50 ms 10"
    lines = of(bench(tmp_path, "live", *OPTIONS, "--names", "bfs", "--kinds", "mixed"), "live")
    assert [line["goals"] for line in lines] == [{"cpu_share": 1.0, "cpu_worst": 1.5}] * 2
    assert "goals" in capsys.readouterr().out


def test_each_read_is_divided_by_the_fresh_run_after_the_same_batch():
    """Fresh runs that take up to eight times as long as others make no read long."""
    fresh = np.array([1.0, 8.0, 2.0, 4.0])
    assert _shares(fresh, fresh) == {"share": 1, "worst": 1}
    assert _shares(fresh * [0.5, 0.5, 1.5, 0.25], fresh) == {"share": (1 + 0.375) / 2, "worst": 1.5}


@pytest.mark.parametrize(
    "name", ["bfs", *(pytest.param(name, marks=pytest.mark.slow) for name in ("pagerank", "leiden"))]
)
def test_a_result_that_did_not_follow_is_caught(name, monkeypatch, capsys):
    first, read = {}, Live.result
    monkeypatch.setattr(Live, "result", lambda live: first.setdefault(live, read(live)))
    options = ["--batches", "2000", "--repeats", "2", "--kinds", "mixed", "--names", name]
    assert main(["bench", "live", *SMALL, *options]) == 2
    assert f"{name}: " in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--names", "walks"), ("--kinds", "moves"), ("--repeats", "0")])
def test_mistakes(option, value, capsys):
    assert main(["bench", "live", *SMALL, option, value]) == 2
    assert f"{option} " in capsys.readouterr().err
