"""graphvine: deletes vertices in place, without a batch, with all edges from and to them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from mgraph.device import Array
from mgraph.errors import CapacityError
from mgraph.kernels import constants
from mgraph.structures.contract import DELETED_BITS
from mgraph.structures.graphvine.pool import CLASSES, Needs

__all__ = ["sever"]

GraphVine = Any  # the class in structure.py, which imports this module

_SOURCE = constants("structures/graphvine/vertices.cuh")
LONG_EXTENT = _SOURCE["long_extent"]
EDGES_GONE, LONG_ROWS = _SOURCE["edges_gone"], _SOURCE["long_rows"]  # words of counts; the pushes come first


def sever(s: GraphVine, vertices: Array) -> int:
    """Delete every edge to and from `vertices`, and return their number. O(n_rows + m), one read-back.

    Takes n_vertices / 8 bytes, and 4 per long row. A mostly unused pool is rebuilt, if memory suffices for a new one.
    """
    # Sever all rows: short ones by tiles, long ones by blocks.
    device, kernels = s.device, s.kernels["vertices"]
    dead, counts = device.zeros(s.n_vertices // DELETED_BITS + 2, np.uint32), device.zeros(LONG_ROWS + 1, np.int64)
    hubs = device.empty(len(s.pool.slots) // LONG_EXTENT, np.uint32)  # a long row has more slots
    nothing = Needs((0,) * CLASSES, 0, (0,) * CLASSES, 0)
    kernels.MarkDeleted(len(vertices), vertices=vertices, n=len(vertices), dead=dead)
    sought = {
        "graph": s.view(), "pool": s.pool_struct(), "queues": s.queues.struct(nothing, s.pool), "dead": dead,
        "hubs": hubs, "counts": counts,
    }  # fmt: skip
    kernels.SeverRows(s.n_rows, n=s.n_rows, **sought)
    kernels.SeverHubs(len(hubs), **sought)

    # Update queues and counts.
    words = device.to_host(counts).tolist()
    pushes = tuple(min(n, s.pool.ring - w) for n, w in zip(words[:CLASSES], s.queues.waiting, strict=True))
    s.queues = s.queues.after(Needs((0,) * CLASSES, 0, pushes, 0), s.pool.ring)
    deleted, emptied, quanta = words[EDGES_GONE:LONG_ROWS]
    s.num_edges, s.filled, s.live = s.num_edges - deleted, s.filled - emptied, s.live - quanta
    if s.too_large(s.live):
        with suppress(CapacityError):  # the old pool is valid, only large
            s.rebuild()
    return deleted
