"""Translate users' ids to internal ids and their owners, on the host."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from mgraph.batch import as_ids, check_ids
from mgraph.checks import advised
from mgraph.device import Device
from mgraph.errors import InvalidBatch, InvalidOption, UnknownVertex
from mgraph.keys import NONE, KeyTable
from mgraph.parallel_copy import copy, gathered
from mgraph.partition import Partition
from mgraph.tables.arrays import as_numbers
from mgraph.tables.ids import as_keys
from mgraph.tables.texts import Texts

__all__ = ["Numbering", "Routed", "concatenated", "joined", "key_at"]

_ID, _ONE = np.dtype(np.uint32), (1,)


class Routed(NamedTuple):
    """Ids grouped by their owners.

    Parameters
    ----------
    internal : uint32[n]
        Internal ids, in the order of the request.
    places : int64[n] or None
        The place of each grouped id in the request; None if grouping keeps the order.
    bounds : list of int
        Rank r owns the grouped ids ``bounds[r] .. bounds[r + 1] - 1``.
    """

    internal: np.ndarray
    places: np.ndarray | None
    bounds: list[int]

    def deal(self, values: np.ndarray) -> list[np.ndarray]:
        """Split `values` in request order into the ranks' parts."""
        grouped = values if self.places is None else values[self.places]
        if len(self.bounds) == 2:
            return [grouped]
        return [grouped[a:b] for a, b in pairwise(self.bounds)]

    def restore(self, parts: list[np.ndarray]) -> np.ndarray:
        """Merge the ranks' answers, one value per id, into the order of the request. The array is writable."""
        grouped = joined(parts)
        if self.places is None:
            return grouped
        ordered = np.empty_like(grouped)
        ordered[self.places] = grouped
        return ordered


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """Join the ranks' answers into one writable array."""
    # Arrays from a comm may be read-only or unaligned.
    first = parts[0]
    return first if len(parts) == 1 and first.flags.behaved else concatenated(parts)


def concatenated(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenate arrays along the last axis into a new one. Several threads copy large arrays."""
    out = np.empty((*parts[0].shape[:-1], sum(part.shape[-1] for part in parts)), np.result_type(*parts))
    if out.ndim > 1 or any(part.dtype != out.dtype or not part.flags.c_contiguous for part in parts):
        return np.concatenate(parts, axis=-1, out=out)
    at = 0
    for part in parts:
        copy(out[at : at + len(part)], part)
        at += len(part)
    return out


class Numbering:
    """The internal id of each user's id, and the ranges of internal ids that the ranks own. Immutable.

    Parameters
    ----------
    partition : Partition
        The ranges of internal ids.
    order : uint32[n] or None
        The internal id of each user's id; None if they are the same.
    generation : int
        The number of changes of the order and removals of keys. An internal id may mean another vertex in another
        generation.
    keys : KeyTable or None
        In a graph with keys, the key of each user's id, which is its place in `DynamicGraph.vertices`. During a batch
        the table may also have the batch's new keys.

    Attributes
    ----------
    n_vertices : int
        The number of vertices.
    place : dict
        The ranges and generation that a read was made for. A rank with others refuses it.
    """

    def __init__(
        self,
        partition: Partition,
        order: np.ndarray | None = None,
        generation: int = 0,
        keys: KeyTable | None = None,
    ) -> None:
        self.partition, self.order, self.generation, self.keys = partition, order, generation, keys
        self.n_vertices = partition.n_vertices
        self.place = {"starts": partition.starts, "generation": generation}

    @cached_property
    def _inverse(self) -> np.ndarray:
        assert self.order is not None
        inverse = np.empty_like(self.order)
        inverse[self.order] = np.arange(len(self.order), dtype=self.order.dtype)
        return inverse

    def ids(self, values: Any, name: str) -> np.ndarray:
        """Return the ids of vertices in users' names, uint32[n] in host memory: of keys, if the graph has keys.

        Raises
        ------
        InvalidBatch
            A value is no id, or no key of the graph's kind.
        UnknownVertex
            A vertex does not exist.
        """
        # An id that is alone passes in a third of the time.
        alone = type(values) is np.ndarray and values.dtype is _ID and values.shape == _ONE and self.keys is None
        if alone and values.item() < self.n_vertices:
            return values
        try:
            column = as_ids(values, name) if self.keys is None else as_keys(values, self.keys.kind, name)
        except InvalidBatch as error:
            raise advised(error, values, name) from None
        if self.keys is None:
            check_ids(column, self.n_vertices, name)
            return column if type(column) is np.ndarray else Device.to_host(column)

        # Look the keys up.
        ids = Device.to_host(self.keys.find(column, self.n_vertices))
        absent = ids == NONE
        if absent.any():
            at = int(absent.argmax())
            raise UnknownVertex(f"{name}[{at}] is {key_at(column, at)!r}, which is no vertex of the graph")
        return ids

    def names(self, ids: np.ndarray) -> np.ndarray:
        """Return the vertices of users' ids in users' names: keys, int64 or str objects, if the graph has keys."""
        return ids if self.keys is None else self.keys.names.take(ids)

    def all_names(self) -> np.ndarray:
        """Return the names of all vertices: int64[n] or str objects."""
        return self.names(np.arange(self.n_vertices, dtype=np.int64))

    def by_key(self) -> np.ndarray | None:
        """Return users' ids in the order of their keys: uint32[n]; None if the ids are in order already."""
        return None if self.keys is None else self.keys.names.ascending(self.n_vertices)

    def inside(self, ids: np.ndarray) -> np.ndarray:
        """Return the internal ids of users' ids."""
        return ids if self.order is None else gathered(self.order, ids)

    def outside(self, ids: np.ndarray) -> np.ndarray:
        """Return the users' ids of internal ids, of vertices too that another thread has added since."""
        if self.order is None:
            return ids
        more = int(ids.max()) + 1 - self.n_vertices if ids.size else 0
        numbering = self.moved(self.partition.grown(more)) if more > 0 else self
        return gathered(numbering._inverse, ids)

    def by_user(self, values: np.ndarray) -> np.ndarray:
        """Reorder values by internal id to users' order."""
        return values if self.order is None else gathered(values, self.order)

    def route(self, ids: np.ndarray) -> Routed:
        """Group users' ids by their owners. O(n log n); O(n) for one rank."""
        return self.group(self.inside(ids))

    def of_one_owner(self, rows: np.ndarray, columns: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]] | None:
        """Return each rank's share of the columns of a single row, an internal id; None for several rows. O(size)."""
        if len(rows) != 1:
            return None
        shares = [dict.fromkeys(columns, rows[:0])] * self.partition.size
        shares[bisect_right(self.partition.starts, rows.item()) - 1] = columns
        return shares

    def group(self, internal: np.ndarray) -> Routed:
        """Group internal ids by their owners, as `route` does users' ids."""
        size = self.partition.size
        if size == 1:
            return Routed(internal, None, [0, len(internal)])
        owner = self.partition.owner(internal)
        bounds = [0, *np.cumsum(np.bincount(owner, minlength=size)).tolist()]
        places = None if (owner[1:] >= owner[:-1]).all() else np.argsort(owner, kind="stable")
        return Routed(internal, places, bounds)

    def moved(self, partition: Partition) -> Numbering:
        """Return the same numbering with other ranges, and possibly more vertices at the end.

        `CapacityError` if the machine has no memory for their order.
        """
        order = self.order
        if order is not None and partition.n_vertices > self.n_vertices:
            first, end, host = self.n_vertices, partition.n_vertices, Device("cpu")
            longer = host.empty(end, np.uint32)
            longer[:first] = order
            host.count(longer[first:], first)
            order = longer
        return Numbering(partition, order, self.generation, self.keys)

    def with_keys(self, keys: KeyTable | None) -> Numbering:
        """Return the same numbering with other keys."""
        return Numbering(self.partition, self.order, self.generation, keys)

    @classmethod
    def make(cls, n_vertices: int, size: int, order: Any = None, balance: Any = None) -> Numbering:
        """Make the numbering of a new graph by the user's `order` and `balance`, which are checked.

        Raises
        ------
        InvalidOption
            `order` is not a permutation of 0 .. n - 1, or `balance` is neither None, "vertices" nor an array with a
            degree for each vertex.
        """
        order = None if order is None else _permutation(order, n_vertices)
        if balance is None or (isinstance(balance, str) and balance == "vertices"):
            return cls(Partition.equal(n_vertices, size), order)

        # Balance the ranges by degree, in internal order.
        degrees = _degrees(balance, n_vertices)
        if order is not None:
            inside = np.empty_like(degrees)
            inside[order] = degrees
            degrees = inside
        return cls(Partition.balanced(degrees, size), order)


def key_at(column: Any, row: int) -> Any:
    """Return a key of a column as a Python object."""
    if isinstance(column, Texts):
        return column[row : row + 1].to_arrow()[0].as_py()
    return int(column[row])


def _permutation(order: Any, n: int) -> np.ndarray:
    array = _whole(order, "order")
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise InvalidOption(
            f"order has shape {array.shape} and dtype {array.dtype}; it must be {n} integers, the internal id of each "
            "vertex"
        )

    # Each internal id must be in range, and occur once.
    seen = np.zeros(n, bool)
    bad = np.flatnonzero((array < 0) | (array >= n))
    if bad.size == 0:
        seen[array] = True
        if seen.all():
            return array.astype(np.uint32)
        raise InvalidOption(f"order is not a permutation: no vertex has the internal id {int(seen.argmin())}")
    raise InvalidOption(f"order[{bad[0]}] is {array[bad[0]]}; internal ids run from 0 to {n - 1}")


def _whole(values: Any, name: str) -> np.ndarray:
    array: np.ndarray = Device.to_host(as_numbers(values, name))
    return array if array.size else array.astype(np.int64)


def _degrees(balance: Any, n: int) -> np.ndarray:
    if isinstance(balance, str):
        raise InvalidOption(f'balance {balance!r} is neither None, "vertices" nor an array of degrees')
    array = _whole(balance, "balance")
    if array.shape != (n,) or array.dtype.kind not in "iu" or (array.size and int(array.min()) < 0):
        raise InvalidOption(
            f"balance has shape {array.shape} and dtype {array.dtype}; "
            f"it must be {n} integers of 0 or more, the degree of each vertex"
        )
    return array.astype(np.int64)
