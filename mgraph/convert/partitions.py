"""Graphs from Dask DataFrames.

Dask runs the tasks at the end of this module on workers; the module itself imports no Dask.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Unpack

import numpy as np

from mgraph.batch import EdgeBatch, columns_of
from mgraph.client.options import GraphOptions, keys_of
from mgraph.client.reports.progress import building, stage
from mgraph.convert.build import check_largest, check_weighted, filling, from_table, largest_id, names_of, set_times
from mgraph.device import Device
from mgraph.distinct import distinct
from mgraph.errors import InvalidBatch
from mgraph.facade import type_name
from mgraph.keys import KeyTable
from mgraph.keys.key_array import columns_in as columns_in_bytes
from mgraph.tables.ids import as_keys, chosen_kind
from mgraph.tables.names import ARGUMENTS, Names, label, warn_unused

__all__ = ["from_dask"]


@building
def from_dask(
    cls: Any,
    frame: Any,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    *,
    time: str | None = None,
    client: Any = None,
    n_vertices: int | None = None,
    **options: Unpack[GraphOptions],
) -> Any:
    """Create a graph from a Dask DataFrame: a row per edge. Ignores other columns.

    With a client, workers check the partitions and `ingest` them: no edge passes through this process, unless the graph
    has times. Then this process inserts one partition after another. If the graph has keys, this process numbers the
    distinct keys of one partition after another, and sends the numbers back. Without a client the graph is in this
    process, and so are the rows, once Dask has computed them.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        A frame of pandas or cuDF partitions. It is computed once, and all partitions of the named columns are held
        until the graph is ready; `DynamicGraph.ingest` says how large they may be.
    client : distributed.Client, optional
        The cluster that computes the frame and holds the graph.
    source, target, weight, time, n_vertices, **options
        As in `from_pandas`.

    Returns
    -------
    DynamicGraph
        Of rows with the same ends the last one counts. With a client and without times and `n_vertices`, the first
        epoch adds the vertices (with keys, one epoch for each partition that brings new ones), and each step of the
        ingest is an epoch.

    Raises
    ------
    InvalidBatch, UnknownVertex
        The errors of `from_pandas`; the message names the partition, too. No graph was created.
    """
    # Find the columns.
    if not hasattr(frame, "to_delayed") or not hasattr(frame, "columns"):
        raise InvalidBatch(f"from_dask takes a Dask DataFrame, got {type_name(frame)}")
    columns, unused = names_of(options, source, target, weight, time).find(frame.columns, "the frame")
    names = Names(**{ARGUMENTS.get(column, column): name for column, name in columns.items()}, reads=())
    keys, chosen = keys_of(options.get("keys", "auto"), n_vertices), frame[[*columns.values()]]
    warn_unused(unused, "the frame")
    # Compute them: here without a cluster, else on the workers.
    stage("computing the partitions")
    if client is None:
        return from_table(cls, chosen.compute(), names, None, n_vertices, options)
    check_weighted(options, "weight" in columns)
    parts = client.compute(chosen.to_delayed())
    # Times and keys decide how the partitions come into the graph.
    kind = _chosen(client, parts, names) if keys == "auto" else keys
    decided = {**options, "keys": kind}
    if "time" in columns:
        return _inserted(cls, client, parts, names, n_vertices, decided)
    if kind is not None:
        return _numbered(cls, client, parts, names, decided)
    return _ingested(cls, client, parts, names, n_vertices, decided)


def _ingested(cls: Any, client: Any, parts: list[Any], names: Names, n_vertices: int | None, options: Any) -> Any:
    """Create a graph without keys; its edges stay on the workers.

    Checks all partitions first.
    """
    # Make the batches on the workers, and check their ids.
    batches = _finished(client.map(_batch, parts, range(len(parts)), names=names, keys=None))
    total, largest = _largest(client.gather(client.map(_facts, batches, names=names)), n_vertices)
    # Ingest them where they are.
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
    names: Names,
    n_vertices: int | None,
    options: Any,
) -> Any:
    """Create a graph with times, partition by partition. Checks all first."""
    # Check all partitions before there is a graph.
    kind = options["keys"]
    checked = _finished(client.map(_checked, parts, range(len(parts)), names=names, keys=kind))
    facts = client.gather(checked)
    if kind is None:
        _largest([fact[:3] for fact in facts], n_vertices)
    if facts:
        set_times(options, _dtype_of_times([fact[3] for fact in facts if fact[0]] or [facts[0][3]]))
    # Insert them in order, an epoch each.
    with filling(cls(client, n_vertices, **options)) as graph:
        for i, part in enumerate(parts):
            stage(f"{i:,} of {len(parts):,} partitions inserted", i, len(parts))
            batch = _batch(part.result(), i, names, kind)
            if len(batch):
                graph._updates.apply(batch)
    return graph


def _dtype_of_times(dtypes: Sequence[np.dtype]) -> np.dtype:
    """Return the dtype for the times of all partitions, dates in the finest of their units.

    Raises `InvalidBatch` if some are integers and others dates.
    """
    if len({dtype.kind for dtype in dtypes}) > 1:
        listed = " and ".join(sorted({*map(str, dtypes)}))
        raise InvalidBatch(f"the partitions have times of {listed}; all are of one kind")
    return np.result_type(*dtypes)


def _numbered(cls: Any, client: Any, parts: list[Any], names: Names, options: Any) -> Any:
    """Create a graph with keys; its edges stay on the workers.

    Checks all partitions first.
    """
    # Each partition numbers its own keys on a worker.
    coded = _finished(client.map(_coded, parts, range(len(parts)), names=names, keys=options["keys"]))
    brought, batches = client.map(itemgetter(1), coded), []
    parts.clear()
    # The graph numbers the keys here, partition by partition; the edges are renumbered on the workers.
    with filling(cls(client, **options)) as graph:
        for i in range(len(coded)):
            stage(f"the keys of {i:,} of {len(coded):,} partitions numbered", i, len(coded))
            keys = columns_in_bytes(brought[i].result())[1]
            if len(keys):
                ids = client.scatter(graph._updates.numbers(keys), hash=False)
                batches.append(client.submit(_renumbered, coded[i], ids, pure=False))
            coded[i] = brought[i] = None  # Dask frees them when the batch is made
        if batches:
            graph._ingest.run(_finished(batches), None, Names(), numbered=True)
    return graph


def _largest(facts: Sequence[tuple[int, int, str]], n_vertices: int | None) -> tuple[int, int]:
    """Return the number of rows, and the checked largest id."""
    total = sum(rows for rows, *_ in facts)
    i = max(range(len(facts)), key=lambda i: facts[i][1], default=-1)
    _, largest, where = facts[i] if i >= 0 else (0, -1, "")
    check_largest(largest, f"partition {i}, {where}", n_vertices, total)
    return total, largest


def _finished(futures: list[Any]) -> list[Any]:
    """Wait for the futures. Raises the error of the first partition that failed."""
    for i, future in enumerate(futures):
        stage(f"{i:,} of {len(futures):,} partitions computed", i, len(futures))
        if (error := future.exception()) is not None:
            raise error
    return futures


# ---- tasks -----------------------------------------------------------------------------------------------------------


def _batch(part: Any, i: int, names: Names, keys: str | None) -> EdgeBatch:
    """Return the edges of partition `i`."""
    try:
        columns, labels, _ = columns_of(part, names)
        return EdgeBatch.of(columns, keys, labels)
    except InvalidBatch as error:
        raise InvalidBatch(f"partition {i}: {error}") from None


def _checked(part: Any, i: int, names: Names, keys: str | None) -> tuple[Any, ...]:
    """Check the values of partition `i`, and return its `_facts` and the dtype of times."""
    batch = _batch(part, i, names, keys)
    facts = _facts(batch, names) if keys is None else (len(batch), -1, "")
    return *facts, batch.time.dtype


def _coded(part: Any, i: int, names: Names, keys: str) -> tuple[EdgeBatch, np.ndarray]:
    """Return partition `i` in its own numbers, and its keys packed."""
    batch, table = _batch(part, i, names, keys), KeyTable(keys, Device("cpu"))
    src, dst = table.number(batch.src), table.number(batch.dst)
    return EdgeBatch(src, dst, batch.weight), table.names.packed()


def _renumbered(coded: tuple[EdgeBatch, np.ndarray], ids: np.ndarray) -> EdgeBatch:
    """Renumber a partition: `ids[k]` is the graph's id of number k."""
    batch = coded[0]
    return EdgeBatch(ids[batch.src], ids[batch.dst], batch.weight)


def _facts(batch: EdgeBatch, names: Names) -> tuple[int, int, str]:
    """Return the number of rows, the largest id, and its description for messages."""
    return len(batch), *largest_id(batch, {"src": label(names.source), "dst": label(names.target)})


# ---- which keys ------------------------------------------------------------------------------------------------------


def _chosen(client: Any, parts: Sequence[Any], names: Names) -> str | None:
    """Choose the keys of all partitions together, by their distinct ends."""
    ends = _finished(client.map(_ends, parts, range(len(parts)), names=names))
    while len(ends) > 1:
        ends = [client.submit(_union, ends[i : i + 2]) for i in range(0, len(ends), 2)]
    kind: str | None = client.submit(_kind, ends[0]).result() if ends else None
    return kind


def _ends(part: Any, i: int, names: Names) -> np.ndarray | None:
    """Return the distinct ends of partition `i`: int64[k], or None for strings."""
    try:
        columns, labels, _ = columns_of(part, names)
        # Strings decide at once; integers are sent as their distinct values.
        src, dst, called = columns["src"], columns["dst"], (labels["src"], labels["dst"])
        if not len(src):  # its dtype says nothing
            return np.empty(0, np.int64)
        if chosen_kind(src, dst, called) == "string":
            return None
        ends = (Device.to_host(as_keys(end, "int64", name)) for end, name in zip((src, dst), called, strict=True))
        return distinct(np.concatenate([*ends]))
    except InvalidBatch as error:
        raise InvalidBatch(f"partition {i}: {error}") from None


def _union(ends: Sequence[np.ndarray | None]) -> np.ndarray | None:
    numbers = [end for end in ends if end is not None]
    return distinct(np.concatenate(numbers)) if len(numbers) == len(ends) else None


def _kind(ends: np.ndarray | None) -> str | None:
    return "string" if ends is None else chosen_kind(ends, ends[:0])
