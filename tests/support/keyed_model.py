"""A dict of edges and of vertices with keys, a graph compared with it, and keys for numbers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from mgraph import DynamicGraph


def keys_of(kind: str, numbers: Iterable[int]) -> list:
    """Sparse keys: of numbers negative and huge ones, of strings an empty one and such that are no ASCII."""
    if kind == "int64":
        return [int(i) * (2**52 + 7) * (-1) ** int(i) for i in numbers]
    return ["" if i == 0 else f"{'é' * int(i % 5)}{i}" for i in numbers]


class Model:
    """The vertices in the order in which they came, and the edges with their weights."""

    def __init__(self, directed: bool = True) -> None:
        self.directed, self.edges, self.vertices = directed, {}, {}

    def key(self, u, v):
        return (u, v) if self.directed or u <= v else (v, u)

    def update(self, src, dst, weight, op):
        """Apply a batch; its counts."""
        brought = {}
        for ends in (src, dst):
            brought |= {key: None for key, o in zip(ends, op, strict=True) if o > 0}
        self.vertices |= {key: None for key in brought if key not in self.vertices}
        last = {self.key(u, v): (o, w) for u, v, w, o in zip(src, dst, weight, op, strict=True)}
        counts = [0, 0, 0, 0]
        for edge, (o, w) in last.items():
            counts[(edge in self.edges) + 0 if o > 0 else 3 - (edge in self.edges)] += 1
            if o > 0:
                self.edges[edge] = w
            else:
                self.edges.pop(edge, None)
        return tuple(counts)

    def remove(self, keys):
        before = len(self.edges)
        self.edges = {edge: w for edge, w in self.edges.items() if not set(edge) & set(keys)}
        for key in keys:
            del self.vertices[key]
        return before - len(self.edges)

    def networkx(self):
        graph = nx.DiGraph() if self.directed else nx.Graph()
        graph.add_nodes_from(self.vertices)
        graph.add_edges_from(self.edges)
        return graph


def check(graph: DynamicGraph, model: Model, rng: np.random.Generator) -> None:
    """Everything that a graph says, in keys."""
    names = list(model.vertices)
    assert graph.vertices().tolist() == names
    assert (graph.num_vertices, graph.num_edges) == (len(names), len(model.edges))
    if not names:
        return
    asked = [names[i] for i in rng.integers(0, len(names), 10)]
    rows, out = graph.neighbors(asked), model.networkx()
    for row, (first, end) in enumerate(pairwise(rows.offsets.tolist())):
        assert sorted(rows.dst[first:end].tolist()) == sorted(out.adj[asked[row]])
        found = zip(rows.dst[first:end].tolist(), rows.weight[first:end], strict=True)
        there = {model.key(asked[row], v): w for v, w in found}
        assert there == {edge: model.edges[edge] for edge in there}
    assert graph.degrees(asked).tolist() == [len(out.adj[key]) for key in asked]
    assert graph.degrees().tolist() == [len(out.adj[key]) for key in names]
    ends = [asked, asked[::-1]]
    assert graph.has_edges(*ends).tolist() == [out.has_edge(u, v) for u, v in zip(*ends, strict=True)]
    levels = graph.bfs(asked[0]).to_series()
    expected = nx.single_source_shortest_path_length(out, asked[0])
    assert levels[levels >= 0].to_dict() == expected
    ranks = graph.pagerank(tol=1e-10, dtype="float64").to_series()
    assert ranks.to_dict() == pytest.approx(nx.pagerank(out, tol=1e-10, max_iter=1000), abs=1e-6)
    assert graph.connected_components().components == nx.number_connected_components(out.to_undirected())
