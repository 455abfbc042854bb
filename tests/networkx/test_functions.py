"""Each function of the backend gives what NetworkX gives, on random graphs of any nodes, in float64."""

import random
from itertools import pairwise

import networkx as nx
import pytest

from mgraph.networkx import backend
from mgraph.networkx.contents import Refused
from mgraph.networkx.conversion import convert_from_nx

pytestmark = [
    pytest.mark.usefixtures("device"),
    pytest.mark.filterwarnings("ignore:Note. conversions to backend graphs are saved"),
]


def random_graph(seed: int, directed: bool, n: int = 40, loops: bool = True) -> nx.Graph:
    """A graph with isolated nodes, several components, ties, loops and weights that float32 holds exactly."""
    draw = random.Random(seed)
    graph = (nx.DiGraph if directed else nx.Graph)(title=seed)
    names = [f"node {i}" if i % 3 else (i, i) for i in range(n)]
    graph.add_nodes_from(names, colour="blue")
    for _ in range(2 * n):
        u, v = draw.choices(names[: n - 4], k=2)
        if loops or u != v:
            graph.add_edge(u, v, weight=draw.randrange(0, 5), cost=draw.randrange(1, 9) / 4)
    return graph


def call(name, *args, **how):
    """NetworkX's result and the backend's, generators as lists."""
    results = [getattr(nx, name)(*args, backend=which, **how) for which in ("networkx", "mgraph")]
    return [list(each) if hasattr(each, "__next__") else each for each in results]


SEEDS = pytest.mark.parametrize("seed", range(2))
EITHER = pytest.mark.parametrize("directed", [False, True])


@SEEDS
@EITHER
def test_pagerank(seed, directed):
    graph = random_graph(seed, directed)
    nodes = list(graph)
    some = {node: i % 4 for i, node in enumerate(nodes[:10])}
    tight = {"tol": 1e-14, "max_iter": 500}
    for how in (
        {"weight": None},
        {"weight": "cost", "alpha": 0.5},
        {"personalization": some, "dangling": {nodes[0]: 2, "elsewhere": 5}},
        {"nstart": some, "weight": "no such name"},
    ):
        expected, found = call("pagerank", graph, **tight, **how)
        assert found == pytest.approx(expected, rel=1e-10, abs=1e-14)
        assert list(found) == nodes
    few = {"tol": 1e-3, "max_iter": 7, "weight": None}  # the same iterates, not only the same limit
    assert call("pagerank", graph, **few)[1] == pytest.approx(nx.pagerank(graph, **few), rel=1e-12)
    with pytest.raises(nx.PowerIterationFailedConvergence):
        nx.pagerank(graph, tol=1e-15, max_iter=3, backend="mgraph")


@SEEDS
@EITHER
def test_hits(seed, directed):
    graph = random_graph(seed, directed)
    for how in ({}, {"nstart": {node: 1.0 + i % 3 for i, node in enumerate(graph)}}):
        expected, found = call("hits", graph, tol=1e-13, **how)
        for mine, theirs in zip(found, expected, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-8, abs=1e-10)
    _, (hubs, authorities) = call("hits", graph, tol=1e-13, normalized=False)
    assert sum(value**2 for value in authorities.values()) == pytest.approx(1)
    node = max(hubs, key=hubs.get)
    weights = {other: data["weight"] for other, data in graph[node].items()}
    assert hubs[node] == pytest.approx(sum(authorities[other] * weight for other, weight in weights.items()))


@SEEDS
@EITHER
def test_components(seed, directed):
    graph = random_graph(seed, directed)
    for kind in ["weakly_", "strongly_"] if directed else [""]:
        expected, found = call(f"{kind}connected_components", graph)
        assert set(map(frozenset, found)) == set(map(frozenset, expected))
        assert len(found) == len(expected)
        for form in (f"number_{kind}connected_components", f"is_{kind}connected"):
            assert call(form, graph)[0] == call(form, graph)[1]
    if not directed:
        expected, found = call("node_connected_component", graph, "node 1")
        assert found == expected


@SEEDS
def test_triangles_and_clustering(seed):
    graph = random_graph(seed, False)
    for name in ("triangles", "clustering"):
        for nodes in (None, "node 1", ["node 2", "node 5", "nowhere"], []):
            expected, found = call(name, graph, nodes)
            assert found == pytest.approx(expected, rel=1e-15)
    for nodes, zeros in ((None, True), (None, False), (["node 1", "node 2"], True)):
        expected, found = call("average_clustering", graph, nodes, count_zeros=zeros)
        assert found == pytest.approx(expected, rel=1e-12)
    assert call("transitivity", graph)[1] == pytest.approx(nx.transitivity(graph))
    expected, found = call("clustering", random_graph(seed, True))
    assert found == pytest.approx(expected, rel=1e-15)


@SEEDS
@EITHER
def test_cores(seed, directed):
    graph = random_graph(seed, directed, loops=False)
    for _, _, data in graph.edges(data=True):
        del data["weight"]
    assert call("core_number", graph)[0] == call("core_number", graph)[1]
    for how in (
        {},
        {"k": 2},
        {"k": 0},
        {"k": 99},
        {"k": 2, "core_number": nx.core_number(graph)},
        {"core_number": {0: 1}},
    ):
        expected, found = call("k_core", graph, **how)
        back = backend.convert_to_nx(found)
        assert nx.utils.graphs_equal(back, expected)
        assert back.graph == expected.graph
    loop = nx.path_graph(3)
    loop.add_edge(1, 1)
    with pytest.raises(nx.NetworkXNotImplemented, match="self loops"):
        nx.k_core(loop, backend="mgraph")


@SEEDS
@EITHER
def test_betweenness(seed, directed):
    graph = random_graph(seed, directed)
    for how in (
        {},
        {"normalized": False},
        {"k": 7, "seed": 3},
        {"endpoints": True},
        {"endpoints": True, "k": 5, "seed": 1, "normalized": False},
    ):
        expected, found = call("betweenness_centrality", graph, **how)
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)


def length_of(graph, path, weight):
    return sum(graph[u][v][weight] if weight else 1 for u, v in pairwise(path))


@EITHER
@pytest.mark.parametrize("weight", [None, "weight", "cost"])
def test_shortest_paths(directed, weight):
    graph = random_graph(4, directed)
    source, target = "node 1", "node 4"
    for how in ({"source": source}, {"source": source, "method": "bellman-ford"}, {}):
        expected, found = call("shortest_path_length", graph, weight=weight, **how)
        assert dict(found) == dict(expected)
    if weight is None or not directed:
        expected, found = call("shortest_path_length", graph, target=target, weight=weight)
        assert found == expected
        expected, found = call("shortest_path", graph, target=target, weight=weight)
        assert set(found) == set(expected)
        for node, path in found.items():
            assert (path[0], path[-1]) == (node, target)
            assert length_of(graph, path, weight) == length_of(graph, expected[node], weight)
    lengths = nx.single_source_dijkstra_path_length(graph, source, weight=weight or (lambda *edge: 1))
    paths = nx.shortest_path(graph, source, weight=weight, backend="mgraph")
    assert {node: length_of(graph, path, weight) for node, path in paths.items()} == lengths
    for node in graph:
        assert nx.has_path(graph, source, node, backend="mgraph") == (node in lengths)
        if node in lengths:
            assert nx.shortest_path_length(graph, source, node, weight, backend="mgraph") == lengths[node]
        else:
            with pytest.raises(nx.NetworkXNoPath):
                nx.shortest_path(graph, source, node, weight, backend="mgraph")


@SEEDS
@EITHER
def test_dijkstra(seed, directed):
    graph = random_graph(seed, directed)
    sources = {"node 1", "node 2", (0, 0)}
    for cutoff in (None, 3):
        expected, found = call("multi_source_dijkstra", graph, sources, cutoff=cutoff)
        assert found[0] == expected[0]
        assert {type(length) for length in found[0].values()} == {int}
        for node, path in found[1].items():
            assert path[0] in sources
            assert length_of(graph, path, "weight") == expected[0][node]
        expected, found = call("single_source_shortest_path_length", graph, "node 1", cutoff=cutoff)
        assert found == expected
    for how in ({}, {"weight": "cost"}, {"weight": None}, {"cutoff": 4}):
        expected, found = call("dijkstra_predecessor_and_distance", graph, "node 1", **how)
        assert found[1] == expected[1]
        assert {node: sorted(map(str, some)) for node, some in found[0].items()} == {
            node: sorted(map(str, some)) for node, some in expected[0].items()
        }
    expected, found = call("single_source_dijkstra_path_length", graph, "node 1", weight="cost")
    assert found == expected
    assert list(found.values()) == sorted(found.values())


def test_multigraphs_merge_as_the_function_means():
    graph = nx.MultiGraph([(0, 1, {"weight": 3}), (0, 1, {"weight": 5}), (1, 2, {}), (0, 2, {"weight": 9})])
    expected, found = call("pagerank", graph)
    assert found == pytest.approx(expected)
    for _ in range(2):  # in turn, on the converted graph that NetworkX keeps
        assert nx.dijkstra_path_length(graph, 0, 2, backend="mgraph") == 4
        assert call("pagerank", graph)[1] == pytest.approx(expected)
        assert call("hits", graph)[1] == call("hits", nx.MultiGraph(graph))[1]
    changed = nx.MultiGraph(graph).copy()
    live = convert_from_nx(changed, edge_attrs={"weight": 1}, name="pagerank")
    live.add_edge(2, 3)
    with pytest.raises(Refused, match="another function's rule; 'least' is needed here"):
        backend.dijkstra_path_length(live, 0, 2)


def test_views_of_multigraphs_without_some_of_the_parallel_edges():
    graph = nx.MultiDiGraph([(0, 1), (0, 2), (0, 2), (2, 1)])
    view = nx.subgraph_view(graph, filter_edge=lambda u, v, key: key == 1)  # of (0, 2) alone
    expected, found = call("weakly_connected_components", view)
    assert found == expected


def test_a_subclass_with_edges_of_its_own():
    class Complement(nx.Graph):
        def __getitem__(self, node):
            return {other: {} for other in self if other != node and other not in self._adj[node]}

    graph = Complement(nx.cycle_graph(6))
    assert nx.core_number(graph, backend="mgraph") == dict.fromkeys(range(6), 3)
    assert nx.triangles(graph, backend="mgraph") == nx.triangles(nx.complement(nx.cycle_graph(6)))


@pytest.mark.parametrize("cutoff", [-1, 0, 0.5, 1, 1.5, float("inf"), float("nan")])
def test_searches_that_are_cut_off(cutoff):
    graph = nx.path_graph(5)
    expected, found = call("single_source_shortest_path_length", graph, 0, cutoff=cutoff)
    assert found == expected
    expected, found = call("single_source_shortest_path", graph, 0, cutoff=cutoff)
    assert found == expected
    graph.add_edge(0, 4, weight=0)
    for name in ("single_source_dijkstra", "multi_source_dijkstra"):
        expected, found = call(name, graph, 0 if name[0] == "s" else [0, 4], cutoff=cutoff)
        assert found == expected


def test_a_target_that_is_no_node():
    graph = nx.path_graph(3)
    for error, how in ((nx.NodeNotFound, {}), (nx.NetworkXNoPath, {"weight": "weight"})):
        for which in ("networkx", "mgraph"):
            with pytest.raises(error):
                nx.shortest_path_length(graph, 0, "nowhere", backend=which, **how)


def test_empty_graphs_raise_what_networkx_raises():
    graph = nx.Graph()
    assert len(nx.k_core(graph, 2, backend="mgraph")) == 0
    for name, how, error in (
        ("k_core", {}, ValueError),
        ("center", {}, nx.NetworkXPointlessConcept),
        ("betweenness_centrality", {"k": 2}, ValueError),
        ("triangles", {"nodes": 0}, nx.NetworkXError),
        ("clustering", {"nodes": 0}, nx.NetworkXError),
    ):
        for which in ("networkx", "mgraph"):
            with pytest.raises(error):
                getattr(nx, name)(graph, backend=which, **how)


ALIKE = {
    "all_pairs_shortest_path_length": [{}, {"cutoff": 2}],
    "closeness_centrality": [{}, {"distance": "cost"}, {"wf_improved": False}],
    "degree_centrality": [{}],
    "eigenvector_centrality": [{"tol": 1e-10, "max_iter": 2000}, {"tol": 1e-10, "max_iter": 2000, "weight": "cost"}],
    "harmonic_centrality": [{}, {"distance": "cost"}],
    "katz_centrality": [{"alpha": 0.01, "tol": 1e-12}, {"alpha": 0.01, "tol": 1e-12, "weight": "cost", "beta": 0.5}],
}


@SEEDS
@EITHER
@pytest.mark.parametrize("name", ALIKE)
def test_values_of_all_nodes(name, seed, directed):
    graph = random_graph(seed, directed)
    for how in ALIKE[name]:
        expected, found = call(name, graph, **how)
        if name.startswith("all_pairs"):
            assert found == expected
        else:
            assert found == pytest.approx(expected, rel=1e-7, abs=1e-10)


@SEEDS
def test_degrees_of_one_direction(seed):
    graph = random_graph(seed, True)
    for name in ("in_degree_centrality", "out_degree_centrality"):
        expected, found = call(name, graph)
        assert found == pytest.approx(expected, rel=1e-14)


@SEEDS
@EITHER
def test_one_node_s_closeness_and_searches_to_a_node(seed, directed):
    graph = random_graph(seed, directed)
    for node in list(graph)[::9]:
        expected, found = call("closeness_centrality", graph, node)
        assert found == pytest.approx(expected)
        expected, found = call("single_target_shortest_path_length", graph, node)
        assert found == expected
        expected, found = call("single_target_shortest_path", graph, node, cutoff=3)
        assert {v: len(path) for v, path in found.items()} == {v: len(path) for v, path in expected.items()}
        assert all(nx.is_path(graph, path) and path[-1] == node for path in found.values())
        for name, how in (("all_pairs_dijkstra", {"weight": "cost"}), ("all_pairs_dijkstra_path_length", {})):
            pairs = [dict(each) for each in call(name, graph, cutoff=2, **how)]
            lengths = [
                {v: out[0] if name == "all_pairs_dijkstra" else out for v, out in each.items()} for each in pairs
            ]
            assert lengths[0] == lengths[1]


@SEEDS
def test_measures_of_a_connected_graph(seed):
    graph = nx.connected_watts_strogatz_graph(30, 4, 0.3, seed=seed)
    for weight in (None, "cost"):
        for i, (u, v) in enumerate(graph.edges):
            graph[u][v]["cost"] = 1 + i % 4 / 2
        for name in ("eccentricity", "diameter", "radius", "center", "periphery", "average_shortest_path_length"):
            expected, found = call(name, graph, weight=weight)
            assert found == pytest.approx(expected), name
        lengths = [length for length, _ in call("bidirectional_dijkstra", graph, 0, 17, weight)]
        assert lengths[0] == lengths[1]
    paths = call("bidirectional_shortest_path", graph, 0, 17)
    assert len(paths[0]) == len(paths[1])
    graph.add_node("alone")
    with pytest.raises(nx.NetworkXError, match="Found infinite path length because the graph is not connected"):
        nx.diameter(graph, backend="mgraph")


@SEEDS
def test_parts_and_pairs(seed):
    graph = random_graph(seed, False, loops=False)
    plain = nx.Graph((u, v, {"weight": d["weight"]}) for u, v, d in graph.edges(data=True))
    plain.add_nodes_from(graph.nodes(data=True))
    for k in (0, 2, 3, 4):
        expected, found = call("k_truss", plain, k)
        assert nx.utils.graphs_equal(nx.Graph(found), expected)
    for node in list(plain)[::7]:
        for how in ({}, {"radius": 2, "center": False}, {"radius": 3, "distance": "weight"}):
            expected, found = call("ego_graph", plain, node, **how)
            assert nx.utils.graphs_equal(nx.Graph(found), expected)
    expected, found = call("jaccard_coefficient", plain)
    assert {(u, v): p for u, v, p in found} == {(u, v): p for u, v, p in expected}
    for stranger in ("nowhere", [1]):
        with pytest.raises(nx.NodeNotFound):
            nx.jaccard_coefficient(plain, [(stranger, stranger)], backend="mgraph")


@SEEDS
@EITHER
def test_communities_have_a_modularity_like_networkx_s(seed, directed):
    graph = nx.planted_partition_graph(5, 20, 0.5, 0.02, seed=seed, directed=directed)
    score, community = nx.community.modularity, nx.community
    least = score(graph, community.louvain_communities(graph, seed=seed)) - 0.02
    for call in (community.louvain_communities, community.leiden_communities)[: 1 if directed else 2]:
        communities = call(graph, seed=seed, backend="mgraph")
        assert set().union(*communities) == set(graph) and sum(map(len, communities)) == len(graph)
        assert score(graph, communities) >= least
        with pytest.raises(ValueError, match="positive"):
            call(graph, max_level=0, backend="mgraph")


@SEEDS
@EITHER
def test_partitions_by_level(seed, directed):
    graph = random_graph(seed, directed)
    community = nx.community
    for name in ("louvain", "leiden")[: 1 if directed else 2]:
        partitions = list(getattr(community, f"{name}_partitions")(graph, weight="cost", seed=3, backend="mgraph"))
        communities = getattr(community, f"{name}_communities")
        for level, partition in enumerate(partitions, 1):
            assert partition == communities(graph, weight="cost", max_level=level, seed=3, backend="mgraph")
        assert partitions[-1] == communities(graph, weight="cost", seed=3, backend="mgraph")


@SEEDS
@EITHER
def test_modularity(seed, directed):
    graph = random_graph(seed, directed)
    nodes = list(graph)
    groups = [set(nodes[:7]), nodes[7:9], [], frozenset(nodes[9:])]
    for how in ({}, {"weight": None, "resolution": 0.5}, {"weight": "cost"}):
        fresh = graph.copy()  # a conversion with weights would be found in the cache
        expected, found = (nx.community.modularity(fresh, groups, backend=b, **how) for b in ("networkx", "mgraph"))
        assert found == pytest.approx(expected, abs=1e-12)
    for wrong in (groups[:2], [*groups, {nodes[0]}], [*groups, {"unknown"}]):
        with pytest.raises(nx.community.quality.NotAPartition):
            nx.community.modularity(graph, wrong, backend="mgraph")
    with pytest.raises(ZeroDivisionError):
        nx.community.modularity(nx.empty_graph(3), [{0, 1, 2}], backend="mgraph")
    with pytest.raises(ZeroDivisionError):
        nx.community.modularity(nx.Graph([(0, 1, {"weight": 0})]), [{0, 1}], backend="mgraph")


def test_a_live_graph_is_drawn_and_tabulated():
    pandas = pytest.importorskip("pandas")
    live = nx.Graph(backend="mgraph")
    live.add_weighted_edges_from([("a", "b", 2), ("b", "c", 3), ("c", "d", 1)])
    plain = nx.Graph(live.edges(data=True))
    assert nx.diameter(live) == 3
    pandas.testing.assert_frame_equal(nx.to_pandas_edgelist(live), nx.to_pandas_edgelist(plain))
    assert (nx.to_numpy_array(live) == nx.to_numpy_array(plain)).all()
    assert (nx.to_scipy_sparse_array(live) != nx.to_scipy_sparse_array(plain)).nnz == 0
    expected, found = (nx.spring_layout(graph, seed=1) for graph in (plain, live))
    assert all(found[node] == pytest.approx(place) for node, place in expected.items())
    with pytest.raises(NotImplementedError):
        nx.to_numpy_array(plain, backend="mgraph")


def test_parts_of_a_graph_are_graphs_of_networkx():
    karate = nx.karate_club_graph()
    for function, arguments in ((nx.k_core, (4,)), (nx.k_truss, (4,)), (nx.ego_graph, (0,))):
        part, oracle = function(karate, *arguments, backend="mgraph"), function(karate, *arguments)
        assert isinstance(part, nx.Graph)
        assert set(part) == set(oracle)
        assert {frozenset(edge) for edge in part.edges} == {frozenset(edge) for edge in oracle.edges}
        assert {v: dict(row) for v, row in part.adj.items()} == {v: dict(row) for v, row in oracle.adj.items()}
        plain = nx.Graph(part)
        assert type(plain) is nx.Graph
        assert nx.utils.graphs_equal(plain, oracle)
        assert nx.greedy_color(plain).keys() == set(oracle)
        with nx.config.backend_priority(algos=["mgraph"]):
            assert type(function(karate, *arguments)) is nx.Graph
