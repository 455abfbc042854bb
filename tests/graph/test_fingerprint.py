"""The hash of a graph's edges, computed on its workers."""

from __future__ import annotations

import numpy as np
import pytest
from bench_runs import splitmix_finaliser
from graph_clusters import HERE, on

from mgraph import DynamicGraph, EdgeBatch
from mgraph.worker.shard import fingerprint

N = 60


def right(arcs):
    """The definition, in whole numbers of any size."""
    return sum(splitmix_finaliser(src << 32 | dst) for src, dst in arcs) % 2**64


@pytest.mark.parametrize("directed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_it_depends_on_the_edges_alone(client, directed):
    rng = np.random.default_rng(11)
    src, dst = rng.integers(0, N, (2, 500))
    arcs = set(zip(src.tolist(), dst.tolist(), strict=True))
    if not directed:
        arcs |= {(b, a) for a, b in arcs}
    order = rng.permutation(N)
    for size, options in (
        (2, {}), (2, {"order": order}), (2, {"structure": "slabgraph", "order": order}), (1, {}), (HERE, {}),
    ):  # fmt: skip
        with DynamicGraph(n_vertices=N, directed=directed, **on(client, size), **options) as graph:
            shuffled = rng.permutation(500)
            assert graph.fingerprint() == 0
            graph.update(EdgeBatch(src[shuffled], dst[shuffled]))
            assert graph.fingerprint() == right(arcs)
            graph.rebalance()
            graph.add_vertices(3)
            assert graph.fingerprint() == right(arcs)
            graph.delete([src[0]], [dst[0]])
            assert graph.fingerprint() == right(arcs - {(src[0], dst[0])} - (set() if directed else {(dst[0], src[0])}))


def test_chunks_add_up(monkeypatch):
    from mgraph.structures import create

    rng = np.random.default_rng(5)
    src, dst = rng.integers(0, N, (2, 300))
    src[:100] = 7  # a row longer than a chunk
    arcs = set(zip(src.tolist(), dst.tolist(), strict=True))
    structure = create("csr", N)
    structure.insert(EdgeBatch(src, dst))
    for chunk in (1, 2, 50, 1000):
        monkeypatch.setattr(fingerprint, "CHUNK", chunk)
        assert fingerprint.edge_hash(structure) == right(arcs)
