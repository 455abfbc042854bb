"""Live graphs of the backend do what NetworkX's own graphs do, and buffer their changes."""

import copy
import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import networkx as nx
import numpy as np
import pytest

from mgraph.errors import GraphClosed
from mgraph.networkx import contents
from mgraph.networkx.contents import Refused
from mgraph.networkx.conversion import convert_to_nx
from mgraph.networkx.graph import DiGraph, Graph

pytestmark = pytest.mark.usefixtures("device")

PAIRS = [(Graph, nx.Graph), (DiGraph, nx.DiGraph)]
NAMES = [*range(6), "ada", "grace", (1, 2), frozenset("x"), 2.5, True is None]


def same(live, plain) -> None:
    """Nodes in order, edges with their attributes, degrees and counts agree."""
    assert list(live) == list(plain)
    assert dict(live.nodes(data=True)) == dict(plain.nodes(data=True))
    assert {u: dict(row) for u, row in live.adj.items()} == {u: dict(row) for u, row in plain.adj.items()}
    assert dict(live.degree) == dict(plain.degree)
    assert live.number_of_edges() == plain.number_of_edges() == len(live.edges)
    if live.is_directed():
        assert {u: set(row) for u, row in live.pred.items()} == {u: set(row) for u, row in plain.pred.items()}
        assert dict(live.in_degree) == dict(plain.in_degree)


@pytest.mark.parametrize(("own", "plain"), PAIRS)
@pytest.mark.parametrize("seed", range(2))
def test_random_changes_do_what_networkx_does(own, plain, seed):
    print("seed", seed)
    draw = random.Random(seed)
    live, model = own(), plain()
    for _ in range(300):
        u, v = draw.choice(NAMES), draw.choice(NAMES)
        step = draw.randrange(12)
        for graph in (live, model):
            if step < 5:
                graph.add_edge(u, v, cost=hash((str(u), str(v), step)) % 7)
            elif step == 5:
                graph.add_nodes_from([(u, {"colour": step}), v])
            elif step == 6 and graph.has_edge(u, v):
                graph.remove_edge(u, v)
            elif step == 7:
                graph.remove_edges_from([(u, v), (v, u)])
            elif step == 8 and u in graph:
                graph.remove_node(u)
            elif step == 9 and graph.has_edge(u, v):
                graph[u][v]["cost"] = 9
            elif step == 10 and graph.has_edge(u, v):
                graph.add_edge(u, v)
        assert live.has_edge(u, v) == model.has_edge(u, v)
        if step == 11:
            same(live, model)
    same(live, model)
    assert live.size("cost") == model.size("cost")
    same(live.copy(), model)
    same(live.to_undirected(), model.to_undirected())
    same(live.to_directed(), model.to_directed())
    if len(model):
        assert nx.pagerank(live, weight="cost", backend="mgraph") == pytest.approx(nx.pagerank(model, weight="cost"))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
@pytest.mark.parametrize("own", [Graph, DiGraph])
def test_copies_by_python(own, copied):
    live = own(day="today")
    live.add_edges_from([("ada", "grace"), ("grace", "edsger")])
    live.add_node("tony", tags=["c"])
    live.add_edge("tony", "ada", hours=3)
    for node in ("grace", "edsger"):  # with changes that are pending; and with a hole
        other = copied(live)
        same(other, live)
        assert other.graph == live.graph
        other.add_edge("ada", "new")
        other.nodes["tony"]["tags"].append("hoare")
        assert "new" not in live
        assert live.nodes["tony"]["tags"] == ["c"]
        live.remove_node(node)


def test_a_loop_of_add_edge_is_one_batch_and_has_edge_sends_none(monkeypatch):
    live = Graph()
    for i in range(500):
        if not live.has_edge(i, i + 1):
            live.add_edge(i, i + 1)
    assert live._contents._graph is None
    assert live.number_of_edges() == 500
    assert live._contents._graph.epoch == 1
    monkeypatch.setattr(contents, "ROOM", 100)
    live.remove_edges_from([(i, i + 1) for i in range(250)])
    assert live._contents._graph.epoch == 3
    assert live.number_of_edges() == 250


def test_an_edge_without_a_value_has_1_and_keeps_what_it_had():
    live = Graph([("a", "b")])
    live.add_edge("b", "c", length=2.5)
    assert live["a"]["b"] == {"length": 1}
    live.add_edge("c", "b")
    assert live.edges["b", "c"] == {"length": 2.5}
    data = live["b"]["c"]
    data |= {"length": 7}
    assert (live.edges["b", "c"]["length"], live["b"]["c"].pop("colour", "none")) == (7, "none")
    live.remove_edge("b", "c")
    live.add_edge("b", "c")
    assert live.get_edge_data("c", "b") == {"length": 1.0}
    with nx.config(fallback_to_nx=True):  # NetworkX's own function, on the live graph
        nx.set_edge_attributes(live, 4, "length")
    assert {value for *_, value in live.edges(data="length")} == {4.0}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda g: g.add_edge(7, 8, color=1), r"edge \(7, 8\) has the attributes 'color'; .* here 'weight'"),
        (lambda g: g.add_edge(7, 8, weight=1, color=1), r"'weight', 'color'"),
        (lambda g: g.add_edge(7, 8, weight="far"), r"attribute 'weight' of edge \(7, 8\) is 'far'"),
        (lambda g: g.add_edge(7, 8, weight=float("nan")), "is nan"),
        (lambda g: g.add_edge(7, 8, weight=None), "is None"),
        (lambda g: g.add_edge(7, 8, weight=1e39), r"1e\+39; .* up to 3.4"),
        (lambda g: g[0][1].pop("weight", 3), "cannot be removed"),
        (lambda g: g.add_edges_from([(7, 8, 9, 10)]), "must be a 2-tuple or 3-tuple"),
        (lambda g: g.remove_edge(0, 7), "edge 0-7 is not in the graph"),
        (lambda g: g.remove_node(7), "node 7 is not in the graph"),
    ],
)
def test_what_is_refused_is_named_and_changes_nothing(change, told):
    live = Graph([(0, 1, {"weight": 2})])
    with pytest.raises(nx.NetworkXError, match=told):
        change(live)
    assert list(live.edges(data=True)) == [(0, 1, {"weight": 2})]
    assert list(live) == [0, 1]


def test_none_is_no_node():
    with pytest.raises(ValueError, match="None cannot be a node"):
        Graph().add_node(None)


@pytest.mark.parametrize(("own", "plain"), PAIRS)
def test_views_follow_the_graph_and_are_converted(own, plain):
    live, model = own(), plain()
    views = [(graph.subgraph([0, 1, 2]), graph.to_directed(as_view=True), graph) for graph in (live, model)]
    for graph in (live, model):
        graph.add_weighted_edges_from([(0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 0, 5)])
    live_views, model_views = views
    for mine, theirs in zip(live_views[1:2], model_views[1:2], strict=True):
        assert sorted(mine.edges(data=True)) == sorted(theirs.edges(data=True))
    part, model_part = live.subgraph([0, 1, 2]), model.subgraph([0, 1, 2])
    live.add_edge(0, 2)
    model.add_edge(0, 2, weight=1)
    assert sorted(part.edges(data=True)) == sorted(model_part.edges(data=True))
    with pytest.raises(nx.NetworkXError, match="[Ff]rozen"):
        part.add_edge(1, 5)
    assert nx.pagerank(part, backend="mgraph") == pytest.approx(nx.pagerank(model_part))
    if live.is_directed():
        assert sorted(live.reverse(copy=False).edges) == sorted(model.reverse(copy=False).edges)
        assert sorted(live.reverse().edges(data=True)) == sorted(model.reverse().edges(data=True))


def test_networkx_makes_live_graphs_when_it_is_asked_to():
    made = nx.Graph([(1, 2), (2, 3)], backend="mgraph", name="three")
    assert type(made) is Graph
    assert made.name == "three"
    assert type(nx.DiGraph(made, backend="mgraph")) is DiGraph
    with nx.config.backend_priority(classes=["mgraph"]):
        assert type(nx.Graph()) is Graph
        assert type(convert_to_nx(made)) is nx.Graph
    assert type(nx.Graph()) is nx.Graph
    assert nx.shortest_path(made, 1, 3) == [1, 2, 3]
    with pytest.raises(NotImplementedError):
        nx.MultiGraph(backend="mgraph")


@pytest.mark.parametrize("own", [Graph, DiGraph])
@pytest.mark.parametrize("plain", [nx.Graph, nx.DiGraph, Graph, DiGraph])
def test_a_graph_of_another(own, plain):
    other = plain(title="t")
    other.add_node("alone", colour="red")
    other.add_weighted_edges_from([(0, 1, 2), (1, 2, 3), (2, 2, 4), (1, 0, 2)])
    made = own(other, more=1)
    model = {Graph: nx.Graph, DiGraph: nx.DiGraph}[own](nx.DiGraph(other) if other.is_directed() else nx.Graph(other))
    same(made, model)
    assert made.graph == {"title": "t", "more": 1}
    made.add_edge("alone", 1)
    made.nodes["alone"]["colour"] = "blue"
    assert other.nodes["alone"] == {"colour": "red"}
    assert not other.has_edge("alone", 1)


def test_what_networkx_converted_follows_changes():
    live = Graph([(0, 1, {"weight": 2}), (1, 2, {"weight": 2})])
    with nx.config(fallback_to_nx=True, warnings_to_ignore={"cache"}):
        assert nx.diameter(live, weight="weight") == nx.diameter(live, weight="weight") == 4
        live[0][1]["weight"] = 5
        assert nx.diameter(live, weight="weight") == 7
        live.remove_node(2)
        assert nx.diameter(live, weight="weight") == 5


def test_the_edges_are_freed_with_the_graph():
    live = DiGraph(nx.path_graph(5, create_using=nx.DiGraph))
    assert nx.has_path(live, 0, 4)
    graph = live._contents.graph()
    del live
    with pytest.raises(GraphClosed):
        graph.bfs(0)


def test_rows_are_read_ahead_in_order():
    n = 3000
    live = Graph(nx.path_graph(n))
    calls = []
    graph = live._contents.graph()
    reads = graph.neighbors
    graph.neighbors = lambda *how: (calls.append(how), reads(*how))[1]  # type: ignore[method-assign]
    assert sum(len(row) for row in live.adj.values()) == 2 * (n - 1)
    assert len(calls) < 20


def test_empty_and_cleared_graphs():
    live = DiGraph()
    assert len(live.edges) == live.number_of_edges() == 0
    assert nx.pagerank(live) == {}
    live.add_edge(0, 0, weight=2)
    assert live.in_degree(0) == 1
    live.clear_edges()
    assert list(live) == [0]
    live.add_edge(0, 1, other=3)
    assert live[0][1] == {"other": 3}
    live.clear()
    assert (len(live), live.graph, list(live.edges)) == (0, {}, [])
    with pytest.raises(nx.NetworkXPointlessConcept):
        nx.is_weakly_connected(live)


def test_holes_close_before_an_algorithm():
    live = Graph(nx.complete_graph(20))
    live.remove_nodes_from([0, 3, 19, 77])
    live.add_edge("new", 5)
    assert nx.number_connected_components(live) == 1
    assert live._contents.graph().num_vertices == 18
    assert np.isclose(sum(nx.pagerank(live).values()), 1)
    assert isinstance(Refused("x"), NotImplementedError)


READS = {
    "adjacency": lambda g: {u: dict(row) for u, row in g.adjacency()},
    "edges of a node": lambda g: sorted(g.edges([1, 3])),
    "degrees by weight": lambda g: dict(g.degree([1, 2], weight="cost")),
    "edges between": lambda g: (g.number_of_edges(1, 2), g.number_of_edges(2, 9)),
    "neighbours": lambda g: sorted(g.neighbors(1)),
    "in-edges": lambda g: sorted(g.in_edges(data="cost")) if g.is_directed() else None,
    "predecessors": lambda g: sorted(g.predecessors(2)) if g.is_directed() else None,
    "loops": lambda g: (list(nx.selfloop_edges(g)), nx.number_of_selfloops(g)),
    "membership": lambda g: (1 in g, [] in g, g.has_node(77), (1, 2) in g.edges, g.order(), len(g)),
    "names": lambda g: (g.name, str(g)),
    "a default": lambda g: g.get_edge_data(1, 99, "none"),
    "attributes": lambda g: (nx.get_edge_attributes(g, "cost"), nx.get_node_attributes(g, "colour")),
    "dicts": lambda g: nx.to_dict_of_dicts(g),
    "matrix": lambda g: nx.to_numpy_array(g, weight="cost").tolist(),
    "frame": lambda g: sorted(map(tuple, nx.to_pandas_edgelist(g).to_numpy().tolist())),
    "an edge subgraph": lambda g: sorted(g.edge_subgraph([(1, 2)]).nodes),
    "a filtered view": lambda g: sorted(nx.subgraph_view(g, filter_node=lambda n: n != 2).edges),
    "an ego graph": lambda g: sorted(nx.ego_graph(g, 1).edges(data=True)),
}
CHANGES = {
    "a path": lambda g: nx.add_path(g, [1, 5, 6], cost=3),
    "another graph": lambda g: g.update(nx.path_graph(4)),
    "weighted edges": lambda g: g.add_weighted_edges_from([(0, 9, 2.5)], weight="cost"),
    "nodes": lambda g: g.add_nodes_from([(1, {"colour": "red"}), 8], colour="blue"),
}


@pytest.mark.parametrize(("own", "plain"), PAIRS)
def test_reads_and_changes_of_networkx(own, plain):
    made = []
    for kind in (own, plain):
        graph = kind(name="small")
        graph.add_weighted_edges_from([(1, 2, 3), (2, 3, 4), (3, 3, 1), (0, 1, 7)], weight="cost")
        made.append(graph)
    live, model = made
    with nx.config(fallback_to_nx=True, warnings_to_ignore={"cache"}):
        for name, read in READS.items():
            assert read(live) == read(model), name
        for name, change in CHANGES.items():
            for graph in made:
                change(graph)
            for *_, data in model.edges(data=True):
                data.setdefault("cost", 1)
            same(live, model)
            assert name
    with pytest.raises(nx.NetworkXError):
        live.neighbors(77)
    with pytest.raises(KeyError):
        live[77]
    assert nx.freeze(live) is live
    with pytest.raises(nx.NetworkXError, match="[Ff]rozen"):
        live.add_edge(1, 2)


AFTER_REMOVALS = {
    "has_path": lambda g: nx.has_path(g, 2, 4),
    "shortest_path": lambda g: nx.shortest_path(g, 2, 4),
    "shortest_path, weighted": lambda g: nx.shortest_path(g, 2, 4, weight="w"),
    "shortest_path_length": lambda g: nx.shortest_path_length(g, 2, 4),
    "shortest_path_length, weighted": lambda g: nx.shortest_path_length(g, 5, 7, weight="w"),
    "single_source_shortest_path": lambda g: dict(nx.single_source_shortest_path(g, 2)),
    "single_source_shortest_path_length": lambda g: dict(nx.single_source_shortest_path_length(g, 2)),
    "single_target_shortest_path_length": lambda g: dict(nx.single_target_shortest_path_length(g, 4)),
    "single_source_dijkstra_path_length": lambda g: dict(nx.single_source_dijkstra_path_length(g, 2, weight="w")),
    "dijkstra_path": lambda g: nx.dijkstra_path(g, 2, 4, weight="w"),
    "bidirectional_dijkstra": lambda g: nx.bidirectional_dijkstra(g, 2, 4, weight="w"),
    "multi_source_dijkstra_path_length": lambda g: dict(nx.multi_source_dijkstra_path_length(g, {2, 5}, weight="w")),
    "all_pairs_shortest_path_length": lambda g: dict(nx.all_pairs_shortest_path_length(g)),
    "closeness_centrality": lambda g: nx.closeness_centrality(g, u=3),
    "harmonic_centrality": lambda g: nx.harmonic_centrality(g, nbunch=[3, 7]),
    "katz_centrality": lambda g: nx.katz_centrality(g, beta={node: 1.0 + node for node in g}),
    "pagerank": lambda g: nx.pagerank(g, personalization={7: 1.0}),
    "jaccard_coefficient": lambda g: list(nx.jaccard_coefficient(g, [(2, 4), (5, 7)])),
    "ego_graph": lambda g: sorted(nx.ego_graph(g, 3)),
    "clustering": lambda g: nx.clustering(g, [3, 6]),
    "triangles": lambda g: nx.triangles(g, 6),
    "core_number": lambda g: nx.core_number(g),
    "node_connected_component": lambda g: sorted(nx.node_connected_component(g, 6)),
    "degree_centrality": lambda g: nx.degree_centrality(g),
    "betweenness_centrality": lambda g: nx.betweenness_centrality(g),
    "connected_components": lambda g: sorted(map(sorted, nx.connected_components(g))),
}


@pytest.mark.parametrize("name", AFTER_REMOVALS)
def test_the_first_call_after_a_removal_answers_for_the_right_nodes(name):
    """Ids of later nodes move down when removed nodes leave theirs, in the middle of that call."""
    edges = [(0, 1), (2, 3), (3, 4), (5, 6), (6, 7)]

    def made(**options):
        graph = nx.Graph(**options)
        graph.add_weighted_edges_from([(u, v, float(1 + u)) for u, v in edges], weight="w")
        graph.remove_node(0)
        return graph

    call = AFTER_REMOVALS[name]
    wanted, found = call(made()), call(made(backend="mgraph"))
    if isinstance(wanted, dict) and all(isinstance(value, float) for value in wanted.values()):
        assert found == pytest.approx(wanted, abs=1e-5)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted)
    else:
        assert found == wanted


@pytest.mark.parametrize("name", ["all_pairs_shortest_path_length", "all_pairs_dijkstra", "shortest_path"])
@pytest.mark.parametrize("change", ["remove", "replace", "add"])
def test_nodes_must_not_change_during_an_iteration_over_searches(name, change):
    """As in NetworkX, whose dictionaries change their size. Ids of removed nodes belong to others afterwards."""
    live = nx.Graph([("a", "b"), ("b", "c"), ("c", "d")], backend="mgraph")
    searches = iter(getattr(nx, name)(live))
    assert next(searches)[0] == "a"
    if change != "add":
        live.remove_node("b" if change == "replace" else "a")
    if change != "remove":
        live.add_node("e")
    with pytest.raises(RuntimeError, match="nodes were added or removed during the iteration"):
        next(searches)


def test_edges_may_change_during_an_iteration_over_searches():
    live = nx.Graph([("a", "b"), ("b", "c")], backend="mgraph")
    searches = nx.all_pairs_shortest_path_length(live)
    next(searches)
    live.remove_edge("b", "c")
    assert next(searches) == ("b", {"b": 0, "a": 1})


def test_components_are_those_of_the_call():
    live = nx.Graph([("a", "b"), ("c", "d")], backend="mgraph")
    components = nx.connected_components(live)
    live.remove_node("d")
    assert list(components) == [{"a", "b"}, {"c", "d"}]


def test_partitions_are_of_one_graph():
    live = nx.Graph(nx.ring_of_cliques(30, 4).edges, backend="mgraph")
    partitions = nx.community.louvain_partitions(live, seed=1)
    next(partitions)
    live.remove_node(0)
    with pytest.raises(RuntimeError, match="changed during the iteration over its partitions"):
        next(partitions)


@pytest.mark.parametrize(("own", "plain"), PAIRS)
def test_attributes_are_set_and_read_by_functions_of_networkx(own, plain):
    live, model = own(), plain()
    for graph in (live, model):
        graph.add_weighted_edges_from([("ada", "b", 2), ("b", 3, 5)])
        nx.set_node_attributes(graph, {"ada": "red", 3: "blue"}, "colour")
        nx.set_node_attributes(graph, {"b": {"age": 7}})
        nx.set_edge_attributes(graph, {("ada", "b"): 9}, "weight")
    same(live, model)
    for read, name in ((nx.get_node_attributes, "colour"), (nx.get_edge_attributes, "weight")):
        assert read(live, name) == read(model, name)
    assert nx.shortest_path_length(live, "ada", 3, weight="weight") == 14
    with pytest.raises(Refused, match="has the attributes 'colour'"):
        nx.set_edge_attributes(live, {("ada", "b"): 1}, "colour")
    same(live, model)


def test_a_dynamic_graph_is_no_graph_of_networkx():
    from mgraph import DynamicGraph

    with (
        DynamicGraph() as graph,
        pytest.raises(TypeError, match="a DynamicGraph is no graph of NetworkX: call its own"),
    ):
        nx.pagerank(graph, backend="mgraph")


@pytest.mark.parametrize(("own", "plain"), PAIRS)
def test_values_of_an_edge_that_was_removed_change_nothing(own, plain):
    live, model = own([(0, 1), (1, 2), (2, 3)]), plain([(0, 1), (1, 2), (2, 3)])
    for graph in (live, model):
        nx.set_edge_attributes(graph, 1, "km")
        removed, without_node, stays = graph[0][1], graph[2][3], graph[1][2]
        graph.remove_edge(0, 1)
        graph.remove_node(3)
        for data in (removed, without_node, stays):
            data["km"] = 7
            assert data["km"] == 7
    same(live, model)


def test_threads_read_and_change_a_graph():
    interval = sys.getswitchinterval()
    plain = nx.gnp_random_graph(60, 0.1, seed=1)
    read, changed, wrong = Graph(plain), Graph(), []

    def work(thread: int) -> None:
        draw = random.Random(thread)
        for step in range(100):
            first = draw.randrange(58)
            wrong.extend(node for node in range(first, first + 2) if set(read[node]) != set(plain[node]))
            changed.add_edge((thread, step), (thread, step + 1))
            if step % 10 == 0:
                changed.number_of_edges()

    try:
        sys.setswitchinterval(1e-5)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert (changed.number_of_edges(), len(changed)) == (400, 404)
