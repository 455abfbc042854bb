"""graphvine: vertices deleted in place, with no batch: what dead rows held and what others held of the dead goes."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from mgraph.errors import CapacityError
from mgraph.structures.graphvine_pool import CLASSES, Needs

if TYPE_CHECKING:
    from mgraph.device import Array
    from mgraph.structures.graphvine import GraphVine

__all__ = ["sever"]

LONG_EXTENT, COUNTS = 1024, 7  # as graphvine_vertices.cuh has them


def sever(s: GraphVine, vertices: Array) -> int:
    """Delete every edge to and from `vertices`; how many there were. O(n_rows + m), one read-back.

    Takes n_vertices / 8 bytes and 4 a long row. Where the pool is left mostly unused it is made anew, and where memory
    does not suffice for that it stays.
    """
    device, kernels = s.device, s.kernels["vertices"]
    dead, counts = device.zeros(s.n_vertices // 32 + 2, np.uint32), device.zeros(COUNTS, np.int64)
    hubs = device.empty(len(s.pool.slots) // LONG_EXTENT, np.uint32)  # a long row has more slots
    nothing = Needs((0,) * CLASSES, 0, (0,) * CLASSES, 0)
    kernels.MarkDead(len(vertices), vertices=vertices, n=len(vertices), dead=dead)
    sought = {
        "graph": s.view(), "pool": s.pool_struct(), "queues": s.queues.struct(nothing, s.pool), "dead": dead,
        "hubs": hubs, "counts": counts,
    }  # fmt: skip
    kernels.SeverRows(s.n_rows, n=s.n_rows, **sought)
    kernels.SeverHubs(len(hubs), **sought)
    words = device.to_host(counts).tolist()
    pushes = tuple(min(n, s.pool.ring - w) for n, w in zip(words[:CLASSES], s.queues.waiting, strict=True))
    s.queues = s.queues.after(Needs((0,) * CLASSES, 0, pushes, 0), s.pool.ring)
    deleted, emptied, quanta = words[CLASSES : CLASSES + 3]
    s.num_edges, s.filled, s.live = s.num_edges - deleted, s.filled - emptied, s.live - quanta
    if s.too_large(s.live):
        with suppress(CapacityError):  # nothing is wrong with the old pool but its size
            s.rebuild()
    return deleted
