"""The difference between two epochs of a graph with a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from mgraph.checks import check_whole
from mgraph.client.reads.edges import edges_of, once, ranges
from mgraph.device import Device
from mgraph.errors import InvalidOption
from mgraph.keys import KeyTable

__all__ = ["changes"]

CHUNK = 1 << 22  #: edges of both graphs that are compared at a time
KINDS = ("inserted", "deleted", "updated")

Columns = dict[str, np.ndarray]


def changes(self: Any, from_epoch: int, to_epoch: int | None = None, **options: Any) -> Any:
    """What changed between two epochs: the edges that are in only one of them, or whose weight differs.

    Parameters
    ----------
    from_epoch, to_epoch : int
        Epochs that the store has, in either order. `to_epoch` defaults to the last one.
    **options
        As in `at`, for the two graphs that are compared; with ``device="cpu"`` they take no GPU memory.

    Returns
    -------
    pandas.DataFrame
        One row an edge, by ascending src: `src` and `dst`, uint32; `change`, a categorical of "inserted", "deleted" and
        "updated"; in a weighted graph `before` and `after`, float32 weights, NaN where the edge is not there. An
        undirected edge is there once, with ``src <= dst``. What changed and changed back is no difference. In a graph
        with keys, `src` and `dst` are keys, int64 or strings, and rows and ends are in the order of `vertices` at
        `to_epoch`, and after these by those of `from_epoch` that are gone.

    Raises
    ------
    InvalidOption
        The graph has no store, or the store has no such epoch.
    StoreError, CapacityError, WorkerLost
        As in `at`.

    Notes
    -----
    The workers hold both graphs meanwhile, beside this one. This process compares up to 2**22 edges at a time, or the
    row of one vertex, and holds 8 bytes a vertex and the result; with keys another table of them and 24 bytes a vertex.
    O(n + m) are read.
    """
    import pandas as pd

    to_epoch = self.epoch if to_epoch is None else check_whole(to_epoch, "to_epoch")
    if check_whole(from_epoch, "from_epoch") > self.epoch or to_epoch > self.epoch:
        raise InvalidOption(f"epochs {from_epoch} to {to_epoch} are asked for; the last one is {self.epoch}")
    with ExitStack() as both:
        before, after = (both.enter_context(self.at(epoch, **options)) for epoch in (from_epoch, to_epoch))
        sides, keys = _sides(before, after)
        parts = list(_differences(*sides))
    names = ("src", "dst", "change", *(("before", "after") if self.weighted else ()))
    columns = {name: np.concatenate([part[name] for part in [_NOTHING, *parts]]) for name in names}
    columns["change"] = pd.Categorical.from_codes(columns["change"], KINDS)
    if keys is not None:
        columns |= {name: keys.names.take(columns[name]) for name in ("src", "dst")}
    return pd.DataFrame(columns)


class _Side:
    """One of the two graphs, by numbers of vertices that both have in common.

    Parameters
    ----------
    graph : DynamicGraph
    numbers : uint32[n], optional
        The common number of each id; by default the ids are the numbers.
    """

    def __init__(self, graph: Any, numbers: np.ndarray | None = None) -> None:
        self.graph, self._numbers = graph, numbers
        self._ids = np.arange(graph.num_vertices) if numbers is None else np.argsort(numbers)  # by ascending numbers
        self._there = self._ids if numbers is None else numbers[self._ids]

    @property
    def end(self) -> int:
        """The least number that is above all."""
        return int(self._there[-1]) + 1 if len(self._there) else 0

    def degrees(self, n: int) -> np.ndarray:
        """The degree of each of `n` numbers."""
        degrees = np.zeros(n, np.int64)
        degrees[self._there] = self.graph.degrees()[self._ids]
        return degrees

    def edges(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """The edges of vertices `first` to `end` - 1, ascending: ``src << 32 | dst``, uint64[m], and float32[m]."""
        lo, hi = np.searchsorted(self._there, [first, end])
        src, dst, weight, _ = edges_of(self.graph, self._ids[lo:hi].astype(np.uint32))
        if self._numbers is not None:
            src, dst = self._numbers[src], self._numbers[dst]
        if not self.graph.directed:
            src, dst, weight, _ = once(src, dst, weight)
        pairs = src.astype(np.uint64) << np.uint64(32) | dst
        order = np.argsort(pairs)
        return pairs[order], np.ones(len(pairs), np.float32) if weight is None else weight[order]


def _sides(before: Any, after: Any) -> tuple[tuple[_Side, _Side], KeyTable | None]:
    """Both graphs; and in graphs with keys the table of all, by which they are numbered: those of `after` first."""
    kind = next((graph.keys for graph in (after, before) if graph._directory.has_keys), None)
    if kind is None:
        return (_Side(before), _Side(after)), None
    both = KeyTable(kind, after._directory.device)

    def side(graph: Any) -> _Side:
        with graph._directory.still() as table:
            n = graph.num_vertices
            numbers = both.number(table.names.column(0, n)) if n else np.empty(0, np.uint32)
        return _Side(graph, Device.to_host(numbers))

    last, first = side(after), side(before)
    return (first, last), both


def _differences(before: _Side, after: _Side) -> Iterator[Columns]:
    """The differences of two graphs, by ranges of vertices."""
    n = max(before.end, after.end)
    for first, end in ranges(before.degrees(n) + after.degrees(n), CHUNK):
        yield _difference(before.edges(first, end), after.edges(first, end))


def _difference(before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray]) -> Columns:
    keys = np.union1d(before[0], after[0])
    old, new = (_weights(keys, *side) for side in (before, after))
    change = np.select([np.isnan(old), np.isnan(new), old != new], [0, 1, 2], -1).astype(np.int8)
    there = change >= 0
    keys = keys[there]
    src, dst = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    return {"src": src, "dst": dst, "change": change[there], "before": old[there], "after": new[there]}


def _weights(keys: np.ndarray, there: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The weight of each key; NaN, which no edge has, where it is not `there`."""
    found = np.full(len(keys), np.nan, np.float32)
    found[np.searchsorted(keys, there)] = weight
    return found


_NOTHING: Columns = {
    "src": np.empty(0, np.uint32), "dst": np.empty(0, np.uint32), "change": np.empty(0, np.int8),
    "before": np.empty(0, np.float32), "after": np.empty(0, np.float32),
}  # fmt: skip
