"""Levels without the vertices that have no edges: what is left out keeps its community, and counts for the quality."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from communities import quality, weighted
from graphs import random_graph
from spmd import FakeShard, Graph, cut, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.communities.multilevel import Hierarchy, finest_level
from mgraph.device import Device


def sparse(seed: int, directed: bool, more: int = 60) -> Graph:
    """A few edges among every third vertex, components without other edges, and `more` vertices at the end."""
    graph = weighted(random_graph(seed, 80, 120, directed), seed)
    return replace(graph, n=3 * graph.n + more, src=3 * graph.src, dst=3 * graph.dst)


def levels_of(shard: FakeShard, kind: str, parts: bool) -> dict[str, list[Any]]:
    """Coarsen while communities join, and climb back. Returns qualities, sizes and communities."""
    shard.device.use()
    hierarchy = Hierarchy(finest_level(shard, "leiden", kind, 0.3 if kind == "cpm" else 1.0))
    seen: dict[str, list[Any]] = {name: [] for name in ("improved", "coarse", "n", "columns")}
    while True:
        seen["improved"].append(hierarchy.level.improve(len(seen["n"])))
        seen["n"].append(hierarchy.level.n)
        if not hierarchy.coarsen(hierarchy.level.refine(3, hierarchy.level.objective) if parts else None):
            break
        seen["coarse"].append(hierarchy.level.value())
    seen["climbed"] = [level.value() for level in hierarchy.climb()]
    labels = Device.to_host(hierarchy.finest.labels).copy()
    own, count = Hierarchy(hierarchy.finest).communities()
    return seen | {"labels": [labels], "own": [Device.to_host(own)], "count": [count]}


@pytest.mark.parametrize("parts", [True, False])
@pytest.mark.parametrize("kind", ["modularity", "cpm"])
@pytest.mark.parametrize("directed", [True, False])
def test_vertices_without_edges_are_in_no_coarser_level(device: str, directed: bool, kind: str, parts: bool) -> None:
    graph = sparse(3, directed)
    linked = len(np.unique([graph.src, graph.dst]))
    results = []
    for size in (1, 3):
        made = shards(graph, cut(graph.n, size, even=False), reverse=directed, device=device)
        with ThreadPoolExecutor(size) as pool:
            results.append(list(pool.map(partial(levels_of, kind=kind, parts=parts), made)))
    seen = results[0][0]
    assert len(seen["n"]) > 2 or kind == "cpm"
    assert seen["n"][1] < linked < graph.n
    assert seen["coarse"] == pytest.approx(seen["improved"][:-1], rel=1e-12)
    assert seen["climbed"] == pytest.approx(seen["improved"][-1:] * len(seen["climbed"]), rel=1e-12)
    for one in (one for rank in results for one in rank):
        assert (one["n"], one["improved"]) == (seen["n"], seen["improved"])
        np.testing.assert_array_equal(one["labels"], seen["labels"])
    np.testing.assert_array_equal(np.concatenate([one["own"][0] for one in results[1]]), seen["own"][0])

    # Vertices without edges are alone.
    alone = np.setdiff1d(np.arange(graph.n), [graph.src, graph.dst])
    np.testing.assert_array_equal(seen["own"][0][alone], alone)
    assert seen["count"][0] == len(np.unique(seen["own"][0]))
    assert np.isin(seen["own"][0], alone).sum() == len(alone)


@pytest.mark.parametrize("name", ["louvain", "leiden"])
@pytest.mark.parametrize("size", [1, 3])
def test_vertices_without_edges_change_no_other_label(device: str, name: str, size: int) -> None:
    method, plain = ALGORITHMS[name], sparse(5, False, more=0)
    want, info = run(shards(plain, cut(plain.n, 1), device=device), method)
    more = replace(plain, n=plain.n + 500)
    got, others = run(shards(more, cut(more.n, size, even=False), device=device), method)
    np.testing.assert_array_equal(got, [*want, *range(plain.n, more.n)])
    assert others["communities"] == info["communities"] + 500 and others["levels"] == info["levels"]
    score = "modularity" if name == "louvain" else "quality"
    assert others[score] == pytest.approx(info[score], rel=1e-12)


def test_a_vertex_without_edges_leaves_its_community(device: str) -> None:
    """As if all edges to it had weight 0."""
    graph = sparse(4, False)
    (shard,) = shards(graph, cut(graph.n, 1), device=device)
    shard.device.use()
    hierarchy, linked = Hierarchy(finest_level(shard, "leiden", "modularity", 1.0)), np.unique([graph.src, graph.dst])
    hierarchy.level.start(shard.device.zeros(graph.n, np.uint32))
    assert hierarchy.coarsen() and hierarchy.level.n == 1
    want = np.arange(graph.n)
    want[linked] = linked[0]
    own, count = hierarchy.communities()
    np.testing.assert_array_equal(Device.to_host(own), want)
    assert count == 1 + graph.n - len(linked)
    assert hierarchy.level.value() == pytest.approx(quality(graph, want), abs=1e-6)
    hierarchy.ascend()
    np.testing.assert_array_equal(Device.to_host(Hierarchy(hierarchy.finest).communities()[0]), want)
