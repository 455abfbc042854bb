"""Copies of a structure's rows without gaps, for calls that read all rows ten times or more.

In some structures four slots of ten hold no edge. A pass over the rows reads them too, and takes longer than one over a
CSR. The copy is freed when the call ends.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels, task_room
from mgraph.algorithms.primitives.transpose import Rows
from mgraph.structures import Structure

__all__ = ["packed", "some_packed"]

FILE = "algorithms/primitives/compact_csr.cuh"
LEAST = 1 << 20  #: edges from which a copy is made: a pass over fewer of them takes as long as its launches
SHARE = 4  #: a copy takes at most one part in so many of the memory that is left


def packed(shard: Shard, edges: Structure, weights: bool = False) -> Structure | Rows:
    """The rows of one of the shard's structures, copied where this is worth it, else the structure itself.

    Parameters
    ----------
    shard : Shard
    edges : Structure
        The shard's out-edges or in-edges.
    weights : bool
        Whether the weights are needed too, if there are some.

    Returns
    -------
    rows : Structure or Rows
        A copy only on a GPU, of a structure whose rows have gaps, and where it takes no more than a quarter of the
        memory that is left. Rows keep the order in which the structure is visited.

    Notes
    -----
    5 launches. 4 bytes an edge (8 with weights) and 8 bytes a row.
    """
    return _copy(shard, edges, weights and edges.weighted) if _worth(shard, edges) else edges


def some_packed(shard: Shard, edges: Structure) -> Structure | Rows:
    """No rows where `packed` makes a copy, else the structure: kernels compiled for their view are what a call runs."""
    if not _worth(shard, edges):
        return edges
    kernels(shard, FILE, edges.view())
    device = shard.device
    return Rows(device.zeros(1, np.int64), device.empty(0, np.uint32))


def _worth(shard: Shard, edges: Structure) -> bool:
    nbytes = (8 if edges.weighted else 4) * edges.num_edges + 8 * edges.n_rows
    gaps = shard.device.kind == "cuda" and not edges.contiguous_rows
    return gaps and edges.num_edges >= LEAST and SHARE * nbytes <= shard.device.memory_free


def _copy(shard: Shard, edges: Structure, weights: bool) -> Rows:
    device, n, m, room = shard.device, edges.n_rows, edges.num_edges, task_room(edges)
    offsets = device.zeros(n + 1, np.int64)
    device.cumsum(edges.degrees(), out=offsets[1:])
    dst, weight = device.empty(m, np.uint32), device.empty(m, np.float32) if weights else None
    library, graph, tasks = kernels(shard, FILE, edges.view()), edges.view(), device.empty(room, np.uint64)
    listed = {"graph": graph, "tasks": tasks, "n_tasks": device.zeros(1, np.int64)}
    out = {"offsets": offsets, "dst": dst, "weights": weight}
    library.PackRows(-(-n // LANES), n=n, out=out, **listed)
    places = device.empty(room, np.int64)
    library.CountLive(room, places=places, **listed)
    library.PlaceTasks(room, out=out, places=places, **listed)
    library.PackHubs(room, out=out, places=places, **listed)
    return Rows(offsets, dst, weight, edges.sorted_rows)
