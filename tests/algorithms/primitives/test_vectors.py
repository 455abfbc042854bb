"""Sums of vectors that ranks share by rows, against NumPy's of the whole vectors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from graphs import random_graph
from spmd import LIMIT, FakeShard, cut, shards

from mgraph.algorithms.primitives.vectors import CHUNK, add, add_squares, distance, dot
from mgraph.device import Device


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 3])
def test_sums(device: str, size: int, dtype: str) -> None:
    """Rows of several chunks, of one, and of none; the sum may take the place of a vector."""
    rng, n = np.random.default_rng(size), 2 * size * CHUNK + 7
    whole = list(rng.normal(size=(3, n)).astype(dtype))
    whole[0][5] = np.nan
    made = shards(random_graph(1, n, 10), cut(n, size, even=False), device=device)
    clean = [np.nan_to_num(vector).astype(np.float64) for vector in whole]

    def program(shard: FakeShard) -> Any:
        shard.device.use()
        x, y, z = (shard.device.asarray(vector[shard.lo : shard.hi].copy()) for vector in whole)
        out = shard.device.empty(len(x), x.dtype)
        add(shard, out, (2.0, x), (-1.0, y), (0.5, z), least=-1.0)
        kept = Device.to_host(out).copy()
        bad = dot(shard, x, y)
        x[x != x] = 0.0
        numbers = dot(shard, x, y), dot(shard, z, z), distance(shard, x, z), distance(shard, y, y)
        return kept, bad, numbers, add_squares(shard, x, (3.0, x), (1.0, y)), Device.to_host(x)

    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(program, made, timeout=LIMIT))
    x, y, z = clean
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    together = np.concatenate([kept for kept, *_ in found])
    with np.errstate(invalid="ignore"):
        want = np.maximum(2.0 * whole[0] - whole[1] + 0.5 * whole[2], -1.0)
    np.testing.assert_allclose(together, want, rtol=tolerance, atol=tolerance)
    assert np.isnan(together[5])
    for _, bad, numbers, squares, _ in found:
        assert np.isnan(bad)
        np.testing.assert_allclose(numbers, [x @ y, z @ z, abs(x - z).sum(), 0.0], rtol=tolerance)
        np.testing.assert_allclose(squares, ((3 * x + y) ** 2).sum(), rtol=tolerance)
    np.testing.assert_allclose(np.concatenate([x for *_, x in found]), 3 * x + y, rtol=tolerance, atol=tolerance)
