"""The papers' graphs as streams of unique edges: drawn stand-ins, and real graphs from files.

Edges without times get random ones, so a stream is the edges in random order. A drawn stand-in has a paper's numbers of
vertices (the next power of two) and edges and its kind of degrees: ``rmat`` for social and web graphs, ``road`` for
roads and meshes, ``uniform`` for random geometric graphs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mgraph.device import Array, Device
from mgraph.distinct import distinct
from mgraph.splitmix import splitmix
from workloads.inputs.generators import of_shape
from workloads.inputs.readers import read

__all__ = ["Real", "StandIn", "Stream"]

CHUNK = 1 << 24
SMALLEST = 6  #: the smallest scale of a stand-in
ROUNDS = 4  #: rounds of drawing, each to replace the repeats


@dataclass(frozen=True, eq=False)
class Stream:
    """Unique directed edges in stream order: uint32[m] each, on `device`."""

    name: str
    n_vertices: int
    src: Array
    dst: Array
    device: Device

    def __len__(self) -> int:
        return len(self.src)

    def between(self, start: int, stop: int) -> tuple[Array, Array]:
        """Return the edges start .. stop - 1."""
        return self.src[start:stop], self.dst[start:stop]


@dataclass(frozen=True)
class StandIn:
    """Drawn graph in place of a paper's.

    Attributes
    ----------
    name : str
        The paper's name of its graph.
    shape : str
        One of `workloads.inputs.generators.SHAPES`.
    vertices, edges : int
        The paper's numbers.
    """

    name: str
    shape: str
    vertices: int
    edges: int

    def stream(self, device: Device, divide: int, seed: int, folder: Path | None) -> Stream | None:
        """Return the stream with both numbers divided by `divide`, or fewer edges if most are repeats."""
        # Divide the sizes.
        xp = device.xp
        scale = max(math.ceil(math.log2(max(self.vertices // divide, 2))), SMALLEST)
        wanted = max(self.edges // divide, 1)
        drawn = of_shape(self.shape, scale, 1, seed)
        keys, at = xp.empty(0, np.uint64), 0

        # Draw edges until there are enough without repeats.
        for _ in range(ROUNDS):
            stop = at + wanted - len(keys)
            parts = [drawn.edges(start, min(start + CHUNK, stop), xp) for start in range(at, stop, CHUNK)]
            keys = xp.concatenate([keys, *(src.astype(np.uint64) << np.uint64(32) | dst for src, dst in parts)])
            keys.sort()
            keys, at = distinct(keys), stop
        return _shuffled(f"{self.name} ({self.shape})", 1 << scale, keys, device, seed)


@dataclass(frozen=True)
class Real:
    """Real graph, ``NAME.npz`` in the folder of data, ordered by its times if it has any."""

    name: str

    def stream(self, device: Device, divide: int, seed: int, folder: Path | None) -> Stream | None:
        """Return the whole graph, whatever `divide` is; None if the file is absent."""
        path = None if folder is None else folder / f"{self.name}.npz"
        if path is None or not path.exists():
            return None
        # Order the edges by their first times.
        edges = read(path).in_order()
        keys = edges.src.astype(np.uint64) << np.uint64(32) | edges.dst
        if edges.t is None:
            return _shuffled(self.name, edges.n_vertices, device.asarray(distinct(keys)), device, seed)
        unique, first = np.unique(keys, return_index=True)
        keys = unique[np.argsort(first)]
        src, dst = (device.asarray(part.astype(np.uint32)) for part in (keys >> np.uint64(32), keys))
        return Stream(self.name, edges.n_vertices, src, dst, device)


def _shuffled(name: str, n: int, keys: Array, device: Device, seed: int) -> Stream:
    """Return distinct keys in random order."""
    xp = device.xp
    keys = keys[xp.argsort(splitmix(xp.arange(len(keys), dtype=np.uint64), seed))]
    return Stream(name, n, (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32), device)
