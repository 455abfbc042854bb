"""The results of algorithms, which stay on the workers: the user's handles to them, a class for each kind of column."""

from __future__ import annotations

import math
import operator
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mgraph.checks import check_vertex
from mgraph.client.held import Held
from mgraph.client.numbering import Numbering, Routed, concatenated, joined
from mgraph.client.report import html_of, text_of
from mgraph.columns import arrow, as_array
from mgraph.device import Device
from mgraph.errors import InvalidOption, MgraphError

__all__ = ["VertexIds", "VertexRows", "VertexValues", "column_of"]

SHOWN = 5  #: values at either end that a repr shows


class VertexValues(NDArrayOperatorsMixin):
    """An algorithm's result: one value for each vertex, stored on the workers until it is gathered.

    The algorithm's scalars, such as ``iterations``, and its other columns, such as ``predecessors``, are attributes.
    All columns are freed by `close`, or with the graph's next call after the last reference to any of them is gone.
    ``len(result)`` is the number of vertices; ``numpy.asarray(result)`` and iteration gather the values;
    ``result[vertex]``, ``result[[vertex, vertex]]`` and ``result[2:5]`` gather those of some vertices. In a graph with
    keys a vertex is named by its key, and a slice counts places in `vertices`.

    Arithmetic, comparisons and NumPy's universal functions, such as ``numpy.sqrt(result)``, are elementwise and stay on
    the workers, one call each; so do `where`, and `sum`, `norm`, `min` and `max`, which return a number. The other
    operand is a number, a result, or an array with a number for each vertex. Results that lie in different ranges, as
    after a rebalance, and those of vertex ids are sent through this process.

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

    def __init__(self, held: Held, column: str) -> None:
        self._held, self._column = held, column
        self.name, self.epoch, self.info = held.name, held.epoch, held.info
        self.dtype = np.dtype(held.dtypes[column])

    def to_numpy(self) -> np.ndarray:
        """The values in the order of users' vertex ids, or of `vertices`, gathered to this process: dtype[n]. O(n).

        Raises
        ------
        GraphClosed
            The graph, or this result, was closed.
        WorkerLost, GraphLost
            The graph cannot be used.
        """
        return self._held.read(self._gathered)

    def _gathered(self) -> np.ndarray:
        return self._held.numbering.by_user(self._by_rank())

    def _by_rank(self) -> np.ndarray:
        """The values as they lie on the ranks, in rank order, gathered to this process: dtype[n]."""
        parts = self._held.parts(self._column)  # within one process, they are the columns themselves
        return self._as_users_see(concatenated(parts) if self._held.coordinator.one_process else joined(parts))

    def ids(self) -> np.ndarray:
        """The ids or keys in the order of `to_numpy`, as `DynamicGraph.vertices` gave them at this epoch. O(n)."""
        return self._held.numbering.all_names()

    def to_series(self) -> Any:
        """The values as a ``pandas.Series`` with the vertices as its index, gathered to this process. O(n).

        In a graph with keys, the index has keys, and so has a column of vertices, with a missing value for none.
        Raises the same as `to_numpy`. Needs pandas.
        """
        return self._series_of(self.to_numpy(), self._index())

    def _series_of(self, values: np.ndarray, index: Any) -> Any:
        """Gathered values as a ``pandas.Series`` with vertices as users name them."""
        import pandas as pd

        values, there = self._named(values)
        if there is not None and values.dtype != object and not there.all():
            values = pd.arrays.IntegerArray(values, ~there)
        return pd.Series(values, index, name=self._column)

    def to_arrow(self) -> Any:
        """The values as a ``pyarrow.Array`` in the order of `to_numpy`, gathered to this process; needs pyarrow. O(n).

        In a graph with keys, a column of vertices has keys, and null for none. Raises the same as `to_numpy`.
        """
        values, there = self._named(self.to_numpy())
        return arrow().array(values, mask=None if there is None else ~there)

    def _index(self) -> Any:
        """The vertices as an index of pandas."""
        import pandas as pd

        if self._held.numbering.keys is None:
            return pd.RangeIndex(len(self), name="vertex")
        return pd.Index(self.ids(), name="vertex")

    def _named(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Gathered values with vertices as users name them, and where there are some; None for everywhere."""
        return values, None

    def to_pandas(self) -> Any:
        """All columns of the result as a ``pandas.DataFrame`` with the vertices as its index, gathered here. O(n).

        Raises the same as `to_numpy`. Needs pandas.
        """
        import pandas as pd

        return pd.DataFrame({name: column_of(self._held, name).to_series() for name in self._held.dtypes})

    def to_dask(self) -> Any:
        """All columns of the result as a ``dask.dataframe.DataFrame``, as in `to_pandas`; needs Dask and pandas.

        A partition is the part of one worker and stays there: it is a copy in host memory, which is Dask's until the
        last reference to the frame is gone, also if this result or the graph is closed before. Divisions are known in
        a graph without keys and without an order. In others the index travels to the workers, and columns of vertices
        pass through this process, where they are translated. Without a cluster there is one partition.

        Raises
        ------
        GraphClosed
            The graph, or this result, was closed.
        WorkerLost, GraphLost
            The graph cannot be used.

        Notes
        -----
        O(n). A partition that was lost with its worker cannot be computed again.
        """
        if (client := self._held.coordinator.client) is not None:
            return self._held.read(lambda: self._lent(client))
        from dask.dataframe import from_pandas

        return from_pandas(self.to_pandas(), npartitions=1, sort=False)

    def _lent(self, client: Any) -> Any:
        from mgraph.client.lending import to_dask

        held, numbering = self._held, self._held.numbering
        index = self._index()
        if numbering.order is not None:
            index = index[numbering.outside(np.arange(len(self)))]
        kinds = set() if numbering.order is None else {"vertex"}
        kinds |= set() if numbering.keys is None else {"vertex", "label"}
        columns = [column_of(held, name) for name in held.dtypes if held.kinds[name] in kinds]
        translated = {one._column: one._series_of(one._by_rank(), index) for one in columns}
        return to_dask(client, held, translated, index)

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
        numbering = self._held.numbering
        if np.ndim(vertices) > 0:
            return self._of(numbering.ids(vertices, "vertices"))
        if numbering.keys is None:
            one = np.array([check_vertex(vertices, n, "vertex")], np.uint32)
        else:
            one = numbering.ids([vertices], "vertices")
        value = self._of(one)[..., 0]
        return value if value.ndim else value.item()

    def _of(self, ids: np.ndarray) -> np.ndarray:
        """The values of users' ids."""
        return self._held.read(lambda: self._fetched(ids))

    def _fetched(self, ids: np.ndarray) -> np.ndarray:
        routed = self._held.numbering.route(ids)
        shares = [{"ids": part} for part in routed.deal(routed.internal)]
        answers = self._held.call("fetch", shares, column=self._column)
        return self._as_users_see(self._restored(routed, [answer["values"] for answer in answers]))

    def _restored(self, routed: Routed, parts: list[np.ndarray]) -> np.ndarray:
        return routed.restore(parts)

    def _as_users_see(self, values: np.ndarray) -> np.ndarray:
        return values

    def top(self, k: int = 10) -> list[tuple[Any, Any]]:
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
        return self._held.read(lambda: self._best(k))

    def _best(self, k: int) -> list[tuple[int, Any]]:
        answers = self._held.call("top", k=min(k, len(self)))
        ids = self._held.numbering.outside(np.concatenate([answer["ids"] for answer in answers]))
        values = np.concatenate([answer["values"] for answer in answers])
        best = np.lexsort((ids, -values.astype(np.float64)))[:k]
        names = self._held.numbering.names(ids[best]).tolist()
        return list(zip(names, values[best].tolist(), strict=True))

    # ---- arithmetic on the workers -----------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (None,), **options: Any) -> Any:
        """A universal function of NumPy, on the workers; ``x += y`` makes a new result."""
        known = ufunc.nout == 1 and ufunc.signature is None and getattr(np, ufunc.__name__, None) is ufunc
        if method != "__call__" or options or not known or not (out[0] is None or out[0] is self):
            return NotImplemented
        return _combined(ufunc.__name__, inputs)

    def where(self, condition: Any, other: Any = 0) -> VertexValues:
        """These values where `condition` holds, and `other` elsewhere, on the workers. O(n), one call."""
        made: VertexValues = _combined("where", (condition, self, other))
        return made

    def sum(self, axis: None = None, out: None = None) -> Any:
        """The sum of all values: an int, or a float from sums in float64. O(n), one call; does not depend on timing.

        `axis` and `out` are for ``numpy.sum(result)`` and must be None; so for `min` and `max`.
        """
        _check_whole(axis, out)
        return sum(self._reduced("sum"))

    def norm(self, ord: float = 2) -> float:
        """The norm of the values, in float64: the sum of magnitudes (1), Euclid's (2), or the largest one (inf). O(n).

        Raises `InvalidOption` for another `ord`, and `GraphClosed` if the graph or this result was closed.
        """
        if ord == 1:
            return float(sum(self._reduced("magnitudes")))
        if ord == 2:
            return math.sqrt(sum(self._reduced("squares")))
        if ord == math.inf:
            return float(max(map(abs, self._reduced("min") + self._reduced("max")), default=0.0))
        raise InvalidOption(f"ord is {ord!r}; it must be 1, 2 or inf")

    def min(self, axis: None = None, out: None = None) -> Any:
        """The least value; `InvalidOption` if there are no vertices. O(n), one call."""
        _check_whole(axis, out)
        return min(self._some("min"))

    def max(self, axis: None = None, out: None = None) -> Any:
        """The largest value; `InvalidOption` if there are no vertices. O(n), one call."""
        _check_whole(axis, out)
        return max(self._some("max"))

    def _reduced(self, kind: str) -> list[Any]:
        answers = self._held.call("reduced", column=self._column, kind=kind)
        return [number for answer in answers for number in answer["numbers"]]

    def _some(self, kind: str) -> list[Any]:
        numbers = self._reduced(kind)
        if not numbers:
            raise InvalidOption(f"the {kind} of no values: the graph has no vertices")
        return numbers

    def named(self, name: str, **info: Any) -> VertexValues:
        """The same values as the result of an algorithm of one's own: with its name and its scalars as attributes.

        Examples
        --------
        >>> x.named("influence", iterations=12).iterations  # doctest: +SKIP
        12
        """
        named = type(self)(self._held, self._column)
        named.name, named.info = name, info
        return named

    def close(self) -> None:
        """Free the result on the workers with the graph's next call. It may be called twice."""
        self._held.close()

    def __bool__(self) -> bool:
        raise ValueError("the truth of a result is that of many values; use (a == b).min(), or len(result)")

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
        capsules: tuple[Any, Any] = self.to_arrow().__arrow_c_array__(requested_schema)
        return capsules

    def __dlpack__(self, **options: Any) -> Any:
        """The gathered values by DLPack, in host memory."""
        return self.to_numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Host memory."""
        return (1, 0)

    def __getattr__(self, name: str) -> Any:
        held, info = self.__dict__.get("_held"), self.__dict__.get("info", {})
        if name in info:
            return info[name]
        if held is not None and name in held.dtypes:
            return column_of(held, name)
        known = sorted([*info, *held.dtypes]) if held is not None else []
        raise AttributeError(f"a result of {self.__dict__.get('name')} has no {name!r}; it has {known}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.info, *self._held.dtypes]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a result cannot be pickled, since its values are on the workers; pickle to_numpy() instead")

    def __repr__(self) -> str:
        return text_of(str(self), *self._excerpt())

    def _repr_html_(self) -> str:
        return html_of(str(self), *self._excerpt())

    def __str__(self) -> str:
        info = "".join(f", {key} {value}" for key, value in self.info.items())
        state = ", closed" if self._held.closed else ""
        column = "" if self._column == next(iter(self._held.dtypes)) else f" {self._column}"
        return f"<{self.name}{column}: {len(self)} {self.dtype} values at epoch {self.epoch}{info}{state}>"

    def _excerpt(self) -> tuple[list[str], list[list[str]]]:
        """The heads and the rows of a table of the first and the last values; no rows where they cannot be read."""
        n, rows = len(self), list[list[str]]()
        places = np.arange(n, dtype=np.uint32)
        cut = n > 2 * SHOWN
        if cut:
            places = np.concatenate([places[:SHOWN], places[-SHOWN:]])
        with suppress(MgraphError, RuntimeError):  # closed or lost; or on the event loop, which would wait for itself
            columns = self._cells(self._of(places)) if n else {}
            names = map(str, self._held.numbering.names(places).tolist())
            rows = [list(row) for row in zip(names, *columns.values(), strict=True)]
            if cut:
                rows.insert(SHOWN, ["..."] * len(rows[0]))
            return ["vertex", *columns], rows
        return [], []

    def _cells(self, values: np.ndarray) -> dict[str, list[str]]:
        """Values as text, by the name of the column."""
        found, there = self._named(values)
        cells = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in found.tolist()]
        if there is not None:
            cells = [cell if one else "" for cell, one in zip(cells, there, strict=True)]
        return {self._column: cells}


class VertexLabels(VertexValues):
    """A result that has one vertex for each vertex, such as one of its component: users' ids as int64.

    In a graph with keys they are places in `vertices`, and keys in `to_series`, `to_pandas` and `to_arrow`.
    """

    def _named(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        numbering = self._held.numbering
        if numbering.keys is None:
            return values, None
        there = values >= 0
        found = numbering.names(values[there])
        names = np.zeros(len(values), np.int64) if found.dtype != object else np.full(len(values), None)
        names[there] = found
        return names, there


class VertexIds(VertexLabels):
    """A result that may have one vertex for each vertex, such as its predecessor: users' ids as int64, -1 for none.

    In a graph with keys they are places in `vertices`; in `to_series`, `to_pandas` and `to_arrow` they are keys, with a
    missing value for none. Arithmetic takes the ids through this process, where they are translated.
    """

    def _reduced(self, kind: str) -> list[Any]:
        return (self + 0)._reduced(kind)  # which has users' ids

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

        return pd.DataFrame(self.to_numpy().T, self._index())

    def _cells(self, values: np.ndarray) -> dict[str, list[str]]:
        cells = {}
        for row in range(min(SHOWN, len(values))):
            cells[str(row)] = super()._cells(values[row])[self._column]
        return cells if len(values) <= SHOWN else {**cells, "...": ["..."] * values.shape[1]}

    def _restored(self, routed: Routed, parts: list[np.ndarray]) -> np.ndarray:
        return np.stack([routed.restore([part[row] for part in parts]) for row in range(len(parts[0]))])

    def top(self, k: int = 10) -> list[tuple[int, Any]]:
        """Not for several rows: take those of `to_numpy`."""
        raise InvalidOption(f"this result of {self.name} has several rows; top({k}) is of one value a vertex")


_CLASSES: dict[str, type[VertexValues]] = {
    "value": VertexValues,
    "vertex": VertexIds,
    "label": VertexLabels,
    "rows": VertexRows,
}  #: by the kind of a column


def column_of(held: Held, name: str) -> VertexValues:
    """The handle to a column of a result."""
    return _CLASSES[held.kinds[name]](held, name)


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def _check_whole(axis: Any, out: Any) -> None:
    """`InvalidOption` unless all values are asked for as one number."""
    if axis is not None or out is not None:
        raise InvalidOption(f"axis is {axis!r} and out {out!r}; a result is reduced whole, to a number")


def _combined(operation: str, inputs: Sequence[Any]) -> VertexValues:
    """An elementwise operation on the workers of the first input that lies there."""
    results = [one for one in inputs if isinstance(one, VertexValues)]
    on_workers = [one for one in results if not isinstance(one, VertexIds)]
    anchor = (on_workers or results)[0]
    held, key = anchor._held, uuid.uuid4().hex
    size = held.numbering.partition.size
    operands = [_operand(one, held) for one in inputs]
    shares = [{"operands": [parts[rank] for parts in operands]} for rank in range(size)]
    try:
        answers = held.coordinator.call("combine", {"result": key, "operation": operation, "like": held.key}, shares)
    except BaseException:
        held.coordinator.forget(key)
        raise
    kind = "rows" if any(isinstance(one, VertexRows) for one in on_workers) else "value"
    dtypes, kinds = {"value": answers[0]["dtype"]}, {"value": kind}
    return column_of(Held(held.coordinator, held.numbering, operation, key, held.epoch, dtypes, {}, kinds), "value")


def _operand(value: Any, held: Held) -> list[dict[str, Any]]:
    """Each rank's share of an operand of the results in `held`."""
    here, size = held.numbering, held.numbering.partition.size
    if isinstance(value, VertexValues) and not isinstance(value, VertexIds):
        other = value._held
        other.check()
        there = other.numbering
        alike = there.generation == here.generation and there.partition == here.partition
        if other.coordinator is held.coordinator and alike:
            return [{"result": other.key, "column": value._column}] * size
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise InvalidOption(f"an operand is {value}; whole numbers have 64 bits")
    if isinstance(value, int | float | np.number | np.bool_):
        return [{"number": value}] * size
    array = Device.to_host(as_array(_in_order(value, here)))
    if array.ndim != 1 or array.dtype.kind not in "biuf" or len(array) != here.n_vertices:
        raise InvalidOption(
            f"an operand has shape {array.shape} and dtype {array.dtype}; it must be a number, or have one for each of "
            f"{here.n_vertices} vertices"
        )
    inside = np.empty_like(array)
    inside[here.inside(np.arange(len(array)))] = array
    return [{"values": inside[first:end]} for first, end in pairwise(here.partition.starts)]


def _in_order(value: Any, here: Numbering) -> Any:
    """An operand in the order of the vertices: in a graph with keys, a Series of pandas is aligned by its index."""
    if here.keys is None:
        return value
    if isinstance(value, VertexValues):
        if value._held.numbering.keys is here.keys:
            return value
        raise InvalidOption(f"an operand is a result of epoch {value.epoch}, when the graph had other vertices")
    if not (hasattr(value, "index") and hasattr(value, "to_numpy")):
        return value
    ids = here.ids(value.index, "the index of an operand")
    if len(ids) != here.n_vertices or len(np.unique(ids)) != len(ids):
        raise InvalidOption(f"the index of an operand has {len(ids)} rows; it must name each vertex once")
    ordered = np.empty_like(value.to_numpy())
    ordered[ids] = value.to_numpy()
    return ordered
