"""Graphs with communities, what NetworkX says of communities, and small constants of multilevel methods."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from graphs import IDS
from spmd import Graph

from mgraph.algorithms.communities.multilevel import aggregation
from mgraph.algorithms.primitives import label_counts


def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide rows from 17 edges on, tables for few at a time, and sorted pieces of few arcs."""
    monkeypatch.setattr(label_counts, "TABLED_BY_THREAD", 16)
    monkeypatch.setattr(label_counts, "ROOM", 64)
    monkeypatch.setattr(aggregation, "SORTING", ("cpu", "cuda"))
    monkeypatch.setattr(aggregation, "PIECE", 50)


def networkx_graph(graph: Graph) -> nx.Graph:
    """The same graph; of repeats the last weight counts."""
    oracle = nx.DiGraph() if graph.directed else nx.Graph()
    oracle.add_nodes_from(range(graph.n))
    weights = [1.0] * len(graph.src) if graph.weight is None else graph.weight.tolist()
    oracle.add_weighted_edges_from(zip(graph.src.tolist(), graph.dst.tolist(), weights, strict=True))
    return oracle


def sets(labels: np.ndarray) -> list[set[int]]:
    """The communities."""
    return [set(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)]


def weighted(graph: Graph, seed: int, zeros: bool = False) -> Graph:
    """The same edges without repeats, with weights of many magnitudes."""
    pairs = np.column_stack([graph.src, graph.dst])
    pairs = np.unique(pairs if graph.directed else np.sort(pairs, axis=1), axis=0)
    rng = np.random.default_rng(seed)
    weight = np.exp(rng.normal(0, 2, len(pairs))).astype(np.float32)
    weight[rng.random(len(pairs)) < (1.1 if zeros else 0.05)] = 0
    src, dst = pairs.T
    return Graph(graph.n, src.copy(), dst.copy(), graph.directed, f"{graph.name}-weighted", weight)


def planted(seed: int, communities: int = 6, each: int = 25) -> tuple[Graph, np.ndarray]:
    """A graph with communities that any good method finds, its ids scattered, and the labels of these."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(communities * each)
    oracle = nx.planted_partition_graph(communities, each, 0.5, 0.01, seed=seed)
    pairs = ids[np.array(oracle.edges)].astype(IDS)
    labels = np.empty(len(ids), np.int64)
    for group in ids.reshape(communities, each):
        labels[group] = group.min()
    return Graph(len(ids), pairs[:, 0].copy(), pairs[:, 1].copy(), False, f"planted-{seed}"), labels


def quality(graph: Graph, labels: np.ndarray, resolution: float = 1.0) -> float:
    oracle = networkx_graph(graph)
    return nx.community.modularity(oracle, sets(labels), resolution=resolution) if oracle.size("weight") else 0.0
