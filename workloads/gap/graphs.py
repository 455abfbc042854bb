"""The GAP benchmark's generated graphs, kron and urand, edge for edge as gapbs makes them.

gapbs draws blocks of 2**18 edges, each from a Mersenne twister of its own, and whole numbers by its ``UniDist``. It
permutes the ids of kron by the C++ library's ``std::shuffle``; here that is libstdc++'s, since GCC 11. Weights are
whole numbers from 1 to 255; equal edges, in either direction, keep the smallest weight. Self-loops are dropped.

References
----------
S. Beamer, K. Asanović, D. Patterson, "The GAP Benchmark Suite", arXiv:1508.03619.
D. Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.kernels import load

__all__ = ["KINDS", "GapGraph", "generate", "shuffled", "sources"]

KINDS = ("kron", "urand")
SEED = 27491095  #: gapbs's kRandSeed
BLOCK = 1 << 18  #: edges per seed
PART = 1 << 27  #: edges in a part of the list, about
MAX_SCALE = 27  #: two ids and a weight fit into 64 bits, and so do the steps of the shuffle
WORDS = 1 << 32
PAIRED = 1 << 16  #: libstdc++ shuffles shorter sequences by two steps per draw
DRAW = str(Path(__file__).with_name("draw.cuh"))


@dataclass(frozen=True, eq=False)
class GapGraph:
    """Undirected weighted graph: unique edges without self-loops.

    Attributes
    ----------
    scale : int
        The graph has 2**scale vertices, or fewer.
    parts : tuple of uint64[m]
        On the device: each edge once, ``(lesser end << scale | greater end) << 8 | weight - 1``. Ascending, also from
        part to part.
    device : Device
    n_vertices : int
    """

    scale: int
    parts: tuple[Array, ...]
    device: Device
    n_vertices: int

    @classmethod
    def of(cls, n_vertices: int, src: np.ndarray, dst: np.ndarray, weight: np.ndarray, device: Device) -> GapGraph:
        """Return the graph of given edges, src < dst, ascending; weights are whole numbers from 1 to 256."""
        scale = max(n_vertices - 1, 1).bit_length()
        keys = (src.astype(np.uint64) << np.uint64(scale) | dst) << np.uint64(8) | (weight - 1).astype(np.uint64)
        return cls(scale, (device.asarray(keys),), device, n_vertices)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def edges(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield the edges part by part: ends uint32[k], uint32[k], src < dst, and weights float32[k]."""
        for keys in self.parts:
            ends = keys >> np.uint64(8)
            src, dst = ends >> np.uint64(self.scale), ends & np.uint64((1 << self.scale) - 1)
            weight = (keys & np.uint64(255)).astype(np.float32) + np.float32(1)
            yield src.astype(np.uint32), dst.astype(np.uint32), weight

    def columns(self) -> tuple[Array, Array, Array]:
        """Return all edges: src, dst and weight."""
        src, dst, weight = (self.device.concatenate(list(column)) for column in zip(*self.edges(), strict=True))
        return src, dst, weight

    @cached_property
    def degrees(self) -> Array:
        """The degree of each vertex: int64[n_vertices]."""
        xp, n = self.device.xp, self.n_vertices
        degrees = xp.zeros(n, np.int64)
        for src, dst, _ in self.edges():
            for ends in (src, dst):
                degrees += xp.bincount(ends, minlength=n)
        return degrees


def generate(kind: str, scale: int, degree: int, device: Device) -> GapGraph:
    """Draw the graph of gapbs's options ``-g SCALE -k DEGREE`` (kron) or ``-u SCALE -k DEGREE`` (urand).

    Parameters
    ----------
    kind : "kron" | "urand"
    scale : int
        2**scale vertices, 1 to 27.
    degree : int
        degree * 2**scale edges are drawn, with repeats and self-loops.
    device : Device
        The device of the graph.

    Notes
    -----
    O(m * scale) draws and two sorts of m 64-bit keys. Takes 16 bytes for each drawn edge, and 3 GB.
    """
    # Check the options.
    if kind not in KINDS:
        raise InvalidOption(f"graph {kind!r} is none of {', '.join(map(repr, KINDS))}")
    if not 1 <= scale <= MAX_SCALE:
        raise InvalidOption(f"scale is {scale}; it goes from 1 to {MAX_SCALE}")
    if degree < 1:
        raise InvalidOption(f"degree is {degree}; at least 1 is needed")

    # Draw the edges in steps, and merge the sorted pieces.
    ids = shuffled(1 << scale, device).astype(np.uint32) if kind == "kron" else None
    edges, step = degree << scale, 2 * PART // BLOCK * BLOCK or BLOCK
    pieces = [_drawn(scale, first, min(step, edges - first), ids, device) for first in range(0, edges, step)]
    return GapGraph(scale, tuple(_merged(pieces, device)), device, 1 << scale)


def _drawn(scale: int, first: int, n: int, ids: Array, device: Device) -> Array:
    """Draw the `n` edges from number `first` on.

    Returns them sorted, unique, without self-loops.
    """
    # Draw the edges, then redraw the weights of blocks with a rejected word: one of 8,000.
    blocks = -(-n // BLOCK)
    weights, keys, again = device.empty(n, np.uint8), device.empty(n, np.uint64), device.zeros(blocks, np.uint8)
    load(device, DRAW).DrawEdges(
        blocks, scale=scale, edges=n, of_block=BLOCK, first=first // BLOCK, seed=SEED, ids=ids, weights=weights,
        keys=keys, again=again,
    )  # fmt: skip
    for block in np.flatnonzero(device.to_host(again)).tolist():
        at = slice(block * BLOCK, min((block + 1) * BLOCK, n))
        keys[at] &= ~np.uint64(255)
        keys[at] |= device.asarray(_weights(SEED + first // BLOCK + block, at.stop - at.start))

    # Sort, and drop self-loops and repeats.
    del weights
    device.sort(keys)
    ends = keys >> np.uint64(8)
    loops = (ends >> np.uint64(scale)) == (ends & np.uint64((1 << scale) - 1))
    return keys[~loops & _firsts(keys, device)]


def _firsts(keys: Array, device: Device) -> Array:
    """Return a mask of the sorted keys that are the first with their ends: bool[n]."""
    ends, first = keys >> np.uint64(8), device.xp.ones(len(keys), bool)
    first[1:] = ends[1:] != ends[:-1]
    return first


def _merged(pieces: list[Array], device: Device) -> Iterator[Array]:
    """Yield the edges of sorted pieces in sorted parts, equal ends once."""
    # A single piece is sorted and unique.
    if len(pieces) == 1:
        yield pieces[0]
        return

    # Choose cuts from a sample, and merge the spans between them.
    xp = device.xp
    sample = xp.sort(device.concatenate([piece[::1024] for piece in pieces]))
    step = max(PART // 1024, 1)
    cuts = xp.unique(sample[step::step] & ~np.uint64(255))  # between keys with different ends
    places = [[0, *device.to_host(xp.searchsorted(piece, cuts)).tolist(), len(piece)] for piece in pieces]
    for at in range(len(cuts) + 1):
        spans = zip(pieces, places, strict=True)
        keys = device.concatenate([piece[place[at] : place[at + 1]] for piece, place in spans])
        device.sort(keys)
        yield keys[_firsts(keys, device)]


def _weights(seed: int, n: int) -> np.ndarray:
    """Return the weights of a block, less 1: uint64.

    Rejects 2 of 2**32 words, so that 255 divides the rest.
    """
    spare = 64
    words = np.random.RandomState(seed).randint(0, WORDS, n + spare, np.uint32)
    return (words[words < WORDS - 2][:n] % np.uint32(255)).astype(np.uint64)


def sources(graph: GapGraph) -> Iterator[int]:
    """Yield the sources of gapbs's searches, without end: random vertices with an edge."""
    device = graph.device
    if not len(graph):
        raise InvalidOption("the graph has no edges; choose a larger scale")
    generator = np.random.RandomState(SEED)
    while True:
        drawn = generator.randint(0, WORDS, 256, np.uint32) & np.uint32(graph.n_vertices - 1)
        yield from drawn[device.to_host(graph.degrees[device.asarray(drawn)]) > 0].tolist()


# ---- std::shuffle ----------------------------------------------------------------------------------------------------


def shuffled(n: int, device: Device) -> Array:
    """Return 0 .. n - 1 as ``std::shuffle`` of libstdc++ leaves them with ``std::mt19937(SEED)``: int64[n].

    O(n log n).
    """
    if n < PAIRED:
        return _after_swaps(device.asarray(_swaps(n)), device.xp)
    places = device.zeros(n, np.int64)
    load(device, DRAW).DrawSwaps(1, n=n, seed=SEED, places=places)
    return _after_swaps(places, device.xp)


def _swaps(n: int) -> np.ndarray:
    """Return for each place i the place that step i swaps it with: int64[n], at most i.

    For `n` below `PAIRED`.
    """
    # An even length begins with a single draw.
    targets = np.zeros(n, np.int64)
    if n < 2:
        return targets
    words = iter(np.random.RandomState(SEED).randint(0, WORDS, 2 * n + 64, np.uint32).tolist())
    at = 1 + (n % 2 == 0)
    if at == 2:
        targets[1] = _below(2, words)
    for i in range(at, n, 2):  # two places by one draw
        targets[i], targets[i + 1] = divmod(_below((i + 1) * (i + 2), words), i + 2)
    return targets


def _below(size: int, words: Iterator[int]) -> int:
    """Draw a random number below `size`, like ``std::uniform_int_distribution``."""
    for word in words:
        if word * size % WORDS >= (WORDS - size) % size:
            return word * size // WORDS
    raise AssertionError("a draw is refused with less than an even chance")


def _after_swaps(target: Array, xp: Any) -> Array:
    """Apply the swaps of place i with place ``target[i] <= i``, for i = 0, 1, 2 ...

    Returns the final contents. Step i puts i at its target, and the target's value at place i. So the value at a place
    before step t is the last step before t with that place as its target; without such a step, it is the value at
    ``target[place]`` before step `place`.
    """
    # Sort the steps by target.
    n = len(target)
    steps = xp.sort(target * n + xp.arange(n))
    values, place, before, open_ = xp.empty(n, np.int64), xp.arange(n), xp.full(n, n), xp.arange(n)

    # Look up each open place; places without an earlier step move on to their target.
    while len(open_):
        last = steps[xp.maximum(xp.searchsorted(steps, place * n + before) - 1, 0)]
        here = (last // n == place) & (last < place * n + before)
        values[open_[here]] = last[here] % n
        open_, place = open_[~here], place[~here]
        place, before = target[place], place
    return values
