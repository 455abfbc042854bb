"""What an algorithm leaves on the workers, and the user's handle to it."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from mgraph.batch import as_array
from mgraph.device import Device
from mgraph.errors import GraphClosed, InvalidBatch, InvalidOption
from mgraph.runtime.coordinator import Coordinator
from mgraph.runtime.door import Door

__all__ = ["Predecessors", "SearchValues", "VertexValues", "starts_of"]


class VertexValues:
    """One value for each vertex, as an algorithm computed it at one epoch; it stays on the workers until gathered.

    Freed by `close`, or with the graph's next call after the last reference is gone. What the algorithm says besides,
    such as ``iterations``, is an attribute.

    Attributes
    ----------
    name : str
        The algorithm.
    epoch : int
        The graph's epoch that the values belong to; later batches do not change them.
    dtype : numpy.dtype
    info : dict
        What the algorithm says besides.
    """

    def __init__(
        self, coordinator: Coordinator, door: Door, name: str, result: str, epoch: int, dtype: str, info: dict[str, Any]
    ) -> None:
        self.name, self.epoch, self.dtype, self.info = name, epoch, np.dtype(dtype), dict(info)
        self._coordinator, self._door, self._result = coordinator, door, result
        self._free = weakref.finalize(self, coordinator.forget, result)
        self._free.atexit = False  # at exit the sessions end, and the results with them

    def to_numpy(self) -> np.ndarray:
        """The values by user's vertex id: an array of `len(self)`; O(n), moves them to this process.

        Raises
        ------
        GraphClosed
            The graph, or this result, was closed.
        """
        self._check()
        return self._door.by_user(self._fetch(None))

    def _fetch(self, column: str | None) -> np.ndarray:
        answers = self._coordinator.call("fetch", {"result": self._result, "column": column})
        return np.concatenate([answer["values"] for answer in answers])

    def top(self, k: int = 10) -> list[tuple[int, Any]]:
        """The `k` vertices with the largest values, as (vertex, value), largest first; O(n), moves k a worker.

        Where the last of them are equal to others, it is the graph's internal order that chooses.
        """
        try:
            k = operator.index(k)
        except TypeError:
            raise InvalidOption(f"top({k!r}): how many is a whole number") from None
        if k < 0:
            raise InvalidOption(f"top({k}): how many is 0 or more")
        self._check()
        answers = self._coordinator.call("top", {"result": self._result, "k": min(k, len(self))})
        ids = self._door.outside(np.concatenate([answer["ids"] for answer in answers]))
        values = np.concatenate([answer["values"] for answer in answers])
        best = np.lexsort((ids, -values.astype(np.float64)))[:k]
        return [(int(ids[place]), values[place].item()) for place in best]

    def close(self) -> None:
        """Free the values on the workers, with the graph's next call; also twice."""
        self._free()

    def _check(self) -> None:
        if not self._free.alive:
            raise GraphClosed(f"this result of {self.name} (epoch {self.epoch}) was closed")

    def __len__(self) -> int:
        return self._door.n_vertices

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return _as_array(self.to_numpy, dtype, copy)

    def __getattr__(self, name: str) -> Any:
        info = self.__dict__.get("info", {})
        if name in info:
            return info[name]
        raise AttributeError(f"a result of {self.__dict__.get('name')} has no {name!r}; it says {sorted(info)}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.info]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a result's values lie on the workers of one session and do not pickle; pickle to_numpy()")

    def __repr__(self) -> str:
        info = "".join(f", {key} {value}" for key, value in self.info.items())
        state = "" if self._free.alive else ", closed"
        return f"<{self.name}: {len(self)} {self.dtype} values at epoch {self.epoch}{info}{state}>"


def _as_array(gather: Callable[[], np.ndarray], dtype: Any, copy: bool | None) -> np.ndarray:
    """What ``__array__`` gives of values that lie on the workers."""
    if copy is False:
        raise ValueError("the values lie on the workers: an array of them is a copy")
    array = gather()
    return array if dtype is None else array.astype(dtype, copy=False)


def starts_of(start: Any, coordinator: Coordinator, door: Door) -> list[dict[str, Any]]:
    """What each rank is told to begin with: a result that lies there, or its part of an array by users' ids.

    Raises
    ------
    InvalidOption
        An array that is not numbers of one dimension, or longer than there are vertices.
    GraphClosed
        The result was closed.
    """
    starts = list(door.partition.starts)
    if isinstance(start, VertexValues):
        start._check()
        if start._coordinator is coordinator and start._door.generation == door.generation:
            moved = start._door.partition.starts[:-1] != door.partition.starts[:-1]
            return [{"starts": starts, "result": start._result, "moved": moved}] * door.partition.size
    try:
        array = Device.to_host(as_array(start))
    except InvalidBatch as error:
        raise InvalidOption(f"start: {error}") from None
    if array.ndim != 1 or array.dtype.kind not in "iuf" or len(array) > door.n_vertices:
        raise InvalidOption(
            f"start has shape {array.shape} and dtype {array.dtype}; "
            f"it takes a number for each of {door.n_vertices} vertices"
        )
    with np.errstate(over="ignore"):  # the program refuses what is not finite
        inside = np.full(door.n_vertices, array.mean() if len(array) else 1, np.float32)
        inside[door.inside(np.arange(len(array)))] = array
    return [{"starts": starts, "values": inside[first:end]} for first, end in pairwise(starts)]


class SearchValues(VertexValues):
    """The distances of a search that found predecessors too."""

    @property
    def predecessors(self) -> Predecessors:
        """Each vertex's predecessor on a shortest path; it stays on the workers until gathered."""
        return Predecessors(self)


class Predecessors:
    """For each vertex the one before it on a shortest path from a search's source: -1 for the source and the unreached.

    Of several it is always the same one, whatever the timing: the first in the graph's internal order. They stay on the
    workers as long as the search's result: this keeps it alive, its `close` frees both.

    Attributes
    ----------
    epoch : int
        The graph's epoch that they belong to.
    """

    def __init__(self, search: SearchValues) -> None:
        self._search, self.epoch = search, search.epoch

    def to_numpy(self) -> np.ndarray:
        """The predecessors by user's vertex id: int64[len(self)]; O(n), moves them to this process.

        Raises
        ------
        GraphClosed
            The graph, or the search's result, was closed.
        """
        self._search._check()
        found, door = self._search._fetch("predecessors"), self._search._door
        there = found >= 0
        found[there] = door.outside(found[there])
        return door.by_user(found)

    def __len__(self) -> int:
        return len(self._search)

    def __iter__(self) -> Iterator[int]:
        return iter(self.to_numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return _as_array(self.to_numpy, dtype, copy)

    def __repr__(self) -> str:
        return f"<predecessors of {self._search!r}>"
