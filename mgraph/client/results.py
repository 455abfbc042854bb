"""The results of algorithms, which stay on the workers: the user's handles to them, a class for each kind of column."""

from __future__ import annotations

import operator
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from mgraph.algorithms import ALGORITHMS
from mgraph.algorithms.algorithm import Vertex, VertexData, Vertices
from mgraph.batch import as_array, as_ids, check_ids
from mgraph.checks import check_vertex
from mgraph.client.caller import Caller
from mgraph.client.numbering import Numbering, Routed
from mgraph.device import Device
from mgraph.errors import GraphClosed, InvalidBatch, InvalidOption
from mgraph.partition import Partition

__all__ = ["VertexIds", "VertexRows", "VertexValues", "run_algorithm"]


class _Held:
    """The columns of one result on the workers, shared by the handles to them.

    They are freed with the graph's next call after `close`, or after the last handle is gone.

    Parameters
    ----------
    coordinator : Caller
    numbering : Numbering
        The order and the ranges in which the columns are stored on the ranks.
    name : str
        The algorithm's name.
    key : str
        The id of the columns on the workers.
    epoch : int
    dtypes : mapping of str to str
        The dtype of each column by its name, the main column first.
    info : mapping
        The scalars of the result, such as ``iterations``.
    """

    def __init__(
        self,
        coordinator: Caller,
        numbering: Numbering,
        name: str,
        key: str,
        epoch: int,
        dtypes: Mapping[str, str],
        info: Mapping[str, Any],
    ) -> None:
        self.coordinator, self.numbering, self.name, self.key = coordinator, numbering, name, key
        self.epoch, self.dtypes, self.info = epoch, dict(dtypes), dict(info)
        self._free = weakref.finalize(self, coordinator.forget, key)
        self._free.atexit = False  # at exit the sessions end, which frees the results

    def close(self) -> None:
        self._free()

    @property
    def closed(self) -> bool:
        return not self._free.alive

    def check(self) -> None:
        if self.closed:
            raise GraphClosed(f"this result of {self.name} (epoch {self.epoch}) was closed")

    def parts(self, column: str) -> list[np.ndarray]:
        """A column as it lies on the ranks, in rank order."""
        return [answer["values"] for answer in self.call("fetch", column=column)]

    def call(self, method: str, shares: Sequence[dict[str, Any]] | None = None, **args: Any) -> list[dict[str, Any]]:
        self.check()
        return self.coordinator.call(method, {"result": self.key, **args}, shares)


class VertexValues:
    """An algorithm's result: one value for each vertex, stored on the workers until it is gathered.

    The algorithm's scalars, such as ``iterations``, and its other columns, such as ``predecessors``, are attributes.
    All columns are freed by `close`, or with the graph's next call after the last reference to any of them is gone.
    ``len(result)`` is the number of vertices; ``numpy.asarray(result)`` and iteration gather the values;
    ``result[vertex]``, ``result[[vertex, vertex]]`` and ``result[2:5]`` gather those of some vertices.

    Attributes
    ----------
    name : str
        The algorithm's name.
    epoch : int
        The graph's epoch when the values were computed; later changes of the graph do not change them.
    dtype : numpy.dtype
        The dtype of the values.
    info : dict
        The algorithm's scalars by name.
    """

    def __init__(self, held: _Held, column: str) -> None:
        self._held, self._column = held, column
        self.name, self.epoch, self.info = held.name, held.epoch, held.info
        self.dtype = np.dtype(held.dtypes[column])

    def to_numpy(self) -> np.ndarray:
        """The values in the order of users' vertex ids, gathered to this process: dtype[n]. O(n).

        Raises
        ------
        GraphClosed
            The graph, or this result, was closed.
        WorkerLost, GraphLost
            The graph cannot be used.
        """
        values = np.concatenate(self._held.parts(self._column), axis=-1)
        return self._held.numbering.by_user(self._as_users_see(values))

    def to_series(self) -> Any:
        """The values as a ``pandas.Series`` with the vertices as its index, gathered to this process. O(n).

        Raises the same as `to_numpy`. Needs pandas.
        """
        import pandas as pd

        return pd.Series(self.to_numpy(), pd.RangeIndex(len(self), name="vertex"), name=self._column)

    def to_pandas(self) -> Any:
        """All columns of the result as a ``pandas.DataFrame`` with the vertices as its index, gathered here. O(n).

        Raises the same as `to_numpy`. Needs pandas.
        """
        import pandas as pd

        return pd.DataFrame({name: _column(self._held, name).to_series() for name in self._held.dtypes})

    def __getitem__(self, vertices: Any) -> Any:
        """The value of a vertex, or the values of a slice or an array of vertices: dtype[k]. O(k).

        Raises
        ------
        UnknownVertex
            A vertex is not one of those that the graph had.
        InvalidOption, InvalidBatch
            `vertices` are no whole numbers.
        """
        n = len(self)
        if isinstance(vertices, slice):
            return self._of(np.arange(*vertices.indices(n), dtype=np.uint32))
        if np.ndim(vertices) == 0:
            value = self._of(np.array([check_vertex(vertices, n, "vertex")], np.uint32))[..., 0]
            return value if value.ndim else value.item()
        ids = as_ids(vertices, "vertices")
        check_ids(ids, n, "vertices")
        return self._of(Device.to_host(ids))

    def _of(self, ids: np.ndarray) -> np.ndarray:
        """The values of users' ids."""
        routed = self._held.numbering.route(ids)
        shares = [{"ids": part} for part in routed.deal(routed.internal)]
        answers = self._held.call("fetch", shares, column=self._column)
        return self._as_users_see(self._restored(routed, [answer["values"] for answer in answers]))

    def _restored(self, routed: Routed, parts: list[np.ndarray]) -> np.ndarray:
        return routed.restore(parts)

    def _as_users_see(self, values: np.ndarray) -> np.ndarray:
        return values

    def top(self, k: int = 10) -> list[tuple[int, Any]]:
        """The `k` vertices with the largest values, as (vertex, value), largest first.

        If vertices that are left out have the same value as the last ones returned, the graph's internal order has
        decided between them. O(n); each worker sends k values at most.

        Raises
        ------
        InvalidOption
            `k` is not a whole number of 0 or more.
        GraphClosed
            The graph, or this result, was closed.
        """
        try:
            k = operator.index(k)
        except TypeError:
            raise InvalidOption(f"top({k!r}): k must be a whole number") from None
        if k < 0:
            raise InvalidOption(f"top({k}): k must be 0 or more")
        answers = self._held.call("top", k=min(k, len(self)))
        ids = self._held.numbering.outside(np.concatenate([answer["ids"] for answer in answers]))
        values = np.concatenate([answer["values"] for answer in answers])
        best = np.lexsort((ids, -values.astype(np.float64)))[:k]
        return [(int(ids[place]), values[place].item()) for place in best]

    def close(self) -> None:
        """Free the result on the workers with the graph's next call. It may be called twice."""
        self._held.close()

    def __len__(self) -> int:
        return self._held.numbering.n_vertices

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the values are on the workers, so an array of them is always a copy; copy=False fails")
        array = self.to_numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Arrow's PyCapsule interface, by which ``pyarrow.array`` and Polars take the values; needs pyarrow."""
        import pyarrow as pa

        capsules: tuple[Any, Any] = pa.array(self.to_numpy()).__arrow_c_array__(requested_schema)
        return capsules

    def __dlpack__(self, **options: Any) -> Any:
        """The gathered values by DLPack, in host memory."""
        return self.to_numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Host memory."""
        return (1, 0)

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__.get("_held")
        if held is not None and name in held.info:
            return held.info[name]
        if held is not None and name in held.dtypes:
            return _column(held, name)
        known = sorted([*held.info, *held.dtypes]) if held is not None else []
        raise AttributeError(f"a result of {self.__dict__.get('name')} has no {name!r}; it has {known}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.info, *self._held.dtypes]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a result cannot be pickled, since its values are on the workers; pickle to_numpy() instead")

    def __repr__(self) -> str:
        info = "".join(f", {key} {value}" for key, value in self.info.items())
        state = ", closed" if self._held.closed else ""
        column = "" if self._column == next(iter(self._held.dtypes)) else f" {self._column}"
        return f"<{self.name}{column}: {len(self)} {self.dtype} values at epoch {self.epoch}{info}{state}>"


class VertexIds(VertexValues):
    """A result that has one vertex for each vertex, such as its predecessor: users' ids as int64, -1 for none."""

    def _as_users_see(self, values: np.ndarray) -> np.ndarray:
        there = values >= 0
        values[there] = self._held.numbering.outside(values[there])
        return values


class VertexRows(VertexValues):
    """A result of several rows, each with a value for each vertex: `to_numpy` gives dtype[k, n]."""

    def to_series(self) -> Any:
        """Not for several rows: take `to_pandas`."""
        raise InvalidOption(f"this result of {self.name} has several rows; to_pandas() has a column for each")

    def to_pandas(self) -> Any:
        """The rows as the columns of a ``pandas.DataFrame`` with the vertices as its index, gathered here. O(k n)."""
        import pandas as pd

        return pd.DataFrame(self.to_numpy().T, pd.RangeIndex(len(self), name="vertex"))

    def _restored(self, routed: Routed, parts: list[np.ndarray]) -> np.ndarray:
        return np.stack([routed.restore([part[row] for part in parts]) for row in range(len(parts[0]))])

    def top(self, k: int = 10) -> list[tuple[int, Any]]:
        """Not for several rows: take those of `to_numpy`."""
        raise InvalidOption(f"this result of {self.name} has several rows; top({k}) is of one value a vertex")


_CLASSES: dict[str, type[VertexValues]] = {
    "value": VertexValues,
    "vertex": VertexIds,
    "rows": VertexRows,
}  #: by the kind of a column


def _column(held: _Held, name: str) -> VertexValues:
    return _CLASSES[ALGORITHMS[held.name].columns[name]](held, name)


# ---- running an algorithm --------------------------------------------------------------------------------------------


def run_algorithm(coordinator: Caller, name: str, arguments: Mapping[str, Any], numbering: Numbering) -> Any:
    """The result of an algorithm, run on all ranks with arguments that its `check` has returned."""
    data = {
        k: _own_values(k, v.values, coordinator, numbering) for k, v in arguments.items() if isinstance(v, VertexData)
    }
    args = {k: _inside(v, numbering) for k, v in arguments.items() if k not in data}
    shares = [{"data": {k: parts[rank] for k, parts in data.items()}} for rank in range(numbering.partition.size)]
    key = uuid.uuid4().hex
    try:
        common = {"name": name, "result": key, "generation": numbering.generation, "args": args}
        answers = coordinator.call("run", common, shares, connect=True)
    except BaseException:
        coordinator.forget(key)  # some ranks may have finished
        raise
    ranges = Partition((*(answer["lo"] for answer in answers), answers[-1]["hi"]))
    first, then = answers[0], numbering.moved(ranges)  # the ranges when it ran; they may have moved since
    held = _Held(coordinator, then, name, key, first["epoch"], first["dtypes"], first["info"])
    return _column(held, next(iter(held.dtypes))) if ALGORITHMS[name].result is None else _gathered(held)


def _gathered(held: _Held) -> Any:
    """What an algorithm makes of its columns in this process; they are freed on the workers."""
    algorithm = ALGORITHMS[held.name]
    assert algorithm.result is not None
    try:
        parts = {column: held.parts(column) for column in held.dtypes}
    finally:
        held.close()
    for column in parts:
        if algorithm.columns[column] == "vertex":
            parts[column] = [held.numbering.outside(part) for part in parts[column]]
    return algorithm.result(parts, dict(held.info))


def _inside(value: Any, numbering: Numbering) -> Any:
    """An argument as the program takes it: vertices by their internal ids, anything else unchanged."""
    if isinstance(value, Vertices):
        return numbering.inside(value.ids)
    return int(numbering.inside(np.array([value.id], np.uint32))[0]) if isinstance(value, Vertex) else value


def _own_values(name: str, values: Any, coordinator: Caller, numbering: Numbering) -> list[dict[str, Any]]:
    """Each rank's share of an argument that has a number for each vertex.

    An earlier result of the same graph and order is on the ranks already, so its key is sent. Of an array by users'
    ids, each rank gets its part in internal order; vertices past the array's end get the mean of the array.

    Raises
    ------
    InvalidOption
        The array is not one-dimensional, not numeric, or longer than the number of vertices. Rows of float64, as long
        as the number of vertices, are what an algorithm's check made of several arrays.
    GraphClosed
        The result was closed.
    """
    starts = list(numbering.partition.starts)
    if isinstance(values, VertexValues) and not isinstance(values, VertexRows):
        held = values._held
        held.check()
        if held.coordinator is coordinator and held.numbering.generation == numbering.generation:
            moved = held.numbering.partition.starts[:-1] != numbering.partition.starts[:-1]
            return [{"starts": starts, "result": held.key, "moved": moved}] * numbering.partition.size
    try:
        array = Device.to_host(as_array(values))
    except InvalidBatch as error:
        raise InvalidOption(f"{name}: {error}") from None
    if array.ndim == 2 and array.shape[1] == numbering.n_vertices and array.dtype == np.float64:
        inside = np.empty_like(array)
        inside[:, numbering.inside(np.arange(array.shape[1]))] = array
        return [{"starts": starts, "values": inside[:, first:end]} for first, end in pairwise(starts)]
    if array.ndim != 1 or array.dtype.kind not in "iuf" or len(array) > numbering.n_vertices:
        raise InvalidOption(
            f"{name} has shape {array.shape} and dtype {array.dtype}; "
            f"it must be a one-dimensional array of at most {numbering.n_vertices} numbers, one for each vertex"
        )
    with np.errstate(over="ignore"):  # the program rejects values that are not finite
        inside = np.full(numbering.n_vertices, array.mean() if len(array) else 1, np.float64)
        inside[numbering.inside(np.arange(len(array)))] = array
    return [{"starts": starts, "values": inside[first:end]} for first, end in pairwise(starts)]
