"""The results of algorithms, which stay on the workers: the user's handles to them, a class for each kind of column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mgraph.client.results.arithmetic import VALUE, check_whole, combined
from mgraph.client.results.column import SHOWN, Column
from mgraph.client.results.held import Held
from mgraph.client.vertices.numbering import Routed
from mgraph.errors import InvalidOption
from mgraph.tables.texts import arrow

__all__ = ["VertexIds", "VertexRows", "VertexValues", "column_of"]


class VertexValues(Column, NDArrayOperatorsMixin):
    """An algorithm's result: one value for each vertex, stored on the workers until it is gathered.

    The algorithm's scalars, such as ``iterations``, and its other columns, such as ``predecessors``, are attributes.
    All columns are freed by `close`, or with the graph's next call after the last reference to any of them is gone.
    ``len(result)`` is the number of vertices; ``numpy.asarray(result)`` and iteration gather the values;
    ``result[vertex]``, ``result[[vertex, vertex]]`` and ``result[2:5]`` gather those of some vertices. In a graph with
    keys a vertex is named by its key, and a slice counts places in `vertices`.

    Arithmetic, comparisons and NumPy's universal functions, such as ``numpy.sqrt(result)``, are elementwise and stay on
    the workers, one call each; so do `where`, and `sum`, `norm`, `min` and `max`, which return a number. The other
    operand is a number, a result, an array with a number for each vertex, or a Series of pandas, which is aligned by
    its index. Results that lie in different ranges, as after a rebalance, and those of vertex ids are sent through this
    process.

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

    def __getattr__(self, name: str) -> Any:
        held, info = self.__dict__.get("_held"), self.__dict__.get("info", {})
        if name in info:
            return info[name]
        if held is not None and name in held.dtypes:
            return column_of(held, name)
        known = ", ".join(map(repr, sorted([*info, *held.dtypes]))) if held is not None else "nothing"
        raise AttributeError(
            f"a result of {self.__dict__.get('name')} has no {name!r}; it has {known}, and the methods of "
            f"{type(self).__name__}, such as top, to_series and to_pandas"
        )

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.info, *self._held.dtypes]

    # ---- as other libraries' objects ---------------------------------------------------------------------------------

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
        kind = arrow().string() if values.dtype == object else None  # also where there is none, or no vertex
        return arrow().array(values, kind, mask=None if there is None else ~there)

    def _index(self) -> Any:
        """The vertices as an index of pandas."""
        import pandas as pd

        if self._held.numbering.keys is None:
            return pd.RangeIndex(len(self), name="vertex")
        return pd.Index(self.ids(), name="vertex")

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
        from mgraph.client.results.lending import to_dask

        held, numbering = self._held, self._held.numbering
        index = self._index()
        if numbering.order is not None:
            index = index[numbering.outside(np.arange(len(self)))]
        kinds = set() if numbering.order is None else {"vertex"}
        kinds |= set() if numbering.keys is None else {"vertex", "label"}
        columns = [column_of(held, name) for name in held.dtypes if held.kinds[name] in kinds]
        translated = {one._column: one._series_of(one._by_rank(), index) for one in columns}
        return to_dask(client, held, translated, index)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Arrow's PyCapsule interface, by which ``pyarrow.array`` and Polars take the values; needs pyarrow."""
        capsules: tuple[Any, Any] = self.to_arrow().__arrow_c_array__(requested_schema)
        return capsules

    # ---- arithmetic on the workers -----------------------------------------------------------------------------------

    __pandas_priority__ = 3500  # above that of a Series, which would take the values by their places

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (None,), **options: Any) -> Any:
        """A universal function of NumPy, on the workers; ``x += y`` makes a new result."""
        known = ufunc.nout == 1 and ufunc.signature is None and getattr(np, ufunc.__name__, None) is ufunc
        if method != "__call__" or options or not known or not (out[0] is None or out[0] is self):
            return NotImplemented
        return column_of(combined(ufunc.__name__, inputs), VALUE)

    def where(self, condition: Any, other: Any = 0) -> VertexValues:
        """These values where `condition` holds, and `other` elsewhere, on the workers. O(n), one call."""
        return column_of(combined("where", (condition, self, other)), VALUE)

    def sum(self, axis: None = None, out: None = None) -> Any:
        """The sum of all values: an int, or a float from sums in float64. O(n), one call; does not depend on timing.

        `axis` and `out` are for ``numpy.sum(result)`` and must be None; so for `min` and `max`.
        """
        check_whole(axis, out)
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
        check_whole(axis, out)
        return min(self._some("min"))

    def max(self, axis: None = None, out: None = None) -> Any:
        """The largest value; `InvalidOption` if there are no vertices. O(n), one call."""
        check_whole(axis, out)
        return max(self._some("max"))

    def _reduced(self, kind: str) -> list[Any]:
        answers = self._held.call("reduced", column=self._column, kind=kind)
        return [number for answer in answers for number in answer["numbers"]]

    def _some(self, kind: str) -> list[Any]:
        numbers = self._reduced(kind)
        if not numbers:
            raise InvalidOption(f"the {kind} of no values: the graph has no vertices")
        return numbers


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
