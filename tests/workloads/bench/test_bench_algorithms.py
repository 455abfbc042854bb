"""The benchmarks of algorithms at tiny sizes: what they write is sound, and a wrong result is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench_runs import SMALL, bench, drawn, of

import workloads.bench.bfs
import workloads.bench.pagerank
import workloads.bench.sssp
from mgraph.algorithms import ALGORITHMS
from mgraph.structures.csr.structure import CsrStructure
from mgraph.structures.gpma_plus.structure import GpmaPlus
from workloads.__main__ import main
from workloads.bench.inputs import degree_order


@pytest.mark.parametrize(
    "way",
    [
        ["--symmetric"], ["--directed", "--degree-order"], ["--directed", "--reverse"],
        ["--symmetric", "--predecessors"], ["--directed", "--predecessors"],
    ],
)  # fmt: skip
def test_bfs(tmp_path, way):
    import networkx as nx

    lines = bench(tmp_path, "bfs", *way, "--roots", "3", "--parts", "2")
    searches, totals = of(lines, "search"), of(lines, "bfs")
    assert [line["structure"] for line in totals] == ["csr", "gpma+"]
    assert len(searches) == 6
    assert totals[0]["arcs"] == totals[1]["arcs"]
    src, dst = drawn(0, 8 << 9)
    if "--degree-order" in way:
        ids = degree_order(src, dst, 512, np)
        src, dst = ids[src], ids[dst]
    graph = (nx.DiGraph if "--directed" in way else nx.Graph)(zip(src.tolist(), dst.tolist(), strict=True))
    for line in searches:
        levels = nx.single_source_shortest_path_length(graph, line["root"])
        assert line["reached"] == len(levels)
        assert line["levels"] == max(levels.values()) + 1
        assert line["edges"] == np.isin(src, list(levels)).sum()  # Graph500: what was drawn, repeats and loops too
        assert line["gteps"] == pytest.approx(line["edges"] / line["seconds"] / 1e9)


def test_bfs_catches_a_wrong_level(monkeypatch, capsys):
    search = workloads.bench.bfs.bfs

    def wrong(shard, source, **options):
        found, info = search(shard, source, **options)
        if isinstance(shard.out_edges, GpmaPlus):
            found["distance"][source] = 1
        return found, info

    monkeypatch.setattr(workloads.bench.bfs, "bfs", wrong)
    assert main(["bench", "bfs", *SMALL, "--roots", "1"]) == 2
    assert "at 1, with csr at 0" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [0, -1])
def test_bfs_catches_a_wrong_predecessor(monkeypatch, capsys, wrong):
    search = workloads.bench.bfs.bfs

    def spoiled(shard, source, **options):
        found, info = search(shard, source, **options)
        found["predecessors"][int(found["distance"].argmax())] = source if wrong == 0 else -1
        return found, info

    monkeypatch.setattr(workloads.bench.bfs, "_roots", lambda *_: [int(drawn(0, 8 << 9)[0][0])])
    monkeypatch.setattr(workloads.bench.bfs, "bfs", spoiled)
    assert main(["bench", "bfs", *SMALL, "--predecessors"]) == 2
    assert "predecessor" in capsys.readouterr().err


@pytest.mark.parametrize(
    "way",
    [
        ["--symmetric", "--degree-order"],
        pytest.param(["--directed"], marks=pytest.mark.slow),
        pytest.param(["--directed", "--reverse"], marks=pytest.mark.slow),
    ],
)
def test_pagerank_goes_on_after_a_batch(tmp_path, way):
    lines = bench(tmp_path, "pagerank", *way, "--iterations", "2", "--repeats", "1", "--warm", "40")
    found = of(lines, "warm")
    assert [line["structure"] for line in found] == ["csr", "gpma+"]
    for line in found:
        assert 0 < line["warm"]["iterations"] < line["cold"]["iterations"]
        assert line["l1"] < 1e-5
    assert found[0]["cold"]["iterations"] == found[1]["cold"]["iterations"]


@pytest.mark.parametrize("way", ["--symmetric", "--directed"])
def test_pagerank(tmp_path, way):
    lines = bench(tmp_path, "pagerank", way, "--uniform", "--iterations", "4", "--repeats", "2")
    found = of(lines, "pagerank")
    assert [line["structure"] for line in found] == ["csr", "gpma+"]
    for line in found:
        assert line["l1_to_csr"] < 1e-5
        assert (line["iterations"], line["n"]) == (4, 2)
        assert line["p50_ms"] > 0


def test_pagerank_catches_wrong_ranks(monkeypatch, capsys):
    rank = workloads.bench.pagerank.pagerank

    def wrong(shard, **options):
        found, info = rank(shard, **options)
        if isinstance(shard.out_edges, GpmaPlus):
            found["rank"][:2] += np.array([1e-4, -1e-4], np.float32)
        return found, info

    monkeypatch.setattr(workloads.bench.pagerank, "pagerank", wrong)
    assert main(["bench", "pagerank", *SMALL, "--iterations", "2", "--repeats", "1"]) == 2
    assert "from csr's" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["--symmetric", "--directed"])
def test_sssp(tmp_path, way):
    lines = bench(tmp_path, "sssp", way, "--roots", "2", "--predecessors")
    found = of(lines, "sssp")
    assert [line["structure"] for line in found] == ["csr", "gpma+"]
    assert found[0]["reached"] == found[1]["reached"] > 1
    for line in found:
        assert line["n"] == 2
        assert line["delta"] > 0


@pytest.mark.parametrize(("structure", "says"), [(GpmaPlus, "differ from csr's"), (CsrStructure, "shorter ways")])
def test_sssp_catches_wrong_distances(monkeypatch, capsys, structure, says):
    search = workloads.bench.sssp.sssp

    def wrong(shard, *args):
        found, info = search(shard, *args)
        if isinstance(shard.out_edges, structure):
            found["distance"][found["distance"] > 0] += 9
        return found, info

    monkeypatch.setattr(workloads.bench.sssp, "sssp", wrong)
    assert main(["bench", "sssp", *SMALL, "--roots", "1"]) == 2
    assert says in capsys.readouterr().err


def test_algorithms(tmp_path):
    import networkx as nx

    names = ["components", "triangles", "cores", "personalized", "louvain"]
    lines = bench(tmp_path, "algorithms", "--names", ",".join(names), "--repeats", "1", "--parts", "2")
    infos = {}
    for name in names:
        assert [line["structure"] for line in of(lines, name)] == ["csr", "gpma+"]
        assert all(line["n"] == 1 and line["p50_ms"] > 0 for line in of(lines, name))
        infos[name] = of(lines, name)[1]["info"]
    graph = nx.Graph(zip(*(ends.tolist() for ends in drawn(0, 8 << 9)), strict=True))
    graph.add_nodes_from(range(1 << 9))
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    assert infos["components"]["components"] == nx.number_connected_components(graph)
    assert infos["triangles"]["total"] == sum(nx.triangles(graph).values()) // 3
    assert infos["cores"]["largest"] == max(nx.core_number(graph).values())


def test_algorithms_refuses_a_name_and_catches_wrong_values(monkeypatch, capsys):
    assert main(["bench", "algorithms", *SMALL, "--names", "components,walks"]) == 2
    assert "'walks'" in capsys.readouterr().err
    algorithm = ALGORITHMS["core_number"]

    def wrong(shard, **arguments):
        columns, info = algorithm.run(shard, **arguments)
        if isinstance(shard.out_edges, GpmaPlus):
            columns["core"][7] += 1
        return columns, info

    monkeypatch.setitem(ALGORITHMS, "core_number", replace(algorithm, run=wrong))
    assert main(["bench", "algorithms", *SMALL, "--names", "cores", "--repeats", "1"]) == 2
    assert "gpma+: cores: 1 of 512 values differ from csr's" in capsys.readouterr().err
