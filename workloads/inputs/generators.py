"""Random graphs of any size, equal for every chunk size and every device.

Every random bit is a hash of (seed, edge number): chunks can be drawn in any order, on any device, bit for bit.

References
----------
D. Chakrabarti, Y. Zhan, C. Faloutsos, R-MAT: A Recursive Model for Graph Mining, SDM 2004.
Graph500 benchmark specification (the parameters 0.57, 0.19, 0.19, 0.05).
S. Vigna's SplitMix64 (the hash).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mgraph.errors import InvalidOption
from mgraph.splitmix import splitmix, start_of
from workloads.inputs.edges import EdgeStream

__all__ = ["SHAPES", "Drawn", "Generator", "Grid", "Hub", "Planted", "Road", "from_spec", "of_shape"]

GRAPH500 = (0.57, 0.19, 0.19, 0.05)
UNIFORM = (0.25, 0.25, 0.25, 0.25)
MAX_SCALE = 31  #: 2**32 ids would not leave one for "no vertex"
SMALLEST, INSIDE = 32, 45875  #: of planted communities: the smallest size; edges inside, of 65536
CHUNK = 1 << 16  #: communities drawn at once
LEVELS = 4  #: quadrants per 64-bit hash, 16 bits each


@dataclass(frozen=True)
class Drawn(ABC):
    """Endless numbered sequence of random edges.

    The first edge_factor * 2**scale are the graph.

    Parameters
    ----------
    scale : int
        2**scale vertices, 1 to `MAX_SCALE`.
    edge_factor : int
        edge_factor * 2**scale edges, with repeats and self-loops.
    seed : int
    """

    scale: int
    edge_factor: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.scale <= MAX_SCALE:
            raise InvalidOption(f"scale is {self.scale}; it goes from 1 to {MAX_SCALE}")
        if self.edge_factor < 1:
            raise InvalidOption(f"edge factor is {self.edge_factor}; at least 1 is needed")

    @property
    def n_vertices(self) -> int:
        """The number of vertices."""
        return 1 << self.scale

    @property
    def n_edges(self) -> int:
        """The number of edges, with repeats."""
        return self.edge_factor << self.scale

    @abstractmethod
    def edges(self, start: int = 0, stop: int | None = None, xp: Any = np) -> tuple[Any, Any]:
        """Return the edges start .. stop - 1.

        Parameters
        ----------
        start, stop : int
            Edge numbers; `stop` is `n_edges` by default.
        xp : module
            numpy or cupy.

        Returns
        -------
        src, dst : uint32 arrays of `xp`, shape (stop - start,)
        """

    def chunks(self, size: int, xp: Any = np) -> Iterator[tuple[Any, Any]]:
        """Yield all edges in order, `size` at a time."""
        if size < 1:
            raise InvalidOption(f"chunk size is {size}; at least 1 is needed")
        for start in range(0, self.n_edges, size):
            yield self.edges(start, min(start + size, self.n_edges), xp)

    def stream(self, chunk: int = 1 << 22) -> EdgeStream:
        """Return all edges in host memory, 8 bytes each."""
        src, dst = np.empty(self.n_edges, np.uint32), np.empty(self.n_edges, np.uint32)
        for at, (s, d) in enumerate(self.chunks(chunk)):
            src[at * chunk : at * chunk + len(s)], dst[at * chunk : at * chunk + len(d)] = s, d
        return EdgeStream(src, dst, self.n_vertices)

    def _bits(self, start: int, stop: int | None, word: int, xp: Any) -> Any:
        """Return 64 random bits per edge, different for `word` 0 and 1."""
        number = xp.arange(start, self.n_edges if stop is None else stop, dtype=np.uint64)
        return splitmix(number * np.uint64(2) + np.uint64(word), start_of(self.seed))

    def _shuffle(self, ids: Any) -> Any:
        """Permute 0 .. 2**scale - 1 by odd multiplications and xor-shifts, which are invertible."""
        mask, half = np.uint32(self.n_vertices - 1), np.uint32((self.scale + 1) // 2)
        for turn in range(4):
            key = int(splitmix(np.array([turn], np.uint64), start_of(self.seed ^ 0x5EED))[0])
            ids = (ids * np.uint32((key | 1) & 0xFFFFFFFF) + np.uint32(key >> 32)) & mask
            ids = ids ^ (ids >> half)
        return ids


@dataclass(frozen=True)
class Road(Drawn):
    """Graph like a road network: a torus of 2**scale crossings, with edges from random crossings to random neighbours.

    With an edge factor of 4 a vertex has 2.5 edges on average and 4 at most; ids of neighbours are near each other,
    and distances go up to 2**(scale / 2).
    """

    def edges(self, start: int = 0, stop: int | None = None, xp: Any = np) -> tuple[Any, Any]:  # noqa: D102
        bits, width = self._bits(start, stop, 0, xp), np.uint32(1 << (self.scale + 1) // 2)
        src, side = (bits >> np.uint64(64 - self.scale)).astype(np.uint32), (bits & np.uint64(3)).astype(np.uint32)
        step = (side & np.uint32(1)) * np.uint32(2) - np.uint32(1)  # 1, or -1 modulo 2**32
        column, row = src & (width - np.uint32(1)), src & ~(width - np.uint32(1))
        along = row | ((column + step) & (width - np.uint32(1)))
        across = column | ((row + step * width) & np.uint32(self.n_vertices - 1))
        return src, xp.where(side < 2, along, across)


@dataclass(frozen=True)
class Grid(Drawn):
    """Grid of 2**scale vertices, with an edge between neighbours: 4096 x 4096 at scale 24.

    Every graph of a scale is the same: there are no random bits, and an edge factor changes nothing. Edges along the
    rows come first, then those across. After the last edge the sequence begins again.
    """

    @property
    def n_edges(self) -> int:
        """The number of edges, without repeats."""
        along, across = self._counts
        return along + across

    @property
    def _counts(self) -> tuple[int, int]:
        """Edges along the rows, and across."""
        width = 1 << (self.scale + 1) // 2
        return self.n_vertices - (self.n_vertices // width), self.n_vertices - width

    def edges(self, start: int = 0, stop: int | None = None, xp: Any = np) -> tuple[Any, Any]:  # noqa: D102
        along, width = np.uint64(self._counts[0]), np.uint64(1 << (self.scale + 1) // 2)
        number = xp.arange(start, self.n_edges if stop is None else stop, dtype=np.uint64) % np.uint64(self.n_edges)
        # An edge along row r has number r * (width - 1) + column; one across has the number of its upper vertex.
        in_row = number < along
        src = xp.where(in_row, number + number // (width - np.uint64(1)), number - along)
        dst = src + xp.where(in_row, np.uint64(1), width)
        return src.astype(np.uint32), dst.astype(np.uint32)


@dataclass(frozen=True)
class Hub(Drawn):
    """Graph with a hub: every second edge begins at vertex 0, all other ends are random."""

    def edges(self, start: int = 0, stop: int | None = None, xp: Any = np) -> tuple[Any, Any]:  # noqa: D102
        shift = np.uint64(64 - self.scale)
        bits, dst = self._bits(start, stop, 0, xp), self._bits(start, stop, 1, xp) >> shift
        src = xp.where((bits & np.uint64(1)) == 0, np.uint64(0), bits >> shift)
        return src.astype(np.uint32), dst.astype(np.uint32)


@dataclass(frozen=True)
class Planted(Drawn):
    """Graph with communities of power-law sizes, from `SMALLEST` to a 32nd of the vertices; ids are shuffled.

    Seven edges of ten lead to a vertex of the same community, drawn from all of it, the others to any vertex.
    """

    def edges(self, start: int = 0, stop: int | None = None, xp: Any = np) -> tuple[Any, Any]:  # noqa: D102
        shift, bounds = np.uint64(64 - self.scale), xp.asarray(self._bounds)
        bits, dst = self._bits(start, stop, 0, xp), self._bits(start, stop, 1, xp)
        src = bits >> shift
        at = xp.searchsorted(bounds, src, side="right")
        first, end = bounds[at - 1], bounds[at]
        near = first + (((dst >> np.uint64(32)) * (end - first)) >> np.uint64(32))
        inside = (bits & np.uint64(0xFFFF)) < np.uint64(INSIDE)
        dst = xp.where(inside, near, dst >> shift)
        return self._shuffle(src.astype(np.uint32)), self._shuffle(dst.astype(np.uint32))

    @cached_property
    def _bounds(self) -> np.ndarray:
        """The first vertex of each community, and the number of vertices: uint64."""
        n, most, ends = self.n_vertices, max(self.n_vertices // 32, 1), [np.zeros(1, np.uint64)]
        while ends[-1][-1] < n:
            number = np.arange(CHUNK, dtype=np.uint64) + np.uint64(CHUNK * len(ends))
            share = 1 - splitmix(number, start_of(self.seed)) / 2.0**64
            sizes = np.minimum(SMALLEST / np.maximum(share, 1e-9), most).astype(np.uint64)
            ends.append(ends[-1][-1] + np.cumsum(sizes))
        bounds = np.concatenate(ends)
        return np.append(bounds[bounds < n], np.uint64(n))


@dataclass(frozen=True)
class Generator(Drawn):
    """Recursive-matrix graph: each edge picks a quadrant of the adjacency matrix, `scale` times.

    Parameters
    ----------
    scale, edge_factor, seed : int
        As in `Drawn`.
    quadrants : four floats that sum to 1
        Probabilities of (low, low), (low, high), (high, low), (high, high); rounded to 1/65536.
    shuffled : bool
        Permute the vertex ids, so that ids and degrees are independent.
    """

    quadrants: tuple[float, float, float, float] = GRAPH500
    shuffled: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.quadrants) < 0 or abs(sum(self.quadrants) - 1) > 1e-9:
            raise InvalidOption(f"quadrants {self.quadrants}; four probabilities that sum to 1 are needed")

    def edges(self, start: int = 0, stop: int | None = None, xp: Any = np) -> tuple[Any, Any]:
        """Return the edges start .. stop - 1. O((stop - start) * scale), with about 40 bytes of scratch per edge."""
        # Each level adds a bit to both ends: 16 random bits choose the quadrant.
        stop = self.n_edges if stop is None else stop
        number = xp.arange(start, stop, dtype=np.uint64)
        src, dst = xp.zeros(len(number), np.uint32), xp.zeros(len(number), np.uint32)
        cuts = [round(sum(self.quadrants[: k + 1]) * 65536) for k in range(3)]
        for level in range(self.scale):
            if level % LEVELS == 0:
                bits = splitmix(number * np.uint64(16) + np.uint64(level // LEVELS), start_of(self.seed))
            draw = (bits >> np.uint64(16 * (level % LEVELS))).astype(np.uint16).astype(np.uint32)
            low, middle, high = (draw >= np.uint32(cut) for cut in cuts)
            src = (src << np.uint32(1)) | middle.astype(np.uint32)
            dst = (dst << np.uint32(1)) | (low ^ middle ^ high).astype(np.uint32)
        return (self._shuffle(src), self._shuffle(dst)) if self.shuffled else (src, dst)


def _uniform(scale: int, edge_factor: int, seed: int = 0) -> Generator:
    return Generator(scale, edge_factor, seed, UNIFORM)


SHAPES: dict[str, Callable[[int, int, int], Drawn]] = {
    "rmat": Generator,
    "uniform": _uniform,
    "road": Road,
    "hub": Hub,
    "planted": Planted,
    "grid": Grid,
}


def of_shape(shape: str, scale: int, edge_factor: int, seed: int = 0) -> Drawn:
    """Return the random graph of a shape in `SHAPES`."""
    if shape not in SHAPES:
        raise InvalidOption(f"shape {shape!r} is none of {', '.join(map(repr, SHAPES))}")
    return SHAPES[shape](scale, edge_factor, seed)


def from_spec(spec: str, seed: int = 0) -> Drawn:
    """Return the generator of ``SHAPE:SCALE:EDGEFACTOR``, with a shape of `SHAPES`.

    Examples
    --------
    >>> from_spec("rmat:18:16").n_edges
    4194304
    """
    match = re.fullmatch(r"(\w+):(\d+):(\d+)", spec)
    if not match or match[1] not in SHAPES:
        raise InvalidOption(f"{spec!r} is no SHAPE:SCALE:EDGEFACTOR with a shape of {', '.join(SHAPES)}")
    return of_shape(match[1], int(match[2]), int(match[3]), seed)
