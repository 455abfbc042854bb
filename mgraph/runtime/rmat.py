"""Batches of a recursive-matrix graph, drawn where they are needed: a source for `DynamicGraph.ingest`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.kernels import load

__all__ = ["Rmat"]

GRAPH500 = (0.57, 0.19, 0.19, 0.05)
MAX_SCALE = 31  #: 2**32 ids would not leave one for "no vertex"
_WORD = 2**64


@dataclass(frozen=True)
class Rmat:
    """A recursive-matrix graph, `batch` edges from each rank in each step, on the rank's device.

    Step s of rank r are the edges ``(s * size + r) * batch`` and on of one sequence, whose random bits are hashes of
    the seed and the edge's number: the same on every device, and whatever else is drawn.

    Parameters
    ----------
    scale : int
        2**scale vertices, 1 to `MAX_SCALE`.
    batch : int
        Edges a rank and step.
    seed : int
    quadrants : four floats that sum to 1
        Probabilities of (low, low), (low, high), (high, low), (high, high); rounded to 1/65536.
    shuffled : bool
        Permute the vertex ids, so that an id tells nothing of its degree.
    first : int
        The number of the first edge.

    Notes
    -----
    O(batch * scale), one launch. D. Chakrabarti, Y. Zhan, C. Faloutsos, R-MAT: A Recursive Model for Graph Mining, SDM
    2004; the default quadrants are Graph500's, the hash is S. Vigna's SplitMix64.

    Examples
    --------
    >>> src, dst = Rmat(scale=4, batch=3)(rank=0, size=1, step=0, device=Device())
    >>> len(src), int(max(src)) < 16
    (3, True)
    """

    scale: int
    batch: int
    seed: int = 0
    quadrants: tuple[float, float, float, float] = GRAPH500
    shuffled: bool = True
    first: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.scale <= MAX_SCALE:
            raise InvalidOption(f"scale is {self.scale}; it goes from 1 to {MAX_SCALE}")
        if self.batch < 0 or self.first < 0:
            raise InvalidOption(f"batch is {self.batch} and first is {self.first}; both are 0 or more")
        if len(self.quadrants) != 4 or min(self.quadrants) < 0 or abs(sum(self.quadrants) - 1) > 1e-9:
            raise InvalidOption(f"quadrants {self.quadrants}; four probabilities that sum to 1 are needed")

    def __call__(self, rank: int, size: int, step: int, device: Device) -> tuple[Array, Array]:
        """The edges of a rank's step: src and dst, uint32[batch] on `device`; asynchronous on a GPU."""
        n = self.batch
        src, dst = device.empty(n, np.uint32), device.empty(n, np.uint32)
        low, middle, high = (round(sum(self.quadrants[: k + 1]) * 65536) for k in range(3))
        load(device, "rmat.cuh").RmatEdges(
            n, first=self.first + (step * size + rank) * n, n=n, scale=self.scale, low=low, middle=middle, high=high,
            start=_start(self.seed), shuffle=_start(self.seed ^ 0x5EED), shuffled=int(self.shuffled), src=src, dst=dst,
        )  # fmt: skip
        return src, dst


def _start(seed: int) -> int:
    """Where the sequence of hashes of a seed starts."""
    return (seed * 0xD1342543DE82EF95 + 0x632BE59BD9B4E019) % _WORD
