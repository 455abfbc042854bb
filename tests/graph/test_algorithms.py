"""Algorithms through the user's handle, on real processes, against NetworkX."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from graph_clusters import assert_clean

from mgraph import DynamicGraph, InvalidOption
from mgraph.algorithms import PROGRAMS

N = 300


def make(client, size, seed, **options) -> tuple[DynamicGraph, nx.DiGraph]:
    """A sparse graph with isolated and dangling vertices, after insertions and deletions, and the same in NetworkX."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, N - 20, (2, 700))
    workers = sorted(client.scheduler_info(n_workers=-1)["workers"])[:size]
    graph = DynamicGraph(client, N, workers=workers, **options)
    graph.insert(src, dst)
    graph.delete(src[:200], dst[:200])
    oracle = nx.DiGraph() if graph.directed else nx.Graph()
    oracle.add_nodes_from(range(N))
    oracle.add_edges_from(zip(src.tolist(), dst.tolist(), strict=True))
    oracle.remove_edges_from(zip(src[:200].tolist(), dst[:200].tolist(), strict=True))
    return graph, oracle


KINDS = {
    "directed": {},
    "reverse": {"reverse": True},
    "undirected": {"directed": False},
    "permuted": {"reverse": True, "order": np.random.default_rng(8).permutation(N), "structure": "csr"},
}


def check_tree(found, way: nx.DiGraph, lengths: dict[int, int]) -> None:
    """Each predecessor is an in-neighbour one level up; the source and what is unreached have none."""
    assert found.to_numpy().tolist() == [lengths.get(v, -1) for v in range(N)]
    predecessors = found.predecessors.to_numpy()
    assert predecessors.dtype == np.int64
    for vertex, before in enumerate(predecessors.tolist()):
        if lengths.get(vertex, 0) > 0:
            assert way.has_edge(before, vertex)
            assert lengths[before] == lengths[vertex] - 1
        else:
            assert before == -1
    assert (np.asarray(found.predecessors, np.int32) == predecessors).all()
    assert len(found.predecessors) == N


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_bfs_and_pagerank(client3, size, kind):
    graph, oracle = make(client3, size, 3, **KINDS[kind])
    with graph:
        for direction in ("out", "in") if graph.reverse else ("out",):
            found = graph.bfs(5, direction=direction)
            way = oracle.reverse() if direction == "in" and graph.directed else oracle
            lengths = nx.single_source_shortest_path_length(way, 5)
            distances = found.to_numpy()
            assert distances.dtype == np.int32
            assert distances.tolist() == [lengths.get(v, -1) for v in range(N)]
            assert found.epoch == 2
            farthest = max(lengths.values())
            assert found.top(1) == [(min(v for v, d in lengths.items() if d == farthest), farthest)]
            check_tree(graph.bfs(5, direction=direction, predecessors=True), way, lengths)
        ranks = graph.pagerank(tol=1e-6, max_iter=200)
        want = nx.pagerank(oracle, alpha=0.85, tol=1e-12, max_iter=500)
        assert np.abs(ranks.to_numpy() - [want[v] for v in range(N)]).sum() < 1e-5
        assert 1 < ranks.iterations <= 200
        assert [vertex for vertex, _ in ranks.top(3)] == sorted(want, key=lambda v: -want[v])[:3]
    assert_clean(client3)


def test_run_by_name_is_the_method(client3):
    graph, _ = make(client3, 2, 1)
    with graph:
        np.testing.assert_array_equal(graph.run("bfs", source=3).to_numpy(), graph.bfs(3).to_numpy())
        for name in PROGRAMS:
            assert callable(getattr(graph, name))
        with pytest.raises(InvalidOption, match="algorithm 'colour' is none of 'bfs', 'pagerank'"):
            graph.run("colour")
