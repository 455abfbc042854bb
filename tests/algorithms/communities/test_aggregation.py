"""Ranges of the vertices of coarse levels."""

from __future__ import annotations

import numpy as np
import pytest

from mgraph.algorithms.communities.multilevel import aggregation
from mgraph.device import Device


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_hubs_and_vertices_are_shared(size: int) -> None:
    """No range has much more than its share of the strength and of the vertices together."""
    rng, cpu = np.random.default_rng(3), Device("cpu")
    for n in (1, 7, 1000):
        out = np.sort(rng.zipf(1.3, n).clip(0, 1 << 40))[::-1].astype(np.int64)
        for strengths in ([out], [out, out[::-1].copy()], [np.zeros(n, np.int64)]):
            partition = aggregation._ranges(cpu, strengths, size)
            assert partition.size == size and partition.n_vertices == n
            work = sum(strength / max(strength.sum(), 1) for strength in strengths) / len(strengths) + 1 / n
            shares = [work[slice(*partition.range(rank))].sum() for rank in range(size)]
            assert max(shares) <= 2 / size + work.max() + 0.01
