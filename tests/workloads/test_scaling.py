"""The scaling command at tiny sizes: what it writes is sound, and workers that find something else are caught."""

from __future__ import annotations

import json

import numpy as np
import pytest
from bench_runs import bench, of
from scipy import sparse

from mgraph.device import Device
from mgraph.errors import CapacityError
from workloads.__main__ import main
from workloads.bench.harness import Mismatch
from workloads.inputs.generators import Generator, from_spec
from workloads.inputs.worker_edges import WorkerEdges, weights_of
from workloads.scaling.algorithms import first_column, slower_pairs
from workloads.scaling.command import _compare


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_scaling(tmp_path, capsys):
    folder = tmp_path / "archive" / "cpu"
    options = ["--gpus", "1,2", "--device", "cpu", "--scale", "8", "--edge-factor", "8", "--batch", "200"]
    options += ["--batches", "2", "--roots", "2", "--iterations", "3", "--part", "300", "--out", str(folder)]
    assert main(["scaling", *options, "--commit", "c0ffee" * 6]) == 0
    (path,) = folder.glob("scaling-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = [(line["scaling"], line["workers"], line["scale"]) for line in of(lines, "scaling")]
    assert found == [("strong", 1, 8), ("weak", 1, 8), ("strong", 2, 8), ("weak", 2, 9)]
    src, dst = Generator(8, 8, seed=1).edges()
    edges = {(min(e), max(e)) for e in zip(src.tolist(), dst.tolist(), strict=True)}
    for line in of(lines, "scaling", scaling="strong"):
        assert (line["drawn"], line["built"]) == (2048, len(edges))
        assert (line["insert"]["n"], line["bfs"]["n"], line["pagerank"]["n"]) == (2, 2, 3)
        assert line["pagerank"]["iterations"] == 3
        assert all(line[way]["updates_per_s"] > 0 for way in ("insert", "delete", "pipelined", "born", "mixed"))
        assert line["resident"] <= 1024  # half of the graph's, repeats among them
        assert line["pipelined"]["share_of_link"] > 0
        assert line["exchange"] == ("loopback" if line["workers"] == 1 else "peer")
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "times as the client sees them" in capsys.readouterr().out
    bench(folder, "bfs", "--roots", "1")
    capsys.readouterr()
    assert main(["report", "--results", str(folder.parent), "--only", "scaling"]) == 0
    out = capsys.readouterr().out
    for row in ("| strong | 1 | 8 |", "| strong | 2 | 8 |", "| weak | 2 | 9 |", ", commit c0ffeec0ff."):
        assert row in out
    assert "**BFS**" not in out


@pytest.mark.parametrize("part", [pytest.param("analytics", marks=pytest.mark.slow), "updates"])
def test_scaling_of_one_part(tmp_path, capsys, part):
    options = ["--gpus", "1", "--device", "cpu", "--scale", "7", "--batch", "100", "--batches", "2", "--roots", "1"]
    assert main(["scaling", *options, "--scaling", "strong", "--measure", part, "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("scaling-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (line,) = of(lines, "scaling")
    assert ("bfs" in line, "mixed" in line) == (part == "analytics", part == "updates")
    assert ("PageRank" in capsys.readouterr().out) == (part == "analytics")
    assert path.with_suffix(".png").exists()


def test_algorithms_on_a_grid_and_with_weights(tmp_path, capsys, monkeypatch):
    """The checks of the command compare two workers with one; here SciPy knows what both should find."""
    from workloads.scaling import algorithms

    columns = []
    monkeypatch.setattr(algorithms, "RUNS", 1)
    monkeypatch.setattr(algorithms, "WARM_SECONDS", 0)
    monkeypatch.setattr(algorithms, "slower", lambda name, before, after: name == "grid")
    monkeypatch.setattr(algorithms, "first_column", lambda result: columns.append(first_column(result)) or columns[-1])
    names = ["BFS", "components", "shortest paths, weighted"]
    options = ["--gpus", "1,2", "--device", "cpu", "--shape", "grid", "--scale", "7", "--roots", "1", "--part", "50"]
    options += ["--measure", "algorithms", "--scaling", "strong", "--out", str(tmp_path)]
    assert main(["scaling", *options, "--names", *names]) == 0
    (path,) = tmp_path.glob("scaling-*.jsonl")
    assert of([json.loads(line) for line in path.read_text().splitlines()], "losses")[0]["pairs"] == [
        [1, 2, name] for name in names
    ]
    assert "slower than on the fewest" in " ".join(capsys.readouterr().out.split())
    # Of one worker.
    drawn = from_spec("grid:7:16")
    src, dst = drawn.edges()
    root = int(np.flatnonzero(columns[0] == 0)[0])
    for found, weight in ((columns[0], np.ones(len(src))), (columns[2], weights_of(src, dst, np))):
        matrix = sparse.coo_array((weight, (src, dst)), (128, 128)).tocsr()
        np.testing.assert_array_equal(found, sparse.csgraph.dijkstra(matrix, directed=False, indices=root))
    assert not columns[1].any()  # the number of the one component


@pytest.mark.parametrize("grid", [False, True])
def test_pairs_that_are_compared(grid):
    times = {1: 1.0, 2: 1.3, 4: 1.4, 8: 1.8}
    figures = {count: {"BFS": {"p50_ms": ms}} for count, ms in times.items()}
    wanted = [(1, 4), (1, 8)] if grid else [(1, 2), (2, 4), (4, 8)]
    assert slower_pairs(figures, grid) == [(*pair, "BFS") for pair in wanted]


def test_scaling_compares_what_workers_found():
    one = {"checks": {"edges built": 3, "distances from 0": np.array([0, 1]), "ranks": np.array([0.5, 0.5])}}
    _compare(one, one, 2)
    for what, value in (("edges built", 4), ("distances from 0", np.array([0, 2])), ("ranks", np.array([0.6, 0.4]))):
        with pytest.raises(Mismatch, match=what):
            _compare(one, {"checks": {**one["checks"], what: value}}, 2)
    # What fewer workers had too little memory for is compared among the others.
    _compare(one, {"checks": {**one["checks"], "Leiden": np.array([0, 0])}}, 2)
    with pytest.raises(Mismatch, match="Leiden"):
        _compare(one, {"checks": {"Leiden": np.array([0, 1])}}, 4)


def test_scaling_goes_on_after_an_algorithm_without_memory(tmp_path, capsys, monkeypatch):
    from workloads.scaling import algorithms

    def refused(g, root):
        raise CapacityError("9 bytes are needed")

    cases = {
        "BFS": algorithms.CASES["BFS"],
        "Leiden": algorithms._Case(refused),
        "k-core, 8": algorithms.CASES["k-core, 8"],
    }
    monkeypatch.setattr(algorithms, "CASES", cases)
    monkeypatch.setattr(algorithms, "RUNS", 1)
    options = [
        "--gpus",
        "1",
        "--device",
        "cpu",
        "--scale",
        "7",
        "--scaling",
        "strong",
        "--roots",
        "1",
        "--names",
        *cases,
    ]
    assert main(["scaling", *options, "--measure", "algorithms", "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("scaling-*.jsonl")
    (line,) = of([json.loads(line) for line in path.read_text().splitlines()], "scaling")
    assert list(line["algorithms"]) == ["BFS", "k-core, 8"]
    assert "1 workers, Leiden: 9 bytes are needed" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_scaling_of_algorithms_marks_what_is_slower_twice(tmp_path, capsys, monkeypatch):
    from workloads.scaling import algorithms, command

    made_slow = []

    def slower(name: str, before: float, after: float) -> bool:
        made_slow.append(name)
        return name == "components" or (name == "PageRank" and made_slow.count(name) == 1)

    monkeypatch.setattr(algorithms, "slower", slower)
    monkeypatch.setattr(algorithms, "RUNS", 2)
    options = ["--gpus", "1,2", "--device", "cpu", "--scale", "7", "--scaling", "strong", "--roots", "1"]
    assert main(["scaling", *options, "--measure", "algorithms", "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("scaling-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in of(lines, "scaling"):
        assert tuple(line["algorithms"]) == command.NAMES
        assert all(figures["p50_ms"] > 0 for figures in line["algorithms"].values())
    assert of(lines, "losses")[0]["pairs"] == [[1, 2, "components"]]  # PageRank was slower once only
    rows = {line.split("│")[1].strip(): line for line in capsys.readouterr().out.splitlines() if line.count("│") > 3}
    assert "*" in rows["components"]
    assert "*" not in rows["PageRank"]


@pytest.mark.parametrize("spec", ["rmat:8:4", "grid:8:1"])
def test_edges_and_weights_do_not_depend_on_the_number_of_ranks(spec):
    drawn, device = from_spec(spec, seed=3), Device("cpu")
    src, dst = drawn.edges(60, 180)
    for size in (1, 2):
        parts = [
            WorkerEdges(drawn, 60 // size, 60, weighted=True)(rank, size, step, device)
            for step in (0, 1) for rank in range(size)
        ]  # fmt: skip
        for got, want in zip(zip(*parts, strict=True), (src, dst, weights_of(dst, src, np)), strict=True):
            np.testing.assert_array_equal(np.concatenate(got), want)
    assert 1 <= weights_of(src, dst, np).min() < weights_of(src, dst, np).max() <= 255


@pytest.mark.parametrize(
    ("name", "before", "after", "wanted"),
    [
        ("BFS", 1.0, 1.06, True),
        ("BFS", 1.0, 1.04, False),
        ("BFS", 0.1, 0.14, False),  # within 0.05 ms
        ("core numbers", 50.0, 54.0, False),
        ("core numbers", 50.0, 56.0, True),
        ("maintained components", 0.9, 0.99, False),
        ("grid", 42.0, 56.0, False),
        ("grid", 42.0, 57.0, True),
    ],
)
def test_what_counts_as_slower(name, before, after, wanted):
    from workloads.scaling.algorithms import slower

    assert slower(name, before, after) is wanted
