"""The GAP benchmark's generated graphs, kron and urand, edge for edge as gapbs makes them.

gapbs draws blocks of 2**18 edges, each from a Mersenne twister of its own, and whole numbers by its ``UniDist``. It
permutes the ids of kron by the C++ library's ``std::shuffle``; here that is libstdc++'s, since GCC 11. Weights are
whole numbers from 1 to 255; of equal edges, in either direction, the least weight stays. Self-loops are dropped.

References
----------
S. Beamer, K. Asanović, D. Patterson, "The GAP Benchmark Suite", arXiv:1508.03619.
D. Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import InvalidOption

__all__ = ["KINDS", "GapGraph", "generate", "shuffled", "sources"]

KINDS = ("kron", "urand")
SEED = 27491095  #: gapbs's kRandSeed
BLOCK = 1 << 18  #: edges drawn from one seed
MAX_SCALE = 27  #: two ids and a weight fit into 64 bits, and so do the steps of the shuffle
WORDS = 1 << 32
PAIRED = 1 << 16  #: libstdc++ shuffles shorter sequences by two steps a draw


@dataclass(frozen=True, eq=False)
class GapGraph:
    """An undirected weighted graph: unique edges without self-loops.

    Attributes
    ----------
    n_vertices : int
    src, dst : uint32[m]
        On the device; src < dst, ascending.
    weight : float32[m]
    device : Device
    """

    n_vertices: int
    src: Array
    dst: Array
    weight: Array
    device: Device

    def __len__(self) -> int:
        return len(self.src)

    def degrees(self) -> Array:
        """The degree of each vertex: int64[n_vertices]."""
        xp, n = self.device.xp, self.n_vertices
        return xp.bincount(self.src, minlength=n) + xp.bincount(self.dst, minlength=n)


def generate(kind: str, scale: int, degree: int, device: Device) -> GapGraph:
    """The graph of ``-g SCALE -k DEGREE`` (kron) or ``-u SCALE -k DEGREE`` (urand) of gapbs.

    Parameters
    ----------
    kind : "kron" | "urand"
    scale : int
        2**scale vertices, 1 to 27.
    degree : int
        degree * 2**scale edges are drawn, repeats and self-loops included.
    device : Device
        Where the graph is kept; edges are drawn on the host by `device.threads` threads.

    Notes
    -----
    O(m * scale) draws and a sort of m 64-bit keys on the device, which also takes the keys' memory once more.
    """
    if kind not in KINDS:
        raise InvalidOption(f"graph {kind!r} is none of {', '.join(map(repr, KINDS))}")
    if not 1 <= scale <= MAX_SCALE:
        raise InvalidOption(f"scale is {scale}; it goes from 1 to {MAX_SCALE}")
    if degree < 1:
        raise InvalidOption(f"degree is {degree}; at least 1 is needed")
    ids = device.to_host(shuffled(1 << scale, device.xp)).astype(np.uint64) if kind == "kron" else None
    keys = device.xp.sort(device.asarray(_keys(scale, degree << scale, ids, device.threads)))
    return _unique(keys, scale, device)


def _keys(scale: int, m: int, ids: np.ndarray | None, threads: int) -> np.ndarray:
    """Of each drawn edge (lesser end, greater end, weight - 1) in one word: of kron where `ids` are given."""
    keys = np.empty(m, np.uint64)

    def draw(first: int) -> None:
        n = min(BLOCK, m - first)
        u, v = _urand(scale, first, n) if ids is None else (ids[end] for end in _kron(scale, first, n))
        ends = np.minimum(u, v) << np.uint64(scale) | np.maximum(u, v)
        keys[first : first + n] = ends << np.uint64(8) | _weights(first, n)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(draw, range(0, m, BLOCK)))
    return keys


def _unique(keys: Array, scale: int, device: Device) -> GapGraph:
    """The graph of sorted keys (lesser end, greater end, weight - 1): the first of equal ends stays."""
    ends = keys >> np.uint64(8)
    src, dst = (ends >> np.uint64(scale)).astype(np.uint32), (ends & np.uint64((1 << scale) - 1)).astype(np.uint32)
    keep = src != dst
    keep[1:] &= ends[1:] != ends[:-1]
    weight = (keys & np.uint64(255)).astype(np.float32) + np.float32(1)
    return GapGraph(1 << scale, src[keep], dst[keep], weight[keep], device)


def _draws(seed: int, n: int) -> np.ndarray:
    """The first n outputs of ``std::mt19937(seed)``: uint32."""
    return np.random.RandomState(seed).randint(0, WORDS, n, np.uint32)


def _kron(scale: int, first: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A block of R-MAT edges before the ids are permuted: one draw a level, as float32 between 0 and 1."""
    a, b, c = np.float32(0.57), np.float32(0.19), np.float32(0.19)
    point = _draws(SEED + first // BLOCK, n * scale).astype(np.float32) / np.float32(WORDS)
    point = np.minimum(point, np.nextafter(np.float32(1), np.float32(0))).reshape(n, scale)
    low = point >= a + b
    right = ((point > a) & ~low) | (point > a + b + c)
    return _numbers(low), _numbers(right)


def _numbers(bits: np.ndarray) -> np.ndarray:
    """The number that each row of bits stands for, the highest first: uint64[n]."""
    wide = np.zeros((len(bits), 32), bool)
    wide[:, 32 - bits.shape[1] :] = bits
    return np.packbits(wide, axis=1).view(">u4").ravel().astype(np.uint64)


def _urand(scale: int, first: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A block of uniform edges."""
    ends = _draws(SEED + first // BLOCK, 2 * n).astype(np.uint64) & np.uint64((1 << scale) - 1)
    return ends[::2], ends[1::2]


def _weights(first: int, n: int) -> np.ndarray:
    """The weights of a block, less 1: uint64. Two of 2**32 draws are drawn again, so that 255 divides the rest."""
    spare = 64
    words = _draws(SEED + first // BLOCK, n + spare)
    return (words[words < WORDS - 2][:n] % np.uint32(255)).astype(np.uint64)


def sources(graph: GapGraph) -> Iterator[int]:
    """The starting points of gapbs's searches, without end: random vertices that have an edge."""
    degree = graph.device.to_host(graph.degrees())
    if not degree.any():
        raise InvalidOption("the graph has no edges; choose a larger scale")
    generator = np.random.RandomState(SEED)
    while True:
        for vertex in generator.randint(0, WORDS, 256, np.uint32) & np.uint32(graph.n_vertices - 1):
            if degree[vertex]:
                yield int(vertex)


# ---- std::shuffle ----------------------------------------------------------------------------------------------------


def shuffled(n: int, xp: Any = np) -> Array:
    """0 .. n - 1 as ``std::shuffle`` of libstdc++ leaves them with ``std::mt19937(SEED)``: int64[n]. O(n log n)."""
    return _after_swaps(xp.asarray(_swaps(n)), xp)


def _swaps(n: int) -> np.ndarray:
    """For each place i, the place that it is swapped with in step i: int64[n], at most i."""
    found = np.zeros(n, np.int64)
    if n < 2:
        return found
    if n >= PAIRED:
        found[1:] = _below(np.arange(2, n + 1, dtype=np.uint64))
        return found
    at = 1 + (n % 2 == 0)
    size = np.arange(at + 1, n + 1, 2, dtype=np.uint64)  # of the first of two places, counted with it
    ranges = size * (size + np.uint64(1))
    if at == 2:
        ranges = np.concatenate([[np.uint64(2)], ranges])
    drawn = _below(ranges)
    if at == 2:
        found[1], drawn = drawn[0], drawn[1:]
    found[at::2], found[at + 1 :: 2] = drawn // (size + np.uint64(1)), drawn % (size + np.uint64(1))
    return found


def _below(ranges: np.ndarray) -> np.ndarray:
    """A random number below each of `ranges`, uint64, in order, as ``std::uniform_int_distribution`` draws them.

    A draw that would bias the result is drawn again, which moves all that follow: so piece by piece, each up to the
    first such draw.
    """
    words = _draws(SEED, 2 * len(ranges) + 64).astype(np.uint64)
    found = np.empty(len(ranges), np.uint64)
    done = at = 0
    piece = 1 << 10
    while done < len(ranges):
        some = ranges[done : done + piece]
        product = words[at : at + len(some)] * some
        again = np.flatnonzero((product & np.uint64(WORDS - 1)) < (np.uint64(WORDS) - some) % some)
        good = int(again[0]) if len(again) else len(some)
        found[done : done + good] = product[:good] >> np.uint64(32)
        done, at = done + good, at + good + (len(again) > 0)
        piece = max(16, min(2 * good, 1 << 20))
    return found


def _after_swaps(target: Array, xp: Any) -> Array:
    """What lies at each place after place i was swapped with place ``target[i] <= i``, for i = 0, 1, 2 ...

    Step i puts i at its target, and what lay there at place i. So what lies at a place before step t is the last step
    before t that has the place as its target; where there is none, it is what lay at ``target[place]`` before step
    `place`.
    """
    n = len(target)
    steps = xp.sort(target * n + xp.arange(n))
    found, place, before, open_ = xp.empty(n, np.int64), xp.arange(n), xp.full(n, n), xp.arange(n)
    while len(open_):
        last = steps[xp.maximum(xp.searchsorted(steps, place * n + before) - 1, 0)]
        here = (last // n == place) & (last < place * n + before)
        found[open_[here]] = last[here] % n
        open_, place = open_[~here], place[~here]
        place, before = target[place], place
    return found
