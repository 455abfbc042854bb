"""Distributions over the vertices: teleport vectors, dangling mass, and numbers scaled to sum to 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mgraph.algorithms.algorithm import Shard
from mgraph.device import Array
from mgraph.errors import InvalidOption

__all__ = ["NO_BASE", "Base", "distribution", "scale", "teleport", "whole"]

TINY = float(np.finfo(np.float64).tiny)  #: the smallest sum with a finite reciprocal
NO_BASE: dict[str, Any] = {"even": 0.0, "teleport": None, "teleporting": 0.0, "dangling": None, "loose": 0.0}


class Base:
    """Rank that each vertex gets in a step besides shares: by the teleport, and of the mass not sent.

    Parameters
    ----------
    n : int
        The number of vertices of the graph.
    alpha : float
    teleport : float64[hi - lo] or None
        The part of each own vertex, of 1 over the graph; None for equal parts.
    dangling : "uniform" | "personalization" | "drop" or float64[hi - lo]
        The receivers of the mass not sent.
    """

    def __init__(self, n: int, alpha: float, teleport: Array, dangling: str | Array) -> None:
        self.n, self.alpha, self.teleport = n, alpha, teleport
        self.dangling = None if isinstance(dangling, str) else dangling
        # Who gets the parts of the teleport (fresh) and of the mass not sent (loose): all evenly, or chosen vertices.
        fresh_even, loose_chosen = teleport is None, teleport is not None and str(dangling) == "personalization"
        self.alike = fresh_even and isinstance(dangling, str) and dangling != "drop"
        self.parts = {
            "fresh_even": float(fresh_even), "loose_even": float(str(dangling) == "uniform"),
            "fresh_chosen": float(not fresh_even), "loose_chosen": float(loose_chosen),
        }  # fmt: skip

    def at(self, handed: float) -> dict[str, Any]:
        """Return the fields of `Base` in `ranks.cuh` for a step before which the mass `handed` was sent."""
        if self.alike:
            return {**NO_BASE, "even": (1 - self.alpha * handed) / self.n}
        fresh, loose, parts = 1 - self.alpha, self.alpha * (1 - handed), self.parts
        even = fresh * parts["fresh_even"] + loose * parts["loose_even"]
        chosen = fresh * parts["fresh_chosen"] + loose * parts["loose_chosen"]
        return self.fields(even / self.n, chosen, loose)

    def rule(self) -> dict[str, Any]:
        """Return the fields of `BaseRule` in `ranks.cuh`."""
        return {
            "alpha": self.alpha, "alike": int(self.alike), **self.parts, "teleport": self.teleport,
            "dangling": self.dangling,
        }  # fmt: skip

    def fields(self, even: float, chosen: float, loose: float) -> dict[str, Any]:
        """Return the fields of `Base` with these parts for all, for the vertices of `teleport`, and of `dangling`."""
        return {
            "even": even, "teleport": self.teleport, "teleporting": chosen, "dangling": self.dangling, "loose": loose
        }  # fmt: skip


def whole(shard: Shard, dense: Array, chosen: np.ndarray | None, values: np.ndarray | None) -> Array:
    """Return a number per own vertex, float64[hi - lo], from dense numbers or numbers of few vertices."""
    if chosen is None or values is None:
        return shard.device.asarray(dense, np.float64)
    own = (chosen >= shard.lo) & (chosen < shard.hi)
    numbers = shard.device.zeros(shard.hi - shard.lo, np.float64)
    numbers[shard.device.asarray(chosen[own].astype(np.int64) - shard.lo)] = shard.device.asarray(values[own])
    return numbers


def distribution(shard: Shard, numbers: Array, name: str) -> Array:
    """Return `numbers` of the own vertices, scaled to sum to 1 over the graph."""
    return numbers * scale(shard, numbers, 0.0, name)


def teleport(
    shard: Shard, dense: Array, chosen: np.ndarray | None, rows: np.ndarray | None, values: np.ndarray | None,
    row: int, several: int,
) -> Array:  # fmt: skip
    """Return the teleport vector of this row of the arguments of `run`: float64[hi - lo], None for equal parts."""
    if dense is None and chosen is None:
        return None
    if chosen is not None and values is not None:
        here = rows == row
        chosen, values = chosen[here], values[here]
    numbers = whole(shard, dense[row] if several and dense is not None else dense, chosen, values)
    return distribution(shard, numbers, f"personalization[{row}]" if several else "personalization")


def scale(shard: Shard, start: Array, even: float, name: str = "start") -> float:
    """Return the factor by which numbers sum to 1.

    Up to two read-backs, one allreduce. Raises `InvalidOption`, naming `name` and the smallest value, on every rank if
    it is not possible.
    """
    # Sum the own part.
    total, bad, least = even * (shard.hi - shard.lo), 0.0, math.inf
    if start is not None and len(start):
        start = start[: shard.hi - shard.lo]
        with np.errstate(over="ignore"):  # a sum that is not finite is refused below
            total = float(start.sum(dtype=np.float64)) + even * (shard.hi - shard.lo - len(start))
        least = float(start.min())
        bad = float(not least >= 0)  # NaN too

    # Sum over all ranks, and check.
    total, bad = shard.exchange.allreduce(np.array([total, bad])).tolist()
    if bad or not TINY <= total < math.inf:
        least = float(shard.exchange.allreduce(np.array([least]), "min")[0])
        raise InvalidOption(
            f"{name} sums to {total}, and its least value is {least}; values must be finite and 0 or more, and their "
            f"sum at least {TINY}"
        )
    return 1 / total
