"""The client's side of an ingest: a user's source, split into parts for the ranks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from dask import annotate, delayed
from dask.base import is_dask_collection
from dask.delayed import Delayed
from distributed import Client, Future
from distributed.protocol.pickle import dumps

from mgraph.client.inputs.source_parts import WATCH_SECONDS, Parts, deal, function_or_files
from mgraph.errors import CapacityError, InvalidBatch, InvalidOption
from mgraph.tables.names import COLUMNS, Names, warn_unused
from mgraph.tasks import batch_of

__all__ = ["Paused", "as_parts", "waited"]

ANSWER_SECONDS = 5.0  #: time for the scheduler's answer about the workers
PAUSED_SECONDS = 15.0  #: time that Dask may pause a worker for want of memory, and run no task there


def as_parts(
    client: Client,
    source: Any,
    workers: Sequence[str],
    steps: int | None,
    names: Names,
    watch: Callable[[], None],
) -> Parts:
    """Return the parts of a source for the ranks: part i goes to rank ``i % size`` in step ``i // size``.

    `DynamicGraph.ingest` lists the sources. Dask collections are computed, and their parts moved to the ranks' workers.
    Without `workers` they are computed anywhere, for this process to read.

    Parameters
    ----------
    watch : callable
        Called from time to time while Dask computes; raises an error if a worker was lost.

    Raises
    ------
    InvalidOption, InvalidBatch
        It is no source; or columns are missing.
    Exception
        An error of Dask's tasks.
    """
    if (parts := function_or_files(source, len(workers), steps, names, dumps)) is not None:
        return parts

    # Dask computes the parts, on the ranks' workers if there are any.
    if isinstance(source, Future | Delayed):
        source = [source]
    if not workers:
        futures = [client.compute(part) if isinstance(part, Delayed) else part for part in _parts(source, names)]
        return Parts([], futures, watch)
    keys, futures = _computed(client, _parts(source, names), names, workers, watch)
    return Parts(deal("keys", keys, len(workers), names), futures)


def _parts(source: Any, names: Names) -> list[Future | Delayed]:
    """Return the parts of a Dask collection, or the given list of futures or delayed values."""
    # A data frame has parts of its own; columns are zipped into parts.
    if hasattr(source, "to_delayed") and hasattr(source, "columns"):
        names_by_column, unused = names.find(source.columns, "the data frame")
        warn_unused(unused, "the data frame")
        return list(source[list(names_by_column.values())].to_delayed())
    if isinstance(source, Mapping):
        names_by_column, unused = names.find(source, "the mapping")
        warn_unused(unused, "the mapping")
        return list(
            _zipped({column: source[name] for column, name in names_by_column.items()}, [*names_by_column.values()])
        )
    if isinstance(source, tuple) and any(is_dask_collection(column) for column in source):
        named = {name: column for name, column in zip(COLUMNS, source, strict=False) if column is not None}
        return list(_zipped(named, None))
    if isinstance(source, list | tuple) and source and all(isinstance(item, Future | Delayed) for item in source):
        return list(source)
    raise InvalidOption(
        "a source is a Dask DataFrame, a tuple or mapping of Dask columns (src, dst[, weight, op]), a list of futures, "
        f"of delayed values or of paths, or a function; got {type(source).__name__}. Batches of this process go "
        "through update() and pipeline()"
    )


def _zipped(named: dict[str, Any], names: Sequence[Any] | None) -> list[Delayed]:
    """Zip the chunks of columns that are split alike into delayed mappings, one per chunk.

    Arrays of known lengths are rechunked first. With `names` the mappings have these names; else they are tuples in the
    order of `COLUMNS`.
    """
    first = named.get("src")
    if first is None or "dst" not in named:
        raise InvalidBatch("src and dst are needed")

    # Check that columns are one-dimensional.
    for name, column in named.items():
        if getattr(column, "ndim", 1) != 1 or not hasattr(column, "npartitions") or not hasattr(column, "to_delayed"):
            raise InvalidBatch(f"{name} is {type(column).__name__}; columns are one-dimensional Dask arrays or series")

    # Arrays of known, equal lengths are split like `src`.
    lengths = {name: _length(column) for name, column in named.items()}
    if None not in lengths.values():
        for name, length in lengths.items():
            if length != lengths["src"]:
                raise InvalidBatch(f"{name} has {length} entries and src {lengths['src']}; a batch has one an edge")
        named = {name: column.rechunk(first.chunks) for name, column in named.items()}
    for name, column in named.items():
        if column.npartitions != first.npartitions:
            raise InvalidBatch(
                f"{name} has {column.npartitions} partitions and src {first.npartitions}; where lengths are not known, "
                "columns are cut alike (see dask.array.Array.compute_chunk_sizes)"
            )

    # Join chunk i of all columns in one task.
    blocks = [_blocks(column) for column in named.values()]
    together = delayed(_mapping, pure=True)
    places = None if names is None else tuple(names)
    order = tuple(COLUMNS.index(name) for name in named)
    return [together(places, order, *parts) for parts in zip(*blocks, strict=True)]


class Paused:
    """Watches for workers that Dask has paused because a graph fills their memory: their tasks would never run."""

    def __init__(self, client: Client, workers: Sequence[str]) -> None:
        self._client, self._workers = client, workers
        self._since: dict[str, float] = {}

    def check(self) -> None:
        """Raise `CapacityError` if a worker has been paused for `PAUSED_SECONDS`."""
        # Not scheduler_info(): the client's own updates, which ask for no workers, may overwrite its result.
        try:
            identity = self._client.sync(self._client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER_SECONDS)
        except OSError:  # TimeoutError too: no news of the workers now
            return
        workers, now = identity["workers"], time.monotonic()
        paused = [address for address in self._workers if workers.get(address, {}).get("status") == "paused"]
        self._since = {address: self._since.get(address, now) for address in paused}
        for address, since in self._since.items():
            if now - since > PAUSED_SECONDS:
                raise CapacityError(
                    f"the worker at {address} was paused by Dask {PAUSED_SECONDS:g} s ago, since its memory is nearly "
                    "full (distributed.worker.memory.pause): no parts can be computed there"
                )


def _blocks(column: Any) -> list[Delayed]:
    blocks = column.to_delayed()
    return blocks.ravel().tolist() if isinstance(blocks, np.ndarray) else list(blocks)


def _length(column: Any) -> int | None:
    """Return the number of entries; None if Dask does not know it."""
    length = column.shape[0] if hasattr(column, "chunks") else None
    return None if length is None or length != length else int(length)


def _mapping(names: tuple[Any, ...] | None, order: tuple[int, ...], *columns: Any) -> Any:
    """Return the chunks of columns as a mapping, or as a tuple with None for absent columns."""
    if names is not None:
        return dict(zip(names, columns, strict=True))
    columns_by_place = dict(zip(order, columns, strict=True))
    return tuple(columns_by_place.get(place) for place in range(max(order) + 1))


def _computed(
    client: Client,
    parts: list[Future | Delayed],
    names: Names,
    workers: Sequence[str],
    watch: Callable[[], None],
) -> tuple[list[str], list[Future]]:
    """Compute each part on its rank's worker; return keys and futures.

    All parts are one Dask graph, so Dask makes each batch once its part is computed, and frees the part.
    """
    run, batches = uuid.uuid4().hex, []
    for i, part in enumerate(parts):
        with annotate(workers=[workers[i % len(workers)]]):
            batches.append(delayed(batch_of)(part, names, dask_key_name=f"mgraph-part-{run}-{i}"))

    futures: list[Future] = client.compute(batches)
    # Drop the parts' own graphs, which keep data alive.
    del parts, part, batches
    try:
        waited(futures, watch, Paused(client, workers).check, "the source; nothing was ingested")
    except BaseException:
        for future in futures:  # cancels the other tasks
            future.release()
        raise
    return [future.key for future in futures], futures


def waited(futures: Sequence[Future], watch: Callable[[], None], check: Callable[[], None], source: str) -> None:
    """Wait for all futures; raise the error of the first failure.

    `watch` and `check` are called meanwhile.
    """
    done: SimpleQueue[Future] = SimpleQueue()
    for future in futures:
        future.add_done_callback(done.put)

    # Look at the workers in intervals: a task that is pinned to a dead worker waits for ever.
    left, looked = len(futures), time.monotonic()
    while left:
        try:
            future = done.get(timeout=WATCH_SECONDS)
        except Empty:
            pass
        else:
            left -= 1
            if future.status != "finished":
                watch()  # a lost worker is the better reason
                raise _failure(future, futures, source)
        if time.monotonic() - looked >= WATCH_SECONDS:
            watch()
            check()
            looked = time.monotonic()


def _failure(future: Future, futures: Sequence[Future], source: str) -> BaseException:
    """Return the reason why a part has no batch."""
    i = next(i for i, other in enumerate(futures) if other.key == future.key)
    if future.status == "error":
        error = future.exception()
    else:
        try:
            future.result(timeout=WATCH_SECONDS)
        except (CancelledError, TimeoutError) as why:  # its text says more than the status
            error = InvalidOption(f"part {i} was {future.status}: {why}")
    assert isinstance(error, BaseException)
    error.add_note(f"part {i} of {len(futures)} of {source}")
    return error
