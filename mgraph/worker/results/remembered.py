"""Memories of maintained results, which outlive them in a graph with a store: saved with snapshots and when it closes.

A memory belongs to a method and its arguments, so that a result that is maintained again takes it up, also after the
store was opened. Of several results of the same method and arguments the oldest is saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import Memory
from mgraph.device import Device
from mgraph.errors import CapacityError
from mgraph.worker.shard.results import MaintainedState, Remembered
from mgraph.worker.shard.shard import Shard

__all__ = ["key_of", "remember", "remove", "restored", "saved"]

Value = dict[str, Any]

MOST = 8  #: maximum number of memories of ended results
TERM_NAMES = 1 << 32  #: names reserved per term of a store, for terms that were not closed


def key_of(name: str, args: Mapping[str, Any]) -> str:
    """Return the key of a method and its arguments."""
    return json.dumps([name, args], sort_keys=True, default=str)


def remember(shard: Shard, ended: MaintainedState) -> None:
    """Keep the memory of a result that has ended, if the graph has a store."""
    remembered, memory = shard.remembered, ended.memory
    if memory is None or not remembered.kept:
        return

    # Another result of the same method and arguments is saved in its place.
    for other in shard.maintained.values():
        if other.key == ended.key and other.memory is not None:
            other.memory.next = max(other.memory.next, memory.next)
            return
    memory.move_to(shard.device.host)
    remembered.memories.pop(ended.key, None)
    remembered.memories[ended.key] = memory

    # Forget the oldest memories, but never reuse their names.
    while len(remembered.memories) > MOST:
        forgotten = remembered.memories.pop(next(iter(remembered.memories)))
        remembered.first = max(remembered.first, forgotten.next)


def remove(shard: Shard, ids: np.ndarray) -> None:
    """Have all memories adopt the removal of users' `ids`, whose vertices have left the graph.

    If it lacks memory for that, it is forgotten with its result; its names are never reused.
    """
    remembered = shard.remembered
    for state in shard.maintained.values():
        if (memory := state.memory) is not None and not _adopts(memory, shard.device, ids):
            remembered.first = max(remembered.first, memory.next)
            state.memory = state.result = None
    for key, memory in list(remembered.memories.items()):
        if not _adopts(memory, shard.device.host, ids):
            remembered.first = max(remembered.first, memory.next)
            del remembered.memories[key]


def _adopts(memory: Memory, device: Device, ids: np.ndarray) -> bool:
    try:
        memory.remove(device, ids)
    except (CapacityError, MemoryError):
        return False
    return True


def saved(shard: Shard) -> Value:
    """Return all memories as plain values, at the shard's present state."""
    results = {key: memory.saved() for key, memory in shard.remembered.memories.items()}
    for state in reversed(shard.maintained.values()):
        if state.memory is not None:
            last = results.get(state.key, {"next": 0})["next"]
            results[state.key] = state.memory.saved()
            results[state.key]["next"] = max(results[state.key]["next"], last)

    # Vertices that are just leaving are not in the graph any more.
    if (leaving := shard.remembered.leaving) is not None:
        results = {key: _without(key, state, leaving, shard) for key, state in results.items()}
    first = shard.remembered.first
    return {"epoch": shard.epoch, "n_vertices": shard.n_vertices, "first": first, "results": results}


def _without(key: str, state: Value, ids: np.ndarray, shard: Shard) -> Value:
    memory = _resumed(key, state, lost=False)
    memory.remove(shard.device.host, ids)
    return memory.saved()


def restored(results: Mapping[str, Any], first: int, term: int, whole: bool) -> Remembered:
    """Return the memories from the `results` and `first` of `saved`, in a store whose newest term is `term`.

    If not `whole`, results may have used later names that were not saved.
    """
    remembered = Remembered(first=first if whole else max(first, TERM_NAMES * term))
    for key, state in results.items():
        memory = remembered.memories[key] = _resumed(key, state, lost=not whole)
        memory.next = max(memory.next, 0 if whole else remembered.first)
    return remembered


def _resumed(key: str, state: Value, lost: bool) -> Memory:
    make = ALGORITHMS[json.loads(key)[0]].memory
    assert make is not None, "it was saved"
    memory = make(0)
    memory.resume(state, lost)
    return memory
