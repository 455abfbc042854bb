"""Algorithms through the user's handle, on real processes, against NetworkX."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from graph_clusters import HERE, assert_clean, on

from mgraph import DynamicGraph, GraphClosed, InvalidOption
from mgraph.algorithms import ALGORITHMS

N = 300


def make(client, size, seed, **options) -> tuple[DynamicGraph, nx.DiGraph]:
    """A sparse graph with isolated and dangling vertices, after insertions and deletions, and the same in NetworkX."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, N - 20, (2, 700))
    graph = DynamicGraph(n_vertices=N, **on(client, size), **options)
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
@pytest.mark.parametrize("size", [HERE, 1, 2, 3])
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [HERE, 3])
def test_pagerank_goes_on_from_an_older_result(client3, size, kind):
    graph, oracle = make(client3, size, 5, **KINDS[kind])
    with graph:
        before = graph.pagerank()
        graph.insert([1, 2], [3, 4])
        oracle.add_edges_from([(1, 3), (2, 4)])
        added = graph.add_vertices(3)
        oracle.add_nodes_from(added)
        cold, warm = graph.pagerank(), graph.pagerank(start=before)
        assert warm.iterations < cold.iterations
        graph.rebalance()
        moved = graph.pagerank(start=before)
        assert moved.iterations == warm.iterations
        array = graph.pagerank(start=before.to_numpy() * 7)
        assert array.iterations == warm.iterations
        want = nx.pagerank(oracle, alpha=0.85, tol=1e-12, max_iter=500)
        for ranks in (cold, warm, moved, array):
            assert np.abs(ranks.to_numpy() - [want[v] for v in range(N + 3)]).sum() < 1e-5
        again = graph.pagerank(start=moved)  # that lies as the graph does now
        assert again.iterations == 1
        np.testing.assert_allclose(graph.pagerank(start=again, max_iter=1).to_numpy().sum(), 1, atol=1e-6)
    assert_clean(client3)


def test_numbers_of_fewer_vertices_than_the_graph_has(place):
    """Vertices that a result does not have begin with its mean, and no walk jumps to them."""
    exact = {"dtype": "float64", "tol": 1e-12}
    with DynamicGraph(place, 40, reverse=True) as graph:
        graph.insert(np.arange(39), np.arange(1, 40))
        old = graph.degree_centrality()
        rows = graph.pagerank(personalization=[old, {3: 1}])
        graph.add_vertices(30)
        graph.insert(np.arange(40, 70), np.arange(10, 40))
        values = old.to_numpy()
        begun, zeros = np.append(values, np.full(30, values.mean())), np.zeros(30)
        for change in (lambda: None, graph.rebalance, graph.reorder):
            change()
            np.testing.assert_allclose(graph.pagerank(start=old, max_iter=0), begun / begun.sum(), rtol=1e-6)
            np.testing.assert_allclose(graph.hits(start=old, max_iter=0), graph.hits(start=begun, max_iter=0))
            for argument in ("personalization", "dangling"):
                want = graph.pagerank(**{argument: np.append(values, zeros)}, **exact)
                np.testing.assert_allclose(graph.pagerank(**{argument: old}, **exact), want, atol=1e-9)
            want = graph.pagerank(personalization=np.append(values, zeros), **exact)
            np.testing.assert_allclose(graph.pagerank(personalization=[old, old], **exact), [want, want], atol=1e-9)
        with pytest.raises(InvalidOption, match=r"start has shape \(2, 40\)"):
            graph.pagerank(start=rows, personalization=[{0: 1}, {1: 1}])
        np.testing.assert_array_equal(old, values)


def test_numbers_of_vertices_that_left(place):
    exact = {"dtype": "float64", "tol": 1e-12}
    with DynamicGraph(place, keys="string", reverse=True) as graph:
        graph.insert(list("abcd"), list("bcda"))
        old, both = graph.degree_centrality(), [{"a": 1}, {"d": 1}]
        rows = graph.pagerank(personalization=both, **exact)
        graph.delete_vertices(["b"])
        graph.insert(list("xa"), list("ax"))
        present = {key: value for key, value in old.items() if key != "b"}
        for argument in ("personalization", "dangling"):
            want = graph.pagerank(**{argument: present}, **exact)
            np.testing.assert_allclose(graph.pagerank(**{argument: old}, **exact), want, atol=1e-9)
        want = graph.pagerank(personalization=[present, {"a": 1}], **exact)
        np.testing.assert_allclose(graph.pagerank(personalization=[old, {"a": 1}], **exact), want, atol=1e-9)
        # The rows go by keys, though there are as many vertices as before.
        begun = graph.pagerank(start=rows, personalization=both, max_iter=0, dtype="float64").to_pandas()
        left = rows.to_pandas()
        want = left.reindex(graph.vertices()).fillna(left.mean())
        np.testing.assert_allclose(begun.reindex(want.index), want / want.sum(), rtol=1e-6)


def test_pagerank_in_float64_and_by_iterations(client3):
    graph, oracle = make(client3, 3, 2)
    with graph:
        limit = graph.pagerank(tol=1e-13, max_iter=500, dtype=np.float64)
        want = nx.pagerank(oracle, alpha=0.85, weight=None, tol=1e-15, max_iter=500)
        assert (limit.dtype, limit.converged) == (np.float64, True)
        np.testing.assert_allclose(limit.to_numpy(), [want[v] for v in range(N)], rtol=1e-11)
        assert graph.pagerank(tol=1e-12, start=limit, dtype="float64").iterations <= 2
        for steps in (0, 3):
            few = graph.pagerank(tol=0, max_iter=steps)
            assert (few.dtype, few.iterations, few.converged) == (np.float32, steps, False)
            exact = graph.pagerank(tol=0, max_iter=steps, dtype="float64").to_numpy()
            np.testing.assert_allclose(few.to_numpy(), exact, rtol=1e-6)


def test_bad_starts(place):
    with DynamicGraph(place, N) as graph:
        graph.insert([1], [2])
        for start, message in (
            (np.ones((2, 2)), "has shape .2, 2."),
            (np.ones((2, N)), "has shape .2, 300."),
            (np.ones(N + 1), "301"),
            (["a"], "start.0. is .a.; it must be a number"),
            (np.zeros(N), "sums to 0"),
            (np.full(N, -1.0), "least value is -1.0; values must be finite and 0 or more"),
            (np.full(N, np.nan), "least value is nan"),
        ):
            with pytest.raises(InvalidOption, match=message):
                graph.pagerank(start=start)
        closed = graph.pagerank()
        closed.close()
        with pytest.raises(GraphClosed, match="was closed"):
            graph.pagerank(start=closed)
        assert graph.pagerank().converged


def test_a_result_of_another_graph_is_an_array_as_a_start(place):
    with (
        DynamicGraph(place, N) as one,
        DynamicGraph(place, N, order=np.random.default_rng(1).permutation(N)) as other,
    ):
        one.insert(np.arange(N - 1), np.arange(1, N))
        other.insert(np.arange(N - 1), np.arange(1, N))
        ranks = one.pagerank()
        again = other.pagerank(start=ranks)
        assert again.iterations == 1
        few = other.pagerank(start=[1, 2, 3])
        np.testing.assert_allclose(few.to_numpy(), ranks.to_numpy(), atol=1e-6)
        np.testing.assert_allclose(again.to_numpy(), ranks.to_numpy(), rtol=1e-4)


@pytest.mark.parametrize("kind", [*KINDS, "degree"])
@pytest.mark.parametrize("size", [HERE, 1, 3])
def test_components_by_users_ids(client3, size, kind):
    graph, oracle = make(client3, size, 4, **KINDS.get(kind, {"order": "degree"}))
    with graph:

        def check() -> None:
            found = graph.connected_components()
            parts = list(nx.connected_components(oracle.to_undirected()))
            least = {vertex: min(part) for part in parts for vertex in part}
            labels = found.to_numpy()
            assert labels.dtype == np.int64
            assert labels.tolist() == [least[vertex] for vertex in range(graph.num_vertices)]
            assert (found.components, found.epoch) == (len(parts), graph.epoch)
            assert 1 <= found.supersteps <= 2

        check()
        graph.reorder()
        graph.rebalance()
        check()
        graph.insert([1, 2], [3, N - 1])
        oracle.add_edges_from([(1, 3), (2, N - 1)])
        oracle.add_nodes_from(graph.add_vertices(3))
        graph.delete_vertices([1, 5])
        oracle.remove_edges_from([edge for edge in oracle.edges if {1, 5} & set(edge)])
        check()
    assert_clean(client3)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("reverse", 3),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (("permuted", 2), ("directed", 1), ("undirected", 3), ("degree", 1))
        ),
    ],
)
def test_triangles_cores_and_communities(client3, size, kind):
    graph, oracle = make(client3, size, 6, **KINDS.get(kind, {"order": "degree"}))
    with graph:
        for turn in range(2):
            plain = oracle.copy()
            plain.remove_edges_from(list(nx.selfloop_edges(plain)))
            n = graph.num_vertices
            cores = nx.core_number(plain)
            found = graph.core_number()
            assert found.to_numpy().tolist() == [cores[v] for v in range(n)]
            assert found.largest == max(cores.values())
            assert graph.k_core(10**30).vertices == 0  # of more bits than a message has
            inside = graph.k_core(2)
            assert (inside.dtype, inside.vertices) == (bool, sum(core >= 2 for core in cores.values()))
            assert set(np.flatnonzero(inside)) == {v for v, core in cores.items() if core >= 2}
            clustering = nx.clustering(plain)
            got = graph.clustering(definition="fagiolo").to_numpy()
            np.testing.assert_allclose(got, [clustering[v] for v in range(n)], rtol=1e-12)
            weak = list(nx.weakly_connected_components(oracle) if graph.directed else nx.connected_components(oracle))
            strong = list(nx.strongly_connected_components(oracle)) if graph.directed else weak
            least = {v: min(part) for part in strong for v in part}
            assert graph.strongly_connected_components().to_numpy().tolist() == [least[v] for v in range(n)]
            centrality = nx.degree_centrality(oracle)
            np.testing.assert_allclose(graph.degree_centrality(), [centrality[v] for v in range(n)], rtol=1e-14)
            matrix = nx.to_numpy_array(oracle, nodelist=range(n), weight=None)
            hubs = graph.hits(1e-12, 1000)
            authorities = hubs.authorities.to_numpy()
            hubs_of = matrix @ authorities
            np.testing.assert_allclose(hubs, hubs_of / hubs_of.sum(), atol=1e-12)
            back = matrix.T @ hubs.to_numpy()
            np.testing.assert_allclose(authorities, back / back.sum(), atol=1e-8)
            components = graph.connected_components()
            assert graph.modularity(components) == pytest.approx(nx.community.modularity(oracle, weak), abs=1e-12)
            assert graph.modularity(components.to_numpy()) == graph.modularity(components)
            if graph.directed:
                for call in (graph.triangles, graph.transitivity):
                    with pytest.raises(InvalidOption, match="directed=False"):
                        call()
            else:
                assert graph.triangles().to_numpy().tolist() == [nx.triangles(plain)[v] for v in range(n)]
                assert graph.transitivity() == pytest.approx(nx.transitivity(plain), rel=1e-12)
            if graph.reverse:
                for communities in (graph.louvain(seed=3), graph.leiden(seed=3)):
                    stated = communities.quality if "quality" in communities.info else communities.modularity
                    assert graph.modularity(communities) == pytest.approx(stated, abs=1e-12)
                    labels = communities.to_numpy()
                    assert (labels <= np.arange(n)).all()
                    assert (labels[labels] == labels).all()
                rounds = graph.label_propagation(2)
                assert rounds.to_numpy().tolist() == two_rounds(oracle)
            else:
                for call in (graph.louvain, graph.leiden, graph.label_propagation):
                    with pytest.raises(InvalidOption, match="reverse=True"):
                        call()
            if turn == 0:
                graph.reorder()
                graph.rebalance()
                graph.insert([1, 2, 1], [2, 3, 3])
                oracle.add_edges_from([(1, 2), (2, 3), (1, 3)])
                oracle.add_nodes_from(graph.add_vertices(3))
    assert_clean(client3)


def two_rounds(oracle) -> list[int]:
    """Labels after two rounds of label propagation, vertex by vertex."""
    labels = {v: v for v in oracle}
    for _ in range(2):
        new = {}
        for v in oracle:
            near = [*oracle.successors(v), *oracle.predecessors(v)] if oracle.is_directed() else list(oracle[v])
            seen = [labels[u] for u in near]
            new[v] = min(seen, key=lambda label: (-seen.count(label), label)) if seen else labels[v]
        labels = new
    return [labels[v] for v in sorted(labels)]


def test_run_by_name_is_the_method(client3):
    graph, _ = make(client3, 2, 1)
    with graph:
        np.testing.assert_array_equal(graph.run("bfs", source=3).to_numpy(), graph.bfs(3).to_numpy())
        for name in ALGORITHMS:
            assert callable(getattr(graph, name))
        with pytest.raises(InvalidOption, match="algorithm 'colour' is none of .*'bfs', .*'pagerank'"):
            graph.run("colour")
        with pytest.raises(TypeError, match="^bfs: missing a required argument: 'source'$"):
            graph.maintain("bfs")
        with pytest.raises(
            TypeError, match="^bfs: got an unexpected keyword argument 'sorce'; did you mean 'source'\\?$"
        ):
            graph.run("bfs", sorce=3)
        with pytest.raises(TypeError, match="^pagerank: got an unexpected keyword argument 'colour'$"):
            graph.run("pagerank", colour=1)
