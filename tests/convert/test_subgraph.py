"""A part of a graph is what NetworkX makes of it, and speaks of vertices as the whole does."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph import DynamicGraph, InvalidBatch, InvalidOption, UnknownVertex

N = 24


def edges(made: nx.Graph) -> dict:
    return {(u, v) if made.is_directed() else frozenset((u, v)): w for u, v, w in made.edges(data="weight", default=1)}


def same(part: DynamicGraph, want: nx.Graph) -> None:
    with part:
        made = part.to_networkx()
        assert made.is_directed() == want.is_directed()
        assert set(made.nodes) == set(want.nodes) == set(part.vertices().tolist())
        assert edges(made) == edges(want)


KINDS = [
    {},
    {"directed": False, "weighted": True, "structure": "slabgraph"},
    {"weighted": True, "reverse": True, "structure": "graphvine"},
    {"directed": False, "combine": "sum", "weighted": True},
]
NAMES = {
    "ids": lambda rng: np.arange(N),
    "numbers": lambda rng: rng.integers(-(2**60), 2**60, N),
    "strings": lambda rng: np.array([f"v{i}" * (i % 3 + 1) for i in rng.permutation(N)], object),
}


@pytest.mark.parametrize("options", [*KINDS[:2], pytest.param(KINDS[2], marks=pytest.mark.slow), KINDS[3]], ids=str)
@pytest.mark.parametrize("named", NAMES)
def test_parts_against_networkx(named, options):
    rng = fresh_rng()
    names = NAMES[named](rng)
    src, dst = rng.integers(0, N, (2, 60))
    graph = DynamicGraph(n_vertices=N, **options) if named == "ids" else DynamicGraph(**options)
    with graph:
        weight = rng.integers(1, 9, 60).astype(np.float32) if graph.weighted else None
        if named != "ids":
            graph.add_vertices(names)
        graph.insert(names[src], names[dst], weight)
        whole = graph.to_networkx()
        for k in (0, 1, 5, N):
            chosen = names[rng.choice(N, k, replace=False)]
            same(graph.subgraph(chosen), whole.subgraph(chosen.tolist()))
            part = graph.subgraph(np.concatenate([chosen, chosen[:2]]))
            assert part.vertices().tolist() == chosen.tolist()  # in the order in which they were given, each once
            assert (part.weighted, part.reverse) == (graph.weighted, graph.reverse)
            part.close()
        vertex = names[src[0]]
        vertex = vertex if isinstance(vertex, str) else int(vertex)
        for k in (0, 1, 2, 50):
            same(graph.ego(vertex, k), nx.ego_graph(whole, vertex, k))
        if graph.reverse and graph.directed:
            back = nx.ego_graph(whole.reverse(), vertex, 2)
            same(graph.ego(vertex, 2, "in"), whole.subgraph(back.nodes))


def test_a_part_goes_on_by_itself():
    with DynamicGraph(n_vertices=9) as graph:
        graph.insert([0, 1, 2], [1, 2, 0])
        with graph.ego(0) as part:
            assert part.keys == "int64"
            assert part.vertices().tolist() == [0, 1]
            assert part.insert([1, 77], [77, 0]).inserted == 2
            assert part.bfs(77)[1] == 2
            assert (graph.num_edges, graph.num_vertices) == (3, 9)
        with graph.subgraph([]) as nothing:
            assert (nothing.num_vertices, nothing.num_edges) == (0, 0)


def test_what_is_no_vertex():
    with DynamicGraph(n_vertices=3) as graph, DynamicGraph(keys="string") as named:
        named.insert(["a"], ["b"])
        with pytest.raises(UnknownVertex, match=r"vertices\[1\] is 3; the graph has 3 vertices"):
            graph.subgraph([0, 3])
        with pytest.raises(InvalidBatch, match=r"vertices\[0\] is 0.5"):
            graph.ego(0.5)
        with pytest.raises(UnknownVertex, match="'c', which is no vertex"):
            named.ego("c")
        with pytest.raises(InvalidBatch, match="is 1; the graph's keys are strings"):
            named.subgraph([1])
        with pytest.raises(InvalidOption, match="k is -1"):
            graph.ego(0, -1)
        with pytest.raises(InvalidOption, match='direction "in" needs in-edges'):
            graph.ego(0, 1, "in")
