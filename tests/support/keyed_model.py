"""A dict of edges and of vertices with keys, and keys for numbers."""

from __future__ import annotations

from collections.abc import Iterable

import networkx as nx


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
