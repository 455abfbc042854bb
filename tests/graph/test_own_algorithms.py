"""Algorithms of your own: `gather`, arithmetic with results on the workers, and what is written with them."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from graph_clusters import HERE, assert_clean, on

from mgraph import DynamicGraph, InvalidOption, UnknownVertex, VertexValues

N = 120


def make(client, size, seed, **options) -> tuple[DynamicGraph, nx.DiGraph]:
    """A weighted graph with isolated vertices and self-loops, after a batch of deletes, and the same in NetworkX."""
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, N - 5, (2, 700))
    graph = DynamicGraph(n_vertices=N, **on(client, size), **{"weighted": True, **options})
    graph.insert(src, dst, rng.random(len(src), np.float32) + 0.5 if graph.weighted else None)
    graph.delete(src[:100], dst[:100])
    return graph, graph.to_networkx()


KINDS = {
    "reverse": {"reverse": True},
    "undirected": {"directed": False},
    "permuted": {"reverse": True, "order": np.random.default_rng(8).permutation(N)},
}


def close(got: VertexValues, want: dict[int, float], tol: float = 1e-8) -> None:
    np.testing.assert_allclose(got.to_numpy(), [want[v] for v in range(N)], atol=tol)


@pytest.mark.parametrize(("kind", "size"), [("reverse", HERE), ("undirected", HERE), ("permuted", 3)])
def test_centralities_are_networkx_s(client3, kind, size):
    graph, oracle = make(client3, size, 4, **KINDS[kind])
    with graph:
        for weight in (False, True) if size == HERE else (True,):
            name = "weight" if weight else None
            found = graph.eigenvector_centrality(1000, 1e-10, weight=weight)
            assert found.converged
            close(found, nx.eigenvector_centrality(oracle, 1000, 1e-10, weight=name))
            found = graph.katz_centrality(0.02, 2, tol=1e-10, weight=weight)
            close(found, nx.katz_centrality(oracle, 0.02, 2, tol=1e-10, weight=name))
        again = graph.katz_centrality(0.02, nstart=found, normalized=False, tol=1e-9, beta=np.arange(N))
        close(again, nx.katz_centrality(oracle, 0.02, dict(enumerate(range(N))), tol=1e-9, normalized=False), 1e-5)
        few = graph.eigenvector_centrality(2, 1e-10)
        assert (few.iterations, few.converged, few.name) == (2, False, "eigenvector_centrality")
    assert_clean(client3)


def test_graphs_without_edges_or_vertices():
    with DynamicGraph(n_vertices=3, reverse=True) as graph:
        np.testing.assert_allclose(graph.eigenvector_centrality(), 3**-0.5)
        np.testing.assert_allclose(graph.katz_centrality(normalized=False), 1)
    with DynamicGraph(n_vertices=0, reverse=True) as graph:
        assert len(graph.eigenvector_centrality()) == len(graph.katz_centrality()) == 0
        with pytest.raises(InvalidOption, match="no vertices"):
            graph.gather(1).max()
        assert len(graph.eigenvector_centrality(nstart=[])) == 0


def test_a_start_that_leads_to_nothing_is_refused():
    with DynamicGraph(n_vertices=2, directed=False) as graph:
        graph.insert([0], [1])
        for start in ([0, 0], [1, -1]):
            with pytest.raises(InvalidOption, match="nstart"):
                graph.eigenvector_centrality(nstart=start)


def test_growth_without_limit_is_reported_without_warnings():
    with DynamicGraph(n_vertices=2, directed=False) as graph:
        graph.insert([0], [1])
        with pytest.raises(InvalidOption, match="alpha is too large"):
            graph.katz_centrality(1e3, max_iter=200)


def test_a_mask_is_numbers():
    with DynamicGraph(n_vertices=3, directed=False) as graph:
        graph.insert([0, 1], [1, 2])
        mask = np.array([True, False, True])
        assert graph.gather(mask).to_numpy().tolist() == [0, 2, 0]


def test_bad_arguments():
    with DynamicGraph(n_vertices=3) as graph:
        for call in (graph.eigenvector_centrality, graph.katz_centrality):
            needs = f"{call.__name__} needs in-edges; create the graph with reverse=True, or directed=False"
            with pytest.raises(InvalidOption, match=needs):
                call()
            with pytest.raises(InvalidOption, match="weight=True needs weights; create the graph with weighted=True"):
                call(weight=True)
            with pytest.raises(InvalidOption, match="max_iter is 0"):
                call(max_iter=0)
            with pytest.raises(InvalidOption, match="tol"):
                call(tol=-1)
        with pytest.raises(InvalidOption, match="alpha is 'a'"):
            graph.katz_centrality("a")
        with pytest.raises(InvalidOption, match="transitivity is for undirected graphs"):
            graph.transitivity()


@pytest.mark.parametrize(("kind", "size"), [("reverse", HERE), ("permuted", 3)])
def test_arithmetic_stays_on_the_workers(client3, kind, size):
    graph, _ = make(client3, size, 5, **KINDS[kind])
    with graph:
        data = np.random.default_rng(5).normal(size=N)
        x = graph.gather(data, "max").where(graph.gather(1, "count") > 0)
        x = x.where(abs(x) < 1e9)
        a, before = x.to_numpy(), x.to_numpy
        for made, want in (
            (x + x, a + a),
            (2 - x, 2 - a),
            (x * data, a * data),
            (data / (x * x + 1), data / (a * a + 1)),
            (-x // 0.3, -a // 0.3),
            (np.sqrt(abs(x)), np.sqrt(abs(a))),
            (np.maximum(x, data), np.maximum(a, data)),
            ((x > 0) & (x < 1), (a > 0) & (a < 1)),
            (x.where(x > 0, -1), np.where(a > 0, a, -1)),
            ((x == x).where(x >= data, x), np.where(a >= data, True, a)),
        ):
            assert isinstance(made, VertexValues)
            assert made.dtype == want.dtype
            np.testing.assert_allclose(made.to_numpy(), want, rtol=1e-15)
        assert x.sum() == pytest.approx(a.sum(), abs=1e-12)
        assert [x.norm(p) for p in (1, 2, np.inf)] == pytest.approx([np.linalg.norm(a, p) for p in (1, 2, np.inf)])
        assert ((x.min(), x.max()), (x > 0).sum()) == ((a.min(), a.max()), (a > 0).sum())
        y = x
        y += 1
        np.testing.assert_array_equal([y.to_numpy(), before()], [a + 1, a])
        single = graph.pagerank(dtype="float32")
        assert ((single * 0.5).dtype, (single + x).dtype) == (np.float32, np.float64)
        tree = graph.bfs(1, predecessors=True)
        for call in (lambda: tree.predecessors + 1, tree.predecessors.max, lambda: x.where(x > 0, tree.predecessors)):
            with pytest.raises(InvalidOption, match="needs numbers, and 'predecessors' of bfs holds vertices"):
                call()
        several = graph.pagerank(personalization=[{1: 1}, {2: 1}])
        np.testing.assert_array_equal((several * x).to_numpy(), several.to_numpy() * a)
        graph.rebalance()
        graph.reorder()
        moved = graph.gather(x, "sum", "value * 0")  # x lies elsewhere now
        np.testing.assert_array_equal((x + moved).to_numpy(), a)
    assert_clean(client3)


def test_what_arithmetic_refuses():
    with DynamicGraph(n_vertices=3) as graph:
        x = graph.degree_centrality()
        for other in (np.ones(4), np.ones((3, 3)), [1, 2], "a", None):
            with pytest.raises((InvalidOption, TypeError)):
                x + other
        with pytest.raises(ValueError, match="truth"):
            bool(x == x)
        with pytest.raises(InvalidOption, match="ord is 3"):
            x.norm(3)
        with pytest.raises(InvalidOption, match="ord is array"):
            x.norm(np.ones(2))
        with pytest.raises(InvalidOption, match=r"head\(1\.5\): n must be a whole number"):
            x.head(1.5)
        for rows in (graph.pagerank(personalization=[{1: 1}, {2: 1}]), np.ones((3, 3))):
            with pytest.raises(InvalidOption, match="has (shape|2 dimensions)"):
                graph.gather(rows, direction="out")
        with pytest.raises(TypeError):
            np.add(x, 1, where=[True, False, True])
        with pytest.raises(TypeError):
            np.add.reduce(x)
        with pytest.raises(TypeError):
            x @ x  # is no elementwise function
        with pytest.raises(InvalidOption, match="operand is 1180591620717411303424"):
            graph.core_number() + 2**70
        with pytest.raises(InvalidOption, match="add of int32, 1099511627776"):
            graph.bfs(0) + 2**40
        with pytest.raises(InvalidOption, match="axis is 0"):
            np.sum(x, axis=0)
        assert (np.sum(x), np.max(x)) == (x.sum(), x.max())
        with pytest.raises(InvalidOption, match="tol is None"):
            graph.katz_centrality(tol=None)
        with pytest.raises(InvalidOption, match="alpha is nan"):
            graph.katz_centrality(alpha=np.nan)
        with pytest.raises(AttributeError, match="has no 'iterations'"):
            x.named("mine", rounds=2).iterations  # noqa: B018
        assert x.named("mine", rounds=2).rounds == 2
        assert "rounds 2" in repr(x.named("mine", rounds=2))


def test_numbers_of_numpy_on_either_side(place):
    with DynamicGraph(place, n_vertices=3, directed=False) as graph:
        graph.insert([0, 1], [1, 2])
        x = graph.gather(1)
        for three in (np.float32(1), np.int64(1), np.array(1), np.array(1.0, np.float32), np.bool_(True)):
            a = x.to_numpy()
            for made, want in (
                (three < x, three < a),
                (three == x, three == a),
                (x >= three, a >= three),
                (three - x, three.astype(float) - a),
                (x * three, a * three),
                (x.where(x > 1, three), np.where(a > 1, a, three)),
            ):
                assert isinstance(made, VertexValues)
                assert made.dtype == want.dtype
                np.testing.assert_array_equal(made.to_numpy(), want)
        assert (graph.bfs(0) * np.int64(2**31)).to_numpy().tolist() == [0, 2**31, 2**32]
        assert ((x > 0) + np.float16(1)).dtype == np.float16
        single = graph.pagerank()
        assert ((single + np.float32(1)).dtype, (single + np.array(1.0)).dtype) == (np.float32, np.float64)
        np.testing.assert_array_equal(graph.gather(np.array(2)).to_numpy(), graph.gather(2).to_numpy())
        assert (single * np.longdouble(2)).dtype == (single * np.ones(len(single), np.longdouble)).dtype == np.float64
        for other in (np.array("a"), np.array(1j), np.complex64(1j), np.timedelta64(1, "ms")):
            with pytest.raises(InvalidOption, match="an operand is .*; numbers are needed"):
                x + other


@pytest.mark.parametrize("keys", [None, "string"])
def test_numbers_by_vertex(keys):
    names = [0, 1, 2, 3] if keys is None else ["d", "c", "b", "a"]
    with DynamicGraph(**({"n_vertices": 4} if keys is None else {"keys": keys}), reverse=True) as graph:
        graph.insert([names[i] for i in (0, 1, 2, 0)], [names[i] for i in (1, 2, 3, 3)])
        some, dense = {names[3]: 4.0, names[1]: 2}, np.array([0, 2.0, 0, 4.0])
        series = pd.Series(some)
        katz, eigenvector, hits = graph.katz_centrality, graph.eigenvector_centrality, graph.hits
        few = {"max_iter": 1, "tol": 0}
        for given in (some, series):
            np.testing.assert_array_equal(katz(beta=given), katz(beta=dense))
        np.testing.assert_array_equal(hits(max_iter=0, nstart=some), hits(max_iter=0, start=dense))
        np.testing.assert_array_equal(hits(max_iter=0, nstart=series), hits(max_iter=0, start=[3, 2, 3, 4]))
        for call in (katz, eigenvector):
            np.testing.assert_array_equal(call(nstart=some, **few), call(nstart=dense, **few))
            np.testing.assert_array_equal(call(nstart=series, **few), call(nstart=[3, 2, 3, 4], **few))
            np.testing.assert_array_equal(call(nstart=np.array(2), **few), call(nstart=2.0, **few))
        stranger = 9 if keys is None else "z"
        calls = [(katz, "beta"), (katz, "nstart"), (eigenvector, "nstart"), (hits, "nstart"), (hits, "start")]
        for call, name in calls:
            with pytest.raises(UnknownVertex, match=rf"^{name}\[0\] is {stranger!r}"):
                call(**{name: {stranger: 1}})
            with pytest.raises(InvalidOption, match=rf"^{name}\[.*\] is 'x'"):
                call(**{name: {names[0]: "x"}})
            for wrong in ("x", np.ones(5), np.ones((4, 1)), [[1], [1, 2]], pd.Series([1, 2], [names[1]] * 2)):
                with pytest.raises(InvalidOption, match=f"^(the index of )?{name}(:| is| has)"):
                    call(**{name: wrong})
        for call, name in calls[:3]:
            for wrong in ([1, 2], graph.pagerank(personalization=[some, some]), pd.Series(["x"], [names[1]])):
                with pytest.raises(InvalidOption, match=rf"^{name}(\[.*\])? (has|is)"):
                    call(**{name: wrong})
        older = graph.pagerank()
        graph.add_vertices(1) if keys is None else graph.insert(["new"], ["a"])
        with pytest.raises(InvalidOption, match="nstart has 4 numbers; it must have one number for each of 5 vertices"):
            katz(nstart=older)


def test_intermediate_results_are_freed():
    with DynamicGraph(n_vertices=1000, directed=False) as graph:
        graph.insert(np.arange(999), np.arange(1, 1000))
        x = graph.gather(1)
        before = graph.nbytes
        for _ in range(5):
            x = (x + 1) * 2
        graph.has_edges([0], [1])
        assert graph.nbytes <= before + 8 * 1000


def test_pairs_and_samples_are_the_same_everywhere(client3):
    pairs, found = np.random.default_rng(7).integers(0, N, (50, 2)), []
    for size, more in ((HERE, {}), (3, {"order": "degree"})):
        graph, _ = make(client3, size, 7, weighted=False, reverse=True, **more)
        with graph:
            graph.reorder()
            sample = graph.sample_neighbors([7, 3], [4, 2], seed=1)
            assert type(sample.num_sampled_nodes) is type(sample.num_sampled_edges) is list
            scores = graph.jaccard(pairs), graph.overlap(pairs)
            found.append([*scores, graph.random_walks([5, 7], 6, seed=1), *vars(sample).values()])
    for here, there in zip(*found, strict=True):
        np.testing.assert_array_equal(here, there)
    assert_clean(client3)
