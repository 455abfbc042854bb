"""The comparison of communities with other libraries: its measures against NetworkX, and a small set of its graphs."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pytest
from bench_runs import of

from workloads.__main__ import main
from workloads.bench.communities import DENSITY, LOSS, adjusted_rand, constant_potts, modularity
from workloads.inputs.clustered import graphs, planted
from workloads.inputs.edges import EdgeStream


def drawn(directed: bool) -> tuple[EdgeStream, np.ndarray, nx.Graph]:
    """A weighted graph without repeats, labels, and the same graph for NetworkX."""
    oracle = nx.gnm_random_graph(60, 200, seed=1, directed=directed)
    src, dst = np.array(oracle.edges, np.uint32).T
    rng = np.random.default_rng(2)
    weight = rng.integers(1, 9, len(src)).astype(np.float32)
    for u, v, w in zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True):
        oracle[u][v]["weight"] = w
    return EdgeStream(src, dst, 60, weight=weight, directed=directed), rng.integers(0, 5, 60), oracle


@pytest.mark.parametrize("directed", [True, False])
def test_modularity_and_cpm_are_those_of_their_definitions(directed):
    edges, labels, oracle = drawn(directed)
    sets = [set(np.flatnonzero(labels == label).tolist()) for label in range(5)]
    assert modularity(edges, labels) == pytest.approx(nx.community.modularity(oracle, sets))
    inside = sum(oracle.subgraph(community).size("weight") for community in sets)
    pairs = sum(len(community) * (len(community) - 1) for community in sets) / (1 if directed else 2)
    assert constant_potts(edges, labels) == pytest.approx(inside - DENSITY * pairs)


def test_adjusted_rand_index():
    """Equal divisions have 1, whatever their labels; the last is Hubert and Arabie's formula by hand."""
    assert adjusted_rand(np.array([0, 0, 1, 1]), np.array([7, 7, 2, 2])) == 1
    assert adjusted_rand(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])) == pytest.approx(-0.5)
    assert adjusted_rand(np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1])) == pytest.approx(4 / 7)


def test_there_are_60_graphs_of_all_kinds():
    names = [name for name, _ in graphs(None)]
    assert len(names) == len(set(names)) == 60
    assert sum("directed" in name for name in names) > 10
    assert sum("weighted" in name or "counts" in name for name in names) > 10


def test_a_planted_partition_has_its_degrees():
    clustered = planted(np.array([30, 20, 50]), inner=8, outer=2, seed=3)
    edges, own = clustered.edges, clustered.communities
    assert np.bincount(own).tolist() == [30, 20, 50]
    same = own[edges.src] == own[edges.dst]
    assert 400 <= same.sum() <= 400 + 100
    assert len(edges) == 500


@pytest.mark.slow
def test_as_good_as_the_others(tmp_path):
    pytest.importorskip("igraph")
    names = "planted-equal,planted-unequal-4,rmat-10"
    options = ["--device", "cpu", "--names", names, "--seeds", "3", "--out", str(tmp_path)]
    assert main(["bench", "communities", *options]) == 0
    (path,) = tmp_path.glob("bench-communities-*.jsonl")
    lines = of([json.loads(line) for line in path.read_text().splitlines()], "quality")
    assert len(lines) == 16
    for line in lines:
        for quality in ("modularity", "cpm"):
            values = dict(line[quality])
            assert values.pop("mgraph") >= (1 - LOSS) * max(values.values()), (line["graph"], quality)
        if line["rand"]:
            assert line["rand"]["mgraph"] >= line["rand"]["igraph"] - 0.01, line["graph"]


@pytest.mark.parametrize(("option", "value"), [("--names", "unknown"), ("--seeds", "0"), ("--repeats", "-1")])
def test_mistakes(option, value, capsys):
    pytest.importorskip("igraph")
    assert main(["bench", "communities", "--device", "cpu", option, value]) == 2
    assert option in capsys.readouterr().err
