"""Columns that come to a GPU while the call before is running: as they were, once, and only where that can be."""

from __future__ import annotations

import numpy as np
import pytest
from plain_graph import fresh_rng

from mgraph.device import Device
from mgraph.worker.shard import prefetch as module
from mgraph.worker.shard.prefetch import Prefetch

pytestmark = pytest.mark.gpu


def locked(array: np.ndarray) -> np.ndarray:
    """A copy in page-locked memory."""
    import cupyx

    copy = cupyx.empty_pinned(array.shape, array.dtype)
    copy[...] = array
    return copy


def test_columns_come_a_call_ahead():
    rng, device = fresh_rng(), Device("cuda")
    prefetch, before = Prefetch(device), []
    for call in range(12):
        n = int(rng.integers(1, 300_000))
        columns = [locked(rng.integers(0, 100, n).astype(kind)) for kind in ("u4", "f4", "i1", "i8")]
        prefetch.swap(columns)
        assert all(prefetch.find(column) is None for column in columns)  # those of the next call
        for column in before:
            here = prefetch.find(column)
            assert here.dtype == column.dtype and here.tolist() == column.tolist()
            assert prefetch.find(column) is None
            here[:] = 7  # the work of a call, after which the memory is used again
        before = columns if call % 5 else []
        if not before:
            prefetch.swap([])  # a call that was refused
            prefetch.swap([])
    for _ in range(2):
        prefetch.swap([])
    assert prefetch._now.columns == prefetch._next.columns == []


def test_what_is_not_page_locked_or_too_large_is_not_brought(monkeypatch):
    device = Device("cuda")
    prefetch, column = Prefetch(device), locked(np.arange(1000))
    for columns in ([column, np.arange(5)], [column[::2]]):
        prefetch.swap(columns)
        prefetch.swap([])
        assert prefetch.find(columns[0]) is None
    monkeypatch.setattr(module, "MOST", 7999)
    prefetch.swap([column])
    prefetch.swap([])
    assert prefetch.find(column) is None
    monkeypatch.setattr(module, "MOST", 8192)
    prefetch.swap([column])
    prefetch.swap([])
    assert prefetch.find(column).tolist() == column.tolist()
