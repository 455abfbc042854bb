"""Inputs of the benchmarks: the same edges for every structure, drawn on the device, and orders of their vertices."""

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
from workloads.inputs.worker_edges import WorkerEdges, edges_between

__all__ = [
    "Edges",
    "add_graph_arguments",
    "chosen_structures",
    "degree_order",
    "filled",
]


def add_graph_arguments(parser: argparse.ArgumentParser, structures: str = "gpma+,csr") -> None:
    """Declare the graph and the structures."""
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
    shape.add_argument("--shape", choices=SHAPES, help="another shape: road-like, with one hub, communities, or a grid")
    add("--seed", type=int, default=1, help="of the edges (default: %(default)s)")


def chosen_structures(options: argparse.Namespace, accepted: tuple[str, ...] = ()) -> list[str]:
    """Return the names in `--structure`, after "csr", the oracle."""
    names = list(dict.fromkeys(name for name in options.structure.split(",") if name))
    for name in names:
        if name not in accepted:
            parse(name)
    return ["csr", *(name for name in names if name != "csr")]


class Edges:
    """Endless numbered sequence of random edges, with shuffled ids and with repeats.

    Parameters
    ----------
    options : argparse.Namespace
        With scale, edge_factor, uniform or shape, and seed.
    device : Device
        The device that draws them.
    """

    def __init__(self, options: argparse.Namespace, device: Device) -> None:
        self.shape: str = getattr(options, "shape", None) or ("uniform" if options.uniform else "rmat")
        self.generator: Drawn = of_shape(self.shape, options.scale, options.edge_factor, options.seed)
        self.device = device

    @property
    def n_vertices(self) -> int:
        """The number of vertices."""
        return self.generator.n_vertices

    @property
    def n_edges(self) -> int:
        """The number of edges, with repeats: edge_factor * 2**scale, or a grid's."""
        return self.generator.n_edges

    def between(self, start: int, stop: int) -> tuple[Array, Array]:
        """Return the edges numbered start .. stop - 1, uint32 each.

        One launch if a kernel draws them.
        """
        return edges_between(self.generator, start, stop, self.device)

    def on_workers(self, first: int, size: int, weighted: bool = False) -> WorkerEdges:
        """Return a source of the edges from `first` on, `size` per rank and step of an ingest."""
        return WorkerEdges(self.generator, size, first, weighted)

    def source(self, first: int, size: int) -> Rmat:
        """Return the same source of a recursive-matrix graph, whose parameters a replay needs."""
        generator = self.generator
        if not isinstance(generator, Generator):
            raise InvalidOption("only recursive-matrix graphs are drawn on the workers")
        return Rmat(generator.scale, size, generator.seed, generator.quadrants, first=first)

    def batches(self, start: int, size: int, count: int) -> Iterator[tuple[Array, Array]]:
        """Yield `count` batches of `size` edges each, from number `start` on."""
        for k in range(count):
            yield self.between(start + k * size, start + (k + 1) * size)


def filled(
    structure: Structure, src: Array, dst: Array, parts: int = 1, mirrored: bool = False, weight: Array = None
) -> Structure:
    """Fill `structure` with the edges, in `parts` equal parts: the first builds it, the others are batches.

    With `mirrored`, each edge goes both ways.
    """
    concatenate = structure.device.xp.concatenate
    ends = [len(src) * k // parts for k in range(parts + 1)]
    for first, end in pairwise(ends):
        out, back = src[first:end], dst[first:end]
        weights = None if weight is None else weight[first:end]
        if mirrored:
            out, back = concatenate([out, back]), concatenate([back, out])
            weights = None if weights is None else concatenate([weights, weights])
        (structure.apply if first else structure.build)(EdgeBatch(out, back, weights))
    return structure


def degree_order(src: Array, dst: Array, n_vertices: int, xp: Any) -> Array:
    """Return new ids by descending degree, in and out together, repeats counted: uint32[n_vertices]."""
    degree = xp.bincount(src, minlength=n_vertices) + xp.bincount(dst, minlength=n_vertices)
    order = xp.argsort(-degree)
    ids = xp.empty(n_vertices, np.uint32)
    ids[order] = xp.arange(n_vertices, dtype=np.uint32)
    return ids
