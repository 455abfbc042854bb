"""Communities, and the modularity of given ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from random import Random
from typing import Any

import numpy as np
from networkx.algorithms.community.quality import NotAPartition

from mgraph.convert.build import edges_of
from mgraph.graph import DynamicGraph
from mgraph.networkx.calls import offered, refusing, weighted, why_no_weight
from mgraph.networkx.contents import Refused
from mgraph.networkx.graph import Graph

__all__ = ["leiden_communities", "leiden_partitions", "louvain_communities", "louvain_partitions", "modularity"]


def _why_not(G: Any, weight: Any = "weight", **options: Any) -> str | None:
    return why_no_weight(weight)


def _weighted_graph(G: Graph, graph: DynamicGraph, by_weight: bool) -> DynamicGraph:
    """Return `graph`. Raises `Refused` if it has weights that the caller does not want."""
    if graph.weighted and not by_weight:
        raise Refused(f"edges have the attribute {G._contents.attribute!r}, which would count")
    return graph


def _grouped(G: Graph, labels: np.ndarray) -> list[set[Any]]:
    """Return the nodes of each label, in the order of their first nodes."""
    groups: dict[int, set[Any]] = {}
    for node, label in zip(G._contents.nodes, labels.tolist(), strict=True):
        groups.setdefault(label, set()).add(node)
    return list(groups.values())


def _partition(
    G: Graph, method: str, weight: Any, resolution: float, max_level: int | None, seed: Any
) -> list[set[Any]]:
    """Return communities."""
    # Read the arguments.
    if max_level is not None and max_level <= 0:
        raise ValueError("max_level argument must be a positive integer or None")
    if len(G) == 0:
        return []
    by_weight = weighted(G, weight, merged="sum")
    drawn = seed.getrandbits(31) if isinstance(seed, Random) else seed or 0

    # Label the nodes, and group them by label.
    with refusing(G) as graph:
        call = getattr(_weighted_graph(G, graph, by_weight), method)
        return _grouped(G, call(resolution=resolution, seed=drawn, max_levels=max_level).to_numpy())


def _partitions(G: Graph, method: str, weight: Any, resolution: float, seed: Any) -> Iterator[list[set[Any]]]:
    """Return an iterator over `_each_level`. The first level is computed at once, and may be refused."""
    each = _each_level(G, method, weight, resolution, seed)
    return chain([*islice(each, 1)], each)


def _each_level(G: Graph, method: str, weight: Any, resolution: float, seed: Any) -> Iterator[list[set[Any]]]:
    """Yield the communities of one level, of two levels, and so on while they differ; each is computed anew."""
    drawn, before = seed.getrandbits(31) if isinstance(seed, Random) else seed, None
    for most in count(1):
        partition = _partition(G, method, weight, resolution, most, drawn)
        if partition == before:
            return
        edits = G._contents.edits  # changes when the live graph does
        before = [set(group) for group in partition]
        yield partition
        if G._contents.edits != edits:
            raise RuntimeError("the graph was changed during the iteration over its partitions")


@offered(_why_not)
def louvain_communities(
    G: Graph,
    weight: Any = "weight",
    resolution: float = 1,
    threshold: float = 1e-7,
    max_level: int | None = None,
    seed: Any = None,
) -> list[set[Any]]:
    """Implement `networkx.community.louvain_communities`: other communities, of similar modularity."""
    return _partition(G, "louvain", weight, resolution, max_level, seed)


@offered(_why_not)
def louvain_partitions(
    G: Graph, weight: Any = "weight", resolution: float = 1, threshold: float = 1e-7, seed: Any = None
) -> Iterator[list[set[Any]]]:
    """Implement `networkx.community.louvain_partitions`."""
    return _partitions(G, "louvain", weight, resolution, seed)


@offered(_why_not)
def leiden_communities(
    G: Graph, weight: Any = "weight", resolution: float = 1, max_level: int | None = None, seed: Any = None
) -> list[set[Any]]:
    """Implement `networkx.community.leiden_communities`."""
    return _partition(G, "leiden", weight, resolution, max_level, seed)


@offered(_why_not)
def leiden_partitions(
    G: Graph, weight: Any = "weight", resolution: float = 1, seed: Any = None
) -> Iterator[list[set[Any]]]:
    """Implement `networkx.community.leiden_partitions`."""
    return _partitions(G, "leiden", weight, resolution, seed)


@offered(_why_not)
def modularity(G: Graph, communities: Iterable[Any], weight: Any = "weight", resolution: float = 1) -> float:
    """Implement `networkx.community.modularity`."""
    # Label the nodes by their communities.
    groups, index = list(communities), G._contents.index
    labels = np.full(len(G), -1, np.int64)
    nodes = [node for group in groups for node in group]
    known = len(nodes) == len(G) and all(node in index for node in nodes)
    if known:
        labels[[index[node] for node in nodes]] = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    if not known or (labels < 0).any():
        raise NotAPartition(G, groups)
    _, labels = np.unique(labels, return_inverse=True)  # there may be empty communities

    # Weigh them. NetworkX divides by the weight of all edges.
    by_weight = weighted(G, weight, merged="sum")
    with refusing(G) as graph:
        value = _weighted_graph(G, graph, by_weight).modularity(labels, resolution) if graph.num_edges else 0.0
        # It is 0 if all weights are: only then read them.
        if value == 0 and (graph.num_edges == 0 or (by_weight and not edges_of(graph)[2].any())):  # type: ignore[union-attr]
            raise ZeroDivisionError("division by zero: the graph has no edges, or all weights are 0")
        return value
