"""The difference between two epochs of a graph with a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from mgraph.checks import check_whole
from mgraph.client.reads.edges import edges_of, once, ranges
from mgraph.device import Device
from mgraph.distinct import distinct
from mgraph.errors import InvalidOption
from mgraph.facade import needed
from mgraph.keys import KeyTable

__all__ = ["changes"]

CHUNK = 1 << 22  #: edges of both graphs that are compared at a time
KINDS = ("inserted", "deleted", "updated")

Columns = dict[str, np.ndarray]


def changes(self: Any, from_epoch: int, to_epoch: int | None = None, **options: Any) -> Any:
    """Return the edges that were inserted, deleted or updated between two epochs.

    Parameters
    ----------
    from_epoch, to_epoch : int
        Epochs of the store, in either order. `to_epoch` defaults to the last epoch.
    **options
        Options of `at` for the two graphs to compare; with ``device="cpu"`` they take no GPU memory.

    Returns
    -------
    pandas.DataFrame
        One row per edge that is in only one of the epochs, or whose weight differs, by ascending src: `src` and `dst`,
        uint32; `change`, a categorical of "inserted", "deleted" and "updated"; in a weighted graph `before` and
        `after`, float32 weights, NaN without an edge. An undirected edge has one row, with ``src <= dst``. A change
        that was undone is no difference. In a graph with keys, `src` and `dst` are keys, int64 or strings; rows and
        ends are in the order of `vertices` at `to_epoch`, followed by vertices of `from_epoch` that were removed.

    Raises
    ------
    InvalidOption
        The graph has no store, or the store has no such epoch.
    StoreError, CapacityError, WorkerLost
        The graphs cannot be opened, as in `at`.

    Notes
    -----
    The workers hold both graphs meanwhile, beside this one. This process compares up to 2**22 edges at a time, or the
    row of one vertex. It holds 8 bytes per vertex and the result; with keys another table of keys and 24 bytes per
    vertex. Reads O(n + m).
    """
    pd = needed("pandas", "changes()")
    to_epoch = self.epoch if to_epoch is None else check_whole(to_epoch, "to_epoch")
    if check_whole(from_epoch, "from_epoch") > self.epoch or to_epoch > self.epoch:
        raise InvalidOption(f"epochs {from_epoch} to {to_epoch} are asked for; the last one is {self.epoch}")

    # Open both graphs, and compare them range by range.
    with ExitStack() as both:
        before, after = (both.enter_context(self.at(epoch, **options)) for epoch in (from_epoch, to_epoch))
        sides, keys = _sides(before, after)
        parts = list(_differences(*sides))

    # Join the parts in a frame, with keys in place of the common numbers.
    names = ("src", "dst", "change", *(("before", "after") if self.weighted else ()))
    columns = {name: np.concatenate([part[name] for part in [_NOTHING, *parts]]) for name in names}
    columns["change"] = pd.Categorical.from_codes(columns["change"], KINDS)
    if keys is not None:
        columns |= {name: keys.names.take(columns[name]) for name in ("src", "dst")}
    return pd.DataFrame(columns)


class _Side:
    """A graph of the two, by vertex numbers common to both.

    Parameters
    ----------
    graph : DynamicGraph
    numbers : uint32[n], optional
        The common number of each id; by default the id itself.
    """

    def __init__(self, graph: Any, numbers: np.ndarray | None = None) -> None:
        self.graph, self._numbers = graph, numbers
        self._ids = np.arange(graph.num_vertices) if numbers is None else np.argsort(numbers)  # ascending numbers
        self._sorted_numbers = self._ids if numbers is None else numbers[self._ids]

    @property
    def end(self) -> int:
        """The least number above all numbers of vertices."""
        return int(self._sorted_numbers[-1]) + 1 if len(self._sorted_numbers) else 0

    def degrees(self, n: int) -> np.ndarray:
        """Return the degree of each of `n` numbers."""
        degrees = np.zeros(n, np.int64)
        degrees[self._sorted_numbers] = self.graph.degrees()[self._ids]
        return degrees

    def edges(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the edges of vertices `first` to `end` - 1: ``src << 32 | dst``, uint64[m], and float32[m].

        They ascend.
        """
        lo, hi = np.searchsorted(self._sorted_numbers, [first, end])
        src, dst, weight, _ = edges_of(self.graph, self._ids[lo:hi].astype(np.uint32))
        if self._numbers is not None:
            src, dst = self._numbers[src], self._numbers[dst]
        if not self.graph.directed:
            src, dst, weight, _ = once(src, dst, weight)

        # Sort edges by source and destination.
        pairs = src.astype(np.uint64) << np.uint64(32) | dst
        order = np.argsort(pairs)
        return pairs[order], np.ones(len(pairs), np.float32) if weight is None else weight[order]


def _sides(before: Any, after: Any) -> tuple[tuple[_Side, _Side], KeyTable | None]:
    """Return both graphs. With keys, also a table that numbers the vertices of both, those of `after` first."""
    kind = next((graph.keys for graph in (after, before) if graph._directory.has_keys), None)
    if kind is None:
        return (_Side(before), _Side(after)), None
    both = KeyTable(kind, after._directory.device)

    def side(graph: Any) -> _Side:
        with graph._directory.still() as table:
            n = graph.num_vertices
            numbers = both.number(table.names.column(0, n)) if n else np.empty(0, np.uint32)
        return _Side(graph, Device.to_host(numbers))

    # Number `after` first, so that rows are in its order.
    last, first = side(after), side(before)
    return (first, last), both


def _differences(before: _Side, after: _Side) -> Iterator[Columns]:
    """Yield the differences of two graphs, by ranges of vertices."""
    n = max(before.end, after.end)
    for first, end in ranges(before.degrees(n) + after.degrees(n), CHUNK):
        yield _difference(before.edges(first, end), after.edges(first, end))


def _difference(before: tuple[np.ndarray, np.ndarray], after: tuple[np.ndarray, np.ndarray]) -> Columns:
    # Look up each edge on both sides; NaN means absent.
    keys = distinct(np.concatenate([before[0], after[0]]))
    old, new = (_weights(keys, *side) for side in (before, after))
    change = np.select([np.isnan(old), np.isnan(new), old != new], [0, 1, 2], -1).astype(np.int8)
    changed = change >= 0
    keys = keys[changed]
    src, dst = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    return {"src": src, "dst": dst, "change": change[changed], "before": old[changed], "after": new[changed]}


def _weights(keys: np.ndarray, present: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the weight of each key; NaN, which no edge has, for keys that are not in `present`."""
    weights = np.full(len(keys), np.nan, np.float32)
    weights[np.searchsorted(keys, present)] = weight
    return weights


_NOTHING: Columns = {
    "src": np.empty(0, np.uint32), "dst": np.empty(0, np.uint32), "change": np.empty(0, np.int8),
    "before": np.empty(0, np.float32), "after": np.empty(0, np.float32),
}  # fmt: skip
