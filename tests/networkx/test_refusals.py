"""What the backend takes, what it refuses before it runs, and how NetworkX falls back."""

from functools import partial

import networkx as nx
import numpy as np
import pytest

from mgraph.networkx import backend, info
from mgraph.networkx.contents import Refused
from mgraph.networkx.conversion import convert_from_nx

pytestmark = [
    pytest.mark.usefixtures("device"),
    pytest.mark.filterwarnings("ignore:Note. conversions to backend graphs are saved"),
]


def test_parallel_edges_without_the_attribute_count_after_any_conversion():
    graph = nx.MultiDiGraph([(1, 2)] * 3 + [(1, 1)] * 4 + [(2, 2)] * 2 + [(2, 1)])
    graph.add_edge(2, 1, weight=5)
    expected = {name: nx.pagerank(graph, weight=name, backend="networkx") for name in ("weight", "absent")}
    plain = nx.MultiDiGraph(graph.edges())  # no edge has an attribute
    for source, how in ((graph, {"edge_attrs": {"weight": 1}}), (plain, {"preserve_edge_attrs": True})):
        converted = convert_from_nx(source, **how)
        for name in ("absent", "weight", "absent"):
            wanted = expected[name] if source is graph else nx.pagerank(source, backend="networkx")
            assert backend.pagerank(converted, weight=name) == pytest.approx(wanted)


def test_parallel_edges_that_count_without_an_attribute_are_refused():
    graph = nx.MultiGraph([(0, 1)] * 3 + [(1, 2), (0, 0)])
    halves = [{0}, {1, 2}]
    for name in ("least", "sum"):
        converted = convert_from_nx(graph, name="pagerank" if name == "sum" else None)
        for call in (backend.pagerank, backend.louvain_communities, partial(backend.modularity, communities=halves)):
            with pytest.raises(Refused, match="each of parallel edges counts"):
                call(converted, weight=None)
    assert backend.shortest_path_length(converted, 0, 2) == 2  # which counts them once


def test_every_function_is_offered_and_described():
    ours = {name for name in dir(backend) if hasattr(getattr(backend, name), "why_not")}
    assert ours | {"graph__new__", "digraph__new__"} == set(info.FUNCTIONS)
    assert "label_propagation_communities" not in ours


@pytest.mark.parametrize(
    ("name", "args", "how", "told"),
    [
        ("pagerank", [nx.path_graph(3)], {"alpha": 1.0}, "alpha is 1.0"),
        ("pagerank", [nx.MultiGraph([(0, 1)])], {"weight": None}, "parallel edges"),
        ("dijkstra_path", [nx.path_graph(3), 0, 1], {"weight": lambda *edge: 1}, "weight is a function"),
        ("shortest_path", [nx.DiGraph([(0, 1)])], {"target": 1, "weight": "w"}, "against the direction"),
        ("betweenness_centrality", [nx.DiGraph([(0, 1)])], {"weight": max}, "weight is a function"),
        ("transitivity", [nx.DiGraph([(0, 1)])], {}, "directed"),
        ("clustering", [nx.MultiGraph([(0, 1)])], {}, "multigraphs"),
        ("ego_graph", [nx.MultiGraph([(0, 1)]), 0], {}, "parallel edges"),
        ("clustering", [nx.path_graph(3)], {}, True),
    ],
)
def test_can_run_says_why_not(name, args, how, told):
    answer = backend.can_run(name, args, how)
    assert answer is told or told in answer


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([(0, 1, {"weight": "far"})], r"attribute 'weight' of edge \(0, 1\) is 'far'"),
        ([(0, 1, {"weight": None})], r"attribute 'weight' of edge \(0, 1\) is None"),
        ([(0, 1, {"weight": float("nan")})], "is nan"),
        ([(0, 1, {"weight": 10**400})], "up to 3.4028235e"),
        ([(0, 1, {"weight": -1e39})], r"is -1e\+39; .* up to"),
        ([(0, 1, {"weight": float("inf")})], "is inf"),
        ([(0, 1, {"weight": 0.1})], "float32 does not hold exactly"),
        ([(0, 1, {"weight": -1})], "-1; it must be 0 or more for shortest paths"),
        ([(0, 1), ("ada", (2, 3), {"weight": -1})], r"the edge from 'ada' to \(2, 3\) has weight -1"),
    ],
)
def test_what_float32_or_mgraph_cannot_do_falls_back(data, told):
    graph = nx.Graph(data)
    with pytest.raises(NotImplementedError) as refused:
        nx.dijkstra_path_length(graph, 0, 1, backend="mgraph")
    with pytest.raises(NotImplementedError, match=told):
        backend.dijkstra_path_length(backend.convert_from_nx(graph, edge_attrs={"weight": 1}), 0, 1)
    assert refused.value


def test_attributes_that_are_too_many_are_named():
    graph = nx.Graph([(0, 1, {"size": 1, "cost": 2})])
    with pytest.raises(NotImplementedError, match="'cost'"):
        backend.convert_from_nx(graph, preserve_edge_attrs=True)
    graph = nx.Graph([(0, 1, {"size": 1}), (1, 2)])
    with pytest.raises(NotImplementedError, match="some edges have no attribute 'size'"):
        backend.convert_from_nx(graph, preserve_edge_attrs=True)


def test_rounded_weights_may_be_asked_for_and_ranks_take_them():
    graph = nx.Graph([(0, 1, {"weight": 0.1}), (1, 2, {"weight": 0.7})])
    assert nx.pagerank(graph, backend="mgraph") == pytest.approx(nx.pagerank(graph, backend="networkx"), rel=1e-6)
    with nx.config.backends.mgraph(round_weights=True):
        assert nx.dijkstra_path_length(graph, 0, 2, backend="mgraph") == pytest.approx(0.8, rel=1e-7)


def test_large_whole_weights_are_no_other_numbers():
    for weights in ((2**70, 2**53 + 1), (1, 2**53 + 1)):  # float64 rounds the last one to 2**53
        graph = nx.DiGraph([(0, 1, {"weight": weights[0]}), (1, 2, {"weight": weights[1]})])
        for name, how in (("single_source_dijkstra_path_length", {"source": 0}), ("k_core", {"k": 0})):
            with pytest.raises(NotImplementedError):
                getattr(nx, name)(graph, backend="mgraph", **how)
    long = nx.path_graph(4, create_using=nx.DiGraph)
    nx.set_edge_attributes(long, 2**52, "weight")
    long[2][3]["weight"] = 1
    with pytest.raises(NotImplementedError):
        nx.dijkstra_path_length(long, 0, 3, backend="mgraph")
    for name in ("eccentricity", "diameter"):
        with pytest.raises(NotImplementedError):
            getattr(nx, name)(long.to_undirected(), weight="weight", backend="mgraph")
    long.remove_nodes_from([2, 3])
    assert nx.dijkstra_path_length(long, 0, 1, backend="mgraph") == 2**52
    live = nx.Graph(backend="mgraph")
    live.add_edge(0, 1, weight=2**70)
    assert live[0][1]["weight"] == 2**70


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("all_pairs_dijkstra", {}),
        ("all_pairs_dijkstra_path", {}),
        ("all_pairs_dijkstra_path_length", {}),
        ("all_pairs_dijkstra_path_length", {"cutoff": 2**53}),
        ("shortest_path", {"weight": "weight"}),
        ("shortest_path_length", {"weight": "weight"}),
    ],
)
def test_lengths_from_all_nodes_are_refused_before_the_first_result(name, options):
    graph = nx.DiGraph([(1, 0), (2, 1), (3, 2)])  # the longest paths come last
    nx.set_edge_attributes(graph, 2**52, "weight")
    function = getattr(nx, name)
    with pytest.raises(NotImplementedError) as refused:
        function(graph, backend="mgraph", **options)
    assert "length of 9007199254740992 or more" in str(refused.value.__cause__)
    with nx.config(backend_priority=["mgraph"]):
        assert dict(function(graph, **options)) == dict(function(graph, backend="networkx", **options))

    # The longest path is short enough, and one with a heaviest edge per node would not be.
    graph.remove_edge(3, 2)
    graph[1][0]["weight"] = 2**51
    got = dict(function(graph, backend="mgraph", **options))
    assert got == dict(function(graph, backend="networkx", **options))


def test_a_cutoff_keeps_lengths_exact():
    graph = nx.path_graph(4)
    nx.set_edge_attributes(graph, 2**52, "weight")
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph, cutoff=2**52, backend="mgraph"))
    assert lengths == dict(nx.all_pairs_dijkstra_path_length(graph, cutoff=2**52, backend="networkx"))


@pytest.mark.parametrize("weight", [0.1, 2**24 + 1, np.float64(0.1), np.int64(2**53 + 1)])
@pytest.mark.filterwarnings("ignore:weight")
def test_a_live_graph_refuses_lengths_of_rounded_weights(weight):
    live = nx.Graph(backend="mgraph")
    live.add_edge(0, 1, weight=weight)
    with pytest.raises(NotImplementedError):
        nx.shortest_path_length(live, 0, 1, weight="weight")
    live.clear_edges()
    live.add_edge(0, 1, weight=0.5)
    assert nx.shortest_path_length(live, 0, 1, weight="weight") == 0.5


def test_views_whose_edges_have_two_weights():
    graph = nx.DiGraph([(0, 1, {"weight": 2}), (1, 0, {"weight": 3}), (1, 2, {"weight": 1})])
    view = graph.to_undirected(as_view=True)
    with pytest.raises(NotImplementedError):
        nx.dijkstra_path_length(view, 0, 2, backend="mgraph")
    graph[1][0]["weight"] = 2
    graph.__networkx_cache__.clear()
    assert nx.dijkstra_path_length(graph.to_undirected(as_view=True), 0, 2, backend="mgraph") == 3


def test_graphs_below_min_edges_are_left_to_networkx(monkeypatch):
    ran = []
    monkeypatch.setattr(backend, "is_connected", lambda G: ran.append(len(G)) or True)
    with nx.config(backend_priority=["mgraph"]), nx.config.backends.mgraph(min_edges=50):
        assert nx.is_connected(nx.path_graph(50))
        assert not ran
        assert nx.is_connected(nx.path_graph(51))
    assert ran == [51]
    assert "less than nx.config.backends.mgraph.min_edges = 10000" in backend.should_run(
        "pagerank", [nx.path_graph(3)], {}
    )


def test_partitions_that_are_refused_fall_back(device):
    """The refusal comes with the call: NetworkX cannot fall back while a generator runs."""
    parallel = nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    with pytest.raises(NotImplementedError):
        nx.community.louvain_partitions(parallel, weight=None, backend="mgraph")
    with nx.config.backend_priority(algos=["mgraph"]), nx.config.backends.mgraph(min_edges=0):
        assert nx.community.louvain_communities(parallel, weight=None, seed=1) == [{0, 1, 2}]
