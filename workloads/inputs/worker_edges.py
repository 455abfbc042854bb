"""Edges of a random graph that workers draw themselves, and their weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.sources.rmat import Rmat
from workloads.inputs.generators import Drawn, Generator

__all__ = ["WorkerEdges", "edges_between", "weights_of"]

CHUNK = 1 << 26  #: edges drawn at once by array operations, with 40 bytes of scratch each


@dataclass(frozen=True)
class WorkerEdges:
    """Source of a graph's numbered edges, `batch` per rank and step.

    In step s, rank r draws the `batch` edges from number ``first + (s * size + r) * batch`` on.

    Parameters
    ----------
    drawn : Drawn
    batch, first : int
    weighted : bool
        True for edges with the weights of `weights_of`.
    """

    drawn: Drawn
    batch: int
    first: int = 0
    weighted: bool = False

    def __call__(self, rank: int, size: int, step: int, device: Device) -> tuple[Array, ...]:
        """Return the edges of a rank's step: src, dst, uint32[batch], and float32[batch] with weights."""
        at = self.first + (step * size + rank) * self.batch
        src, dst = edges_between(self.drawn, at, at + self.batch, device)
        return (src, dst, weights_of(src, dst, device.xp)) if self.weighted else (src, dst)


def edges_between(drawn: Drawn, start: int, stop: int, device: Device) -> tuple[Array, Array]:
    """Return the edges numbered start .. stop - 1, uint32 each.

    One launch if a kernel draws them.
    """
    if isinstance(drawn, Generator):
        kernel = Rmat(drawn.scale, stop - start, drawn.seed, drawn.quadrants, drawn.shuffled, start)
        return kernel(0, 1, 0, device)
    parts = [drawn.edges(at, min(at + CHUNK, stop), device.xp) for at in range(start, max(stop, start + 1), CHUNK)]
    src, dst = zip(*parts, strict=True)
    return device.xp.concatenate(src), device.xp.concatenate(dst)


def weights_of(src: Array, dst: Array, xp: Any) -> Array:
    """Return a weight for each edge, a hash of its ends, the same both ways: whole numbers 1 .. 255, float32."""
    low, high = xp.minimum(src, dst), xp.maximum(src, dst)
    mixed = (low * np.uint32(0x9E3779B1) ^ high) * np.uint32(0x85EBCA77)
    return (mixed >> np.uint32(16)).astype(np.float32) % np.float32(255) + np.float32(1)
