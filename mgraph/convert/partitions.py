"""Graphs from Dask DataFrames. What runs on workers are tasks of Dask; this module itself imports no Dask."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Unpack

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.client.options import GraphOptions, keys_of
from mgraph.client.reports.progress import building, stage
from mgraph.columns import as_keys, chosen_kind
from mgraph.convert.build import Edges, build, check_largest, check_weighted, filling
from mgraph.convert.columns import choose
from mgraph.convert.frames import columns_in
from mgraph.device import Device
from mgraph.errors import InvalidBatch, InvalidOption
from mgraph.keys import KeyTable
from mgraph.keys.names import columns_in as columns_in_bytes

__all__ = ["from_dask"]


@building
def from_dask(
    cls: Any,
    frame: Any,
    source: str = "source",
    target: str = "target",
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """A new graph of the rows of a Dask DataFrame, an edge a row; other columns are not read.

    With a client, workers check the partitions and `ingest` them: no edge passes through this process, unless the graph
    has times. Then it takes one partition after another. If the graph has keys, the distinct keys of one partition
    after another come here to be numbered, and their numbers go back. Without a client the graph is in this process,
    and so are the rows, once Dask has computed them.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Of pandas or cuDF. It is computed once, and all partitions of the named columns are held until the graph is
        made; `DynamicGraph.ingest` says how large they may be.
    client : distributed.Client, optional
        The cluster that computes the frame and holds the graph.
    source, target, weight, time, n_vertices, **options
        As in `from_pandas`.

    Returns
    -------
    DynamicGraph
        Of rows with the same ends the last one counts. With a client and without times and `n_vertices`, its first
        epoch adds the vertices, or with keys one for each partition that brings some, and each step of the ingest is
        an epoch.

    Raises
    ------
    InvalidBatch, UnknownVertex
        As in `from_pandas`; the message names the partition, too. No graph was made.
    """
    if not hasattr(frame, "to_delayed") or not hasattr(frame, "columns"):
        raise InvalidBatch(f"from_dask takes a Dask DataFrame, got {type(frame).__name__}")
    names = choose(frame.columns, (source, target, weight, time), "the frame")
    keys, chosen = keys_of(options.get("keys", "auto"), n_vertices), frame[names]
    stage("computing the partitions")
    if client is None:
        found, column = columns_in(chosen.compute(), names)
        return build(cls, Edges.read(found, keys, column, time), None, n_vertices, options)
    check_weighted(options, weight is not None)
    parts = client.compute(chosen.to_delayed())
    kind = _chosen(client, parts, names) if keys == "auto" else keys
    decided = {**options, "keys": kind}
    if time is not None:
        return _inserted(cls, client, parts, names, time, n_vertices, decided)
    if kind is not None:
        return _numbered(cls, client, parts, names, decided)
    return _ingested(cls, client, parts, names, n_vertices, decided)


def _ingested(cls: Any, client: Any, parts: list[Any], names: list[str], n_vertices: int | None, options: Any) -> Any:
    """A graph without keys, whose edges stay on the workers. All partitions are checked first."""
    batches = _finished(client.map(_batch, parts, range(len(parts)), names=names))
    total, largest = _largest(client.gather(client.map(_facts, batches, names=tuple(names[:2]))), n_vertices)
    parts.clear()  # Dask frees them
    with filling(cls(client, n_vertices, **options)) as graph:
        if n_vertices is None:
            graph.add_vertices(largest + 1)
        if total:
            graph.ingest(batches)
    return graph


def _inserted(
    cls: Any,
    client: Any,
    parts: Sequence[Any],
    names: list[str],
    time: str | None,
    n_vertices: int | None,
    options: Any,
) -> Any:
    """A graph with times, of one partition after another. All are checked first."""
    kind = options["keys"]
    checked = _finished(client.map(_checked, parts, range(len(parts)), names=names, keys=kind, time=time))
    facts = client.gather(checked)
    if kind is None:
        _largest([one[:4] for one in facts], n_vertices)
    if time is not None and facts and options.setdefault("times", facts[0][4]) is False:
        raise InvalidOption("times is False and a column of times is named; leave one of them out")
    with filling(cls(client, n_vertices, **options)) as graph:
        for i, part in enumerate(parts):
            stage(f"{i:,} of {len(parts):,} partitions inserted", i, len(parts))
            edges = _edges(part.result(), i, names, kind, time)
            if len(edges.src):
                graph.insert(edges.src, edges.dst, edges.weight, edges.time)
    return graph


def _numbered(cls: Any, client: Any, parts: list[Any], names: list[str], options: Any) -> Any:
    """A graph with keys, whose edges stay on the workers. All partitions are checked first."""
    coded = _finished(client.map(_coded, parts, range(len(parts)), names=names, keys=options["keys"]))
    brought, batches = client.map(itemgetter(1), coded), []
    parts.clear()
    with filling(cls(client, **options)) as graph:
        for i in range(len(coded)):
            stage(f"the keys of {i:,} of {len(coded):,} partitions numbered", i, len(coded))
            keys = columns_in_bytes(brought[i].result())[1]
            if len(keys):
                ids = client.scatter(graph._updates.numbers(keys), hash=False)
                batches.append(client.submit(_renumbered, coded[i], ids, pure=False))
            coded[i] = brought[i] = None  # Dask frees them when the batch is made
        if batches:
            graph._updates.ingest(_finished(batches), None, None, numbered=True)
    return graph


def _largest(facts: Sequence[tuple[int, int, str, int]], n_vertices: int | None) -> tuple[int, int]:
    """The number of rows, and the largest id, which is checked."""
    total = sum(rows for rows, *_ in facts)
    i = max(range(len(facts)), key=lambda i: facts[i][1], default=-1)
    _, largest, name, row = facts[i] if i >= 0 else (0, -1, "", 0)
    check_largest(largest, f"partition {i}, column {name!r}, row {row}", n_vertices, total)
    return total, largest


def _finished(futures: list[Any]) -> list[Any]:
    """The futures when they are finished; raises the error of the first partition that has one."""
    for i, future in enumerate(futures):
        stage(f"{i:,} of {len(futures):,} partitions computed", i, len(futures))
        if (error := future.exception()) is not None:
            raise error
    return futures


# ---- tasks -----------------------------------------------------------------------------------------------------------


def _edges(part: Any, i: int, names: Sequence[str], keys: str | None, time: str | None = None) -> Edges:
    """The edges of partition `i`."""
    try:
        found, column = columns_in(part, names)
        return Edges.read(found, keys, column, time)
    except InvalidBatch as error:
        raise InvalidBatch(f"partition {i}: {error}") from None


def _checked(part: Any, i: int, names: Sequence[str], keys: str | None, time: str | None) -> tuple[Any, ...]:
    """Of partition `i`, whose values are checked: the rows, as `_facts` without keys, and the dtype of the times."""
    edges = _edges(part, i, names, keys, time)
    largest = edges.largest() if keys is None else (-1, "", 0)
    return len(edges.src), *largest, None if edges.time is None else edges.time.dtype


def _batch(part: Any, i: int, names: Sequence[str]) -> EdgeBatch:
    edges = _edges(part, i, names, None)
    return EdgeBatch(edges.src, edges.dst, edges.weight)


def _coded(part: Any, i: int, names: Sequence[str], keys: str) -> tuple[EdgeBatch, np.ndarray]:
    """Partition `i` in numbers of its own; and its keys in their order, as `Names.packed` has them."""
    edges, table = _edges(part, i, names, keys), KeyTable(keys, Device("cpu"))
    src, dst = table.number(edges.src), table.number(edges.dst)
    return EdgeBatch(src, dst, edges.weight), table.names.packed()


def _renumbered(coded: tuple[EdgeBatch, np.ndarray], ids: np.ndarray) -> EdgeBatch:
    """A partition in ids of the graph's: `ids` has that of each of its numbers."""
    batch = coded[0]
    return EdgeBatch(ids[batch.src], ids[batch.dst], batch.weight)


def _facts(batch: EdgeBatch, names: tuple[str, str]) -> tuple[int, int, str, int]:
    """The number of rows; and the largest id, with its column and row."""
    return len(batch), *Edges(batch.src, batch.dst, names=names).largest()


# ---- which keys ------------------------------------------------------------------------------------------------------


def _chosen(client: Any, parts: Sequence[Any], names: Sequence[str]) -> str | None:
    """As `mgraph.columns.chosen_kind` of all partitions together, which depends on the distinct ends only."""
    ends = _finished(client.map(_ends, parts, range(len(parts)), names=names[:2]))
    while len(ends) > 1:
        ends = [client.submit(_union, ends[i : i + 2]) for i in range(0, len(ends), 2)]
    kind: str | None = client.submit(_kind, ends[0]).result() if ends else None
    return kind


def _ends(part: Any, i: int, names: Sequence[str]) -> np.ndarray | None:
    """The distinct ends of partition `i`: int64[k], or None for strings."""
    try:
        (_, src), (_, dst) = columns_in(part, names)[0]
        if not len(src):  # whose dtype says nothing
            return np.empty(0, np.int64)
        called = f"column {names[0]!r}", f"column {names[1]!r}"
        if chosen_kind(src, dst, called) == "string":
            return None
        ends = (Device.to_host(as_keys(end, "int64", name)) for end, name in zip((src, dst), called, strict=True))
        return np.unique(np.concatenate([*ends]))
    except InvalidBatch as error:
        raise InvalidBatch(f"partition {i}: {error}") from None


def _union(ends: Sequence[np.ndarray | None]) -> np.ndarray | None:
    there = [end for end in ends if end is not None]
    return np.unique(np.concatenate(there)) if len(there) == len(ends) else None


def _kind(ends: np.ndarray | None) -> str | None:
    return "string" if ends is None else chosen_kind(ends, ends[:0])
