"""The difference between two epochs of a graph with a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from mgraph.checks import check_whole
from mgraph.client.edges import edges_of, ranges
from mgraph.errors import InvalidOption

__all__ = ["changes"]

CHUNK = 1 << 22  #: edges of both graphs that are compared at a time
KINDS = ("inserted", "deleted", "updated")

Columns = dict[str, np.ndarray]


def changes(self: Any, from_epoch: int, to_epoch: int | None = None, **options: Any) -> Any:
    """What changed between two epochs: the edges that are there in one only, or have another weight.

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
        undirected edge is there once, with ``src <= dst``. What changed and changed back is no difference.

    Raises
    ------
    InvalidOption
        The graph has no store, or the store has no such epoch.
    StoreError, CapacityError, WorkerLost
        As in `at`.

    Notes
    -----
    The workers hold both graphs meanwhile, beside this one. This process compares up to 2**22 edges at a time, or the
    row of one vertex, and holds 8 bytes a vertex and the result. O(n + m) are read.
    """
    import pandas as pd

    if self._directory.has_keys:
        raise InvalidOption(f"changes() compares ids, and the graph has {self.keys} keys, which are not compared yet")
    to_epoch = self.epoch if to_epoch is None else check_whole(to_epoch, "to_epoch")
    if check_whole(from_epoch, "from_epoch") > self.epoch or to_epoch > self.epoch:
        raise InvalidOption(f"epochs {from_epoch} to {to_epoch} are asked for; the last one is {self.epoch}")
    with ExitStack() as both:
        before, after = (both.enter_context(self.at(epoch, **options)) for epoch in (from_epoch, to_epoch))
        parts = list(_differences(before, after))
    names = ("src", "dst", "change", *(("before", "after") if self.weighted else ()))
    columns = {name: np.concatenate([part[name] for part in [_NOTHING, *parts]]) for name in names}
    columns["change"] = pd.Categorical.from_codes(columns["change"], KINDS)
    return pd.DataFrame(columns)


def _differences(before: Any, after: Any) -> Iterator[Columns]:
    """The differences of two graphs, by ranges of vertices."""
    n = max(before.num_vertices, after.num_vertices)
    degrees = np.zeros(n, np.int64)
    for graph in (before, after):
        degrees[: graph.num_vertices] += graph.degrees()
    for first, end in ranges(degrees, CHUNK):
        yield _difference(*(_edges(graph, first, end) for graph in (before, after)))


def _edges(graph: Any, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """The edges of vertices `first` to `end` - 1, ascending: keys ``src << 32 | dst``, uint64[m], and float32[m]."""
    src, dst, weight = edges_of(graph, first, end)
    keys = src.astype(np.uint64) << np.uint64(32) | dst
    order = np.argsort(keys)
    return keys[order], np.ones(len(keys), np.float32) if weight is None else weight[order]


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
