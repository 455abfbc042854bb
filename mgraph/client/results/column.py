"""One column of an algorithm's result, as it is read from the workers and shown."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn, Self

import numpy as np

from mgraph.checks import check_vertex
from mgraph.client.reports.report import html_of, text_of
from mgraph.client.results.held import Held
from mgraph.client.vertices.numbering import Routed, concatenated, joined
from mgraph.errors import InvalidBatch, InvalidOption, MgraphError, UnknownVertex

__all__ = ["SHOWN", "Column"]

SHOWN = 5  #: values at either end that a repr shows


class Column:
    """A column of a result: one value for each vertex, stored on the workers until it is gathered.

    `mgraph.client.results.handles` has a subclass for each kind of column.

    Parameters
    ----------
    held : Held
        The columns of the result.
    name : str
        The column's name.
    """

    def __init__(self, held: Held, name: str) -> None:
        self._held, self._column = held, name
        self.name, self.epoch, self.info = held.name, held.epoch, held.info
        self.dtype = np.dtype(held.dtypes[name])

    @property
    def _kind(self) -> str:
        """The kind of the column, as in `Algorithm.columns`."""
        return self._held.kinds[self._column]

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
        return self._as_users_see(concatenated(parts) if self._held.coordinator.status.one_process else joined(parts))

    def _as_users_see(self, values: np.ndarray) -> np.ndarray:
        return values

    def ids(self) -> np.ndarray:
        """The ids or keys in the order of `to_numpy`, as `DynamicGraph.vertices` gave them at this epoch. O(n)."""
        return self._held.numbering.all_names()

    def _named(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Gathered values with vertices as users name them, and where there are some; None for everywhere."""
        return values, None

    # ---- of some vertices --------------------------------------------------------------------------------------------

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
        if hasattr(vertices, "__arrow_c_array__") or np.ndim(vertices) > 0:
            return self._of(numbering.ids(vertices, "vertices"))
        value = self._of(self._one(vertices))[..., 0]
        return value if value.ndim else value.item()

    def __contains__(self, vertex: Any) -> bool:
        """Whether `vertex` is one of those that the graph had, as in a dict or a ``pandas.Series``. Asks no worker."""
        try:
            self._one(vertex)
        except (UnknownVertex, InvalidOption, InvalidBatch):
            return False
        return True

    def _one(self, vertex: Any) -> np.ndarray:
        """The id of one vertex, uint32[1]."""
        numbering = self._held.numbering
        if numbering.keys is None:
            return np.array([check_vertex(vertex, len(self), "vertex")], np.uint32)
        return numbering.ids([vertex], "vertices")

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

    # ---- the handle --------------------------------------------------------------------------------------------------

    def named(self, name: str, **info: Any) -> Self:
        """The same values as the result of an algorithm of your own: with its name and its scalars as attributes.

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

    def __dlpack__(self, **options: Any) -> Any:
        """The gathered values by DLPack, in host memory."""
        return self.to_numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Host memory."""
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
        cells = [_shown(value) for value in found.tolist()]
        if there is not None:
            cells = [cell if one else "" for cell, one in zip(cells, there, strict=True)]
        return {self._column: cells}


def _shown(value: Any) -> str:
    """A value as text, a float with six digits."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
