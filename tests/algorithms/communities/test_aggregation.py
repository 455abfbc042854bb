"""Ranges of the vertices of coarse levels, and sums of the weights of equal keys."""

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


@pytest.mark.parametrize("n_keys", [1, 3, 1500, 1 << 40])
def test_weights_of_equal_keys_are_added_up(device: str, n_keys: int) -> None:
    """Also of keys that fill several chunks, and that begin or end where a chunk does."""
    rng, on = np.random.default_rng(n_keys), Device.of(device)
    for n in (1, 31, aggregation.CHUNK_KEYS, aggregation.CHUNK_KEYS + 1, 5000):
        print(f"seed {n_keys}, {n} keys")
        keys, weights = rng.integers(0, n_keys, n).astype(np.uint64), rng.integers(0, 1 << 50, n).astype(np.uint64)
        want, number = np.unique(keys, return_inverse=True)
        sums = np.zeros(len(want), np.uint64)
        np.add.at(sums, number, weights)
        got = aggregation.add_up(on, on.asarray(keys), on.asarray(weights))
        for column, oracle in zip(got, (want, sums), strict=True):
            np.testing.assert_array_equal(on.to_host(column), oracle)

        # Lists in ascending order are merged.
        lists = [np.sort(part) for part in np.array_split(keys, 3)]
        places = [np.argsort(part, kind="stable") for part in np.array_split(keys, 3)]
        parts = [part[place] for part, place in zip(np.array_split(weights, 3), places, strict=True)]
        pairs = [(on.asarray(a), on.asarray(b)) for a, b in zip(lists, parts, strict=True)]
        for column, oracle in zip(aggregation._joined(on, pairs), (want, sums), strict=True):
            np.testing.assert_array_equal(on.to_host(column), oracle)
