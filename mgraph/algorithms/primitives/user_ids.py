"""User's id of an internal id, and the label of each vertex in a result."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Shard
from mgraph.device import Array

__all__ = ["user_id", "vertex_labels"]


def vertex_labels(shard: Shard) -> Array:
    """Return the label of each vertex, its place in `Shard.by_name`: uint32[n_vertices]; None if it is its number."""
    if shard.by_name is shard.order:
        return shard.names  # cached
    labels = shard.device.empty(shard.n_vertices, np.uint32)
    shard.device.scatter(labels, shard.by_name, shard.device.arange(0, shard.n_vertices, np.uint32))
    return labels


def user_id(shard: Shard, vertex: int) -> int:
    """Return the user's id of an internal id."""
    return vertex if shard.order is None else int(shard.device.xp.flatnonzero(shard.order == vertex)[0])
