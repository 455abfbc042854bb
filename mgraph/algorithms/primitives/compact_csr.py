"""Copies of a structure's rows without gaps, for calls that read all rows ten times or more.

In some structures four slots of ten hold no edge. A pass over the rows reads them too, and takes longer than over a
CSR. The copy is freed when the call ends.
"""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels, task_room
from mgraph.algorithms.primitives.transpose import CsrRows
from mgraph.structures import Structure

__all__ = ["compact_rows", "compact_rows_sample"]

FILE = "algorithms/primitives/compact_csr.cuh"
LEAST = 1 << 20  #: edges from which a copy is made: a pass over fewer takes as long as its launches
SHARE = 4  #: a copy takes at most 1 / SHARE of the free memory


def compact_rows(shard: Shard, edges: Structure, weights: bool = False) -> Structure | CsrRows:
    """Return the rows of a structure of the shard: a copy if it pays, else the structure itself.

    Parameters
    ----------
    shard : Shard
    edges : Structure
        The shard's out-edges or in-edges.
    weights : bool
        Copy the weights too, if there are some.

    Returns
    -------
    rows : Structure or CsrRows
        A copy only on a GPU, of a structure whose rows have gaps, and if it takes no more than a quarter of the free
        memory. Rows keep the order in which the structure is visited.

    Notes
    -----
    5 launches. 4 bytes per edge (8 with weights) and 8 bytes per row.
    """
    return _copy(shard, edges, weights and edges.weighted) if _worth(shard, edges) else edges


def compact_rows_sample(shard: Shard, edges: Structure) -> Structure | CsrRows:
    """Return an empty CSR if `compact_rows` makes a copy, else the structure: a call runs the kernels for its view."""
    if not _worth(shard, edges):
        return edges
    kernels(shard, FILE, edges.view())
    device = shard.device
    return CsrRows(device.zeros(1, np.int64), device.empty(0, np.uint32))


def _worth(shard: Shard, edges: Structure) -> bool:
    nbytes = (8 if edges.weighted else 4) * edges.num_edges + 8 * edges.n_rows
    gaps = shard.device.kind == "cuda" and not edges.contiguous_rows
    return gaps and edges.num_edges >= LEAST and SHARE * nbytes <= shard.device.memory_free


def _copy(shard: Shard, edges: Structure, weights: bool) -> CsrRows:
    # Place the rows.
    device, n, m, room = shard.device, edges.n_rows, edges.num_edges, task_room(edges)
    offsets = device.zeros(n + 1, np.int64)
    device.cumsum(edges.degrees(), out=offsets[1:])
    dst, weight = device.empty(m, np.uint32), device.empty(m, np.float32) if weights else None

    # Copy short rows; cut hubs into tasks, and place and copy these.
    library, graph, tasks = kernels(shard, FILE, edges.view()), edges.view(), device.empty(room, np.uint64)
    listed = {"graph": graph, "tasks": tasks, "n_tasks": device.zeros(1, np.int64)}
    out = {"offsets": offsets, "dst": dst, "weights": weight}
    library.CompactRows(-(-n // LANES), n=n, out=out, **listed)
    places = device.empty(room, np.int64)
    library.CountLive(room, places=places, **listed)
    library.PlaceTasks(room, out=out, places=places, **listed)
    library.CompactHubs(room, out=out, places=places, **listed)
    return CsrRows(offsets, dst, weight, edges.sorted_rows)
