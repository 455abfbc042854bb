"""Results of algorithms, which stay on the workers: the users' handles, one class per kind of column."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterator
from numbers import Real
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mgraph.client.results.arithmetic import VALUE, check_whole, combine, compare
from mgraph.client.results.column import SHOWN, Column
from mgraph.client.results.remote_columns import RemoteColumns
from mgraph.client.vertices.numbering import Routed
from mgraph.errors import InvalidOption
from mgraph.facade import at_facade, hint, needed
from mgraph.tables.texts import arrow

__all__ = ["VertexIds", "VertexLabels", "VertexRows", "VertexValues", "column_of"]


REMEDIES = {
    **dict.fromkeys(("predecessor", "predecessors", "parents"), "; bfs and sssp keep them with predecessors=True"),
    **dict.fromkeys(("path", "paths"), "; shortest_path(source, target) of the graph returns a path"),
}  #: hints for names that no result has


@at_facade
class VertexValues(Column, NDArrayOperatorsMixin):
    """An algorithm's result: one value per vertex, stored on the workers until it is gathered.

    The algorithm's scalars, such as ``iterations``, and its other columns, such as ``predecessors``, are attributes.
    All columns are freed by `close`, or with the graph's next call after the last reference to any of them is gone.
    ``len(result)`` is the number of vertices; ``numpy.asarray(result)`` and iteration gather the values;
    ``result[vertex]``, ``result[[vertex, vertex]]`` and ``result[2:5]`` gather those of some vertices. In a graph with
    keys a vertex is named by its key, and a slice counts positions in `vertices`.

    Arithmetic, comparisons and NumPy's universal functions, such as ``numpy.sqrt(result)``, are elementwise and run on
    the workers, one call each; so do `where`, and `sum`, `mean`, `norm`, `min` and `max`, which return a number. The
    other operand is a number, a result, an array with a number for each vertex, or a Series of pandas, which is aligned
    by its index. Results in different ranges, as after a rebalance, are sent through this process.

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
        remote, info = self.__dict__.get("_remote"), self.__dict__.get("info", {})
        if name in info:
            return info[name]
        if remote is not None and name in remote.dtypes:
            return column_of(remote, name)

        # The error lists the names that exist.
        outcomes = sorted([*info, *remote.dtypes]) if remote is not None else []
        pandas, instead = sys.modules.get("pandas"), REMEDIES.get(name, "")
        if not instead and pandas is not None and hasattr(pandas.Series, name):
            instead = "; to_series() has it"
        raise AttributeError(
            f"a result of {self.__dict__.get('name')} has no {name!r}; it has "
            f"{', '.join(map(repr, outcomes)) or 'nothing'}, and the methods of {type(self).__name__}, such as top, "
            f"to_series and to_pandas{hint(name, [*outcomes, *dir(type(self))], instead)}"
        )

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.info, *self._remote.dtypes]

    # ---- as other libraries' objects ---------------------------------------------------------------------------------

    def to_series(self) -> Any:
        """Gather the values as a ``pandas.Series`` with the vertices as its index. O(n).

        In a graph with keys, the index has keys, and so has a column of vertices, with a missing value for no vertex.
        Raises the same as `to_numpy`. Needs pandas.
        """
        return self._series_of(self.to_numpy(), self._index())

    def head(self, n: int = 5) -> Any:
        """Gather the values of the first `n` vertices as a ``pandas.Series``, like `to_series`. O(n).

        Raises the same as `to_numpy`, and `InvalidOption` if `n` is no whole number. Needs pandas.
        """
        try:
            places = np.arange(len(self), dtype=np.uint32)[: operator.index(n)]
        except TypeError:
            raise InvalidOption(f"head({n!r}): n must be a whole number") from None
        return self._series_of(self._of(places), self._index(places))

    def value_counts(self) -> Any:
        """Return how many vertices have each value as a ``pandas.Series``, the most frequent value first. O(n).

        In a graph with keys, a column of vertices is counted by keys, and entries without a vertex are left out. Raises
        the same as `to_numpy`. Needs pandas.
        """
        return self.to_series().value_counts()

    def _series_of(self, values: np.ndarray, index: Any) -> Any:
        """Return gathered values as a ``pandas.Series``, with vertices in users' names."""
        pd = needed("pandas", "a Series of a result")
        values, present = self._named(values)
        if present is not None and values.dtype != object and not present.all():
            values = pd.arrays.IntegerArray(values, ~present)
        return pd.Series(values, index, name=self._column)

    def to_arrow(self) -> Any:
        """Gather the values as a ``pyarrow.Array`` in the order of `to_numpy`; needs pyarrow. O(n).

        In a graph with keys, a column of vertices has keys, and null for no vertex. Raises the same as `to_numpy`.
        """
        values, present = self._named(self.to_numpy())
        kind = arrow().string() if values.dtype == object else None  # even if all values are missing
        return arrow().array(values, kind, mask=None if present is None else ~present)

    def _index(self, places: np.ndarray | None = None) -> Any:
        """Return the vertices, or some of them, as a pandas index."""
        pd = needed("pandas", "an index of vertices")
        if self._remote.numbering.keys is None:
            return pd.RangeIndex(len(self) if places is None else len(places), name="vertex")
        return pd.Index(self.ids() if places is None else self._remote.numbering.names(places), name="vertex")

    def to_pandas(self) -> Any:
        """Gather all columns as a ``pandas.DataFrame`` with the vertices as its index. O(n).

        Raises the same as `to_numpy`. Needs pandas.
        """
        pd = needed("pandas", "to_pandas()")
        return pd.DataFrame({name: column_of(self._remote, name).to_series() for name in self._remote.dtypes})

    def to_dask(self) -> Any:
        """Return all columns as a ``dask.dataframe.DataFrame``; needs Dask and pandas.

        The frame has the columns of `to_pandas`. A partition is a copy of one worker's part in its host memory. It
        belongs to Dask until the last reference to the frame is dropped, also if this result or the graph is closed
        before. Divisions are known in a graph without keys and without an order. In others the index is sent to the
        workers, and columns of vertices pass through this process, where they are translated. Without a cluster the
        frame has one partition.

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
        if (client := self._remote.coordinator.client) is not None:
            return self._remote.read(lambda: self._lent(client))
        frames = needed("dask.dataframe", "to_dask()", '"dask-mgraph[cluster]"')
        return frames.from_pandas(self.to_pandas(), npartitions=1, sort=False)

    def _lent(self, client: Any) -> Any:
        from mgraph.client.results.to_dask import to_dask

        remote, numbering = self._remote, self._remote.numbering
        index = self._index()
        if numbering.order is not None:
            index = index[numbering.outside(np.arange(len(self)))]

        # Columns of vertices are translated here, since workers do not know users' names.
        kinds = set() if numbering.order is None else {"vertex"}
        kinds |= set() if numbering.keys is None else {"vertex", "label"}
        columns = [column_of(remote, name) for name in remote.dtypes if remote.kinds[name] in kinds]
        translated = {column._column: column._series_of(column._by_rank(), index) for column in columns}
        return to_dask(client, remote, translated, index)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        """Export the values by Arrow's PyCapsule interface, for ``pyarrow.array`` and Polars; needs pyarrow."""
        capsules: tuple[Any, Any] = self.to_arrow().__arrow_c_array__(requested_schema)
        return capsules

    # ---- arithmetic on the workers -----------------------------------------------------------------------------------

    __pandas_priority__ = 3500  # above a Series, which would align values by place

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (None,), **options: Any) -> Any:
        """Apply a universal function of NumPy on the workers; ``x += y`` makes a new result."""
        elementwise = ufunc.nout == 1 and ufunc.signature is None and getattr(np, ufunc.__name__, None) is ufunc
        if method != "__call__" or options or not elementwise or not (out[0] is None or out[0] is self):
            return NotImplemented
        return column_of(combine(ufunc.__name__, inputs), VALUE)

    def where(self, condition: Any, other: Any = 0) -> VertexValues:
        """Return these values where `condition` holds, and `other` elsewhere, on the workers. O(n), one call."""
        return column_of(combine("where", (condition, self, other)), VALUE)

    def sum(self, axis: None = None, dtype: None = None, out: None = None) -> Any:
        """Return the sum of all values: an int, or a float from sums in float64. Deterministic. O(n), one call.

        `axis`, `dtype` and `out` are for ``numpy.sum(result)`` and must be None; so for `mean`, `min` and `max`.
        """
        check_whole(axis, out, dtype)
        return sum(self._reduced("sum"), 0.0 if self.dtype.kind == "f" else 0)

    def mean(self, axis: None = None, dtype: None = None, out: None = None) -> float:
        """Return the mean of all values, from sums in float64 or int64. `InvalidOption` without vertices.

        O(n), one call. For a mask, as of a comparison, it is the fraction of vertices that are True.
        """
        check_whole(axis, out, dtype)
        parts = self._reduced_or_raise("sum")
        return float(sum(parts) / (len(self) * self._rows))

    @property
    def _rows(self) -> int:
        """The number of values per vertex."""
        return 1

    def norm(self, ord: float = 2) -> float:
        """Return the norm of the values in float64: the sum of magnitudes (1), Euclid's (2), the largest (inf). O(n).

        Raises `InvalidOption` for another `ord`, and `GraphClosed` if the graph or this result was closed.
        """
        if not isinstance(ord, Real):
            raise InvalidOption(f"ord is {ord!r}; it must be 1, 2 or inf")
        if ord == 1:
            return float(sum(self._reduced("magnitudes")))
        if ord == 2:
            return math.sqrt(sum(self._reduced("squares")))
        if ord == math.inf:
            return float(
                _extreme(max, [abs(number) for kind in ("min", "max") for number in self._reduced(kind)] or [0])
            )
        raise InvalidOption(f"ord is {ord!r}; it must be 1, 2 or inf")

    def min(self, axis: None = None, out: None = None) -> Any:
        """Return the least value, NaN if any is NaN; `InvalidOption` without vertices. O(n), one call."""
        check_whole(axis, out)
        return _extreme(min, self._reduced_or_raise("min"))

    def max(self, axis: None = None, out: None = None) -> Any:
        """Return the largest value, NaN if any is NaN; `InvalidOption` without vertices. O(n), one call."""
        check_whole(axis, out)
        return _extreme(max, self._reduced_or_raise("max"))

    def _reduced(self, kind: str) -> list[Any]:
        """Reduce each part of the column to a number, on the workers."""
        answers = self._remote.call("reduced", column=self._column, kind=kind)
        return [number for answer in answers for number in answer["numbers"]]

    def _reduced_or_raise(self, kind: str) -> list[Any]:
        numbers = self._reduced(kind)
        if not numbers:
            raise InvalidOption(f"the {kind} of no values: the graph has no vertices")
        return numbers


def _extreme(choose: Any, numbers: list[Any]) -> Any:
    """Return the extreme number, NaN if any is NaN."""
    return next((number for number in numbers if number != number), None) or choose(numbers)


@at_facade
class VertexLabels(VertexValues):
    """A result whose values are vertices, such as the component of each vertex: users' ids as int64, -1 for none.

    In a graph with keys, ``result[vertex]``, iteration, `items`, ``==``, ``!=``, `to_series` and `to_arrow` use keys:
    None, or a missing value, stands for no vertex. An array of vertices gives an array of keys, of objects if some are
    missing. `to_numpy`, ``numpy.asarray`` and `DynamicGraph.gather` have positions in `vertices`.

    ``result == vertex`` is a mask on the workers; so is a comparison with another column of vertices, with an array of
    vertices, or with a Series, which is aligned by its index. Vertices are no numbers: order, arithmetic, `top`, `sum`
    and the like raise `InvalidOption`.
    """

    def _named(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        numbering = self._remote.numbering
        if numbering.keys is None:
            return values, None
        present = values >= 0
        keys = numbering.names(values[present])
        names = np.zeros(len(values), np.int64) if keys.dtype != object else np.full(len(values), None)
        names[present] = keys
        return names, present

    def __iter__(self) -> Iterator[Any]:
        return iter(self._spoken(self.to_numpy()).tolist())

    def sizes(self) -> Any:
        """Return the communities or components as a ``pandas.Series``: their number of vertices by their label. O(n).

        The largest is first, and of equal ones that of the smallest vertex. In a graph with keys, labels are keys.
        Vertices without a label are not counted. Raises the same as `to_numpy`. Needs pandas.
        """
        pd = needed("pandas", "sizes()")
        values = self.to_numpy()
        labels, counts = np.unique(values[values >= 0], return_counts=True)
        order = np.argsort(-counts, kind="stable")
        index = pd.Index(self._named(labels[order])[0], name=self._column)
        return pd.Series(counts[order], index, name="size")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = (None,), **options: Any) -> Any:
        """Compare with vertices by ``==`` and ``!=`` on the workers; `InvalidOption` for another function."""
        if ufunc not in (np.equal, np.not_equal) or method != "__call__":
            raise self._refusal(ufunc.__name__)
        if options or out[0] is not None:
            return NotImplemented
        return column_of(compare(ufunc.__name__, inputs), VALUE)

    def _reduced(self, kind: str) -> list[Any]:
        raise self._refusal(kind)

    def top(self, k: int = 10) -> list[tuple[Any, Any]]:
        """Raise `InvalidOption`: vertices have no order by size."""
        raise self._refusal(f"top({k})")


class VertexIds(VertexLabels):
    """A result whose values are vertices, such as the predecessor of each vertex; used like `VertexLabels`."""

    def _as_users_see(self, values: np.ndarray) -> np.ndarray:
        numbering = self._remote.numbering
        if numbering.order is None:
            return values
        # A new array: `values` may be the workers'.
        ids = numbering.outside(np.maximum(values, 0).astype(np.uint32)).astype(values.dtype, copy=False)
        return np.where(values < 0, values, ids)


@at_facade
class VertexRows(VertexValues):
    """A result of several rows, each with a value per vertex: `to_numpy` gives dtype[k, n]."""

    @property
    def _rows(self) -> int:
        return len(self._of(np.zeros(0, np.uint32)))

    def to_series(self) -> Any:
        """Raise `InvalidOption`: `to_pandas` has a column for each row."""
        raise InvalidOption(f"this result of {self.name} has several rows; to_pandas() has a column for each")

    def to_arrow(self) -> Any:
        """Raise `InvalidOption`: `to_pandas` has a column for each row."""
        raise InvalidOption(f"this result of {self.name} has several rows; to_pandas() has a column for each")

    def to_pandas(self) -> Any:
        """Gather the rows as columns of a ``pandas.DataFrame`` with the vertices as its index. O(k n)."""
        pd = needed("pandas", "to_pandas()")
        return pd.DataFrame(self.to_numpy().T, self._index())

    def _series_of(self, values: np.ndarray, index: Any) -> Any:
        return needed("pandas", "a table of a result").DataFrame(values.T, index)

    def _cells(self, values: np.ndarray) -> dict[str, list[str]]:
        cells = {}
        for row in range(min(SHOWN, len(values))):
            cells[str(row)] = super()._cells(values[row])[self._column]
        return cells if len(values) <= SHOWN else {**cells, "...": ["..."] * values.shape[1]}

    def _restored(self, routed: Routed, parts: list[np.ndarray]) -> np.ndarray:
        return np.stack([routed.restore([part[row] for part in parts]) for row in range(len(parts[0]))])

    def top(self, k: int = 10) -> list[tuple[int, Any]]:
        """Raise `InvalidOption`: a result of rows has no single order."""
        raise InvalidOption(f"this result of {self.name} has several rows; top({k}) is of one value a vertex")


_CLASSES: dict[str, type[VertexValues]] = {
    "value": VertexValues,
    "vertex": VertexIds,
    "label": VertexLabels,
    "rows": VertexRows,
}  #: keys are kinds of columns


def column_of(remote: RemoteColumns, name: str) -> VertexValues:
    """Return the handle to a column of a result."""
    return _CLASSES[remote.kinds[name]](remote, name)
