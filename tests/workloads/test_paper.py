"""The papers' experiments at tiny sizes: every one runs, what it records is sound, and a wrong structure is caught."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mgraph.batch import EdgeBatch
from mgraph.device import Device
from mgraph.structures import Counts
from mgraph.structures.csr.structure import CsrStructure
from mgraph.structures.gpma_plus.structure import GpmaPlus
from workloads.__main__ import main
from workloads.paper.command import measured as measurements
from workloads.paper.papers import PAPERS
from workloads.paper.streams import Real, StandIn
from workloads.results.result_table import pivot

CPU = Device("cpu", threads=1)
TINY = ["--device", "cpu", "--threads", "1", "--divide", "40000", "--repeats", "2"]


def paper(tmp_path, name, *options):
    assert main(["paper", name, *TINY, *options, "--out", str(tmp_path)]) == 0
    (path,) = tmp_path.glob(f"bench-paper-{name}-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def measured(lines, **values):
    return [line for line in lines if line["kind"] == "measured" and values.items() <= line.items()]


# ---- streams -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["rmat", "uniform", "road"])
def test_stand_ins_have_the_paper_s_numbers(shape):
    graph = StandIn("G", shape, 100_000, 300_000)
    stream = graph.stream(CPU, 10, 3, None)
    keys = stream.src.astype(np.int64) * stream.n_vertices + stream.dst
    assert stream.n_vertices == 16384  # the next power of two
    assert len(np.unique(keys)) == len(stream)
    assert 0.8 * 30_000 < len(stream) <= 30_000
    assert abs(np.corrcoef(np.arange(len(keys)), stream.src)[0, 1]) < 0.05  # in random order
    again = graph.stream(CPU, 10, 3, None)
    assert (again.src == stream.src).all()
    assert (again.dst == stream.dst).all()


def test_real_streams(tmp_path):
    """Times order the edges, and an edge is there once, where it came first."""
    src, dst, t = np.uint32([5, 1, 5, 2]), np.uint32([6, 1, 6, 0]), np.array([7, 3, 9, 8])
    np.savez(tmp_path / "timed.npz", src=src, dst=dst, t=t)
    np.savez(tmp_path / "plain.npz", src=src, dst=dst)
    timed, plain = (Real(name).stream(CPU, 100, 1, tmp_path) for name in ("timed", "plain"))
    assert list(zip(timed.src.tolist(), timed.dst.tolist(), strict=True)) == [(1, 1), (5, 6), (2, 0)]
    assert {*zip(plain.src.tolist(), plain.dst.tolist(), strict=True)} == {(1, 1), (5, 6), (2, 0)}
    assert timed.n_vertices == plain.n_vertices == 7
    assert Real("absent").stream(CPU, 100, 1, tmp_path) is None
    assert Real("timed").stream(CPU, 100, 1, None) is None


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name if name == "gpma" else pytest.param(name, marks=pytest.mark.slow) for name in PAPERS]
)
def test_every_experiment_runs(name, tmp_path, capsys):
    """On the smallest of the paper's graphs, and on a real one."""
    rng = np.random.default_rng(1)
    real = next(graph.name for graph in PAPERS[name].graphs if isinstance(graph, Real))
    np.savez(tmp_path / f"{real}.npz", **dict(zip(("src", "dst"), rng.integers(0, 60, (2, 500)), strict=True)))
    least = min((g for g in PAPERS[name].graphs if isinstance(g, StandIn)), key=lambda g: g.edges).name
    structures = [] if name != "lpma" else ["--structure", "gpma+,slabgraph"]
    lines = paper(tmp_path, name, "--graph", f"{least},{real}", "--data", str(tmp_path), *structures)
    graphs = {line["graph"] for line in measured(lines)}
    assert graphs == {line["graph"] for line in lines if line["kind"] == "stream"}
    assert real in graphs
    assert len(graphs) == 2
    assert all(line["value"] > 0 for line in measured(lines))
    columns, rows = pivot(measurements(lines))
    assert len(rows) == len({(line["graph"], line["what"]) for line in measured(lines)})
    assert {line["structure"] for line in measured(lines)} == set(columns[2:])
    assert str(tmp_path) not in json.dumps({**lines[0], "parameters": {**lines[0]["parameters"], "out": None}})
    assert "results of all structures are equal" in capsys.readouterr().out
    assert main(["report", "--results", str(tmp_path.parent), "--hardware", tmp_path.name]) == 0
    assert f"The experiments of {name}'s paper" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PAPERS)
def test_a_hundredth_of_the_size(name, tmp_path, data_dir):
    options = ["--divide", "100", "--repeats", "1", "--threads", "2", "--data", str(data_dir)]
    structures = ["--structure", "gpma+,slabgraph"] if name == "lpma" else []
    lines = paper(tmp_path, name, *options, *structures)
    assert {line["graph"] for line in measured(lines)} == {line["graph"] for line in lines if line["kind"] == "stream"}


@pytest.mark.gpu
@pytest.mark.parametrize("name", PAPERS)
def test_on_a_gpu(name, tmp_path):
    structures = ["--structure", "gpma+,slabgraph"] if name == "lpma" else []
    assert measured(paper(tmp_path, name, "--device", "cuda", "--divide", "10000", *structures))
    graph = StandIn("G", "rmat", 50_000, 100_000)
    cpu, gpu = (graph.stream(device, 1, 3, None) for device in (CPU, Device("cuda")))
    np.testing.assert_array_equal(gpu.device.to_host(gpu.src), cpu.src)
    np.testing.assert_array_equal(gpu.device.to_host(gpu.dst), cpu.dst)


def test_structures_that_are_not_there_are_left_out(tmp_path, capsys):
    options = ["--structure", "gpmq,gpma+", "--experiment", "build", "--graph", "co-papers"]
    lines = paper(tmp_path, "graphvine", *options)
    assert {line["structure"] for line in measured(lines)} == {"gpma+"}
    said = " ".join(capsys.readouterr().out.split())
    assert "gpmq: left out, structure 'gpmq' is none of" in said


def test_missing_graphs_are_left_out(tmp_path, capsys):
    lines = paper(tmp_path, "graphvine", "--experiment", "build", "--graph", "cit-HepPh", "--data", str(tmp_path))
    assert not measured(lines)
    assert "cit-HepPh: not there" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--experiment", "flights"], "flights"),
        (["--structure", "gpmq"], "none of the structures gpmq"),
        (["--divide", "0"], "divide is 0"),
        (["--repeats", "0"], "repeats is 0"),
    ],
)
def test_bad_options(options, says, capsys):
    assert main(["paper", "gpma", *TINY, *options]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


# ---- what is wrong is found ----------------------------------------------------------------------------------------


def test_a_structure_that_loses_an_edge(monkeypatch, capsys):
    """Counts are known beforehand; what is left is compared by its hash."""
    apply = GpmaPlus.apply

    def loses(self, batch):
        counts = apply(self, batch)
        apply(self, EdgeBatch(batch.src[-1:], batch.dst[-1:], op=-1))
        return counts

    monkeypatch.setattr(GpmaPlus, "apply", loses)
    options = ["--structure", "csr,gpma+", "--graph", "Random", "--experiment", "slides"]
    assert main(["paper", "gpma", *TINY, *options]) == 2
    assert "gpma+" in capsys.readouterr().err


def test_a_structure_that_miscounts(monkeypatch, capsys):
    apply = GpmaPlus.apply
    monkeypatch.setattr(GpmaPlus, "apply", lambda self, batch: apply(self, batch) + Counts(missing=1))
    options = ["--structure", "gpma+", "--graph", "Random", "--experiment", "slides"]
    assert main(["paper", "gpma", *TINY, *options]) == 2
    assert "was right" in " ".join(capsys.readouterr().err.split())


def test_an_answer_that_differs(monkeypatch, capsys):
    has_edges = CsrStructure.has_edges
    monkeypatch.setattr(CsrStructure, "has_edges", lambda self, src, dst: ~has_edges(self, src, dst) | True)
    options = ["--structure", "gpma+,csr", "--graph", "Road", "--experiment", "queries"]
    assert main(["paper", "lpma", *TINY, *options, "--divide", "1000"]) == 2
    assert "edge queries" in " ".join(capsys.readouterr().err.split())
