"""Reads of the rows that a rank owns, by internal ids."""

from __future__ import annotations

import numpy as np

from mgraph.worker.calls.rank import Rank, Value
from mgraph.worker.shard import fingerprint as hashing

__all__ = ["degrees", "fingerprint", "has_edges", "neighbors", "rows", "weights"]


def has_edges(rank: Rank, starts: list[int], generation: int, src: np.ndarray, dst: np.ndarray) -> Value:
    """Whether each edge exists; given by internal ids, with sources that this rank owns."""
    return {"found": rank.owner(starts, generation).has_edges(src, dst)}


def weights(rank: Rank, starts: list[int], generation: int, src: np.ndarray, dst: np.ndarray) -> Value:
    """The weight of each edge, NaN where there is none; given as for `has_edges`."""
    return {"weights": rank.owner(starts, generation).weights(src, dst)}


def degrees(rank: Rank, starts: list[int], generation: int, ids: np.ndarray, direction: str = "out") -> Value:
    """The degrees of internal ids that this rank owns."""
    return {"degrees": rank.owner(starts, generation).degrees(ids, direction)}


def neighbors(
    rank: Rank,
    starts: list[int],
    generation: int,
    ids: np.ndarray | None,
    direction: str = "out",
    time: bool = False,
) -> Value:
    """The rows of internal ids that this rank owns; of all of them for None. With `time` their times too."""
    return rank.owner(starts, generation).neighbors(ids, direction, time)


def rows(rank: Rank, starts: list[int], generation: int) -> Value:
    """All rows that this rank owns, by internal ids and on its device: for a client in the same process."""
    return {"rows": rank.owner(starts, generation).out_edges.to_csr()}


def fingerprint(rank: Rank, hashes: np.ndarray | None = None) -> Value:
    """The hash of this rank's arcs, by users' ids, or by hashes of the keys that these have."""
    return {"hash": hashing.fingerprint(rank.shard, hashes)}
