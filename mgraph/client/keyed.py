"""A batch of keys as a batch of ids: the keys that it brings get the next ids; what it deletes must be there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.columns import Texts, chosen_kind
from mgraph.device import Array, Device
from mgraph.errors import InvalidBatch
from mgraph.keys import NONE, KeyTable

__all__ = ["Keyed", "batch_of", "check_keys", "keyed"]


@dataclass(frozen=True)
class Keyed:
    """A batch in ids.

    Parameters
    ----------
    batch : EdgeBatch
        Without the deletions of edges of which an end is no vertex.
    missing : int
        The number of these edges.
    n_vertices : int
        The number of vertices afterwards.
    brought : uint8[bytes]
        The keys that the batch brings, for the log; see `mgraph.keys.Names.packed`.
    """

    batch: EdgeBatch
    missing: int
    n_vertices: int
    brought: np.ndarray | None


def batch_of(keys: str | None, src: Any, dst: Any, weight: Any = None, op: Any = None) -> EdgeBatch:
    """The batch of a graph with such keys; the columns choose where `keys` is "undecided".

    Raises
    ------
    InvalidBatch
        As `EdgeBatch`.
    """
    kind = chosen_kind(src, dst) if keys == "undecided" else keys
    return EdgeBatch(src, dst, weight, op, kind)


def check_keys(batch: EdgeBatch, kind: str | None) -> None:
    """Raise `InvalidBatch` unless a graph whose keys are of this kind takes the batch."""
    if batch.keys != kind and not (batch.keys is None and kind == "int64"):
        what = f"{batch.keys} keys" if batch.keys else "vertex ids"
        have = f"keys of the kind {kind!r}" if kind else "none; create it with keys="
        raise InvalidBatch(f"the batch has {what} and the graph has {have}")


def keyed(table: KeyTable, batch: EdgeBatch, directed: bool, logged: bool) -> Keyed:
    """A batch of keys in ids. New keys of insertions are added to the table, all or none.

    Raises
    ------
    InvalidBatch
        The batch has keys of another kind.
    CapacityError
        There would be too many vertices, or there is too little memory.
    """
    check_keys(batch, table.kind)
    before, ends = table.n, [batch.src, batch.dst]
    try:
        src, dst = _numbered(table, ends, batch.op)
        absent = (src == NONE) | (dst == NONE) if batch.op is not None else None
        if absent is None or not absent.any():
            found, missing = EdgeBatch.checked(src, dst, batch.weight, batch.op), 0
        else:
            missing = _distinct(table, [_where(absent, end) for end in ends], directed)
            columns = (src, dst, batch.weight, batch.op)
            found = EdgeBatch.checked(*(_where(~absent, column) for column in columns))
        brought = table.names.packed(before) if logged and table.n > before else None
        return Keyed(found, missing, table.n, brought)
    except BaseException:
        table.drop(before)
        raise


def _numbered(table: KeyTable, ends: list[Any], op: Any) -> tuple[Array, Array]:
    """The ids of both ends; those of new keys only where a row inserts."""
    if op is None:
        src, dst = (table.number(end) for end in ends)
        return src, dst
    if not isinstance(op, int):
        for end in ends:
            table.number(_where(op > 0, end))
    src, dst = (table.find(end) for end in ends)
    return src, dst


def _where(mask: Any, column: Any) -> Any:
    """The rows of a mask, wherever the two are; None and one number for all as they are."""
    if column is None or isinstance(column, int):
        return column
    if isinstance(column, Texts | np.ndarray):
        return column[Device.to_host(mask)]
    import cupy

    return column[cupy.asarray(mask)]


def _distinct(table: KeyTable, ends: list[Any], directed: bool) -> int:
    """The number of different edges."""
    scratch = KeyTable(table.kind, table.device)
    src, dst = (Device.to_host(scratch.number(end)).astype(np.uint64) for end in ends)
    if not directed:
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    return len(np.unique(src << np.uint64(32) | dst))
