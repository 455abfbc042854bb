"""What a stream of batches leaves over, worked out without any graph: every operation, sorted, the last one counts.

Each worker takes a range of sources, draws the whole stream again and keeps what is in its range. A key holds an arc
and when it came, so that one sort puts the last operation on each arc behind the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client

from mgraph.device import Array, Device, gpu_count
from mgraph.errors import InvalidOption
from mgraph.runtime.fingerprint import mix
from mgraph.runtime.rmat import Rmat
from workloads.churn import Churn

__all__ = ["Left", "Sent", "replayed"]

DRAWN = 1 << 26  #: edges drawn at once
SORTED = 1 << 30  #: operations sorted at once, about


@dataclass(frozen=True)
class Sent:
    """What a graph was sent: edges `0 .. n - 1` of `built`, then `steps` steps of `churn`."""

    built: Rmat
    n: int
    churn: Churn
    steps: int


@dataclass(frozen=True)
class Left:
    """How many arcs there are in the end, and the sum of their hashes, as `DynamicGraph.fingerprint` has it."""

    arcs: int
    hash: int


def replayed(client: Client, workers: Sequence[str], sent: Sent, n_vertices: int, directed: bool) -> Left:
    """What `sent` leaves of arcs, an undirected edge both ways; each worker works it out for a range of sources."""
    size = len(workers)
    jobs = [
        client.submit(
            _range_left, sent, size, n_vertices, directed, n_vertices * r // size, n_vertices * (r + 1) // size,
            workers=[worker], pure=False,
        )
        for r, worker in enumerate(workers)
    ]  # fmt: skip
    parts = client.gather(jobs)
    return Left(sum(part.arcs for part in parts), sum(part.hash for part in parts) % 2**64)


def _range_left(sent: Sent, size: int, n_vertices: int, directed: bool, lo: int, hi: int) -> Left:
    device = Device("cuda" if gpu_count() else "cpu")
    device.use()
    operations = (sent.n + sent.steps * size * 2 * sent.churn.come.batch) * (1 if directed else 2) * (hi - lo)
    pieces = operations // (SORTED * n_vertices) + 1
    arcs = total = 0
    for piece in range(pieces):
        first, end = (lo + (hi - lo) * k // pieces for k in (piece, piece + 1))
        keys = _left(device, sent, size, n_vertices, directed, first, end)
        arcs, total = arcs + len(keys), total + int(mix(keys).sum(dtype=np.uint64))
        del keys
    if device.kind == "cuda":
        device.xp.get_default_memory_pool().free_all_blocks()
    return Left(arcs, total % 2**64)


def _left(device: Device, sent: Sent, size: int, n_vertices: int, directed: bool, lo: int, hi: int) -> Array:
    """``src << 32 | dst`` of the arcs left with sources ``lo .. hi - 1``, ascending."""
    xp, bits = device.xp, max(1, (n_vertices - 1).bit_length())
    when = (sent.steps * size).bit_length() + 1  # of a key: source from lo, destination, time, whether it is a delete
    if (max(hi - lo, 1) - 1).bit_length() + bits + when > 64:
        raise InvalidOption(f"{n_vertices} vertices and {sent.steps * size} parts are too many to be checked at once")
    found = []
    for src, dst, time, deletes in _operations(device, sent, size):
        for a, b in ((src, dst),) if directed else ((src, dst), (dst, src)):
            here = (a >= np.uint32(lo)) & (a < np.uint32(hi))
            keys = (a[here] - np.uint32(lo)).astype(np.uint64) << np.uint64(bits) | b[here]
            found.append(keys << np.uint64(when) | np.uint64(2 * time + deletes))
    keys = xp.concatenate(found)
    del found
    keys.sort()
    arc = keys >> np.uint64(when)
    last = xp.ones(len(keys), bool)
    last[:-1] = arc[1:] != arc[:-1]
    arc = arc[last & (keys & np.uint64(1) == 0)]
    return (arc >> np.uint64(bits)) + np.uint64(lo) << np.uint64(32) | arc & np.uint64((1 << bits) - 1)


def _operations(device: Device, sent: Sent, size: int) -> Iterator[tuple[Array, Array, int, int]]:
    """All operations as (src, dst, time, whether they delete); of one time, deletions follow."""
    for at in range(0, sent.n, DRAWN):
        yield *_drawn(sent.built, at, min(DRAWN, sent.n - at), device), 0, 0
    for part in range(sent.steps * size):
        step, rank = divmod(part, size)
        for deletes, source in enumerate((sent.churn.come, sent.churn.go)):
            yield *source(rank, size, step, device), 1 + part, deletes


def _drawn(source: Rmat, at: int, n: int, device: Device) -> tuple[Any, Any]:
    made = Rmat(source.scale, n, source.seed, source.quadrants, source.shuffled, first=source.first + at)
    return made(0, 1, 0, device)
