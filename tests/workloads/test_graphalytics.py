"""Graphalytics: the specification's examples, its files, its rules of validation, and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mgraph import DynamicGraph
from mgraph.device import Device
from mgraph.errors import InvalidOption, ReadError
from workloads.__main__ import main
from workloads.graphalytics import evlp, validate
from workloads.graphalytics.algorithms import ALGORITHMS
from workloads.graphalytics.evlp import INFINITE
from workloads.graphalytics.graph500 import graph500, scale_of
from workloads.graphalytics.reference import REFERENCE

INF = np.inf
BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}

# The specification's common examples (appendix "Example Graphs for Validation"). Its figures print real values with two
# digits after the point.
DIRECTED = {
    "parameters": {"bfs.source-vertex": 1, "sssp.source-vertex": 1},
    "ids": range(1, 11),
    "edges": [
        (1, 3, 0.5), (1, 5, 0.3), (2, 4, 0.1), (2, 5, 0.3), (2, 10, 0.12), (3, 1, 0.53), (3, 5, 0.62), (3, 8, 0.21),
        (3, 10, 0.52), (5, 3, 0.69), (5, 4, 0.53), (5, 8, 0.1), (6, 3, 0.23), (6, 4, 0.39), (7, 4, 0.83), (8, 1, 0.39),
        (9, 4, 0.69),
    ],
    "BFS": [0, -1, 1, 2, 1, -1, -1, 2, -1, 2],
    "PR": [0.15, 0.05, 0.16, 0.16, 0.15, 0.05, 0.05, 0.11, 0.05, 0.09],
    "WCC": [1] * 10,
    "CDLP": [1, 2, 3, 4, 1, 1, 2, 3, 2, 1],
    "LCC": [0.67, 0.17, 0.15, 0.05, 0.25, 0, 0, 0.83, 0, 0],
    "SSSP": [0, INF, 0.5, 0.83, 0.3, INF, INF, 0.4, INF, 1.02],
}  # fmt: skip
UNDIRECTED = {
    "parameters": {"bfs.source-vertex": 2, "sssp.source-vertex": 2},
    "ids": range(2, 11),
    "edges": [
        (2, 3, 0.9), (2, 4, 0.69), (3, 4, 0.13), (3, 5, 0.5), (3, 8, 0.32), (5, 6, 0.63), (5, 8, 0.12), (6, 7, 0.53),
        (6, 8, 0.64), (6, 9, 0.23), (6, 10, 0.63), (7, 9, 0.36),
    ],
    "BFS": [0, 1, 1, 2, 3, 4, 2, 4, 4],
    "PR": [0.09, 0.14, 0.09, 0.12, 0.17, 0.10, 0.12, 0.10, 0.06],
    "WCC": [2] * 9,
    "CDLP": [2, 3, 2, 2, 6, 5, 2, 5, 5],
    "LCC": [1, 0.33, 1, 0.67, 0.2, 1, 0.67, 1, 0],
    "SSSP": [0, 0.82, 0.69, 1.26, 1.78, 2.31, 1.14, 2.01, 2.41],
}  # fmt: skip
EXAMPLES = {"directed": DIRECTED, "undirected": UNDIRECTED}


def written(folder, name, example, lines=None):
    """The three files of an example, and the path of the properties."""
    own = {"directed": str(example is DIRECTED).lower(), "edge-properties.names": "weight"}
    own |= {"meta.vertices": len(example["ids"]), "meta.edges": len(example["edges"])}
    own |= {"pr.damping-factor": 0.85, "pr.num-iterations": 2, "cdlp.max-iterations": 2} | example["parameters"]
    (folder / f"{name}.v").write_text("".join(f"{v}\n" for v in example["ids"]))
    (folder / f"{name}.e").write_text("".join("{} {} {}\n".format(*edge) for edge in example["edges"]))
    path = folder / f"{name}.properties"
    path.write_text("# an example\n" + "".join(f"graph.{name}.{key} = {value}\n" for key, value in own.items()))
    return path


def graphalytics(tmp_path, *options):
    assert main(["graphalytics", "--device", "cpu", "--repeats", "1", *options, "--out", str(tmp_path / "out")]) == 0
    (path,) = (tmp_path / "out").glob("bench-graphalytics-*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["kind"] == "algorithm"]


# ---- the specification's examples ----------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=EXAMPLES)
def example(request, tmp_path_factory):
    """An example, read from its files, and the graph."""
    given = EXAMPLES[request.param]
    data = evlp.read(written(tmp_path_factory.mktemp("evlp"), f"example-{request.param}", given))
    n = len(data.ids)
    with DynamicGraph(n_vertices=n, directed=data.directed, weighted=True, reverse=data.directed, device="cpu") as g:
        g.insert(data.src, data.dst, data.weight.astype(np.float32))
        yield given, data, g


@pytest.mark.parametrize("name", BY_NAME)
def test_the_specification_s_examples(example, name):
    given, data, g = example
    algorithm = BY_NAME[name]
    found = algorithm.values(data, algorithm.run(g, data).to_numpy())
    expected = np.array(given[name])
    if name == "BFS":
        expected[expected < 0] = INFINITE
    for values in (found, REFERENCE[name](data)):  # the reference is held to the examples, too
        if algorithm.real:
            np.testing.assert_allclose(values, expected, atol=0.00501)
        else:
            assert not algorithm.wrong(expected, values).any(), values
    assert not algorithm.wrong(REFERENCE[name](data), found).any()
    if name == "WCC":
        assert found.tolist() == given[name]  # the least id of each component, as in the reference output


def test_ids_of_64_bits(tmp_path):
    """Labels are the smallest of users' ids, negative ones too."""
    ids = [-(2**62), -5, 3, 2**62]
    example = {"parameters": {}, "ids": ids, "edges": [(-5, 2**62, 1), (3, 2**62, 2)]}
    data = evlp.read(written(tmp_path, "wide", example))
    assert data.ids.tolist() == ids
    with DynamicGraph(n_vertices=4, directed=False, device="cpu") as g:
        g.insert(data.src, data.dst)
        found = BY_NAME["WCC"].values(data, g.connected_components().to_numpy())
    assert found.tolist() == [-(2**62), -5, -5, -5]


# ---- files ---------------------------------------------------------------------------------------------------------


def test_files_round_trip(tmp_path):
    graph = graph500(6, Device("cpu"), seed=3)
    again = evlp.read(evlp.write(graph, tmp_path / "made"))
    for name in ("ids", "src", "dst", "weight"):
        np.testing.assert_array_equal(getattr(again, name), getattr(graph, name))
    assert (again.name, again.directed) == (graph.name, graph.directed)
    assert again.parameter("pr.num-iterations", int) == 10
    for values in (np.array([0.1, INF, 1e-300]), np.array([4, INFINITE, -3])):
        evlp.write_output(tmp_path / "values", np.array([1, 2, 9]), values)
        found = evlp.read_output(tmp_path / "values", np.array([1, 2, 9]), values.dtype.kind == "f")
        np.testing.assert_array_equal(found, values)
    with pytest.raises(ReadError, match="3 vertices"):
        evlp.read_output(tmp_path / "values", np.array([1, 2]), False)


@pytest.mark.parametrize(
    ("suffix", "text", "says"),
    [
        ("v", "1\n3\n2\n", "vertex 2 follows 3"),
        ("v", "1\n2\nx\n", "x"),
        ("v", "1\n2\n", "meta.vertices is 10"),
        ("e", "1 3 0.5\n1 11 0.5\n" * 8 + "1 4 0.1\n", "line 2 names vertex 11"),
        ("e", "2 4 0.1\n" * 16 + "3 3 1\n", "line 17 is a self-loop"),
        ("e", "1 3\n", "."),
        ("properties", "graph.x.directed = yes\n", "'yes'"),
        ("properties", "directed = true\n", "of one graph"),
    ],
)
def test_bad_files(tmp_path, suffix, text, says):
    path = written(tmp_path, "x", DIRECTED)
    (tmp_path / f"x.{suffix}").write_text(text)
    with pytest.raises(ReadError, match=says):
        evlp.read(path)
    (tmp_path / f"x.{suffix}").unlink()
    with pytest.raises(ReadError, match=f"x.{suffix}"):
        evlp.read(path)


def test_bad_parameters(tmp_path):
    data = evlp.read(written(tmp_path, "x", DIRECTED | {"parameters": {"bfs.source-vertex": "one"}}))
    for name, says in (("bfs.source-vertex", "'one'"), ("sssp.source-vertex", "no parameter")):
        with pytest.raises(InvalidOption, match=says):
            data.parameter(name, int)
    with pytest.raises(InvalidOption, match="no vertex 11"):
        data.place(11)


# ---- validation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected", "found", "wrong"),
    [
        (validate.exact, [3, 1, 2, 0], [4, 1, 2, 5], [1, 0, 0, 1]),
        (validate.equivalence, [1, 1, 1, 2, 2, 3], [81, 81, 81, 32, 32, 12], [0] * 6),
        (validate.equivalence, [1, 1, 1, 2, 2, 3], [31, 52, 31, 31, 31, 74], [0, 1, 0, 1, 1, 0]),
        (validate.equivalence, [], [], []),
        (validate.epsilon, [0, 0.3, 0.45, 0.23, INF, 0.001], [0, 0.30002, 0.45, 0.229997, INF, 0.001], [0] * 6),
        (validate.epsilon, [0, 0.3, 0.45, INF, 0.001], [1e-6, 0.3, 0.46, 1.79769e308, 0], [1, 0, 1, 1, 1]),
        (validate.epsilon, [1.0, 1.0, 2.0], [np.nan, INF, -INF], [1, 1, 1]),
    ],
)
def test_rules(rule, expected, found, wrong):
    """The specification's examples of right and wrong output, and what is no number."""
    result = rule(np.array(expected, np.float64), np.array(found, np.float64))
    assert result.astype(int).tolist() == wrong


# ---- the command ---------------------------------------------------------------------------------------------------


def test_own_graph_and_its_files(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("workloads.graphalytics.command.PART", 1000)  # edges inserted at once
    folder = str(tmp_path / "graph")
    lines = graphalytics(tmp_path, "--scale", "8", "--write", folder, "--output", folder)
    assert [line["algorithm"] for line in lines] == list(BY_NAME)
    assert {line["validation"] for line in lines} == {"SciPy"}
    assert "unaudited, own data" in " ".join(capsys.readouterr().out.split())
    assert main(["report", "--results", str(tmp_path), "--only", "bench-graphalytics"]) == 0
    assert "| graph500-8 | own |" in capsys.readouterr().out
    again = tmp_path / "again"
    lines = graphalytics(again, "--data", f"{folder}/graph500-8.properties")
    assert {line["validation"] for line in lines} == {"reference output"}
    assert all(line["evps"] > line["eps"] > 0 for line in lines)


def test_a_wrong_output_stops_the_command(tmp_path, capsys):
    path = written(tmp_path, "x", DIRECTED)
    (tmp_path / "x-BFS").write_text("".join(f"{v} {d}\n" for v, d in enumerate([0, 9, *DIRECTED["BFS"][2:]], 1)))
    assert main(["graphalytics", "--device", "cpu", "--data", str(path), "--algorithm", "BFS"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "BFS on x: 4 values do not match" in said  # -1 is no output of a vertex that is not reached
    assert "vertex 2" in said


def test_large_graphs_are_not_validated(tmp_path):
    (line,) = graphalytics(tmp_path, "--scale", "7", "--algorithm", "WCC", "--reference-edges", "5")
    assert line["validation"] == "not validated"


def test_repeated_edges_are_refused(tmp_path, capsys):
    twice = DIRECTED | {"edges": [(1, 3, 1), (1, 3, 2)]}
    assert main(["graphalytics", "--device", "cpu", "--data", str(written(tmp_path, "x", twice))]) == 2
    assert "1 edges more than once" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "says"), [(["--algorithm", "APSP"], "APSP"), (["--repeats", "0"], "repeats is 0")])
def test_bad_options(options, says, capsys):
    assert main(["graphalytics", "--device", "cpu", *options]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.gpu
def test_on_a_gpu(tmp_path):
    lines = graphalytics(tmp_path, "--device", "cuda", "--scale", "9")
    assert [line["validation"] for line in lines] == ["SciPy"] * 6
    cpu, gpu = (graph500(8, Device(kind), seed=2) for kind in ("cpu", "cuda"))
    for name in ("ids", "src", "dst", "weight"):
        np.testing.assert_array_equal(getattr(gpu, name), getattr(cpu, name))
    assert gpu.parameters == cpu.parameters


def test_graph500():
    graph = graph500(7, Device("cpu"), seed=5)
    assert (graph.src < graph.dst).all()
    keys = graph.src.astype(np.int64) * 10**6 + graph.dst
    assert (np.diff(keys) > 0).all()
    assert (np.bincount(np.concatenate([graph.src, graph.dst]), minlength=len(graph.ids)) > 0).all()
    assert (graph.weight.astype(np.float32) == graph.weight).all()
    assert 0 < graph.weight.min() < graph.weight.max() <= 1
    assert scale_of(graph) == np.floor(10 * np.log10(len(graph.ids) + len(graph.src))) / 10
