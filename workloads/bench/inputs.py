"""The inputs of the benchmarks: the same edges for every structure, made on the device, and a hash to compare them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.sources.rmat import Rmat
from mgraph.structures import Structure, parse
from workloads.inputs.generators import SHAPES, Drawn, Generator, of_shape

__all__ = [
    "Edges",
    "add_graph_arguments",
    "chosen_structures",
    "degree_order",
    "distinct",
    "filled",
]

CHUNK = 1 << 26  #: edges drawn at once where array operations draw them, 40 bytes of scratch each


def add_graph_arguments(parser: argparse.ArgumentParser, structures: str = "gpma+,csr") -> None:
    """Declare which graph and which structures."""
    add = parser.add_argument
    add(
        "--structure",
        default=structures,
        metavar="A,B",
        help="the structures to compare, with options as in slabgraph:slab=32 (default: %(default)s)",
    )
    add("--scale", type=int, default=18, metavar="S", help="2**S vertices (default: %(default)s)")
    add("--edge-factor", type=int, default=16, metavar="F", help="F * 2**S edges drawn (default: %(default)s)")
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--uniform", action="store_true", help="uniform random edges instead of RMAT .57/.19/.19/.05")
    shape.add_argument("--shape", choices=SHAPES, help="another shape of graph: road-like, or with one hub")
    add("--seed", type=int, default=1, help="of the edges (default: %(default)s)")


def chosen_structures(options: argparse.Namespace, others: tuple[str, ...] = ()) -> list[str]:
    """The names in `--structure`, "csr" first, which is the oracle and is always included."""
    asked = list(dict.fromkeys(name for name in options.structure.split(",") if name))
    for name in asked:
        if name not in others:
            parse(name)
    return ["csr", *(name for name in asked if name != "csr")]


class Edges:
    """An endless numbered sequence of random edges with shuffled ids and with repeats.

    Parameters
    ----------
    options : argparse.Namespace
        With scale, edge_factor, uniform or shape, and seed.
    device : Device
        The device on which they are made.
    """

    def __init__(self, options: argparse.Namespace, device: Device) -> None:
        shape = getattr(options, "shape", None) or ("uniform" if options.uniform else "rmat")
        self.generator: Drawn = of_shape(shape, options.scale, options.edge_factor, options.seed)
        self.device = device

    @property
    def n_vertices(self) -> int:
        """How many vertices."""
        return self.generator.n_vertices

    @property
    def n_edges(self) -> int:
        """edge_factor * 2**scale."""
        return self.generator.n_edges

    def between(self, start: int, stop: int) -> tuple[Array, Array]:
        """The edges numbered start .. stop - 1, uint32 each; one launch where a kernel draws them."""
        if isinstance(self.generator, Generator):
            return self.source(start, stop - start)(0, 1, 0, self.device)
        xp = self.device.xp
        parts = [self.generator.edges(at, min(at + CHUNK, stop), xp) for at in range(start, stop, CHUNK)]
        src, dst = zip(*parts, strict=True)
        return xp.concatenate(src), xp.concatenate(dst)

    def source(self, first: int, size: int) -> Rmat:
        """A source of the edges from `first` on, `size` for each rank and step of an ingest."""
        made = self.generator
        if not isinstance(made, Generator):
            raise InvalidOption("only recursive-matrix graphs are drawn on the workers")
        return Rmat(made.scale, size, made.seed, made.quadrants, first=first)

    def batches(self, start: int, size: int, count: int) -> Iterator[tuple[Array, Array]]:
        """`count` batches of `size` edges each, from number `start` on."""
        for k in range(count):
            yield self.between(start + k * size, start + (k + 1) * size)


def filled(
    structure: Structure, src: Array, dst: Array, parts: int = 1, mirrored: bool = False, weight: Array = None
) -> Structure:
    """`structure`, built from the first of `parts` equal parts of the edges, the others inserted as batches.

    Where `mirrored`, each edge goes both ways.
    """
    concatenate = structure.device.xp.concatenate
    ends = [len(src) * k // parts for k in range(parts + 1)]
    for first, end in pairwise(ends):
        there, back = src[first:end], dst[first:end]
        weights = None if weight is None else weight[first:end]
        if mirrored:
            there, back = concatenate([there, back]), concatenate([back, there])
            weights = None if weights is None else concatenate([weights, weights])
        (structure.apply if first else structure.build)(EdgeBatch(there, back, weights))
    return structure


def degree_order(src: Array, dst: Array, n_vertices: int, xp: Any) -> Array:
    """New ids by descending degree, in and out together, repeats counted: uint32[n_vertices]."""
    degree = xp.bincount(src, minlength=n_vertices) + xp.bincount(dst, minlength=n_vertices)
    order = xp.argsort(-degree)
    ids = xp.empty(n_vertices, np.uint32)
    ids[order] = xp.arange(n_vertices, dtype=np.uint32)
    return ids


def distinct(keys: Array, xp: Any) -> Array:
    """Sorted keys without repeats. ``numpy.unique`` is no choice: NumPy 2.4 hashes, which took 30 s for 10M keys."""
    keep = xp.ones(len(keys), bool)
    keep[1:] = keys[1:] != keys[:-1]
    return keys[keep]
