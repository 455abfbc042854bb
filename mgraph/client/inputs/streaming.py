"""Stream a source through a graph: batches in flight, and a summary of throughput and latencies."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mgraph.batch import COUNTS, EdgeBatch, as_batch
from mgraph.checks import check_whole
from mgraph.client.inputs.following import positional
from mgraph.client.inputs.source_parts import check_file
from mgraph.client.reports.progress import Done, shown
from mgraph.client.reports.report import UpdateReport
from mgraph.errors import InvalidOption, MgraphError
from mgraph.sources.places import placed
from mgraph.tables.files.columnar import pieces_of
from mgraph.tables.files.opening import blamed
from mgraph.tables.kinds import is_table
from mgraph.tables.names import Names, warn_unused

__all__ = ["StreamSummary", "stream"]

logger = logging.getLogger(__name__)

KEPT = 100_000  #: batches whose latencies are kept for the percentiles
AHEAD = 2  #: partitions of a Dask collection to prefetch per worker

Offset = tuple[str, int] | None
OnBatch = Callable[[UpdateReport], object]


@dataclass(frozen=True)
class StreamSummary:
    """The outcome of a stream.

    Attributes
    ----------
    batches : int
        The number of applied batches.
    edges : int
        The number of different edges in each batch, summed over the batches: the sum of the next four.
    inserted, updated, deleted, missing : int
        As in `UpdateReport`, summed over the batches; without those of batches whose answers were lost.
    epoch : int
        The graph's epoch afterwards.
    seconds : float
        The time from the call to the last commit, including reads of the source.
    latency : (float, float, float)
        The median, the 99th percentile and the maximum of the batches' seconds, from sending a batch to its commit; of
        the last 100,000 batches. NaN without batches.
    late, expired : int
        As in `UpdateReport`, summed over the batches: operations too late for the window, and edges that expired.
    """

    batches: int
    edges: int
    inserted: int
    updated: int
    deleted: int
    missing: int
    epoch: int
    seconds: float
    latency: tuple[float, float, float]
    late: int = 0
    expired: int = 0

    @property
    def edges_per_second(self) -> float:
        """The number of edges per second."""
        return self.edges / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        p50, p99, most = (f"{1e3 * value:.3g}" for value in self.latency)
        times = f"; latency p50 {p50} ms, p99 {p99} ms, max {most} ms" if self.batches else ""
        times += f"; {self.expired:,} edges expired" if self.expired else ""
        times += f"; {self.late:,} operations were late" if self.late else ""
        return (
            f"{self.batches:,} batches, {self.edges:,} edges in {self.seconds:.3g} s, "
            f"{self.edges_per_second:,.0f} edges/s{times}; epoch {self.epoch}"
        )


def stream(
    self: Any,
    data: Any = None,
    /,
    batch: int = 1 << 20,
    on_batch: OnBatch | None = None,
    *,
    source: Any = None,
    target: Any = None,
    weight: Any = None,
    op: Any = None,
    time: Any = None,
    columns: Mapping[str, str] | None = None,
    max_bytes: int = 1 << 28,
    progress: bool = True,
) -> StreamSummary:
    """Apply the batches of a source, several in flight, and summarise throughput and latencies.

    This process reads the source, and only as far as the batches in flight leave room. So a source of any length needs
    bounded memory. With `ingest` the workers read, which is faster for data that they can reach.

    Parameters
    ----------
    data
        The source, one of:

        - a path, or a list of paths, of .npz, Parquet and CSV files; the last two are read a piece at a time;
        - an `EdgeBatch`, a data frame (a lazy one of Polars is computed), a mapping or a tuple of columns, as a
          part of `ingest` may be;
        - an iterable of these, which may be endless; it may yield Dask's delayed values too, and fill the same arrays
          for each part;
        - a Dask DataFrame, of which the workers compute a few partitions ahead;
        - a source with places, as `follow` takes: with a store, each of its batches is applied exactly once; without
          one, all of them are applied, from the first on.
    batch : int
        The most edges of a batch. Larger parts are cut, except those of a source with places.
    on_batch : callable, optional
        Called in this thread with the `UpdateReport` of each batch once it is committed, in order. It may read the
        graph, which may already be some epochs further. Its error ends the stream. Results that are maintained with
        ``eager=True`` are up to date with the batch by then; with such results, each batch waits for the one before.
    source, target, weight, op, time : str, optional
        The columns of tables and files, as in `update`.
    columns : mapping of str to str, optional
        Deprecated, as in `ingest`.
    max_bytes : int
        As in `pipeline`. A graph without `n_vertices` takes one batch at a time instead, since it may grow.
    progress : bool
        Show a bar after half a second: in a terminal with Rich installed, or in a notebook. A separate thread draws
        it.

    Returns
    -------
    StreamSummary

    Raises
    ------
    InvalidOption
        `data` is none of these, or `batch`, `on_batch`, `columns` or `max_bytes` is bad. Nothing was applied.
    KeyboardInterrupt
        After Ctrl-C. Every batch is applied whole or not at all. A note on the error, and the log, state the
        applied batches. Batches in flight may be in the graph and not in these counts; `epoch` includes them.
    Exception
        An error of the source, `on_batch` or `update`. The batches before it are applied; a note says how many.

    Examples
    --------
    >>> from mgraph import DynamicGraph
    >>> g = DynamicGraph(n_vertices=100)
    >>> summary = g.stream(([i, i + 1], [i + 1, i + 2]) for i in range(90))
    >>> summary.batches, summary.edges, summary.inserted, summary.epoch
    (90, 180, 91, 90)
    """
    # Check all arguments before anything is read.
    if check_whole(batch, "batch") < 1:
        raise InvalidOption(f"batch is {batch}; at least 1 edge is needed")
    if on_batch is not None and not callable(on_batch):
        raise InvalidOption(f"on_batch is {on_batch!r}; it must be a function of an UpdateReport")
    data, source = positional(data, source, "stream")
    names = self._options.names(columns=columns, source=source, target=target, weight=weight, op=op, time=time)
    parts = _placed(self, data, batch, names)

    # A graph that grows takes one batch at a time.
    run = _Run(self, on_batch)
    try:
        with shown("stream", partial(run.done, _rows(data)), progress):
            (_one_by_one if self._options.grows else _in_flight)(self, parts, run, max_bytes)
    except BaseException as error:
        run.rest()
        done = run.summary(settle=True)
        error.add_note(f"the stream ended early; applied until then: {done}")
        logger.info("graph %s: the stream was ended by %s: %s", self.id, type(error).__name__, done)
        raise
    done = run.summary()
    logger.info("graph %s: streamed %s", self.id, done)
    return done


class _Run:
    """The batches in flight and the counts of a stream."""

    def __init__(self, graph: Any, on_batch: OnBatch | None) -> None:
        self._graph, self._on_batch = graph, on_batch
        self._began = self._ended = time.perf_counter()
        self._counts, self._batches = np.zeros(len(COUNTS), np.int64), 0
        self._late = self._expired = 0
        self._seconds, self._most = deque[float](maxlen=KEPT), float("nan")
        self._flying = deque[Any]()
        self._rows = 0

    def read(self, part: EdgeBatch) -> None:
        """Count a batch that was read from the source."""
        self._rows += len(part)

    def took(self, report: UpdateReport) -> None:
        """Count a committed batch, and report it to the user."""
        self._count(report)
        if self._on_batch is not None:
            self._on_batch(report)

    def sent(self, pending: Any) -> None:
        """Add a batch in flight, and report those before it that are committed."""
        self._flying.append(pending)
        while self._flying and self._flying[0].done():
            self.took(self._flying.popleft().result())

    def landed(self) -> None:
        """Report all batches in flight, once each is committed."""
        while self._flying:
            self.took(self._flying.popleft().result())

    def rest(self) -> None:
        """Count the batches that were committed before an error."""
        for pending in self._flying:
            if pending.done() and pending.exception() is None:
                self._count(pending.result())

    def _count(self, report: UpdateReport) -> None:
        self._batches += 1
        self._ended = time.perf_counter()
        # Counts are -1 if the batch is committed and its answer was lost.
        self._counts += [max(getattr(report, name), 0) for name in COUNTS]
        self._late, self._expired = self._late + max(report.late, 0), self._expired + max(report.expired, 0)
        # NaN for a batch that the store reports after a loss.
        if report.seconds == report.seconds:
            self._seconds.append(report.seconds)
            self._most = max(report.seconds, self._most) if self._most == self._most else report.seconds

    def done(self, rows: int | None) -> Done:
        """Return the stream's progress, for another thread. `rows` is the number of rows of the source, if known."""
        edges, seconds = int(self._counts.sum()), time.perf_counter() - self._began
        words = f"{self._batches:,} batches, {edges:,} edges, {edges / seconds:,.0f} edges/s"
        return Done(min(self._rows, rows or self._rows), rows, words)

    def summary(self, settle: bool = False) -> StreamSummary:
        """Return the outcome so far. With `settle` the workers are asked for the epoch."""
        # After an error, commits may have gone unnoticed: ask behind all batches in flight.
        if settle:
            try:
                self._graph._directory.check()
                self._graph._directory.coordinator.call("inspect")  # after all batches in flight
            except MgraphError as error:
                # The graph is lost or closed: use the last known epoch.
                logger.debug("graph %s: %s", self._graph.id, error)
        p50, p99 = np.percentile(self._seconds, [50, 99]).tolist() if self._seconds else (float("nan"),) * 2
        inserted, updated, deleted, missing = self._counts.tolist()
        edges, seconds = int(self._counts.sum()), self._ended - self._began
        counts = self._batches, edges, inserted, updated, deleted, missing
        latency = p50, p99, float(self._most)
        return StreamSummary(*counts, self._graph.epoch, seconds, latency, self._late, self._expired)


def _one_by_one(graph: Any, parts: Iterator[tuple[Offset, EdgeBatch]], run: _Run, max_bytes: int) -> None:
    for offset, part in parts:
        run.read(part)
        run.took(graph.update(part, offset=offset))


def _in_flight(graph: Any, parts: Iterator[tuple[Offset, EdgeBatch]], run: _Run, max_bytes: int) -> None:
    with graph.pipeline(max_bytes) as pipeline:
        for offset, part in parts:
            run.read(part)
            run.sent(pipeline.update(part, offset=offset))
    run.landed()


# ---- sources ---------------------------------------------------------------------------------------------------------


def _placed(graph: Any, source: Any, most: int, names: Names) -> Iterator[tuple[Offset, EdgeBatch]]:
    """Return the batches of a source, lazily; with their places if it has places and the graph keeps them."""
    if hasattr(source, "batches"):
        logged = graph._storing is not None
        batches = placed(source, graph.offsets if logged else {})
        return ((place if logged else None, _batch(graph, part, names, own=True)) for place, part in batches)
    return ((None, piece) for part in _batches(graph, source, most, names) for piece in _cut(part, most))


def _rows(source: Any) -> int | None:
    """Return the number of rows of a single part, else None."""
    frame = hasattr(source, "__len__") and hasattr(source, "columns") and not hasattr(source, "__dask_graph__")
    return len(source) if frame or isinstance(source, EdgeBatch) else None


def _batch(graph: Any, part: Any, names: Names, own: bool) -> EdgeBatch:
    """Return a part as a batch; with memory of its `own`, if several batches are in flight."""
    if hasattr(part, "__dask_graph__"):
        part = part.compute()
    return as_batch(part, names, graph._directory.keys, own=own and not graph._options.grows)


def _cut(batch: EdgeBatch, most: int) -> Iterator[EdgeBatch]:
    """Split a batch into views of at most `most` edges."""
    if len(batch) <= most:
        yield batch
        return
    for at in range(0, len(batch), most):
        yield batch[at : at + most]


def _batches(graph: Any, source: Any, most: int, names: Names) -> Iterator[EdgeBatch]:
    """Return the parts of a source as batches."""
    if isinstance(source, str | os.PathLike):
        source = [source]

    # Files are read piece by piece; anything else is a sequence of parts.
    if isinstance(source, list | tuple) and source and all(isinstance(item, str | os.PathLike) for item in source):
        return _of_files(graph, [check_file(path) for path in source], names, most)
    parts: Iterable[Any]
    own = not isinstance(source, list | tuple)  # a generator may reuse the arrays of a part
    if hasattr(source, "to_delayed") and hasattr(source, "columns"):
        parts, own = _computed(graph, source.to_delayed()), False
    elif isinstance(source, EdgeBatch | tuple) or is_table(source):
        parts, own = [source], False
    elif isinstance(source, Iterable) and not hasattr(source, "__dask_graph__"):
        parts = source
    else:
        raise InvalidOption(
            "a stream takes paths, an EdgeBatch, a data frame, columns, an iterable of these, a Dask DataFrame, or a "
            f"source with batches(after); got {type(source).__name__}"
        )
    return (_batch(graph, part, names, own) for part in parts)


def _of_files(graph: Any, paths: list[str], names: Names, most: int) -> Iterator[EdgeBatch]:
    for path in paths:
        for columns, labels, unused in pieces_of(path, names, graph._directory.keys, most):
            with blamed(path):
                batch = EdgeBatch.of(columns, graph._directory.keys, labels)
            warn_unused(unused, "the file")
            yield batch


def _computed(graph: Any, parts: Iterable[Any]) -> Iterator[Any]:
    """Yield the values of Dask's delayed parts, in order. With a client, its workers prefetch a few."""
    client = graph._client
    if client is None:
        yield from (part.compute() for part in parts)
        return
    futures, most = deque[Any](), AHEAD * len(graph.workers)

    # Keep a few partitions in flight per worker.
    for part in parts:
        futures.append(client.compute(part))
        if len(futures) == most:
            yield futures.popleft().result()
    while futures:
        yield futures.popleft().result()
