"""Reads of a rank's rows, by internal ids."""

from __future__ import annotations

import numpy as np

from mgraph.worker.calls.rank import Rank, Value
from mgraph.worker.shard import fingerprint as hashing

__all__ = ["degrees", "fingerprint", "has_edges", "memory", "neighbors", "rows", "weights"]


def has_edges(rank: Rank, starts: list[int], generation: int, src: np.ndarray, dst: np.ndarray) -> Value:
    """Return True for each edge that exists, by internal ids with sources owned by this rank."""
    return {"found": rank.owner(starts, generation).has_edges(src, dst)}


def weights(rank: Rank, starts: list[int], generation: int, src: np.ndarray, dst: np.ndarray) -> Value:
    """Return the weight of each edge, NaN if it does not exist; ids as in `has_edges`."""
    return {"weights": rank.owner(starts, generation).weights(src, dst)}


def degrees(rank: Rank, starts: list[int], generation: int, ids: np.ndarray, direction: str = "out") -> Value:
    """Return the degrees of internal ids that this rank owns."""
    return {"degrees": rank.owner(starts, generation).degrees(ids, direction)}


def neighbors(
    rank: Rank,
    starts: list[int],
    generation: int,
    ids: np.ndarray | None,
    direction: str = "out",
    time: bool = False,
) -> Value:
    """Return rows of this rank, all for None. With `time` their times too."""
    return rank.owner(starts, generation).neighbors(ids, direction, time)


def rows(rank: Rank, starts: list[int], generation: int) -> Value:
    """Return all rows of this rank on its device, for a client in the same process."""
    return {"rows": rank.owner(starts, generation).out_edges.to_csr()}


def fingerprint(rank: Rank, hashes: np.ndarray | None = None) -> Value:
    """Return the hash of this rank's arcs, by users' ids or by hashes of their keys."""
    return {"hash": hashing.fingerprint(rank.shard, hashes)}


def memory(rank: Rank) -> Value:
    """Return the bytes of this rank's shard by what holds them, and what its process may still allocate."""
    shard = rank.shard
    return {
        "structures": sum(structure.nbytes for structure in shard.structures),
        "times": 0 if shard.clock is None else shard.clock.nbytes,
        "change_log": 0 if shard.change_log.first is None else shard.change_log.nbytes,
        "results": sum(result.nbytes for result in shard.results.values()),
        "maintained": sum(live.nbytes for live in shard.maintained.values()),
        "region": shard.exchange.world_nbytes,
        "unused": shard.device.memory_unused,
        "free": shard.device.memory_free,
    }
