"""Edges that a stream of batches leaves, computed without a graph: sort all operations, keep the last of each edge.

Each worker takes a range of sources, draws the whole stream again and keeps the operations in its range. A key holds an
arc and its time, so that one sort puts the last operation on each arc behind the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from distributed import Client

from mgraph.device import Array, Device, gpu_count
from mgraph.errors import InvalidOption
from mgraph.sources.rmat import Rmat
from mgraph.splitmix import mix64
from workloads.inputs.churn import Churn

__all__ = ["Left", "Sent", "replayed"]

DRAWN = 1 << 26  #: edges per draw
SORTED = 1 << 30  #: operations per sort, about


@dataclass(frozen=True)
class Sent:
    """Operations sent to a graph: edges `0 .. n - 1` of `built`, then `steps` steps of `churn` from `size` workers.

    Attributes
    ----------
    directed : bool
        True if an edge is one arc; otherwise it is two.
    """

    built: Rmat
    n: int
    churn: Churn
    steps: int
    size: int
    directed: bool

    @property
    def n_vertices(self) -> int:
        """The number of vertices."""
        return 1 << self.built.scale

    @property
    def arcs(self) -> int:
        """The number of operations on arcs, with repeats."""
        batches = self.steps * self.size * (self.churn.come.batch + self.churn.go.batch)
        return (self.n + batches) * (1 if self.directed else 2)


@dataclass(frozen=True)
class Left:
    """Final number of arcs and sum of their hashes, as in `DynamicGraph.fingerprint`."""

    arcs: int
    hash: int


def replayed(client: Client, workers: Sequence[str], sent: Sent) -> Left:
    """Compute the arcs that `sent` leaves.

    Each of `workers` takes a range of sources.
    """
    ends = [sent.n_vertices * r // len(workers) for r in range(len(workers) + 1)]
    jobs = [
        client.submit(_range_left, sent, lo, hi, workers=[worker], pure=False)
        for worker, (lo, hi) in zip(workers, pairwise(ends), strict=True)
    ]
    parts = client.gather(jobs)
    return Left(sum(part.arcs for part in parts), sum(part.hash for part in parts) % 2**64)


def _range_left(sent: Sent, lo: int, hi: int) -> Left:
    device = Device("cuda" if gpu_count() else "cpu")
    device.use()
    # Cut the range into pieces that can be sorted at once.
    pieces = sent.arcs * (hi - lo) // (SORTED * sent.n_vertices) + 1
    arcs = total = 0
    for piece in range(pieces):
        first, end = (lo + (hi - lo) * k // pieces for k in (piece, piece + 1))
        keys = _left(device, sent, first, end)
        arcs, total = arcs + len(keys), total + int(mix64(keys).sum(dtype=np.uint64))
        del keys
    if device.kind == "cuda":
        device.xp.get_default_memory_pool().free_all_blocks()
    return Left(arcs, total % 2**64)


def _left(device: Device, sent: Sent, lo: int, hi: int) -> Array:
    """Return ``src << 32 | dst`` of the final arcs with sources ``lo .. hi - 1``, ascending."""
    # Check that a key fits: source from lo, destination, time, and 1 for a deletion.
    xp, bits = device.xp, sent.built.scale
    when = (sent.steps * sent.size).bit_length() + 1
    if (max(hi - lo, 1) - 1).bit_length() + bits + when > 64:
        raise InvalidOption(f"2**{bits} vertices and {sent.steps} steps are too many to replay; a key has 64 bits")

    # Draw all operations, and keep those of the range.
    parts = []
    for src, dst, time, deletes in _operations(device, sent):
        for a, b in ((src, dst),) if sent.directed else ((src, dst), (dst, src)):
            here = (a >= np.uint32(lo)) & (a < np.uint32(hi))
            keys = (a[here] - np.uint32(lo)).astype(np.uint64) << np.uint64(bits) | b[here]
            parts.append(keys << np.uint64(when) | np.uint64(2 * time + deletes))

    # Sort, and keep arcs whose last operation is an insert.
    keys = xp.concatenate(parts)
    del parts
    keys.sort()
    arc = keys >> np.uint64(when)
    last = xp.ones(len(keys), bool)
    last[:-1] = arc[1:] != arc[:-1]
    arc = arc[last & (keys & np.uint64(1) == 0)]
    return (arc >> np.uint64(bits)) + np.uint64(lo) << np.uint64(32) | arc & np.uint64((1 << bits) - 1)


def _operations(device: Device, sent: Sent) -> Iterator[tuple[Array, Array, int, int]]:
    """Yield all operations as (src, dst, time, deletes).

    At the same time, deletions follow inserts.
    """
    for at in range(0, sent.n, DRAWN):
        yield *_drawn(sent.built, at, min(DRAWN, sent.n - at), device), 0, 0
    for part in range(sent.steps * sent.size):
        step, rank = divmod(part, sent.size)
        for deletes, source in enumerate((sent.churn.come, sent.churn.go)):
            yield *source(rank, sent.size, step, device), 1 + part, deletes


def _drawn(source: Rmat, at: int, n: int, device: Device) -> tuple[Any, Any]:
    return replace(source, batch=n, first=source.first + at)(0, 1, 0, device)
