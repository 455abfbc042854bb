"""A column of a result: its values, and its display."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn, Self

import numpy as np

from mgraph.checks import check_vertex
from mgraph.client.reports.report import html_of, text_of
from mgraph.client.results.remote_columns import RemoteColumns
from mgraph.client.vertices.numbering import Routed, concatenated, joined
from mgraph.errors import InvalidBatch, InvalidOption, MgraphError, UnknownVertex
from mgraph.facade import at_facade
from mgraph.tables.arrays import is_one

__all__ = ["SHOWN", "VERTICES", "Column"]

SHOWN = 5  #: values at either end in a repr
VERTICES = ("vertex", "label")  #: kinds of columns that hold vertices, not numbers


@at_facade
class Column:
    """A column of a result: one value for each vertex, stored on the workers until it is gathered.

    `mgraph.client.results.results` has a subclass for each kind of column.

    Parameters
    ----------
    remote : RemoteColumns
        The columns of the result.
    name : str
        The column's name.
    """

    def __init__(self, remote: RemoteColumns, name: str) -> None:
        self._remote, self._column = remote, name
        self.name, self.epoch, self.info = remote.name, remote.epoch, remote.info
        self.dtype = np.dtype(remote.dtypes[name])

    @property
    def _kind(self) -> str:
        """The kind of the column, as `Algorithm.columns` lists them."""
        return self._remote.kinds[self._column]

    def _refusal(self, operation: str) -> InvalidOption:
        """Return the error for an operation on numbers, on a column of vertices."""
        return InvalidOption(
            f"{operation} needs numbers, and {self._column!r} of {self.name} holds vertices, which have == and != "
            "only; value_counts() counts the vertices of each, and to_numpy() has their ids"
        )

    def to_numpy(self) -> np.ndarray:
        """Gather the values in the order of `ids`: dtype[n].

        In a graph with keys, vertices are positions in `ids`. O(n).

        Raises
        ------
        GraphClosed
            The graph, or this result, was closed.
        WorkerLost, GraphLost
            The graph cannot be used.
        """
        return self._remote.read(self._gathered)

    def _gathered(self) -> np.ndarray:
        return self._remote.numbering.by_user(self._by_rank(ordered=self._remote.numbering.order is not None))

    def _by_rank(self, ordered: bool = False) -> np.ndarray:
        """Gather the values in the ranks' order: dtype[n]; the caller's own, unless it will be `ordered`."""
        # Within one process, they are the columns themselves.
        parts = self._remote.parts(self._column)
        if ordered and len(parts) == 1:
            return self._as_users_see(parts[0])
        return self._as_users_see(concatenated(parts) if self._remote.coordinator.status.one_process else joined(parts))

    def _as_users_see(self, values: np.ndarray) -> np.ndarray:
        return values

    def ids(self) -> np.ndarray:
        """Return all vertices in the order of `to_numpy`, as `DynamicGraph.vertices` had them at this epoch. O(n)."""
        return self._remote.numbering.all_names()

    def _named(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return gathered values with vertices in users' names, and a mask of those present; None for all."""
        return values, None

    def _spoken(self, values: np.ndarray) -> np.ndarray:
        """Return gathered values in users' names, with None for a missing key."""
        names, present = self._named(values)
        if present is None or present.all():
            return names
        names = names.astype(object)
        names[~present] = None
        return names

    # ---- of some vertices --------------------------------------------------------------------------------------------

    def __getitem__(self, vertices: Any) -> Any:
        """Return the value of a vertex, or the values of a slice or array of vertices: dtype[k]. O(k).

        Raises
        ------
        UnknownVertex
            The graph had no such vertex.
        InvalidOption, InvalidBatch
            `vertices` are no whole numbers.
        """
        n = len(self)
        if isinstance(vertices, slice):
            return self._spoken(self._of(np.arange(*vertices.indices(n), dtype=np.uint32)))
        numbering = self._remote.numbering
        if not is_one(vertices):
            return self._spoken(self._of(numbering.ids(vertices, "vertices")))
        values = self._spoken(self._of(self._id(vertices)))
        return values[..., 0] if values.ndim > 1 else values.tolist()[0]

    def __contains__(self, vertex: Any) -> bool:
        """Return True if the graph had `vertex`. Asks no worker."""
        try:
            self._id(vertex)
        except (UnknownVertex, InvalidOption, InvalidBatch):
            return False
        return True

    def _id(self, vertex: Any) -> np.ndarray:
        """Return the id of a vertex, uint32[1]."""
        numbering = self._remote.numbering
        if numbering.keys is None:
            return np.array([check_vertex(vertex, len(self), "vertex")], np.uint32)
        return numbering.ids([vertex], "vertices")

    def _of(self, ids: np.ndarray) -> np.ndarray:
        """Fetch the values of users' ids."""
        return self._remote.read(lambda: self._fetched(ids))

    def _fetched(self, ids: np.ndarray) -> np.ndarray:
        routed = self._remote.numbering.route(ids)
        shares = [{"ids": part} for part in routed.deal(routed.internal)]
        answers = self._remote.call("fetch", shares, column=self._column)
        return self._as_users_see(self._restored(routed, [answer["values"] for answer in answers]))

    def _restored(self, routed: Routed, parts: list[np.ndarray]) -> np.ndarray:
        return routed.restore(parts)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over (vertex, value) pairs. Gathers the values. O(n)."""
        values = self._spoken(self.to_numpy())
        return zip(self.ids().tolist(), values.tolist() if values.ndim == 1 else values.T, strict=True)

    def top(self, k: int = 10) -> list[tuple[Any, Any]]:
        """Return the `k` vertices with the largest values as (vertex, value), largest first, NaN last.

        At equal values, the graph's internal order decides which vertices are left out. O(n); each worker sends at most
        k values.

        Raises
        ------
        InvalidOption
            `k` is not a whole number of 0 or more, or the column holds vertices.
        GraphClosed
            The graph, or this result, was closed.
        """
        try:
            k = operator.index(k)
        except TypeError:
            raise InvalidOption(f"top({k!r}): k must be a whole number") from None
        if k < 0:
            raise InvalidOption(f"top({k}): k must be 0 or more")
        return self._remote.read(lambda: self._largest(k))

    def _largest(self, k: int) -> list[tuple[Any, Any]]:
        answers = self._remote.call("top", column=self._column, k=min(k, len(self)))
        ids = self._remote.numbering.outside(np.concatenate([answer["ids"] for answer in answers]))
        values = np.concatenate([answer["values"] for answer in answers])
        ranks = np.lexsort((ids, -values if values.dtype.kind == "f" else ~values))[:k]  # NaN sorts last
        names = self._remote.numbering.names(ids[ranks]).tolist()
        return list(zip(names, values[ranks].tolist(), strict=True))

    # ---- the handle --------------------------------------------------------------------------------------------------

    def named(self, name: str, **info: Any) -> Self:
        """Return the same values as the result of your own algorithm, with its name and its scalars as attributes.

        Examples
        --------
        >>> x.named("influence", iterations=12).iterations  # doctest: +SKIP
        12
        """
        named = type(self)(self._remote, self._column)
        named.name, named.info = name, info
        return named

    def close(self) -> None:
        """Free the result on the workers with the graph's next call. May be called twice."""
        self._remote.close()

    def __bool__(self) -> bool:
        raise ValueError("the truth of a result is that of many values; use (a == b).min(), or len(result)")

    def __len__(self) -> int:
        return self._remote.numbering.n_vertices

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_numpy())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the values are on the workers, so an array of them is always a copy; copy=False fails")
        array = self.to_numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        """Gather the values and export them by DLPack, in host memory."""
        return self.to_numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's number of host memory."""
        return (1, 0)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a result cannot be pickled, since its values are on the workers; pickle to_numpy() instead")

    # ---- as text -----------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return text_of(str(self), *self._excerpt())

    def _repr_html_(self) -> str:
        return html_of(str(self), *self._excerpt())

    def __str__(self) -> str:
        info = "".join(f", {key} {_shown(value)}" for key, value in self.info.items())
        state = ", closed" if self._remote.closed else ""
        column = "" if self._column == next(iter(self._remote.dtypes)) else f" {self._column}"
        return f"<{self.name}{column}: {len(self)} {self.dtype} values at epoch {self.epoch}{info}{state}>"

    def _excerpt(self) -> tuple[list[str], list[list[str]]]:
        """Return heads and rows of a table of the first and last values; no rows if they cannot be read."""
        n, rows = len(self), list[list[str]]()

        # Show the first and last values only.
        places = np.arange(n, dtype=np.uint32)
        cut = n > 2 * SHOWN
        if cut:
            places = np.concatenate([places[:SHOWN], places[-SHOWN:]])
        # Closed or lost; or on the event loop, which would wait for itself.
        with suppress(MgraphError, RuntimeError):
            columns = self._cells(self._of(places)) if n else {}
            names = map(str, self._remote.numbering.names(places).tolist())
            rows = [list(row) for row in zip(names, *columns.values(), strict=True)]
            if cut:
                rows.insert(SHOWN, ["..."] * len(rows[0]))
            return ["vertex", *columns], rows
        return [], []

    def _cells(self, values: np.ndarray) -> dict[str, list[str]]:
        """Return values as text, by the name of the column."""
        names, present = self._named(values)
        cells = [_shown(value) for value in names.tolist()]
        if present is not None:
            cells = [cell if shown else "" for cell, shown in zip(cells, present, strict=True)]
        return {self._column: cells}


def _shown(value: Any) -> str:
    """Return a value as text, a float with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
