"""Agreement of the ranks on their maintained results, with each new exchange after an aborted call.

A call that failed may have ended at different places on the ranks: one has begun a result or learned from an update,
and another has not. Each rank decides by itself, from counts and costs that are equal on all, whether it updates a
result or computes it anew. So these must be equal again before the next call: otherwise the ranks would wait for each
other in different exchanges.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import xxhash

from mgraph.worker.results.maintained import end
from mgraph.worker.shard.cost import CostModel
from mgraph.worker.shard.results import MaintainedState
from mgraph.worker.shard.shard import Shard

__all__ = ["reconcile"]

_COST = len(astuple(CostModel()))
FACTS = 1 + _COST + 9  #: numbers per result: its name's hash, its costs, and nine more of `_facts`


def reconcile(shard: Shard) -> None:
    """Keep the maintained results that all ranks have, in the order of rank 0. One exchange of small host arrays.

    A result whose counts or costs differ is computed anew by its next read, with the costs of rank 0.
    """
    names = {_hash(name): name for name in shard.maintained}
    own = np.array([_facts(name, state) for name, state in shard.maintained.items()], np.int64)
    every = shard.exchange.gather_values(own.reshape(-1), "allgather")
    by_rank = [{int(row[0]): row for row in rows.reshape(-1, FACTS)} for rows in every]

    # Free those that not all ranks have: their reads begin anew.
    common = [key for key in by_rank[0] if all(key in facts for facts in by_rank)]
    for key in names.keys() - set(common):
        end(shard, names[key])
    shard.maintained = {names[key]: shard.maintained[names[key]] for key in common}

    # Compute those anew that differ.
    for key in common:
        facts = [rank[key] for rank in by_rank]
        if any((other != facts[0]).any() for other in facts):
            _begin_anew(shard.maintained[names[key]], facts[0])


def _hash(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode()) >> 1


def _facts(name: str, state: MaintainedState) -> list[int]:
    """Return all numbers by which a rank decides how to update a result; floats as their bits."""
    tried = state.tried
    decides: tuple[Any, ...] = (
        state.epoch, state.generation, state.removals, state.spent, state.touched, state.visited, state.result is None,
        0 if tried is None else tried.arcs, 0 if tried is None else tried.changed,
    )  # fmt: skip
    values = (*astuple(state.cost), *decides)
    return [_hash(name), *(_bits(value) if isinstance(value, float) else int(value) for value in values)]


def _bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


def _begin_anew(state: MaintainedState, facts: np.ndarray) -> None:
    """Free the result, and take over the costs of rank 0, whose `facts` these are."""
    fields = zip(astuple(CostModel()), facts[1 : 1 + _COST], strict=True)
    costs: list[Any] = [float(v.view(np.float64)) if isinstance(like, float) else int(v) for like, v in fields]
    state.cost = CostModel(*costs)
    state.result = state.tried = None
    state.removals, state.spent, state.touched, state.visited = 0, 0.0, 0, 0
