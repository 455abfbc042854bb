"""Algorithms as SPMD programs: each rank calls the same function with its shard, in lockstep, from the shard's thread.

A program takes a shard and its own arguments. It returns its local array, one entry an owned vertex in internal order
on the shard's device, and a dict of what else it found out, the same on every rank.
"""

from __future__ import annotations

from collections.abc import Callable

from mgraph.algorithms.bfs import bfs
from mgraph.algorithms.contract import Result, Shard
from mgraph.algorithms.pagerank import pagerank
from mgraph.algorithms.warm import warm

__all__ = ["PROGRAMS", "Result", "Shard", "bfs", "pagerank", "warm"]

PROGRAMS: dict[str, Callable[..., Result]] = {"bfs": bfs, "pagerank": pagerank}  #: by the name that users call them by
