"""R-MAT graphs: random batches generated on the workers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.kernels import load
from mgraph.splitmix import start_of

__all__ = ["Rmat"]

GRAPH500 = (0.57, 0.19, 0.19, 0.05)
MAX_SCALE = 31  #: the largest scale: 2**32 vertices would leave no uint32 value for "no vertex"


@dataclass(frozen=True)
class Rmat:
    """Source of random R-MAT edges, `batch` per rank and step.

    All edges form one numbered sequence. In step s, rank r generates the `batch` edges from number
    ``first + (s * size + r) * batch`` on. An edge's random bits are a hash of its number and the seed, so the sequence
    is the same on every device and for every number of ranks. Edges may repeat and may be self-loops.

    Parameters
    ----------
    scale : int
        The graph has 2**scale vertices; 1 to `MAX_SCALE`.
    batch : int
        Edges per rank and step.
    seed : int
        The seed of the random bits and of the permutation.
    quadrants : four floats that sum to 1
        The probabilities of (low, low), (low, high), (high, low) and (high, high) halves of the ids of source and
        destination, at each of the `scale` levels; rounded to 1/65536.
    shuffled : bool
        Permute the vertex ids, so that an id says nothing about its vertex's degree.
    first : int
        The number of the first edge.

    Raises
    ------
    InvalidOption
        `scale`, `batch`, `first` or `quadrants` is out of its range.

    Notes
    -----
    O(batch * scale) and one kernel launch per step. The model is D. Chakrabarti, Y. Zhan, C. Faloutsos, "R-MAT: A
    recursive model for graph mining", SDM 2004. The default quadrants are those of Graph500, the hash is S. Vigna's
    SplitMix64.

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
            raise InvalidOption(f"scale is {self.scale}; it must be from 1 to {MAX_SCALE}")
        if self.batch < 0 or self.first < 0:
            raise InvalidOption(f"batch is {self.batch} and first is {self.first}; both must be 0 or more")
        if len(self.quadrants) != 4 or min(self.quadrants) < 0 or abs(sum(self.quadrants) - 1) > 1e-9:
            raise InvalidOption(f"quadrants is {self.quadrants}; it must be four probabilities that sum to 1")

    def __call__(self, rank: int, size: int, step: int, device: Device) -> tuple[Array, Array]:
        """Generate the edges of `rank` in `step`: src, dst, uint32[batch]."""
        n = self.batch
        src, dst = device.empty(n, np.uint32), device.empty(n, np.uint32)
        # Thresholds of the quadrants: cumulative probabilities in units of 1/65536.
        low, middle, high = (round(sum(self.quadrants[: k + 1]) * 65536) for k in range(3))
        load(device, "sources/rmat.cuh").RmatEdges(
            n, first=self.first + (step * size + rank) * n, n=n, scale=self.scale, low=low, middle=middle, high=high,
            start=start_of(self.seed), shuffle=start_of(self.seed ^ 0x5EED), shuffled=int(self.shuffled),
            src=src, dst=dst,
        )  # fmt: skip
        return src, dst
