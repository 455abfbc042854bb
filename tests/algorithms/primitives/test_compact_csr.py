"""Rows copied without gaps: the same rows in the same order, the same results; and where no copy is made."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from graphs import random_graph, shapes
from spmd import cut, run, shards

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.primitives import compact_csr as module
from mgraph.algorithms.primitives.compact_csr import compact_rows, compact_rows_sample
from mgraph.algorithms.primitives.transpose import CsrRows
from mgraph.device import Device


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_worth", lambda shard, edges: True)


@pytest.mark.parametrize("size", [1, 3])
def test_rows(structure: str, device: str, small: None, always: None, size: int) -> None:
    """Hubs, whose tasks several tiles copy, among them; in the order in which one tile visits a row."""
    for graph in [*shapes(), random_graph(1, 300, 4000, skew=True)]:
        for shard in shards(graph, cut(graph.n, size), structure, device=device):
            rows, want = compact_rows(shard, shard.out_edges), shard.out_edges.to_csr()
            assert isinstance(rows, CsrRows)
            assert rows.sorted_rows == shard.out_edges.sorted_rows
            for found, right in ((rows.offsets, want.offsets), (rows.ids, want.dst)):
                np.testing.assert_array_equal(Device.to_host(found), Device.to_host(right))


def test_weights(structure: str, device: str, small: None, always: None) -> None:
    graph = random_graph(2, 200, 3000, skew=True)
    graph.weight = np.random.default_rng(2).random(len(graph.src), np.float32)
    (shard,) = shards(graph, cut(graph.n, 1), structure, device=device)
    rows = compact_rows(shard, shard.out_edges, weights=True)
    assert isinstance(rows, CsrRows)
    np.testing.assert_array_equal(Device.to_host(rows.weights), Device.to_host(shard.out_edges.to_csr().weight))
    assert compact_rows(shard, shard.out_edges).weights is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("betweenness_centrality", {"k": 4, "seed": 1}),
        ("label_propagation", {}),
        ("leiden", {}),
        ("louvain", {}),
        ("pagerank", {}),
        ("pagerank", {"personalization": {3: 1.0}}),
    ],
)
def test_results(
    monkeypatch: pytest.MonkeyPatch, small: None, device: str, name: str, given: dict[str, object]
) -> None:
    graph = random_graph(3, 300, 4000, directed=False, skew=True)
    for size in (1, 2):
        made = shards(graph, cut(graph.n, size), device=device)
        want, info = run(made, ALGORITHMS[name], **given)
        copies: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(module, "_worth", lambda shard, edges, copies=copies: not copies.append(shard.rank))
            got, found = run(made, ALGORITHMS[name], **given)
        assert set(copies) == set(range(size))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=0 if got.dtype.kind == "i" else 1e-9)
        assert found == pytest.approx(info, rel=1e-3)


@pytest.mark.parametrize(
    ("structure", "kind", "least", "free", "copied"),
    [
        ("gpma+", "cuda", 1000, 1 << 30, True),
        ("gpma+", "cuda", 100_000, 1 << 30, False),
        ("gpma+", "cuda", 1000, 20_000, False),
        ("gpma+", "cpu", 1000, 1 << 30, False),
        ("csr", "cuda", 1000, 1 << 30, False),
        ("hornet", "cuda", 1000, 1 << 30, False),
    ],
)
def test_where_a_copy_is_made(
    monkeypatch: pytest.MonkeyPatch, structure: str, kind: str, least: int, free: int, copied: bool
) -> None:
    (shard,) = shards(random_graph(1, 300, 4000), cut(300, 1), structure)
    assert compact_rows(shard, shard.out_edges) is compact_rows_sample(shard, shard.out_edges) is shard.out_edges
    monkeypatch.setattr(module, "LEAST", least)
    shard.device = SimpleNamespace(kind=kind, memory_free=free)  # type: ignore[assignment]
    assert module._worth(shard, shard.out_edges) is copied
