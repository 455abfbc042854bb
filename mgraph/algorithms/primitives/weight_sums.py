"""Weights as whole numbers of a unit, and their sums by vertex and by community.

Sums of floats depend on their order. So weights are rounded to multiples of a unit, a power of two, such that all
weights together are about 2**61 units: the rounding is far below that of float32 weights. In an unweighted graph every
weight is 1 unit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels, task_room
from mgraph.algorithms.primitives.weight_validation import check_weights
from mgraph.device import Array, Device
from mgraph.kernels import Library, View, constants

__all__ = ["WEIGHING", "WeightSums", "unit_of"]

FILE = "algorithms/primitives/weight_sums.cuh"
_CONSTANTS = constants(FILE, HUB_DEGREE=1024)
WEIGHING = {name: _CONSTANTS[name] for name in _CONSTANTS.enums["Weighing"]}
BITS = 61  #: bits of the sum of all weights


class WeightSums:
    """Rows of a rank, to be weighed.

    Parameters
    ----------
    shard : Shard
    view : View
    edges : int
        The edges of the rows.
    first, rows : int
        The vertex of row 0, and the number of rows.
    loops : int
        The factor of a self-loop's weight.
    unit : float
        The factor that makes weights whole numbers; 0 if each edge weighs 1.
    file : str
        The kernel file to load. It includes that of this module.
    """

    def __init__(
        self,
        shard: Shard,
        view: View,
        edges: Any,
        first: int,
        rows: int,
        loops: int = 2,
        unit: float = 0.0,
        file: str = FILE,
    ) -> None:
        self.shard, self.device, self.view = shard, shard.device, view
        self.kernels: Library = kernels(shard, file, view)
        self.first, self.rows, self.loops, self.unit = first, rows, loops, unit
        self.room, self.num_edges = task_room(edges), edges.num_edges
        self.tasks, self.n_tasks = self.device.empty(self.room, np.uint64), self.device.zeros(1, np.int64)

    def hubs(self) -> dict[str, Array]:
        """Return an empty list of tasks."""
        self.device.fill(self.n_tasks, 0)
        return {"tasks": self.tasks, "n_tasks": self.n_tasks}

    def weigh(self, what: str, labels: Array = None, sums: Array = None, loops: int | None = None) -> Array:
        """Compute a sum of `WEIGHING`: int64[2] on the device, the sum or the largest, and the number refused."""
        sum_and_refused = self.device.zeros(2, np.int64)
        scale = {"weighing": WEIGHING[what], "first": self.first, "unit": self.unit}
        scale["loops"] = self.loops if loops is None else loops
        scale |= {"labels": labels, "sums": sums, "found": sum_and_refused}
        hubs = self.hubs()
        self.kernels.WeighRows(-(-self.rows // LANES), graph=self.view, rows=self.rows, scale=scale, **hubs)
        self.kernels.WeighHubs(self.room, graph=self.view, scale=scale, **hubs)
        return sum_and_refused

    def strengths(self) -> Array:
        """Return the weight of each row's edges: int64[rows]."""
        sums = self.device.zeros(self.rows, np.int64)
        self.weigh("strengths", sums=sums)
        return sums


def unit_of(shard: Shard, what: str, loops: int, file: str = FILE) -> float:
    """Return weight 1 in units; 0.0 in an unweighted graph.

    Two launches, two read-backs, three allreduces; 4 launches if there may be hubs.

    Raises
    ------
    InvalidOption
        A weight is negative or not finite; on every rank, naming the edge and `what`.
    """
    # Find the largest weight.
    out = shard.out_edges
    if not out.weighted:
        return 0.0
    weights = WeightSums(shard, out.view(), out, shard.lo, shard.hi - shard.lo, loops, file=file)
    most, refused = Device.to_host(weights.weigh("largest")).tolist()
    most = int(shard.exchange.allreduce(np.array([most]), "max")[0])
    refused, arcs = shard.exchange.allreduce(np.array([refused, out.num_edges])).tolist()
    if refused:
        check_weights(shard, f"the sums of {what}", finite=True)  # it names one of them

    # Choose a unit by the bound of the sum, then by the sum itself.
    largest = float(np.array([most], np.uint32).view(np.float32)[0])
    if largest == 0:
        return 1.0
    weights.unit = 2.0 ** (BITS - math.ceil(math.log2(largest * loops * arcs)))  # the sum has at most BITS bits
    units = int(shard.exchange.allreduce(np.array([shard.device.total(weights.strengths())]))[0])
    return weights.unit * 2.0 ** (BITS - units.bit_length())
