"""Neighbours sampled hop by hop, each vertex at its owner.

A neighbour gets a random number, a hash of the seed and the two ids, and the `fanout` smallest are chosen, so that all
sets are equally likely. Each row is read once, for candidates: numbers below a bound, with an expected twice as many as
wanted. Then a tile chooses among them. If they are too few or too many, it reads the row again, several times.

All ranks get all sampled edges of a hop, and number the new nodes alike, in a hash table. So each rank knows its own
vertices of the next hop, with their places, and rank 0 has the whole sample in the user's layout.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
a hop             7, a sum, a sort; two read-backs; on rank 0 another sort  an all-gather of 8 bytes per sampled edge
================= ========================================================= ===========================================
"""

from __future__ import annotations

import math

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, incoming, kernels
from mgraph.device import Array
from mgraph.errors import CapacityError
from mgraph.kernels import Library, constants
from mgraph.structures import Structure

__all__ = ["run", "warm"]

_FILE = "algorithms/sampling/sample_neighbors/sample.cuh"
ROW_TILES = constants(_FILE)["row_tiles"]  #: tiles of a GPU that read a row together
MOST_NODES = 1 << 31  #: most nodes: places have one bit less than ids


def _library(shard: Shard, edges: Structure) -> Library:
    return kernels(shard, _FILE, edges.view())


def warm(shard: Shard) -> None:
    """Compile the launches of `run` on this shard.

    All its structures have one kind of view.
    """
    _library(shard, shard.out_edges)


def run(shard: Shard, seeds: np.ndarray, fanouts: list[int], seed: int, direction: str = "in") -> Columns:
    """Return the sample, all of it on rank 0.

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
        "node", uint32[n], the users' ids of the nodes; "row" and "col", uint32[m], the edges as places among them. No
        rows on other ranks than 0.
    scalars : dict
        ``nodes`` and ``edges``: the number of seeds and of the new nodes of each hop, and of the edges of each hop.
    """
    # Begin with the seeds, in their order.
    device, xp, size = shard.device, shard.device.xp, shard.size
    edges = shard.out_edges if direction == "out" else incoming(shard, "sample_neighbors")
    library, names = _library(shard, edges), shard.names
    own = np.flatnonzero((seeds >= shard.lo) & (seeds < shard.hi)).astype(np.uint32)
    frontier, places, first = device.asarray(seeds[own]), device.asarray(own), device.asarray(seeds)
    nodes, total = [first if names is None else device.gather(names, first)], len(seeds)
    rows, cols = [device.empty(0, np.uint32)], [device.empty(0, np.uint32)]
    node_counts, edge_counts = [total], list[int]()

    for fanout in fanouts:
        # Sample the neighbours of own vertices, and gather those of all ranks.
        keys = _sampled(shard, edges, frontier, places, names, seed, fanout)
        if size > 1:
            keys = device.concatenate(shard.exchange.allgather(keys))

        # List the new nodes, in the order of their first edges.
        table = _table(shard, nodes, total, len(keys))
        listed, count = device.empty(min(len(keys), shard.n_vertices), np.uint32), device.zeros(1, np.int64)
        library.EnterNeighbors(len(keys), nodes=table, keys=keys, n=len(keys), listed=listed, count=count)
        n = int(count[0])
        firsts, ids, vertices = (device.empty(n, dtype) for dtype in (np.uint64, np.uint32, np.uint32))
        library.FirstEdges(n, nodes=table, listed=listed, n=n, keys=firsts)
        device.sort(firsts)
        library.PlaceNodes(n, nodes=table, keys=firsts, n=n, first=total, order=shard.order, ids=ids, vertices=vertices)

        # Lay out the edges, by their vertex and then by their neighbour.
        if shard.rank == 0:
            device.sort(keys)
            row, col = (device.empty(len(keys), np.uint32) for _ in range(2))
            library.EdgesOfNodes(len(keys), nodes=table, keys=keys, n=len(keys), row=row, col=col)
            rows.append(row)
            cols.append(col)
        node_counts.append(n)
        edge_counts.append(len(keys))
        if n == 0:  # later hops have no vertices
            node_counts += [0] * (len(fanouts) - len(edge_counts))
            edge_counts += [0] * (len(fanouts) - len(edge_counts))
            break

        # The next hop begins at the new nodes.
        frontier, places = vertices, device.arange(total, total + n, np.uint32)
        if size > 1:
            mine = xp.flatnonzero((vertices >= shard.lo) & (vertices < shard.hi))
            frontier, places = vertices[mine], places[mine]
        nodes.append(ids)
        total += n

    parts = (nodes, rows, cols) if shard.rank == 0 else (rows, rows, cols)
    columns = dict(zip(("node", "row", "col"), map(device.concatenate, parts), strict=True))
    return columns, {"nodes": node_counts, "edges": edge_counts}


def _table(shard: Shard, nodes: list[Array], total: int, edges: int) -> dict[str, Array]:
    """Return the hash table of the `total` nodes, with room for the neighbours of as many `edges`."""
    most = min(total + edges, shard.n_vertices)
    if most > MOST_NODES:
        raise CapacityError(f"a sample of {total} nodes and {edges} more edges; it may have {MOST_NODES} nodes")
    slots = shard.device.full(1 << (2 * most - 1).bit_length(), ~np.uint64(0), np.uint64)
    table, first = {"slots": slots, "mask": len(slots) - 1}, 0
    for ids in nodes:
        _library(shard, shard.out_edges).EnterNodes(len(ids), nodes=table, ids=ids, n=len(ids), first=first)
        first += len(ids)
    return table


def _sampled(
    shard: Shard, edges: Structure, frontier: Array, places: Array, names: Array, seed: int, fanout: int
) -> Array:
    """Return the keys of the sampled edges of own vertices, in any order: uint64[k]."""
    # Make room for the candidates of each vertex, and list them.
    device, n = shard.device, len(frontier)
    library, graph = _library(shard, edges), edges.view()
    enough, room = _candidates(fanout)
    lottery = {"first": shard.lo, "fanout": fanout, "enough": enough, "room": room, "seed": seed, "names": names}
    vertices = {"graph": graph, "vertices": frontier, "n": n, "lottery": lottery}
    words = device.zeros(2 * n + 3, np.int64)
    offsets, chosen, taken, listed = words[: n + 1], words[n + 1 : n + 2], words[n + 2 : -1], words[-1:]
    library.MakeRoom(n, counts=offsets[1:], chosen=chosen, **vertices)
    device.cumsum(offsets, out=offsets)
    total, wanted = device.to_host(words[n : n + 2]).tolist()
    draws, keys = device.empty(total, np.uint64), device.empty(wanted, np.uint64)
    library.TakeCandidates(n * ROW_TILES, offsets=offsets, taken=taken, draws=draws, **vertices)

    # Keep the `fanout` smallest draws of each vertex.
    library.Choose(n, places=places, offsets=offsets, taken=taken, draws=draws, listed=listed, keys=keys, **vertices)
    return keys


def _candidates(fanout: int) -> tuple[int, int]:
    """Return how many candidates of a long row are expected, and for how many there is room.

    It has fewer than `fanout`, or more than the room, in less than one of 10**9 rows.
    """
    enough = 2 * max(fanout, 0) + 32
    return enough, enough + 8 * math.isqrt(enough)
