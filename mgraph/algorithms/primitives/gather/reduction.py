"""Reduction of an expression over each row, for algorithms that make many of them over the same edges.

The kernels have the shape of PageRank's pull, and take the expression as a macro, so that it is compiled into the loop
over a row. A hub's row is cut into tasks, whose parts are joined in order: sums do not depend on timing.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
once              2, two sorts and a read-back where there may be hubs      none
a reduction       1, 3 where there may be hubs                              allgathers of 4 or 8 bytes per vertex
================= ========================================================= ===========================================
"""

from __future__ import annotations

import logging

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels, task_room
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.algorithms.primitives.transpose import CsrRows
from mgraph.device import Array, Device
from mgraph.kernels import Library, constants
from mgraph.structures import Structure

__all__ = ["REDUCTIONS", "Reduction", "reduction_kernels"]

FILE = "algorithms/primitives/gather/gather.cuh"
_NAMES = {"sum": "sums", "min": "least", "max": "most", "count": "counts"}  # names in the kernel file
_CONSTANTS = constants(FILE, HUB_DEGREE=1024)
REDUCTIONS = {reduce: _CONSTANTS[name] for reduce, name in _NAMES.items()}  #: by their names for users
logger = logging.getLogger(__name__)
_logged: set[tuple[object, ...]] = set()  # kernels that this process has compiled


def reduction_kernels(
    shard: Shard, edges: Structure | CsrRows, edge: str, reduce: str = "sum", bits: int = 64
) -> Library:
    """Return the kernels of an expression in C++ over `edges`, for values of `bits` bits."""
    view, result = edges.view(), 0 if reduce == "count" else bits
    what = (str(shard.device), view.type, reduce, edge, bits)
    if what not in _logged:
        logger.info("rank %d: compiling gather for the %s of %s", shard.rank, reduce, edge)
        _logged.add(what)
    return kernels(shard, FILE, view, EDGE=edge, REDUCE=REDUCTIONS[reduce], VALUE_BITS=bits, RESULT=result)


class Reduction:
    """Reduction of an expression over each own row.

    Takes 1 / 32 byte per arc for the tasks of hubs, and on several ranks `bits` bits per vertex of the whole graph.

    Parameters
    ----------
    shard : Shard
    edges : Structure or CsrRows
    edge : str
        The expression in C++, from `parse_edge`.
    reduce : "sum" | "min" | "max" | "count"
    bits : 32 or 64
        The type of values and results; those of "count" are int64.
    named : bool
        True if the expression uses u or v.
    """

    def __init__(
        self, shard: Shard, edges: Structure | CsrRows, edge: str, reduce: str = "sum", bits: int = 64,
        named: bool = False,
    ) -> None:  # fmt: skip
        # Compile the kernels, and name the types.
        self.shard, self.view, self.rows = shard, edges.view(), shard.hi - shard.lo
        self.kernels = reduction_kernels(shard, edges, edge, reduce, bits)
        self.dtype = np.dtype(np.float32 if bits == 32 else np.float64)
        self.result = np.dtype(np.int64) if reduce == "count" else self.dtype

        # List the hubs' tasks, and allocate their results and the gathered values.
        device = shard.device
        self.names = shard.names if named else None
        self.tasks, self.turns = self._hubs(edges)
        self.parts = device.empty(len(self.tasks), np.float64)
        self.whole = device.empty(shard.n_vertices if shard.size > 1 else 0, self.dtype)

    def _hubs(self, edges: Structure | CsrRows) -> tuple[Array, Array]:
        """Return the tasks of the hubs, ascending, and the order in which to run them.

        Tasks that begin with nearby neighbours run at about the same time, because they read the same values.
        """
        device, room = self.shard.device, task_room(edges)
        tasks, state = device.empty(room, np.uint64), device.zeros(2, np.int64)
        if room == 0:
            return tasks, device.empty(0, np.int64)
        self.kernels.ListHubs(self.rows, graph=self.view, n=self.rows, tasks=tasks, state=state)
        tasks = tasks[: int(Device.to_host(state)[0])]
        device.sort(tasks)
        if not edges.sorted_rows:
            return tasks, device.arange(0, len(tasks), np.int64)
        ids = device.empty(len(tasks), np.uint32)
        self.kernels.FirstIds(len(tasks), graph=self.view, tasks=tasks, n=len(tasks), ids=ids)
        with device.taking(16 * len(tasks), f"the order of {len(tasks)} tasks"):
            return tasks, device.xp.argsort(ids, kind="stable").astype(np.int64, copy=False)

    def of(self, values: Array | float) -> Array:
        """Return the reduction of each own row. `values` has one per own vertex, or is a number for all vertices."""
        # Gather the values of all vertices.
        device = self.shard.device
        if isinstance(values, float):
            whole = device.full(self.shard.n_vertices, values, self.dtype)
        else:
            whole = all_gather(self.shard, device.asarray(values, self.dtype), self.whole)
        of = {"values": whole, "names": self.names, "first": self.shard.lo}

        # Reduce: hubs by tasks, whose parts are joined at the end.
        out, tasks = device.empty(self.rows, self.result), {"tasks": self.tasks, "n": len(self.tasks)}
        self.kernels.GatherHubs(len(self.tasks), graph=self.view, turns=self.turns, of=of, parts=self.parts, **tasks)
        self.kernels.GatherRows(-(-self.rows // LANES), graph=self.view, n=self.rows, of=of, out=out)
        self.kernels.JoinHubs(len(self.tasks), parts=self.parts, out=out, **tasks)
        return out
