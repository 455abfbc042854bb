"""User's id of each internal id, and its label in a result."""

from __future__ import annotations

import numpy as np

from mgraph.algorithms.algorithm import Shard
from mgraph.device import Array

__all__ = ["user_id", "user_ids", "vertex_labels"]


def user_ids(shard: Shard) -> Array:
    """Return the user's id of each vertex of the graph: uint32[n_vertices]."""
    return _inverse(shard, shard.order)


def vertex_labels(shard: Shard) -> Array:
    """Return the label of each vertex of the graph, its place in `Shard.by_name`: uint32[n_vertices]."""
    return _inverse(shard, shard.by_name)


def user_id(shard: Shard, vertex: int) -> int:
    """Return the user's id of an internal id."""
    return vertex if shard.order is None else int(shard.device.xp.flatnonzero(shard.order == vertex)[0])


def _inverse(shard: Shard, order: Array) -> Array:
    places = shard.device.arange(0, shard.n_vertices, np.uint32)
    if order is None:
        return places
    inverse = shard.device.empty(shard.n_vertices, np.uint32)
    shard.device.scatter(inverse, order, places)
    return inverse
