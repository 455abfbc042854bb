"""The check that no edge has a negative weight, before algorithms for which it would make no sense."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels, task_room
from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.kernels import Library

__all__ = ["check_weights", "user_id", "weight_kernels"]

NONE = 2**64 - 1


def weight_kernels(shard: Shard) -> Library:
    """The kernels of the check."""
    return kernels(shard, "algorithms/weights/weights.cuh", shard.out_edges.view())


def check_weights(shard: Shard, what: str) -> None:
    """`InvalidOption` on every rank if an edge has a negative weight or NaN; it names the edge.

    O(m). Up to 2 launches, a read-back, and an allreduce of a number; nothing in a graph without weights.
    """
    edges, device = shard.out_edges, shard.device
    if not edges.weighted:
        return
    rows, room, check = shard.hi - shard.lo, task_room(edges), weight_kernels(shard)
    found, tasks, n_tasks = device.full(1, NONE, np.uint64), device.empty(room, np.uint64), device.zeros(1, np.int64)
    bad = {"edge": found, "first": shard.lo}
    common = {"graph": edges.view(), "bad": bad, "tasks": tasks, "n_tasks": n_tasks}
    check.CheckWeights(-(-rows // LANES), rows=rows, **common)
    check.CheckHubs(room, **common)
    edge = int(shard.exchange.allreduce(Device.to_host(found), "min")[0])
    if edge != NONE:
        src, dst = edge >> 32, edge & 0xFFFFFFFF
        ends = user_id(shard, src), user_id(shard, dst)
        text = f"the edge from {{}} to {{}} has weight {_weight(shard, src, dst):g}; {what} need weights of 0 or more"
        raise InvalidOption.about(text, *ends)


def _weight(shard: Shard, src: int, dst: int) -> float:
    """The weight of an edge, on every rank."""
    weight = np.zeros(1)
    if shard.lo <= src < shard.hi:
        row = shard.out_edges.neighbors(shard.device.asarray(np.array([src - shard.lo], np.uint32)))
        weight[0] = Device.to_host(row.weight)[Device.to_host(row.dst) == dst][0]
    return float(shard.exchange.allreduce(weight)[0])


def user_id(shard: Shard, vertex: int) -> int:
    """The user's id of an internal id."""
    return vertex if shard.order is None else int(shard.device.xp.flatnonzero(shard.order == vertex)[0])
