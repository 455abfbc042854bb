"""Groups and ties go by users' keys, however the keys came, against sets and sorted keys in plain Python."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pytest
from keyed_model import keys_of
from plain_graph import fresh_rng

from mgraph import DynamicGraph


def propagated(graph: nx.Graph, rounds: int) -> dict:
    """Synchronous label propagation: of the most frequent labels around a vertex, the smallest."""
    labels = {v: v for v in graph}
    for _ in range(rounds):
        before, labels = labels, {}
        for v in graph:
            counts = Counter(before[u] for u in graph[v])
            most = max(counts.values(), default=0)
            labels[v] = min((label for label, n in counts.items() if n == most), default=before[v])
    return labels


def least(groups, nodes) -> dict:
    return {v: min(group) for group in groups for v in group if v in nodes}


def drawn(rng: np.random.Generator, kind: str, n: int, m: int) -> tuple[list, list]:
    names = keys_of(kind, rng.permutation(n))
    return tuple([names[i] for i in ends] for ends in rng.integers(0, n, (2, m)))


@pytest.mark.parametrize("kind", ["int64", "string"])
def test_labels(place, kind):
    rng = fresh_rng()
    src, dst = drawn(rng, kind, 60, 50)
    for order in (None, "degree") if place is None else (None,):
        made = nx.Graph(zip(src, dst, strict=True))
        with DynamicGraph(place, keys=kind, directed=False, order=order) as graph:
            graph.insert(src, dst)
            if order is None and place is None:
                graph.reorder()
            live = graph.maintain("connected_components")
            for _ in range(3):
                want = least(nx.connected_components(made), made)
                assert graph.connected_components().to_series().to_dict() == want
                assert live.result().to_series().to_dict() == want
                assert graph.strongly_connected_components().to_series().to_dict() == want
                assert graph.label_propagation(3).to_series().to_dict() == propagated(made, 3)
                groups = graph.louvain().to_series()
                assert groups.to_dict() == least((set(part.index) for _, part in groups.groupby(groups)), made)
                more = drawn(rng, kind, 80, 12)  # new keys, some of them less than all before
                made.add_edges_from(zip(*more, strict=True))
                graph.insert(*more)


def test_the_nearest_of_several_is_the_one_with_the_smallest_key(place):
    rng = fresh_rng()
    src, dst = drawn(rng, "int64", 80, 120)
    made = nx.DiGraph(zip(src, dst, strict=True))
    sources = list(dict.fromkeys([src[5], dst[7], src[9], src[20]]))
    away = {s: nx.single_source_shortest_path_length(made, s) for s in sources}
    want = {v: min(((away[s][v], s) for s in sources if v in away[s]), default=(-1, None)) for v in made}
    with DynamicGraph(place, keys="int64") as graph:
        graph.insert(src, dst)
        found = graph.multi_source_bfs(sources)
        assert found.to_series().to_dict() == {v: hops for v, (hops, _) in want.items()}
        nearest = found.nearest.to_series()
        assert {v: None if nearest.isna()[v] else int(nearest[v]) for v in made} == {v: s for v, (_, s) in want.items()}


def test_strings_go_by_their_characters():
    words = ["b", "é", "z", "", "a" * 30, "日", "Z", "a"]
    with DynamicGraph(keys="string", directed=False) as graph:
        graph.insert(words[:-1], words[1:])
        assert set(graph.connected_components().to_series()) == {""}
        graph.delete([""], ["z"])
        graph.delete([""], ["a" * 30])
        assert graph.connected_components().to_series().to_dict() == {
            "b": "b", "é": "b", "z": "b", "": "", "a" * 30: "Z", "日": "Z", "Z": "Z", "a": "Z",
        }  # fmt: skip
