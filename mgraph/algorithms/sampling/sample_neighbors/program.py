"""Neighbours sampled hop by hop, each vertex at its owner.

A neighbour gets a random number, a hash of the seed and the two ids, and the `fanout` smallest are chosen, so that all
sets are equally likely. A row is read once to count the candidates, which are below a bound with an expected twice as
many as wanted, and once to take them; then the candidates are sorted.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
a hop             3, two sorts and a unique; a read-back                    an alltoallv of 4 bytes per vertex found
================= ========================================================= ===========================================
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, incoming, kernels
from mgraph.algorithms.primitives.user_ids import user_ids
from mgraph.device import Array
from mgraph.kernels import Library, constants
from mgraph.structures import Structure

__all__ = ["run", "warm"]

_FILE = "algorithms/sampling/sample_neighbors/sample.cuh"
ROW_TILES = constants(_FILE)["row_tiles"]  #: tiles of a GPU that read a row together


def _library(shard: Shard, edges: Structure) -> Library:
    return kernels(shard, _FILE, edges.view())


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard.

    All its structures have one kind of view.
    """
    _library(shard, shard.out_edges)


def run(shard: Shard, seeds: np.ndarray, fanouts: list[int], seed: int, direction: str = "in") -> Columns:
    """Return the sampled edges of own vertices.

    Parameters
    ----------
    shard : Shard
    seeds : uint32[k]
        Internal ids, all different; equal on every rank.
    fanouts : list of int
        The number of neighbours to choose per vertex, for each hop; -1 for all.
    seed : int
    direction : "in" | "out"
        Among the sources of in-edges, or the destinations of out-edges.

    Returns
    -------
    columns : dict
        A line per own seed, and per sampled edge of an own vertex: "vertex" and "neighbor", int64[rows], internal ids,
        equal for a seed; "hop", int64[rows], 0 for a seed; "place", int64[rows], a seed's place in `seeds`, else 0.
    scalars : dict
        ``hops``.
    """
    # Begin with the own seeds.
    device, xp = shard.device, shard.device.xp
    edges = shard.out_edges if direction == "out" else incoming(shard, "sample_neighbors")
    names = None if shard.order is None else user_ids(shard)
    own = np.flatnonzero((seeds >= shard.lo) & (seeds < shard.hi))
    frontier, seen = device.asarray(seeds[own]), device.zeros(shard.hi - shard.lo, np.uint8)
    edges_of_hops = [(frontier, frontier)]

    # Hop by hop: sample, then send new vertices to their owners.
    for fanout in fanouts:
        seen[frontier - np.uint32(shard.lo)] = 1
        vertex, neighbor = _sampled(shard, edges, frontier, names, seed, fanout)
        edges_of_hops.append((vertex, neighbor))
        with device.taking(16 * len(neighbor), f"{len(neighbor)} neighbours, each once"):
            near = _by_owners(shard, xp.unique(neighbor))
            frontier = near[seen[near - np.uint32(shard.lo)] == 0]

    # Lay out the columns.
    place = device.zeros(sum(len(vertex) for vertex, _ in edges_of_hops), np.int64)
    place[: len(own)] = device.asarray(own)
    columns = {
        "vertex": device.astype(device.concatenate([vertex for vertex, _ in edges_of_hops]), np.int64),
        "neighbor": device.astype(device.concatenate([neighbor for _, neighbor in edges_of_hops]), np.int64),
        "hop": device.concatenate(
            [device.full(len(vertex), hop, np.int64) for hop, (vertex, _) in enumerate(edges_of_hops)]
        ),
        "place": place,
    }
    return columns, {"hops": len(fanouts)}


def _by_owners(shard: Shard, ascending: Array) -> Array:
    """Send vertices to their owners, and return those that came, each once. An alltoallv and a read-back."""
    if shard.size == 1:
        return ascending
    device, xp = shard.device, shard.device.xp
    starts = device.asarray(np.asarray(shard.partition.starts[:-1], np.uint32))
    cuts = [*device.to_host(xp.searchsorted(ascending, starts)).tolist(), len(ascending)]
    return xp.unique(device.concatenate(shard.exchange.alltoallv([ascending[a:b] for a, b in pairwise(cuts)])))


def _sampled(
    shard: Shard, edges: Structure, frontier: Array, names: Array, seed: int, fanout: int
) -> tuple[Array, Array]:
    """Return the vertex and the neighbour of each sampled edge: uint32[k] each."""
    # Count the candidates of each vertex, and list them.
    device, xp, n = shard.device, shard.device.xp, len(frontier)
    library = _library(shard, edges)
    lottery = {"first": shard.lo, "fanout": fanout, "seed": seed, "names": names}
    common = {"graph": edges.view(), "vertices": frontier, "n": n, "lottery": lottery}
    offsets = device.zeros(n + 1, np.int64)
    library.CountCandidates(n * ROW_TILES, counts=offsets[1:], **common)
    library.TakeAll(n, counts=offsets[1:], **common)
    device.cumsum(offsets, out=offsets)
    total = int(offsets[-1])
    rows, draws, ids = (device.empty(total, dtype) for dtype in (np.uint32, np.uint64, np.uint32))
    taken = device.zeros(n, np.int64)
    library.TakeCandidates(n * ROW_TILES, offsets=offsets, taken=taken, rows=rows, draws=draws, ids=ids, **common)

    # Keep the `fanout` smallest draws of each vertex.
    if fanout >= 0:
        with device.taking(40 * total, f"the order of {total} candidates"):
            order = xp.argsort(draws, kind="stable")
            order = order[xp.argsort(rows[order], kind="stable")]
            rows = rows[order]
            chosen = device.arange(0, total, np.int64) - offsets[rows] < fanout
            rows, ids = rows[chosen], ids[order][chosen]
    return device.gather(frontier, rows), ids
