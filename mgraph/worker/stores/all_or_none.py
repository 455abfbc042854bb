"""Blocks of code that all ranks leave together: an error on any rank ends them on all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from mgraph.errors import Aborted
from mgraph.worker.shard.shard import Shard

__all__ = ["all_or_none"]


@contextmanager
def all_or_none(shard: Shard) -> Iterator[None]:
    """Run the block, and learn if it failed on another rank, by a small allreduce.

    Raises
    ------
    Aborted
        It failed on another rank, and not on this one.
    """
    try:
        yield
    except Exception:
        shard.exchange.allreduce(np.array([1], np.int8), "max")
        raise
    if shard.exchange.allreduce(np.array([0], np.int8), "max")[0]:
        raise Aborted(f"{shard}: another rank failed, and raises its error")
