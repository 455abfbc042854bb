"""Batches of a stream, with a sliding window that deletes old edges.

The window keeps the last N insertions. The insertion with number q (from 0) expires when number q + N arrives: its
deletion goes into the stream right before that arrival. An edge that was inserted or deleted again in between has a
younger event, and needs no expiry: it lives until its last insertion expires.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.errors import InvalidOption
from workloads.inputs.edges import EdgeStream

__all__ = ["Batches"]


class Batches:
    """Edge batches of a stream.

    Parameters
    ----------
    stream : EdgeStream
        On the host, in order.
    window : int, optional
        The number of live insertions; by default all.

    Notes
    -----
    Without a window O(1) up front; with one O(m log m) time and 24 bytes per operation, once.
    """

    def __init__(self, stream: EdgeStream, window: int | None = None) -> None:
        if window is not None and window < 1:
            raise InvalidOption(f"window is {window}; at least 1 edge is needed")
        self.stream, self.window = stream, window
        if window is not None:
            self._expired = _expiries(stream, window)

    def between(self, start: int, stop: int) -> EdgeBatch:
        """Return the operations start .. stop - 1 of the stream with the expiries among them. O(their number)."""
        # Without a window, a slice.
        part = self.stream[start:stop]
        if self.window is None:
            return part.batch()

        # Each expiry goes right before the operation that causes it.
        expired = self._expired[start:stop]
        old = expired >= 0
        place = np.arange(stop - start) + np.cumsum(old)  # of each operation, its expiry right before it
        n = stop - start + int(old.sum())
        src, dst, op = np.empty(n, np.uint32), np.empty(n, np.uint32), np.empty(n, np.int8)
        src[place], dst[place], op[place] = part.src, part.dst, 1 if part.op is None else part.op

        # Fill the expiries in: deletions of earlier edges.
        at, which = place[old] - 1, expired[old]
        src[at], dst[at], op[at] = self.stream.src[which], self.stream.dst[which], -1
        weight = None
        if part.weight is not None:
            weight = np.zeros(n, np.float32)
            weight[place] = part.weight
        return EdgeBatch(src, dst, weight, op)

    def of(self, size: int, start: int = 0) -> Iterator[EdgeBatch]:
        """Yield batches of `size` operations from `start` on, the last one shorter.

        Expiries come on top.
        """
        if size < 1:
            raise InvalidOption(f"batch is {size}; at least 1 edge is needed")
        for at in range(start, len(self.stream), size):
            yield self.between(at, min(at + size, len(self.stream)))


def _expiries(stream: EdgeStream, window: int) -> np.ndarray:
    """Return for each operation the earlier one that expires right before it, or -1: int64, shape (m,)."""
    # The q-th arrival expires at arrival q + window, unless its edge has a younger event.
    m = len(stream)
    arrivals = np.arange(m) if stream.op is None else np.flatnonzero(stream.op > 0)
    expired = np.full(m, -1, np.int64)
    old, when = arrivals[:-window], arrivals[window:]
    last = _next_event(stream)[old] >= when
    expired[when[last]] = old[last]
    return expired


def _next_event(stream: EdgeStream) -> np.ndarray:
    """Return the next operation on the same edge, m for none: int64, shape (m,)."""
    # Group the operations by edge, in stream order.
    m = len(stream)
    src, dst = stream.src.astype(np.uint64), stream.dst.astype(np.uint64)
    if not stream.directed:
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    key = (src << np.uint64(32)) | dst
    order = np.argsort(key, kind="stable")

    # Link each operation to the next of its group.
    same = key[order[1:]] == key[order[:-1]]
    following = np.full(m, m, np.int64)
    following[order[:-1][same]] = order[1:][same]
    return following
