"""The change log of a rank: its size is known without a look at its batches."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from mgraph.algorithms.algorithm import EdgeDelta
from mgraph.device import Device
from mgraph.structures import create
from mgraph.worker.shard.change_log import ChangeLog


class Unread(deque):
    """Batches that nobody may look at."""

    def __iter__(self):
        raise AssertionError("each answer of a worker has the size of the log, which has thousands of small batches")

    copy = __copy__ = __iter__


@pytest.mark.parametrize("weighted", [False, True])
def test_the_size_follows_batches_that_come_and_go(weighted):
    device = Device("cpu")
    log, structure = ChangeLog(device), create("gpma+", 100, device=device, weighted=weighted)
    log.open(0)
    batches = []
    for epoch in range(1, 9):
        weights = [np.ones(epoch, np.float32)] * 2 if weighted else []
        batch = EdgeDelta(np.arange(epoch, dtype=np.uint64), np.ones(epoch, np.uint8), 0, *weights)
        log.keep(epoch, batch, structure, epoch)
        batches.append(batch)
    log._held = Unread(log._held)
    for forgotten in (0, 3, 7, 8):
        log.forget(forgotten)
        assert log.nbytes == sum(batch.nbytes for batch in batches[forgotten:])
    log.close()
    assert log.nbytes == 0
