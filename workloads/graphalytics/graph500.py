"""Graph500 graphs of Graphalytics' sizes: undirected, without isolated vertices, with weights."""

from __future__ import annotations

import math

import numpy as np

from mgraph.device import Device
from workloads.graphalytics.evlp import Dataset
from workloads.inputs.generators import Generator

__all__ = ["SIZES", "graph500", "scale_of"]

SIZES = {"S": 22, "M": 24, "L": 25, "XL": 26}  #: Graph500 scales of the specification's sizes
CHUNK = 1 << 24
WEIGHTS = 1 << 10  #: weights are k / WEIGHTS, exact in float32


def graph500(scale: int, device: Device, seed: int = 1) -> Dataset:
    """Draw RMAT .57/.19/.19/.05 with edge factor 16, without repeats and self-loops, on the device.

    A weight is one of 1/1024 .. 1, by a hash of the ends. Sources are drawn by the seed; iterations are 10.
    """
    # Draw the edges as keys, lesser end first.
    xp, drawn = device.xp, Generator(scale, 16, seed)
    keys = device.empty(drawn.n_edges, np.uint64)
    for at, (src, dst) in enumerate(drawn.chunks(CHUNK, xp)):
        ends = xp.minimum(src, dst).astype(np.uint64) << np.uint64(scale) | xp.maximum(src, dst)
        keys[at * CHUNK : at * CHUNK + len(src)] = ends

    # Sort, and drop self-loops and repeats.
    keys.sort()
    low, high = keys >> np.uint64(scale), keys & np.uint64(drawn.n_vertices - 1)
    keep = low != high
    keep[1:] &= keys[1:] != keys[:-1]
    low, high = low[keep], high[keep]

    # A weight is a hash of the ends.
    mixed = (low * np.uint64(0x9E3779B97F4A7C15) ^ high) * np.uint64(0xD1342543DE82EF95)
    weight = ((mixed >> np.uint64(54)) + np.uint64(1)).astype(np.float64) / WEIGHTS

    # Renumber: drop isolated vertices.
    used = xp.zeros(drawn.n_vertices, bool)
    used[low.astype(np.int64)] = used[high.astype(np.int64)] = True
    places = xp.cumsum(used) - 1
    ids = device.to_host(xp.flatnonzero(used)).astype(np.int64)

    # Draw the sources.
    bfs, sssp = (int(v) for v in np.random.default_rng(seed).choice(ids, 2))
    parameters = {
        "bfs.source-vertex": str(bfs),
        "pr.damping-factor": "0.85",
        "pr.num-iterations": "10",
        "cdlp.max-iterations": "10",
        "sssp.source-vertex": str(sssp),
        "sssp.weight-property": "weight",
    }
    src, dst = (device.to_host(places[end.astype(np.int64)].astype(np.uint32)) for end in (low, high))
    return Dataset(f"graph500-{scale}", ids, src, dst, device.to_host(weight), False, parameters)


def scale_of(graph: Dataset) -> float:
    """Return Graphalytics' scale of a graph: log10 of vertices and edges together, cut after one decimal."""
    return math.floor(10 * math.log10(max(len(graph.ids) + len(graph.src), 1))) / 10
