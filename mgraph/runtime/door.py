"""The door between users' ids and internal ids, and which rank owns them: the client's side of it, on the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mgraph.batch import as_array
from mgraph.device import Device
from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.partition import Partition

__all__ = ["Door", "Routed"]


@dataclass(frozen=True)
class Routed:
    """Ids dealt to their owners.

    Parameters
    ----------
    internal : uint32[n]
        Internal ids, in the order asked.
    places : int64[n] or None
        Where each dealt id stood in the order asked; None where dealing kept the order.
    bounds : int64[size + 1]
        Rank r was dealt the ids ``bounds[r] .. bounds[r + 1] - 1``.
    """

    internal: np.ndarray
    places: np.ndarray | None
    bounds: np.ndarray

    def deal(self, values: np.ndarray) -> list[np.ndarray]:
        """Values in the order asked as one part a rank."""
        dealt = values if self.places is None else values[self.places]
        return [dealt[a:b] for a, b in zip(self.bounds[:-1], self.bounds[1:], strict=True)]

    def restore(self, parts: list[np.ndarray]) -> np.ndarray:
        """One value an id, as the ranks gave them, in the order asked."""
        dealt = np.concatenate(parts)
        if self.places is None:
            return dealt
        asked = np.empty_like(dealt)
        asked[self.places] = dealt
        return asked


class Door:
    """A permutation of ids, the identity where `order` is None, and the ranges of their owners; never changes.

    Parameters
    ----------
    partition : Partition
        Of internal ids.
    order : uint32[n] or None
        The internal id of each user's id.
    generation : int
        How often the order was renewed: internal ids of another generation are other vertices.
    """

    def __init__(self, partition: Partition, order: np.ndarray | None = None, generation: int = 0) -> None:
        self.partition, self.order, self.generation = partition, order, generation

    @property
    def n_vertices(self) -> int:
        """How many vertices."""
        return self.partition.n_vertices

    @cached_property
    def _inverse(self) -> np.ndarray:
        assert self.order is not None
        inverse = np.empty_like(self.order)
        inverse[self.order] = np.arange(len(self.order), dtype=self.order.dtype)
        return inverse

    def inside(self, ids: np.ndarray) -> np.ndarray:
        """Internal ids of users' ids."""
        return ids if self.order is None else self.order[ids]

    def outside(self, ids: np.ndarray) -> np.ndarray:
        """Users' ids of internal ids."""
        return ids if self.order is None else self._inverse[ids]

    def by_user(self, values: np.ndarray) -> np.ndarray:
        """One value a vertex, by internal id, as values by user's id."""
        return values if self.order is None else values[self.order]

    def route(self, ids: np.ndarray) -> Routed:
        """Deal users' ids to the owners; O(n log n), O(n) for one rank."""
        internal, size = self.inside(ids), self.partition.size
        if size == 1:
            return Routed(internal, None, np.array([0, len(ids)]))
        owner = self.partition.owner(internal)
        bounds = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=size))])
        places = None if (owner[1:] >= owner[:-1]).all() else np.argsort(owner, kind="stable")
        return Routed(internal, places, bounds)

    def moved(self, partition: Partition) -> Door:
        """The same ids, with other ranges of owners, and perhaps more vertices at the end."""
        order = self.order
        if order is not None and partition.n_vertices > self.n_vertices:
            order = np.concatenate([order, np.arange(self.n_vertices, partition.n_vertices, dtype=np.uint32)])
        return Door(partition, order, self.generation)

    @classmethod
    def make(cls, n_vertices: int, size: int, order: Any = None, balance: Any = None) -> Door:
        """Check a user's `order` and `balance` and make the door of a new graph.

        Raises
        ------
        InvalidOption
            `order` is no permutation of 0 .. n - 1; `balance` is neither None, "vertices" nor a degree for each vertex.
        """
        order = None if order is None else _permutation(order, n_vertices)
        if balance is None or (isinstance(balance, str) and balance == "vertices"):
            return cls(Partition.equal(n_vertices, size), order)
        degrees = _degrees(balance, n_vertices)
        if order is not None:
            inside = np.empty_like(degrees)
            inside[order] = degrees
            degrees = inside
        return cls(Partition.balanced(degrees, size), order)


def _permutation(order: Any, n: int) -> np.ndarray:
    array = _whole(order, "order")
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise InvalidOption(
            f"order has shape {array.shape} and dtype {array.dtype}; it takes one internal id for each of {n} vertices"
        )
    seen = np.zeros(n, bool)
    bad = np.flatnonzero((array < 0) | (array >= n))
    if bad.size == 0:
        seen[array] = True
        if seen.all():
            return array.astype(np.uint32)
        raise InvalidOption(f"order is no permutation: no vertex has the internal id {int(seen.argmin())}")
    raise InvalidOption(f"order[{bad[0]}] is {array[bad[0]]}; internal ids run from 0 to {n - 1}")


def _whole(values: Any, name: str) -> np.ndarray:
    try:
        array = Device.to_host(as_array(values))
    except InvalidBatch as error:
        raise InvalidOption(f"{name}: {error}") from None
    return array if array.size else array.astype(np.int64)


def _degrees(balance: Any, n: int) -> np.ndarray:
    if isinstance(balance, str):
        raise InvalidOption(f'balance {balance!r} is neither None, "vertices" nor an array of degrees')
    array = _whole(balance, "balance")
    if array.shape != (n,) or array.dtype.kind not in "iu" or (array.size and int(array.min()) < 0):
        raise InvalidOption(
            f"balance has shape {array.shape} and dtype {array.dtype}; "
            f"it takes a degree, 0 or more, for each of {n} vertices"
        )
    return array.astype(np.int64)
