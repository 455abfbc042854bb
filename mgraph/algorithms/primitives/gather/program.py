"""Reduction over the neighbours of each vertex: each rank pulls along its rows, in a single superstep.

The kernels have the shape of PageRank's pull, and take the expression as a macro, so that it is compiled into the loop
over a row. A hub's row is cut into tasks, whose parts are joined in order: sums do not depend on timing.

================= ========================================================= ===========================================
step              launches                                                  exchange among p ranks
================= ========================================================= ===========================================
values            a copy if they are neither float32 nor float64            allgathers of 4 or 8 bytes per vertex
rows              1; 5, 2 sorts and a read-back where there may be hubs     none
================= ========================================================= ===========================================
"""

from __future__ import annotations

import logging

import numpy as np

from mgraph.algorithms.algorithm import LANES, Columns, Shard, incoming, kernels, task_room
from mgraph.algorithms.primitives.replicated import all_gather
from mgraph.algorithms.primitives.user_ids import user_ids
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.kernels import Library, View, constants
from mgraph.structures import Structure

__all__ = ["REDUCTIONS", "run", "warm"]

FILE = "algorithms/primitives/gather/gather.cuh"
_NAMES = {"sum": "sums", "min": "least", "max": "most", "count": "counts"}  # names in the kernel file
_CONSTANTS = constants(FILE, HUB_DEGREE=1024)
REDUCTIONS = {reduce: _CONSTANTS[name] for reduce, name in _NAMES.items()}  #: by their names for users
logger = logging.getLogger(__name__)
_logged: set[tuple[object, ...]] = set()  # kernels that this process has compiled


def warm(shard: Shard) -> None:
    """Do nothing: `run` compiles its kernels, which depend on the expression, before anything else."""


def _library(shard: Shard, view: View, edge: str, reduce: str, bits: int, result: int) -> Library:
    what = (str(shard.device), view.type, reduce, edge, bits)
    if what not in _logged:
        logger.info("rank %d: compiling gather for the %s of %s", shard.rank, reduce, edge)
        _logged.add(what)
    return kernels(shard, FILE, view, EDGE=edge, REDUCE=REDUCTIONS[reduce], VALUE_BITS=bits, RESULT=result)


def run(
    shard: Shard,
    values: Array | float,
    reduce: str = "sum",
    edge: str = "value",
    named: bool = False,
    direction: str = "in",
) -> Columns:
    """Return the reduction of each own vertex.

    Parameters
    ----------
    shard : Shard
    values : array of hi - lo numbers, or float
        The values of the own vertices, on the device or in host memory; or one for all vertices.
    reduce : "sum" | "min" | "max" | "count"
    edge : str
        The expression in C++, from `parse_edge`.
    named : bool
        True if it uses u or v.
    direction : "in" | "out"
        Over the sources of in-edges, or the destinations of out-edges.

    Returns
    -------
    columns : dict
        "gathered": float32[hi - lo] if `values` are float32, else float64; int64 for counts.
    scalars : dict
        None.

    Raises
    ------
    InvalidOption
        `values` has several rows. Raised on every rank.
    CapacityError
        Too little memory for the result and the arrays that the method's docstring lists.
    """
    # Compile the kernels of this expression.
    if not isinstance(values, float) and values.ndim != 1:
        raise InvalidOption(f"values has {values.ndim} dimensions; it must have one number for each vertex")
    device, n = shard.device, shard.hi - shard.lo
    edges = shard.out_edges if direction == "out" else incoming(shard, "gather")
    bits = 32 if not isinstance(values, float) and values.dtype == np.float32 else 64
    result = 0 if reduce == "count" else bits
    view = edges.view()
    library = _library(shard, view, edge, reduce, bits, result)

    # Gather the values of all vertices.
    if isinstance(values, float):
        whole = device.full(shard.n_vertices, values, np.float64)
    else:
        whole = all_gather(shard, device.asarray(values, np.float32 if bits == 32 else np.float64))
    names = user_ids(shard) if named and shard.order is not None else None
    of = {"values": whole, "names": names, "first": shard.lo}

    # Reduce: hubs by tasks, whose parts are joined at the end.
    out = device.empty(n, {0: np.int64, 32: np.float32, 64: np.float64}[result])
    tasks, turns = _hubs(shard, edges, view, library)
    parts = device.empty(len(tasks), np.float64)
    library.GatherHubs(len(tasks), graph=view, tasks=tasks, turns=turns, n=len(tasks), of=of, parts=parts)
    library.GatherRows(-(-n // LANES), graph=view, n=n, of=of, out=out)
    library.JoinHubs(len(tasks), tasks=tasks, n=len(tasks), parts=parts, out=out)
    return {"gathered": out}, {}


def _hubs(shard: Shard, edges: Structure, view: View, library: Library) -> tuple[Array, Array]:
    """Return the tasks of the hubs, ascending, and the order in which to run them.

    Tasks that begin with nearby neighbours run at about the same time, because they read the same values.
    """
    device, n = shard.device, shard.hi - shard.lo
    room = task_room(edges)
    tasks, state = device.empty(room, np.uint64), device.zeros(2, np.int64)
    if room == 0:
        return tasks, device.empty(0, np.int64)
    library.ListHubs(n, graph=view, n=n, tasks=tasks, state=state)
    tasks = tasks[: int(Device.to_host(state)[0])]
    device.sort(tasks)
    if not edges.sorted_rows:
        return tasks, device.arange(0, len(tasks), np.int64)
    ids = device.empty(len(tasks), np.uint32)
    library.FirstIds(len(tasks), graph=view, tasks=tasks, n=len(tasks), ids=ids)
    with device.taking(16 * len(tasks), f"the order of {len(tasks)} tasks"):
        return tasks, device.xp.argsort(ids, kind="stable").astype(np.int64, copy=False)
