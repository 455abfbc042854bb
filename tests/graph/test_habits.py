"""Calls that users of NetworkX and pandas make by habit."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from mgraph import DynamicGraph, InvalidBatch, InvalidOption

NAMES = {None: [0, 1, 2, 3], "int64": [-5, 10**12, 7, 8], "string": ["ada", "b", "grace", "é"]}


@pytest.mark.parametrize("keys", NAMES)
@pytest.mark.parametrize("directed", [True, False])
def test_a_graph_answers_as_networkx_does(place, keys, directed):
    a, b, c, d = NAMES[keys]
    oracle = nx.DiGraph() if directed else nx.Graph()
    with DynamicGraph(place, keys=keys, n_vertices=4 if keys is None else None, directed=directed) as g:
        assert (len(g), bool(g)) == (0 if keys else 4, True)
        for edges in ([(a, b), (b, c)], ((c, a),), {(a, a)}):
            g.insert(edges)
            oracle.add_edges_from(edges)
        g.insert(c, d)
        oracle.add_edge(c, d)
        stranger = {None: 4, "int64": 6, "string": "z"}[keys]
        for u in (a, b, c, d, stranger):
            assert (u in g) == (u in oracle)
            for v in (a, b, c, d, stranger):
                assert g.has_edge(u, v) is oracle.has_edge(u, v)
        assert len(g) == len(oracle)
        g.delete([(a, b), (c, a)])
        g.delete(c, d)
        oracle.remove_edges_from([(a, b), (c, a), (c, d)])
        assert [g.has_edge(u, v) for u in (a, b, c) for v in (a, b, c, d)] == [
            oracle.has_edge(u, v) for u in (a, b, c) for v in (a, b, c, d)
        ]
        for other in (1.5, None, [a]):
            assert other not in g


def test_edges_of_networkx_and_numbers_of_numpy():
    with DynamicGraph(directed=False, weighted=True) as g:
        g.insert(list(nx.path_graph(5).edges))
        assert g.insert(np.int64(1), np.int64(3), 2.5).inserted == 1
        assert g.weights([1, 0], [3, 1]).tolist() == [2.5, 1.0]
        assert g.insert([]).inserted == 0
        with pytest.raises(InvalidBatch, match=r"edge 1 is \(1, 2, 3\); edges in a list are pairs"):
            g.insert([(0, 1), (1, 2, 3)])
        assert g.epoch == 3
    with DynamicGraph(n_vertices=2, times=True) as g:
        assert g.insert(0, 1, time=5).inserted == 1
    with DynamicGraph() as g:
        assert (len(g), bool(g), 0 in g, "a" in g) == (0, True, False, False)


def test_a_graph_is_no_edge_list_of_networkx():
    """It iterates over its vertices, and NetworkX makes an edge of a string with two letters."""
    with DynamicGraph(keys="string") as g:
        g.insert("ab", "cd")
        for make in (nx.Graph, nx.MultiDiGraph, nx.to_networkx_graph):
            with pytest.raises(TypeError, match="no graph of NetworkX; its to_networkx"):
                make(g)
        assert [*nx.Graph(g.to_networkx()).edges] == [("ab", "cd")]
        assert not hasattr(g, "adj")


def test_an_array_without_dimensions_is_no_pairs():
    with DynamicGraph(n_vertices=3) as g, pytest.raises(TypeError, match="edges are arrays .*, got numpy.ndarray"):
        g.insert(np.array(0))


def test_a_report_shows_six_digits():
    with DynamicGraph(n_vertices=2) as g:
        report = g.insert(0, 1)
    shown = repr(report)
    counts = "inserted=1, updated=0, deleted=0, missing=0, epoch=1"
    assert shown == f"UpdateReport({counts}, seconds={report.seconds:.6g}, late=0, expired=0)"
    assert report == type(report)(1, 0, 0, 0, 1, report.seconds)


def test_results_answer_as_series_do():
    with DynamicGraph(directed=False) as g:
        g.insert([("a", "b"), ("b", "c"), ("x", "y")])
        labels, ranks = g.connected_components(), g.pagerank()
        series = ranks.to_series()
        assert dict(ranks.items()) == series.to_dict() == dict(zip(g.vertices(), ranks, strict=True))
        assert ranks.mean() == pytest.approx(series.mean(), rel=1e-6)
        pd.testing.assert_series_equal(ranks.head(2), series.head(2))
        assert ((labels == "a").sum(), (labels == labels.to_series()).mean(), (labels != "a").mean()) == (3, 1.0, 0.4)
        assert labels["c"] == "a"
        before = {"a": "b", "b": None, "x": None, "c": "b", "y": None}
        assert dict(g.bfs("b", predecessors=True).predecessors.items()) == before
        truss = g.k_truss(2)
        assert (truss.src.tolist(), list(truss.dst[::-1])) == (["a", "b", "x"], ["y", "c", "b"])
    with DynamicGraph() as empty:
        for call in (empty.pagerank().mean, empty.pagerank().max):
            with pytest.raises(InvalidOption, match="no values"):
                call()


def test_hubs_and_authorities_sum_to_one_without_edges(place):
    for n, edges in ((3, []), (1, []), (3, [(0, 0)]), (4, [(0, 1)])):
        with DynamicGraph(place, n_vertices=n, reverse=True) as g:
            g.insert(edges)
            r = g.hits()
            assert (r.sum(), r.authorities.sum()) == (pytest.approx(1), pytest.approx(1))
            assert edges or r.to_numpy().tolist() == r.authorities.to_numpy().tolist() == [1 / n] * n
            if edges == [(0, 1)]:
                assert (r.top(1), r.authorities.top(1)) == ([(0, 1.0)], [(1, 1.0)])
                with pytest.raises(InvalidOption, match="start is 0 for each vertex that an edge leads to"):
                    g.hits(start=[1, 0, 1, 1])


def test_katz_warns_where_it_diverges():
    with DynamicGraph(n_vertices=5, directed=False) as g:
        g.insert(list(nx.complete_graph(5).edges))  # whose largest eigenvalue is 4
        with pytest.warns(RuntimeWarning, match="no convergence: iteration 1000 changed .* alpha is too large") as told:
            r = g.katz_centrality(0.5)
        assert (told[0].filename, r.converged, r.norm()) == (__file__, False, pytest.approx(1))
        assert g.katz_centrality(0.2).converged
        assert not g.katz_centrality(0.24, max_iter=3).converged  # on its way
        assert not g.katz_centrality(0.2, tol=0).converged  # there, but for rounding
        assert not g.eigenvector_centrality(tol=0).converged


@pytest.mark.parametrize("keys", NAMES)
@pytest.mark.parametrize("combine", ["last", "sum", "min", "max"])
def test_both_orders_of_an_undirected_edge_are_the_same_edge(place, keys, combine):
    a, b, c, d = NAMES[keys]
    frame = pd.DataFrame({"source": [a, b, c, c, b, a], "target": [b, a, d, d, c, b], "weight": [3, 5, 7, 1, 2, 4.0]})
    rows = frame.assign(edge=[frozenset(pair) for pair in zip(frame.source, frame.target, strict=True)])
    oracle = rows.groupby("edge").weight.agg(combine)
    options = {"n_vertices": 4} if keys is None else {"keys": keys}
    with DynamicGraph(place, weighted=True, directed=False, combine=combine, **options) as g:
        assert g.insert(frame).inserted == 3
        for u, v in ((a, b), (c, d), (b, c)):
            assert g.weights([u, v], [v, u]).tolist() == [oracle[frozenset((u, v))]] * 2
        if combine == "last":
            assert dict(oracle) == {
                frozenset(edge[:2]): edge[2]
                for edge in nx.from_pandas_edgelist(frame, edge_attr="weight").edges(data="weight")
            }


@pytest.mark.parametrize("window", ["1h", pd.Timedelta("1h"), np.timedelta64(60, "m")])
def test_the_options_of_times_and_weights_are_properties(window):
    with DynamicGraph(keys="string", window=window, weighted=True, combine="sum") as g:
        assert (g.times, g.combine, g.window_edges) == ("datetime64[ns]", "sum", None)
        assert g.window == pd.Timedelta("1h") == g.window
        with DynamicGraph(window=g.window, times=g.times) as again:
            assert (again.window, again.times) == (g.window, g.times)
    with DynamicGraph(n_vertices=2, window=7) as g:
        assert (g.window, g.times, g.combine) == (7, "int64", "last")
    with DynamicGraph(n_vertices=2, window="1min", times="datetime64[10s]") as g:
        assert (g.window, g.window.dtype) == (np.timedelta64(60, "s"), np.dtype("timedelta64[10s]"))
    with DynamicGraph(n_vertices=2, window_edges=3) as g:
        assert (g.window, g.times, g.window_edges) == (None, "int64", 3)
    with DynamicGraph(n_vertices=2) as g:
        assert (g.window, g.times, g.window_edges) == (None, None, None)


@pytest.mark.parametrize("keys", NAMES)
def test_sizes_of_components_and_communities(place, keys):
    a, b, c, d = NAMES[keys]
    options = {"n_vertices": 4} if keys is None else {"keys": keys}
    with DynamicGraph(place, directed=False, **options) as g:
        g.insert([(a, b), (b, c), (d, d)])
        for labels in (g.connected_components(), g.louvain(), g.core_number(), g.core_number() > 0):
            sizes = labels.value_counts()
            assert sizes.to_dict() == pd.Series(dict(labels.items())).value_counts().to_dict()
            assert sizes.sum() == 4
            assert sizes.is_monotonic_decreasing
        assert g.connected_components().value_counts().tolist() == [3, 1]
        for labels, name in ((g.connected_components(), "component"), (g.leiden(), "community")):
            sizes = labels.sizes()
            assert (sizes.to_dict(), sizes.name, sizes.index.name) == ({labels[a]: 3, labels[d]: 1}, "size", name)
            assert sizes.tolist() == [3, 1]
        assert g.bfs(a, predecessors=True).predecessors.value_counts().sum() == (4 if keys is None else 2)
        with pytest.raises(InvalidOption, match="several rows"):
            g.distances([a, b]).value_counts()


@pytest.mark.parametrize("keys", NAMES)
def test_a_graph_iterates_over_its_vertices(place, keys):
    a, b, c, _ = NAMES[keys]
    with DynamicGraph(place, keys=keys, n_vertices=4 if keys is None else None) as g:
        g.insert([(a, b), (b, c)])
        assert list(g) == NAMES[keys][: len(g)]
        assert {type(vertex) for vertex in g} == {str if keys == "string" else int}


@pytest.mark.parametrize("drop", [True, False])
def test_the_ends_of_late_edges_become_vertices(drop):
    with DynamicGraph(keys="string", window=10, drop_isolated=drop) as g:
        g.insert(["a"], ["b"], time=100)
        report = g.insert(["late"], ["b"], time=50)
        assert (report.inserted, report.late, g.num_edges) == (0, 1, 1)
        assert ("late" in g) is not drop


def test_edges_come_as_pairs_of_any_kind():
    karate = nx.karate_club_graph()
    pairs = list(karate.edges)
    src, dst = zip(*pairs, strict=True)
    forms = (pairs, tuple(pairs), karate.edges, iter(pairs), (pair for pair in pairs), zip(src, dst, strict=True),
             np.array(pairs), np.array(pairs, np.uint8),
             np.array(pairs, np.uint32), pd.DataFrame(pairs).to_numpy(), karate.edges(data=False),
             dict.fromkeys(pairs).keys())  # fmt: skip
    for form in forms:
        with DynamicGraph(directed=False) as g:
            assert g.insert(form).inserted == len(pairs)
            assert nx.utils.edges_equal(g.to_networkx().edges, pairs)
            if not isinstance(form, zip) and "__next__" not in dir(form):
                assert g.delete(form).deleted == len(pairs)
    weights = nx.get_edge_attributes(karate, "weight")
    with DynamicGraph(directed=False, weighted=True) as g:
        g.insert([*weights], weight=[*weights.values()])
        assert nx.utils.edges_equal(g.to_networkx().edges(data=True), karate.edges(data=True))


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(0, 1, 0.5)], r"edge 0 is \(0, 1, 0.5\); edges in a list are pairs .*; weights go into weight="),
        (nx.karate_club_graph().edges(data=True), r"edge 0 is \(0, 1, \{'weight': 4\}\); .*; weights go into weight="),
        (nx.path_graph(3), "src is a networkx.*Graph; its edges are graph.edges, and from_networkx takes"),
        (nx.grid_2d_graph(2, 2), "its edges are graph.edges"),  # whose nodes are pairs
        ((0, 1), "edge 0 is 0; edges in a list are pairs"),
        (np.zeros((2, 3), int), r"src has shape \(2, 3\); .* \(n, 2\); insert\(\*src\) takes rows of sources and dest"),
        (np.zeros((4, 3)), r"src has shape \(4, 3\); .* \(n, 2\); weights go into weight="),
        (np.eye(5), r"src has shape \(5, 5\); an array of edges has shape \(n, 2\)$"),
        (scipy.sparse.eye_array(3, 2), r"src is a scipy.*; its edges are tocoo\(\)'s row and col"),
        (scipy.sparse.eye_array(3).tocsr(), "from_scipy takes it whole"),
        (np.arange(4), r"edge 0 is (np.int64\()?0\)?; edges in a list are pairs"),
    ],
)
def test_what_is_no_pair_is_named(edges, message):
    with DynamicGraph() as g:
        with pytest.raises(InvalidBatch, match=message):
            g.insert(edges)
        assert g.epoch == 0
