"""Betweenness centrality on each rank: Brandes' algorithm, source by source.

For each source, a breadth-first search finds the level of each vertex. A second program that all ranks run together
(`brandes.cuh`, `mgraph.exchange.world`) sorts each rank's own vertices by level. Then, level by level, each vertex
counts its shortest paths as the sum over its in-neighbours in the level before. Backwards from the last level, it sums
its share of the paths through its out-neighbours in the level after. Its owner writes the result to all ranks: a bit
and 8 bytes each way. So a level costs one meeting of the ranks each way, and another two where it has rows of high
degree.

Sums are float64 and pulled, so that they do not depend on timing. Numbers of paths have an exponent of their own, which
travels where it is not 0: a grid of 4096 x 4096 has about 2^8184 paths from corner to corner, and float64 ends at
2^1024.

If the graph is directed and does not store in-edges, `transposed` makes them once for all sources. On a GPU
`compact_rows` copies rows with gaps once for all sources.

References
----------
.. [1] U. Brandes, "A faster algorithm for betweenness centrality", J. Mathematical Sociology 25(2), 2001.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Columns, Shard, kernels, task_room
from mgraph.algorithms.paths import bfs
from mgraph.algorithms.primitives.bitmaps import words_of
from mgraph.algorithms.primitives.compact_csr import compact_rows, compact_rows_sample
from mgraph.algorithms.primitives.transpose import CsrRows, sample_rows, transposed
from mgraph.errors import CapacityError
from mgraph.kernels import Library, View
from mgraph.structures import Structure

__all__ = ["run", "warm"]


def _library(shard: Shard, view: View) -> Library:
    return kernels(shard, "algorithms/centrality/betweenness/brandes.cuh", view)


def warm(shard: Shard) -> None:
    """Compile the kernels of `run` for this shard."""
    bfs.ALGORITHM.warm(shard)
    rows = sample_rows(shard.device) if shard.in_edges is None else compact_rows_sample(shard, shard.in_edges)
    _library(shard, rows.view())


def _rows(shard: Shard) -> list[Structure | CsrRows]:
    """Return the out-edges and in-edges of the own vertices, in the same kind of rows."""
    out = compact_rows(shard, shard.out_edges)
    if shard.in_edges is shard.out_edges:
        return [out, out]
    back = transposed(shard) if shard.in_edges is None else compact_rows(shard, shard.in_edges)
    if back is None:
        raise CapacityError("there is too little memory to make in-edges; create the graph with reverse=True")
    if out.view().type == back.view().type:
        return [out, back]
    return [edges if isinstance(edges, CsrRows) else _csr(edges) for edges in (out, back)]


def _csr(edges: Structure) -> CsrRows:
    csr = edges.to_csr()
    return CsrRows(csr.offsets, csr.dst)


class _Brandes:
    """A rank's state for all sources."""

    def __init__(self, shard: Shard) -> None:
        # In-edges sum forward, out-edges backward.
        self.shard, self.device, self.world = shard, shard.device, shard.exchange.world(shard.device)
        rows, own = _rows(shard), shard.hi - shard.lo
        views = [edges.view() for edges in rows]
        self.kernels, self.items = _library(shard, views[0]), 1 + sum(own + edges.num_edges for edges in rows) // 512

        # Allocate the sums, and the tasks of rows of high degree.
        room = max(map(task_room, rows))
        self.total = self.device.zeros(own, np.float64)
        tasks, parts, powers = self.device.carve((room, np.uint64), (room, np.float64), (room, np.int32))
        self.fields = {"graph": views[0], "back": views[1], "total": self.total}
        self.fields |= {"tasks": tasks, "parts": parts, "part_powers": powers}

        # Lay out what all ranks write: 12.5 bytes per vertex of the graph. Before the first search, whose region is
        # smaller, so that the regions grow once.
        n, widest = shard.n_vertices, shard.partition.widest
        self.words = words_of(n) + 1
        self.arrays: dict[str, Any] = {"values": 8 * n, "powers": 4 * n, "near": 4 * 4 * self.words, "list": 4 * widest}
        self.world.layout(shard.partition, 0, **self.arrays)

    def add(self, source: int) -> None:
        """Add the dependencies of a source."""
        columns, info = bfs.ALGORITHM.run(self.shard, source=source)
        levels = info["levels"]
        if levels < 3:
            return  # no vertex lies between two others
        layout = self.world.layout(self.shard.partition, 0, **self.arrays)
        offsets = {f"{name}_offset": offset for name, offset in layout.offsets.items()}
        self.world.run(
            self.kernels, "Brandes", layout, self.items, source=source, levels=levels, level=columns["distance"],
            firsts=self.device.empty(levels + 1, np.int64), near_words=self.words, **offsets, **self.fields,
        )  # fmt: skip


def run(shard: Shard, sources: np.ndarray | None, factor: float, source_factor: float) -> Columns:
    """Return the betweenness centrality of the own vertices.

    Parameters
    ----------
    shard : Shard
    sources : uint32[k] or None
        Internal ids of the sources, no repeats, the same on every rank; None for all vertices.
    factor, source_factor : float
        Factors of the sums of vertices and of sources.

    Returns
    -------
    columns : dict
        "centrality", float64[hi - lo] on the shard's device.
    scalars : dict
        ``sources``, their number.

    Raises
    ------
    CapacityError
        Too little memory: 13 bytes per vertex of the whole graph, 12 per owned vertex and 8 per level, a search, 1 / 25
        byte per edge for hubs' tasks and, in directed graphs without in-edges, the memory of `transposed`. Where ranks
        do not map each other's memory, also 16 bytes per vertex of the largest level.

    Notes
    -----
    O(n + m) per source. The result does not depend on timing, bit for bit. Its last digits
    depend on the structure and the number of ranks.
    """
    # Add up the sources.
    brandes = _Brandes(shard) if shard.n_vertices else None
    chosen = range(shard.n_vertices) if sources is None else sources.tolist()
    for source in chosen:
        assert brandes is not None
        brandes.add(source)
    total = brandes.total if brandes is not None else shard.device.empty(0, np.float64)

    # Scale the sums; sources have a factor of their own.
    if sources is not None and source_factor != factor:
        own = sources[(sources >= shard.lo) & (sources < shard.hi)].astype(np.int64) - shard.lo
        own = shard.device.asarray(own)
        kept = total[own] * source_factor
        total *= factor
        total[own] = kept
    else:
        total *= factor
    return {"centrality": total}, {"sources": len(chosen)}
