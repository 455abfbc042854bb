"""Vertices within k edges of each source: up to 64 bit-parallel searches at a time (`paths.bit_parallel_bfs`).

Each level appends a row per pair of a search and a vertex that it reaches, so memory grows with the result only.
"""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Algorithm, Columns, GraphFacts, Names, Runs, Shard, Vertices
from mgraph.algorithms.paths.bit_parallel_bfs.search import LEVELS, SEARCHES, BitParallelBfs, warm
from mgraph.checks import check_whole
from mgraph.structures import Csr

__all__ = ["ALGORITHM", "k_hop", "run", "warm"]

FEW = 256  #: mean vertices per part from which the parts are sorted one after another


def k_hop(self: Runs[Any], sources: Any, k: int) -> Csr:
    """Return the vertices within `k` edges of each of `sources`, the source included, with their distances.

    Parameters
    ----------
    sources : array-like, shape (s,)
        Vertices, by id or key; repeats are allowed.
    k : int
        The largest number of edges, 0 or more.

    Returns
    -------
    Csr
        In this process. Row i has the vertices for ``sources[i]``, nearest first, and by ascending id at equal
        distance: ``dst``, uint32[m], and ``hop``, int32[m], the number of edges from the source.

    Raises
    ------
    UnknownVertex
        A source is not a vertex of the graph.
    InvalidOption
        `sources` is empty or no array of whole numbers, or `k` is negative.
    CapacityError
        A worker has too little memory: 40 bytes per vertex of the whole graph, and 40 per vertex found.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    64 searches run at a time, as in `distances`, in `k` supersteps at most. Only the vertices found travel to this
    process, which sorts them. The algorithm is that of M. Then et al., "The more the merrier: efficient multi-source
    graph traversal", PVLDB 8(4), 2014.

    Examples
    --------
    >>> g.insert([0, 1, 2], [1, 2, 3])  # doctest: +SKIP
    >>> rows = g.k_hop([0, 2], 2)  # doctest: +SKIP
    >>> rows.offsets, rows.dst, rows.hop  # doctest: +SKIP
    (array([0, 3, 5]), array([0, 1, 2, 2, 3], dtype=uint32), array([0, 1, 2, 0, 1], dtype=int32))
    """
    rows: Csr = self.run("k_hop", sources=sources, k=k)
    return rows


def check(graph: GraphFacts, sources: Any, k: Any) -> dict[str, Any]:
    """Convert the user's arguments to the program's."""
    vertices = Vertices(graph.vertices(sources, "sources"))
    return {"sources": vertices, "k": min(check_whole(k, "k"), sys.maxsize)}


def result(columns: dict[str, list[np.ndarray]], info: dict[str, Any], names: Names) -> Csr:
    """Sort the rows of all ranks by source, distance and id."""
    vertex, counts, hop_of = (np.concatenate(columns[name]) for name in ("vertex", "counts", "hops"))
    rows, hops = info["rows"], int(hop_of.max(initial=0)) + 1
    if rows == 1 and len(counts) * FEW <= len(vertex):  # sort the vertices of each distance
        starts = np.concatenate([[0], np.cumsum(counts)])
        by_hop = np.argsort(hop_of, kind="stable")
        vertex = np.concatenate([vertex[starts[i] : starts[i + 1]] for i in by_hop])
        found = np.zeros(hops, np.int64)
        np.add.at(found, hop_of, counts)
        for first, end in pairwise([0, *np.cumsum(found).tolist()]):
            vertex[first:end].sort()
        return Csr(np.array([0, len(vertex)]), names(vertex), hop=np.repeat(np.arange(hops, dtype=np.int32), found))

    row = np.concatenate(columns["row"]) if rows > 1 else np.zeros(len(vertex), np.uint32)
    hop = np.repeat(hop_of, counts)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=rows), out=offsets[1:])
    if rows * hops <= 2**32:  # one number for each row, which NumPy sorts many times faster
        numbers = (row.astype(np.int64) * hops + hop).astype(np.uint64) << np.uint64(32) | vertex.astype(np.uint64)
        numbers.sort()
        vertex, hop = numbers.astype(np.uint32), (numbers >> np.uint64(32)).astype(np.int64) % hops
    else:
        order = np.lexsort((vertex, hop, row))
        vertex, hop = vertex[order].astype(np.uint32), hop[order]
    return Csr(offsets, names(vertex), hop=hop.astype(np.int32))


def run(shard: Shard, sources: np.ndarray, k: int) -> Columns:
    """Return the own vertices within `k` edges of each of `sources`.

    Parameters
    ----------
    shard : Shard
    sources : uint32[s]
        Internal ids; the same on every rank.
    k : int
        The largest number of edges.

    Returns
    -------
    columns : dict
        A row per source and own vertex within k edges: "vertex", uint32[found], the internal id; "row", uint32[found],
        the index of the source in `sources`, empty for a single one. The rows come in parts of one distance, in any
        order within a part: "counts", int64[parts], their lengths; "hops", int64[parts], the numbers of edges.
    scalars : dict
        ``rows``, the number of sources.

    Raises
    ------
    CapacityError
        Too little memory for twice the result, 16 bytes per row, for the words and lists of `BitParallelBfs`, and
        1 / 64 byte per edge for hubs' tasks.
    """
    device = shard.device
    if len(sources) == 1:
        searches, sizes, more = BitParallelBfs(shard, sources, keeps=True), list[int](), True
        while more and len(sizes) <= k:
            more = searches.run(min(k, len(sizes) + LEVELS - 1))
            sizes += searches.counted()
        found = {"vertex": searches.found(), "row": device.empty(0, np.uint32)}
        return found | {"counts": np.array(sizes), "hops": np.arange(len(sizes))}, {"rows": 1}

    # Append the vertices of each level of each batch of searches.
    vertices, rows, counts, hops = [device.empty(0, np.uint32)], [device.empty(0, np.uint32)], [0], [0]
    for first in range(0, len(sources), SEARCHES):
        searches, hop = BitParallelBfs(shard, sources[first : first + SEARCHES]), 0
        while hop <= k and searches.run(hop):
            vertex, row = searches.reached(first)
            vertices.append(device.astype(vertex, np.uint32))
            rows.append(device.astype(row, np.uint32))
            counts.append(len(vertex))
            hops.append(hop)
            hop += 1

    # Join the levels.
    found = {"vertex": device.concatenate(vertices), "row": device.concatenate(rows)}
    return found | {"counts": np.array(counts), "hops": np.array(hops)}, {"rows": len(sources)}


ALGORITHM = Algorithm(
    name="k_hop",
    check=check,
    run=run,
    columns={"vertex": "vertex", "row": "value", "counts": "value", "hops": "value"},
    scalars=("rows",),
    warm=warm,
    result=result,
)
