"""Counts of the batches of a run against a set of edges, one operation after another."""

from __future__ import annotations

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph.device import Device
from mgraph.kernels import load

INSERTED, UPDATED, DELETED, MISSING = range(1, 5)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request) -> Device:
    return Device(request.param)


def outcome_of(insert: bool, exists: bool) -> int:
    return (UPDATED if exists else INSERTED) if insert else (DELETED if exists else MISSING)


@pytest.mark.parametrize("lo", [-1, 0, 3])
@pytest.mark.parametrize("ops", [True, False])
def test_counts_of_batches(device, ops, lo):
    rng = fresh_rng()
    for n, vertices, batches in [(1, 1, 1), (40, 3, 5), (3000, 30, 64), (3000, 400, 2)]:
        # Operations of several batches in stream order, sorted by their edges.
        row, dst = rng.integers(0, vertices, (2, n), dtype=np.uint64)
        batch = np.sort(rng.integers(0, batches, n)).astype(np.uint32)
        op = rng.choice([-1, 1], n).astype(np.int8) if ops else np.ones(n, np.int8)
        keys = row << np.uint64(32) | dst
        order = np.argsort(keys, kind="stable")
        keys, batch, op = keys[order], batch[order], op[order]

        # The outcome of a run is that of each edge's last operation; the counts are those of one batch after another.
        before = {int(key) for key in np.unique(keys) if rng.random() < 0.5}
        outcome, counts, now = np.zeros(n, np.uint8), np.zeros((batches, 5), np.int64), set(before)
        for number in range(batches):
            last = {int(keys[k]): k for k in np.flatnonzero(batch == number)}
            for key, k in last.items():
                if lo < 0 or (key >> 32) + lo <= key & 0xFFFFFFFF:
                    counts[number, outcome_of(op[k] > 0, key in now)] += 1
                (now.add if op[k] > 0 else now.discard)(key)
        for key, k in {int(key): k for k, key in enumerate(keys)}.items():
            outcome[k] = outcome_of(op[k] > 0, key in before)

        result = device.zeros(5 * batches, np.int64)
        load(device, "structures/counts.cuh").CountBatches(
            n, keys=device.asarray(keys), op=device.asarray(op) if ops else None, batch=device.asarray(batch),
            outcome=device.asarray(outcome), n=n, lo=lo, counts=result,
        )  # fmt: skip
        np.testing.assert_array_equal(device.to_host(result).reshape(batches, 5), counts)
