"""Validation of weights for algorithms that need them non-negative."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from mgraph.algorithms.algorithm import LANES, Shard, kernels, task_room
from mgraph.algorithms.primitives.user_ids import user_id
from mgraph.device import Array, Device
from mgraph.errors import InvalidOption
from mgraph.kernels import Library
from mgraph.structures import Structure

__all__ = ["check_sums", "check_weights", "weight_kernels"]

NONE = 2**64 - 1
#: states of structures whose weights were valid
_fine: WeakKeyDictionary[Structure, object] = WeakKeyDictionary()


def weight_kernels(shard: Shard) -> Library:
    """Return the kernels of the check."""
    return kernels(shard, "algorithms/primitives/weight_validation.cuh", shard.out_edges.view())


def check_weights(shard: Shard, what: str, finite: bool = False, numbers: Sequence[float] = ()) -> np.ndarray:
    """Raise `InvalidOption` on every rank if an edge has a negative weight or NaN.

    It names the edge. With `finite`, infinite weights are refused, too: for algorithms that have found that there are
    some. The `numbers` of each rank travel along; returns those of all, float64[size, k]. O(m). Up to 2 launches, a
    read-back, and an allgather. Without weights, or if the edges are those of the last check and not `finite`, only the
    allgather; nothing without weights and numbers.
    """
    # Check the own edges, unless they were checked before.
    edges, words = shard.out_edges, np.full(1 + len(numbers), NONE, np.uint64)
    if not edges.weighted and not numbers:
        return np.empty((shard.size, 0))
    if edges.weighted and (finite or _fine.get(edges) is not edges.state):
        words[:1] = _first_bad(shard, edges, finite)
        if int(words[0]) == NONE:
            _fine[edges] = edges.state
    words[1:].view(np.float64)[:] = numbers

    # The smallest bad edge of all ranks is named.
    every = np.stack(shard.exchange.gather_values(words, "allgather"))
    edge = int(every[:, 0].min())
    if edge != NONE:
        src, dst = edge >> 32, edge & 0xFFFFFFFF
        ends = user_id(shard, src), user_id(shard, dst)
        least = "finite and 0 or more" if finite else "0 or more"
        text = f"the edge from {{}} to {{}} has weight {_weight(shard, src, dst):g}; it must be {least} for {what}"
        raise InvalidOption.about(text, *ends)
    return every[:, 1:].view(np.float64)


def check_sums(shard: Shard, sums: Array) -> None:
    """Raise `InvalidOption` on every rank, naming an edge, if one of PageRank's sums of weights is not finite.

    A read-back and an allreduce.
    """
    bad = np.array([shard.device.total(~shard.device.xp.isfinite(sums)) > 0], np.int64)
    if int(shard.exchange.allreduce(bad, "max")[0]):
        check_weights(shard, "PageRank by weights", finite=True)


def _first_bad(shard: Shard, edges: Structure, finite: bool) -> np.ndarray:
    """Return the first edge of this rank with a bad weight, src << 32 | dst, or `NONE`: uint64[1]."""
    device, rows, room, check = shard.device, shard.hi - shard.lo, task_room(edges), weight_kernels(shard)
    edge, tasks, n_tasks = device.full(1, NONE, np.uint64), device.empty(room, np.uint64), device.zeros(1, np.int64)
    bad = {"edge": edge, "first": shard.lo, "finite": int(finite)}
    common = {"graph": edges.view(), "bad": bad, "tasks": tasks, "n_tasks": n_tasks}
    check.CheckWeights(-(-rows // LANES), rows=rows, **common)
    check.CheckHubs(room, **common)
    return Device.to_host(edge)


def _weight(shard: Shard, src: int, dst: int) -> float:
    """Return the weight of an edge, on every rank."""
    weight = np.zeros(1)
    if shard.lo <= src < shard.hi:
        row = shard.out_edges.neighbors(shard.device.asarray(np.array([src - shard.lo], np.uint32)))
        weight[0] = Device.to_host(row.weight)[Device.to_host(row.dst) == dst][0]
    return float(shard.exchange.allreduce(weight)[0])
