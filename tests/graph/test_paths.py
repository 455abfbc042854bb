"""Paths and centralities through the user's handle, on real processes, by users' ids, against NetworkX."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from graph_clusters import addresses, assert_clean

from mgraph import DynamicGraph, InvalidOption, NoPath, UnknownVertex
from mgraph.client.results.results import VertexRows

N = 120

pytestmark = pytest.mark.timeout(300)  # the first call of each algorithm compiles its kernels


def make(client: Any, size: int, **options: Any) -> tuple[DynamicGraph, nx.Graph]:
    """A sparse weighted graph after insertions and deletions, and the same in NetworkX."""
    rng = np.random.default_rng(size)
    src, dst = rng.integers(0, N - 10, (2, 400))
    weight = rng.random(400).astype(np.float32)
    graph = DynamicGraph(client, N, workers=addresses(client)[:size], weighted=True, **options)
    graph.insert(src, dst, weight)
    graph.delete(src[:100], dst[:100])
    oracle = nx.DiGraph() if graph.directed else nx.Graph()
    oracle.add_nodes_from(range(N))
    edges = zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True)
    oracle.add_weighted_edges_from(edges)
    oracle.remove_edges_from(set(zip(src[:100].tolist(), dst[:100].tolist(), strict=True)))
    return graph, oracle


KINDS: dict[str, dict[str, Any]] = {
    "directed": {"order": "degree"},
    "undirected": {"directed": False, "order": np.random.default_rng(8).permutation(N)},
    "reverse": {"reverse": True, "structure": "slabgraph"},
}


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("directed", 3),
        pytest.param("undirected", 2, marks=pytest.mark.slow),
        pytest.param("reverse", 1, marks=pytest.mark.slow),
    ],
)
def test_by_users_ids(client3, kind, size):
    graph, oracle = make(client3, size, **KINDS[kind])
    with graph:
        hops = {v: nx.single_source_shortest_path_length(oracle, v) for v in (5, 40, 7)}
        check_sssp(graph, oracle)
        check_paths(graph, oracle)

        found = graph.distances([5, 40, 7, 5])
        assert isinstance(found, VertexRows)
        assert found.to_numpy().tolist() == [[hops[s].get(v, -1) for v in range(N)] for s in (5, 40, 7, 5)]
        with pytest.raises(InvalidOption, match="several rows"):
            found.top(3)

        nearest = graph.multi_source_bfs([40, 5, 7])
        best = [min(((hops[s][v], s) for s in hops if v in hops[s]), default=(-1, -1)) for v in range(N)]
        assert nearest.to_numpy().tolist() == [hop for hop, _ in best]
        assert nearest.nearest.to_numpy().tolist() == [source for _, source in best]
        assert nearest.reached == sum(hop >= 0 for hop, _ in best)

        rows = graph.k_hop([40, 5], 2)
        for i, source in enumerate((40, 5)):
            here = slice(rows.offsets[i], rows.offsets[i + 1])
            want = sorted((hop, v) for v, hop in hops[source].items() if hop <= 2)
            assert list(zip(rows.hop[here].tolist(), rows.dst[here].tolist(), strict=True)) == want

        centrality = graph.betweenness_centrality()
        want = nx.betweenness_centrality(oracle)
        np.testing.assert_allclose(centrality.to_numpy(), [want[v] for v in range(N)], rtol=1e-10, atol=1e-12)
        assert graph.betweenness_centrality([3, 4], normalized=False).sources == 2

        check_pagerank(graph, oracle)
        before = graph.nbytes
        graph.k_hop([1], 1)
        graph.degrees([0])
        assert graph.nbytes <= before  # nothing of it stays on the workers
    assert_clean(client3)


def check_sssp(graph, oracle):
    found = graph.sssp(5, predecessors=True, dtype="float64")
    want = nx.single_source_dijkstra_path_length(oracle, 5)
    distances, predecessors = found.to_numpy(), found.predecessors.to_numpy()
    np.testing.assert_array_equal(distances, [want.get(v, np.inf) for v in range(N)])
    assert found.reached == len(want)
    for v, before in enumerate(predecessors.tolist()):
        if v == 5 or v not in want:
            assert before == -1
        else:
            assert distances[before] + oracle[before][v]["weight"] == distances[v]
    assert graph.sssp(5).dtype == np.float32


def check_paths(graph, oracle):
    reached = nx.single_source_dijkstra_path_length(oracle, 5)
    far = max(reached, key=reached.get)
    path = graph.shortest_path(5, far, weight=True)
    assert all(type(v) is int for v in path)
    assert nx.path_weight(oracle, path, "weight") == pytest.approx(reached[far], rel=1e-12)
    assert len(graph.shortest_path(5, far)) == nx.shortest_path_length(oracle, 5, far) + 1
    with pytest.raises(NoPath, match=f"there is no path from 5 to {N - 1}"):
        graph.shortest_path(5, N - 1)
    assert graph.shortest_path(N - 1, N - 1) == [N - 1]  # an error leaves the graph as it was
    with pytest.raises(UnknownVertex, match="target"):
        graph.shortest_path(5, N)


def check_pagerank(graph, oracle):
    exact = {"dtype": "float64", "tol": 1e-13, "max_iter": 1000}
    person = {3: 1.0, 77: 2.0}
    dense = np.random.default_rng(1).random(N)
    networkx = {"tol": 1e-15, "max_iter": 2000}
    for given, weight in ((person, False), (dense, True)):
        mapping = given if given is person else dict(enumerate(dense.tolist()))
        want = nx.pagerank(oracle, personalization=mapping, weight="weight" if weight else None, **networkx)
        got = graph.pagerank(personalization=given, weight=weight, **exact).to_numpy()
        np.testing.assert_allclose(got, [want[v] for v in range(N)], rtol=1e-9, atol=1e-12)
    both = graph.pagerank(personalization=[person, dense], **exact)
    assert both.to_numpy().shape == (2, N)
    np.testing.assert_array_equal(both.to_numpy()[0], graph.pagerank(personalization=person, **exact).to_numpy())
    first = graph.pagerank()
    assert graph.pagerank(personalization=first).to_numpy().sum() == pytest.approx(1, abs=1e-6)
    assert graph.pagerank(nstart=first).iterations <= 2
