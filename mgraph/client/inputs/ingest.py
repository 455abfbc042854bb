"""The client's side of an ingest: what a user gives as a source, as each rank's parts."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from dask import annotate, delayed
from dask.base import is_dask_collection
from dask.delayed import Delayed
from distributed import Client, Future
from distributed.protocol.pickle import dumps

from mgraph.client.inputs.source_parts import WATCH_SECONDS, Parts, dealt, function_or_files
from mgraph.errors import CapacityError, InvalidBatch, InvalidOption
from mgraph.tables.names import COLUMNS, Names, warn_unused
from mgraph.tasks import batch_of

__all__ = ["Paused", "as_parts", "waited"]

ANSWER_SECONDS = 5.0  #: for which Dask's scheduler is asked how the workers are
PAUSED_SECONDS = 15.0  #: how long a worker may be paused meanwhile, for want of memory: Dask runs no task there


def as_parts(
    client: Client,
    source: Any,
    workers: Sequence[str],
    steps: int | None,
    names: Names,
    watch: Callable[[], None],
) -> Parts:
    """See `DynamicGraph.ingest` for what a source may be. Part i goes to rank ``i % size`` in step ``i // size``.

    Dask collections are computed, and their parts moved to the ranks' workers where they lie elsewhere. Without
    `workers` they are computed anywhere, as they are, for this process to read.

    Parameters
    ----------
    watch : callable
        Called from time to time while Dask computes; raises where a worker was lost.

    Raises
    ------
    InvalidOption, InvalidBatch
        It is no source; or columns are missing.
    Exception
        Whatever Dask's tasks raised.
    """
    if (parts := function_or_files(source, len(workers), steps, names, dumps)) is not None:
        return parts
    if isinstance(source, Future | Delayed):
        source = [source]
    if not workers:
        asked = [client.compute(part) if isinstance(part, Delayed) else part for part in _parts(source, names)]
        return Parts([], asked, watch)
    keys, held = _computed(client, _parts(source, names), names, workers, watch)
    return Parts(dealt("keys", keys, len(workers), names), held)


def _parts(source: Any, names: Names) -> list[Future | Delayed]:
    """Return the parts of a Dask collection, or the list of futures and delayed values that was given."""
    if hasattr(source, "to_delayed") and hasattr(source, "columns"):
        found, unused = names.find(source.columns, "the data frame")
        warn_unused(unused, "the data frame")
        return list(source[list(found.values())].to_delayed())
    if isinstance(source, Mapping):
        found, unused = names.find(source, "the mapping")
        warn_unused(unused, "the mapping")
        return list(_zipped({column: source[name] for column, name in found.items()}, [*found.values()]))
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
    """Return a delayed mapping per chunk of columns that are cut alike; arrays of known lengths are made so.

    The mappings have the columns by `names`, or are tuples in the order of `COLUMNS` without.
    """
    first = named.get("src")
    if first is None or "dst" not in named:
        raise InvalidBatch("src and dst are needed")
    for name, column in named.items():
        if getattr(column, "ndim", 1) != 1 or not hasattr(column, "npartitions") or not hasattr(column, "to_delayed"):
            raise InvalidBatch(f"{name} is {type(column).__name__}; columns are one-dimensional Dask arrays or series")
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
    blocks = [_blocks(column) for column in named.values()]
    together = delayed(_mapping, pure=True)
    places = None if names is None else tuple(names)
    order = tuple(COLUMNS.index(name) for name in named)
    return [together(places, order, *parts) for parts in zip(*blocks, strict=True)]


class Paused:
    """Watches for workers that Dask has paused, and that a graph's memory keeps so: their tasks would wait for ever."""

    def __init__(self, client: Client, workers: Sequence[str]) -> None:
        self._client, self._workers = client, workers
        self._since: dict[str, float] = {}

    def check(self) -> None:
        """`CapacityError` where a worker has been paused for `PAUSED_SECONDS`."""
        # not scheduler_info(): the client's own updates, which ask for no workers, may overwrite what that returns
        try:
            identity = self._client.sync(self._client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER_SECONDS)
        except OSError:  # TimeoutError too: nothing is known of the workers now
            return
        found, now = identity["workers"], time.monotonic()
        paused = [address for address in self._workers if found.get(address, {}).get("status") == "paused"]
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
    """How many entries; None where Dask does not know."""
    length = column.shape[0] if hasattr(column, "chunks") else None
    return None if length is None or length != length else int(length)


def _mapping(names: tuple[Any, ...] | None, order: tuple[int, ...], *columns: Any) -> Any:
    """Return the chunks of columns as a mapping, or as a tuple in which columns that are not given are None."""
    if names is not None:
        return dict(zip(names, columns, strict=True))
    given = dict(zip(order, columns, strict=True))
    return tuple(given.get(place) for place in range(max(order) + 1))


def _computed(
    client: Client,
    parts: list[Future | Delayed],
    names: Names,
    workers: Sequence[str],
    watch: Callable[[], None],
) -> tuple[list[str], list[Future]]:
    """Each part checked and on its rank's worker, by key.

    All in one graph, in which Dask makes a batch of a part as soon as that is there, and frees what it was made of.
    """
    run, batches = uuid.uuid4().hex, []
    for i, part in enumerate(parts):
        with annotate(workers=[workers[i % len(workers)]]):
            batches.append(delayed(batch_of)(part, names, dask_key_name=f"mgraph-part-{run}-{i}"))
    held: list[Future] = client.compute(batches)
    del parts, part, batches
    try:
        waited(held, watch, Paused(client, workers).check, "the source; nothing was ingested")
    except BaseException:
        for future in held:  # Dask need not compute the others
            future.release()
        raise
    return [future.key for future in held], held


def waited(futures: Sequence[Future], watch: Callable[[], None], check: Callable[[], None], what: str) -> None:
    """Wait until all are finished; raise the error of the first one that fails. Calls `watch` and `check` meanwhile."""
    done: SimpleQueue[Future] = SimpleQueue()
    for future in futures:
        future.add_done_callback(done.put)
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
                raise _failure(future, futures, what)
        if time.monotonic() - looked >= WATCH_SECONDS:  # a pinned task waits for ever for a worker that died
            watch()
            check()
            looked = time.monotonic()


def _failure(future: Future, futures: Sequence[Future], what: str) -> BaseException:
    """Why a part has no batch."""
    i = next(i for i, other in enumerate(futures) if other.key == future.key)
    error = future.exception() if future.status == "error" else InvalidOption(f"part {i} was {future.status}")
    assert isinstance(error, BaseException)
    error.add_note(f"part {i} of {len(futures)} of {what}")
    return error
