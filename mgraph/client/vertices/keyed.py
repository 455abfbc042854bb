"""Translate batches and streams of keys into ids: new keys get the next ids, deletions need known keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.client.reports.progress import stage
from mgraph.client.vertices.numbering import key_at
from mgraph.device import Array, Device
from mgraph.distinct import distinct
from mgraph.errors import InvalidBatch, UnknownVertex
from mgraph.keys import NONE, KeyTable
from mgraph.operations import Operations
from mgraph.tables.ids import chosen_kind
from mgraph.tables.texts import Texts

__all__ = ["Batch", "Keyed", "check_keys", "keyed", "kind_of"]

Batch = TypeVar("Batch", EdgeBatch, Operations)


@dataclass(frozen=True)
class Keyed(Generic[Batch]):
    """A batch or a stream, translated into ids.

    Parameters
    ----------
    batch : EdgeBatch or Operations
        The batch without deletions of edges whose ends are not both vertices.
    missing : int
        The number of different edges that these deletions name.
    n_vertices : int
        The number of vertices after the batch.
    brought : uint8[bytes]
        The batch's new keys, for the log, from `mgraph.keys.KeyArray.packed`.
    """

    batch: Batch
    missing: int
    n_vertices: int
    brought: np.ndarray | None


def kind_of(batch: EdgeBatch | Operations) -> str | None:
    """Return the kind of keys that a graph takes from its first batch or stream; None for ids."""
    return batch.keys if batch.keys or isinstance(batch, Operations) else chosen_kind(batch.src, batch.dst)


def check_keys(batch: EdgeBatch | Operations, kind: str | None) -> None:
    """Raise `InvalidBatch` unless the batch or stream fits a graph with this kind of keys."""
    if batch.keys != kind and not (batch.keys is None and kind == "int64"):
        name = "stream" if isinstance(batch, Operations) else "batch"
        batch_kind = f"{batch.keys} keys" if batch.keys else "vertex ids"
        advice = f"make the {name} with keys={kind!r}"
        graph_kind = f"keys of the kind {kind!r}; {advice}" if kind else "none; create it with keys="
        raise InvalidBatch(f"the {name} has {batch_kind} and the graph has {graph_kind}")


def keyed(table: KeyTable, batch: Batch, directed: bool, logged: bool) -> Keyed[Batch]:
    """Translate a batch or a stream of keys into ids.

    New keys of insertions are added to the table, all or none.

    Raises
    ------
    InvalidBatch
        It has keys of another kind.
    UnknownVertex
        A query of the stream names a key that is no vertex at its place.
    CapacityError
        The graph would have too many vertices, or memory is short.
    """
    check_keys(batch, table.kind)
    before = table.n
    stage(f"numbering the keys of {len(batch):,} edges")

    # If anything fails, the table drops the new keys again.
    try:
        translated, missing = (_stream if isinstance(batch, Operations) else _batch)(table, batch, directed)
        stage(f"inserting {len(batch):,} edges")
        brought = table.names.packed(before) if logged and table.n > before else None
        return Keyed(translated, missing, table.n, brought)
    except BaseException:
        table.drop(before)
        raise


def _batch(table: KeyTable, batch: EdgeBatch, directed: bool) -> tuple[EdgeBatch, int]:
    """Return the batch in ids, and the number of edges to delete that were left out."""
    ends = [batch.src, batch.dst]
    src, dst = _numbered(table, ends, batch.op)

    # Deletions of edges without both ends are left out, and counted as missing.
    absent = (src == NONE) | (dst == NONE) if batch.op is not None else None
    if absent is None or not absent.any():
        return EdgeBatch.checked(src, dst, batch.weight, batch.op, batch.time), 0
    missing = _distinct(table, [_where(absent, end) for end in ends], directed)
    columns = (src, dst, batch.weight, batch.op, batch.time)
    return EdgeBatch.checked(*(_where(~absent, column) for column in columns)), missing


def _stream(table: KeyTable, stream: Operations, directed: bool) -> tuple[Operations, int]:
    """Return the stream in ids, and the number of edges to delete that were left out."""
    ends, before, kinds = [stream.src, stream.dst], table.n, table.device.asarray(stream.kind)
    src, dst = _numbered(table, ends, 1 - 2 * (kinds != Operations.INSERT).astype(np.int8))
    _check_known(stream, src, dst, before, table.n)
    dst[kinds >= Operations.DEGREE] = 0

    # Deletions of edges without both ends are left out, and counted as missing.
    absent = (kinds == Operations.DELETE) & ((src == NONE) | (dst == NONE))
    if not absent.any():
        return Operations.checked(kinds, src, dst, stream.weight, stream.counts), 0
    missing = _distinct(table, [_where(absent, end) for end in ends], directed)
    kind, src, dst, weight = (_where(~absent, column) for column in (kinds, src, dst, stream.weight))
    counts = {**stream.counts, "delete": stream.counts["delete"] - int(absent.sum())}
    return Operations.checked(kind, src, dst, weight, counts), missing


def _check_known(stream: Operations, src: Array, dst: Array, before: int, n: int) -> None:
    """Raise `UnknownVertex` if a query names a vertex before its insertion, or one that is never inserted."""
    kinds, ends = Device.to_host(stream.kind), {"src": Device.to_host(src), "dst": Device.to_host(dst)}
    asks = {"src": kinds > Operations.DELETE, "dst": (kinds > Operations.DELETE) & (kinds < Operations.DEGREE)}
    late = {name: np.flatnonzero(asks[name] & (ends[name] >= before)) for name in ends}
    if not any(map(len, late.values())):
        return

    # first[k]: the place of the insertion that adds vertex `before` + k.
    first, inserts = np.full(n - before + 1, len(stream)), np.flatnonzero(kinds == Operations.INSERT)
    for ids in ends.values():
        brings = inserts[ids[inserts] >= before]
        np.minimum.at(first, ids[brings] - before, brings)

    # A query must come after the insertion of its vertex.
    for name, at in late.items():
        unknown = at[first[np.minimum(ends[name][at] - before, n - before)] > at]
        if len(unknown):
            key = key_at(getattr(stream, name), int(unknown[0]))
            raise UnknownVertex(f"{name}[{unknown[0]}] is {key!r}, which is no vertex of the graph by then")


def _numbered(table: KeyTable, ends: list[Any], op: Any) -> tuple[Array, Array]:
    """Return the ids of both ends. New keys get ids only in rows that insert."""
    if op is None:
        src, dst = (table.number(end) for end in ends)
        return src, dst
    if not isinstance(op, int):
        for end in ends:
            table.number(_where(op > 0, end))
    src, dst = (table.find(end) for end in ends)
    return src, dst


def _where(mask: Any, column: Any) -> Any:
    """Return the rows of a mask, on any device; None and a number for all rows unchanged."""
    if column is None or isinstance(column, int):
        return column
    if isinstance(column, Texts | np.ndarray):
        return column[Device.to_host(mask)]
    import cupy

    return column[cupy.asarray(mask)]


def _distinct(table: KeyTable, ends: list[Any], directed: bool) -> int:
    """Return the number of different edges."""
    scratch = KeyTable(table.kind, table.device)
    src, dst = (Device.to_host(scratch.number(end)).astype(np.uint64) for end in ends)
    if not directed:
        src, dst = np.minimum(src, dst), np.maximum(src, dst)
    return len(distinct(src << np.uint64(32) | dst))
