"""Ingest: a call in which ranks read or generate batches, and commit them step by step.

A step is one epoch: a part from each rank that has one left, in rank order. While the shard's thread exchanges, merges,
prepares and commits a step, the thread of `ReadAhead` reads and sorts the next part. On a GPU, a step's commit still
runs while the next step is exchanged and merged on another stream; it ends before that step is prepared. In addition to
the cost of a batch (`mgraph.worker.commit.route`), a step needs one small allreduce: whether any rank has a part, with
which columns, and whether one could not be read. If parts are operations, with queries among the updates, a second one
counts them per rank; they are sorted in the shard's thread.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from mgraph.batch import COLUMNS, COUNTS, EdgeBatch
from mgraph.errors import Aborted, InvalidBatch
from mgraph.failures import plain, with_place
from mgraph.operations import COLUMNS as OPERATIONS
from mgraph.operations import Operations, check_kinds, check_vertices
from mgraph.structures import Run
from mgraph.tables.times import MOST, as_stamps
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.commit.change import BatchChange, Record
from mgraph.worker.commit.expiry_by_count import expire_by_count
from mgraph.worker.commit.mixed import Execution, answered, logged, streams
from mgraph.worker.commit.route import route, share_runs
from mgraph.worker.inputs.read_ahead import ReadAhead
from mgraph.worker.inputs.sources import Reader
from mgraph.worker.shard.edge_expiry import EdgeExpiry
from mgraph.worker.shard.keys import KeyLog
from mgraph.worker.shard.shard import Shard

__all__ = ["ingest"]


class _Part(NamedTuple):
    """Part read by this rank: a sorted run per structure, and the record for the log.

    Operations are kept unsorted: their offsets depend on the other ranks' parts.
    """

    runs: list[Run]
    record: Record | None
    operations: Operations | None = None


def ingest(shard: Shard, ballot: Ballot, read: Reader, room: int, begin: int = 0) -> dict[str, Any]:
    """Apply the parts that `read` returns on all ranks, until no rank has more.

    Parameters
    ----------
    shard : Shard
    ballot : Ballot
        Commits each step.
    read : callable
        Returns the checked batch, or the operations, of a step; None after the last one. Called in another thread.
    room : int
        The client's limit in bytes for answers.
    begin : int
        The first step.

    Returns
    -------
    dict
        `counts`, int64[4 * steps]: the counts of each step, in the order of `COUNTS`. `by_time`, int64[2 * steps]: late
        and expired edges. `times`, float64[steps]: the seconds from the end of the previous step. `before`: the epoch
        before the first step. `epochs`: the epoch of each step. `answers`: the result of `answered` for each step of
        operations, and None for others.

    Raises
    ------
    Exception
        An error of reading or applying on this rank, with step and epoch. Earlier epochs are committed.
    """
    steps, name = _Steps(shard, ballot, room, begin), f"mgraph-{shard.spec.graph}-{shard.rank}-ahead"
    try:
        make = lambda step: _sorted(shard, read(begin + step), ballot.log is not None)  # noqa: E731
        with ReadAhead(name, shard.device, shard.stream_ahead, make, shard.exchange.aborted) as ahead:
            while steps.apply(*_next(ahead)):
                pass
    except Aborted:
        raise
    except Exception as error:
        raise with_place(error, steps.where, shard.rank) from error.__cause__
    finally:
        steps.settle()
        ballot.make_safe()  # committed steps are acknowledged, also if a later one fails
    return steps.done()


class _Steps:
    """Steps of an ingest.

    Attributes
    ----------
    at : int
        The step to blame for a failure: the previous one during the wait for its commit.
    """

    def __init__(self, shard: Shard, ballot: Ballot, room: int, begin: int) -> None:
        self.shard, self.ballot, self.at, self._room, self._begin = shard, ballot, 0, room, begin
        self._before = shard.epoch
        self._counts: list[int] = []
        self._by_time: list[int] = []
        self._times: list[float] = []
        self._epochs: list[int] = []
        self._answers: list[dict[str, Any] | None] = []
        self._held: list[Any] = []
        self._ended = time.perf_counter()

    def apply(self, part: _Part | None, problem: Exception | None) -> bool:
        """Apply a step: exchange, prepare, vote, begin the commit. False after the last part."""
        with self.shard.working():
            columns = _agreed(self.shard, part, problem)
            if columns is None:
                self._end_step_before()
                return False
            make = self._execute if columns.operations else self._update
            change, answers = make(part, columns)

        # Note the results.
        counted = change.counted
        self._counts.extend(counted[name] for name in COUNTS)
        self._by_time.extend((counted["late"], counted["expired"]))
        self._epochs.append(self.shard.epoch)
        self._answers.append(answers)
        self.at += 1
        return True

    def _update(self, part: _Part | None, columns: _Columns) -> tuple[BatchChange, None]:
        """Apply a step of batches."""
        with self.ballot.attempt(part.record if part else self._no_part(), ahead=True):
            routed, expiry = _routed(self.shard, part and part.runs, columns, self.ballot.keys)
            self._end_step_before()
            # Both were allocated on other streams than the commit's, so their memory must outlive the commit.
            self._held = [part, routed]
            change = BatchChange(self.shard, routed, expiry=expiry)
            self.ballot.decide(change, settle=False)
        return change, None

    def _execute(self, part: _Part | None, columns: _Columns) -> tuple[BatchChange, dict[str, Any]]:
        """Apply a step of operations; without updates it takes no epoch."""
        self._end_step_before()
        shard, mine = self.shard, part.operations if part and part.operations else _NONE
        # Count the operations of each rank, for this rank's offset, and the updates and rows of all.
        totals = np.zeros(shard.size + 2, np.int64)
        totals[shard.rank], totals[-2:] = len(mine), (mine.n_updates, mine.n_rows)
        with shard.waiting():
            totals = shard.exchange.allreduce(totals)

        # Weights default to 1 if any rank has some.
        share = {name: getattr(mine, name) for name in OPERATIONS}
        if columns.weight and mine.weight is None:
            share["weight"] = shard.device.full(len(mine), 1, np.float32)
        first, room = int(totals[: shard.rank].sum()), self._room if totals[-1] else None

        # Vote on the updates; queries alone need no ballot.
        with self.ballot.attempt(part.record if part else self._no_part()) if totals[-2] else nullcontext():
            counts = list(mine.counts.values()) if shard.size == 1 else None
            change = Execution(shard, streams(shard, first=first, counts=counts, **share), room=room)
            self._held = [part, change]
            if totals[-2]:
                self.ballot.decide(change, settle=False)
            else:
                change.prepare()
        self._room -= change.nbytes
        return change.updates, answered(shard, change.answers)

    def _no_part(self) -> Record | None:
        """Return an empty record for a step without a part: an epoch is whole if every rank logged it."""
        none = np.empty(0, np.uint32)
        return None if self.ballot.log is None else Record("batch", {"src": none, "dst": none})

    def _end_step_before(self) -> None:
        """Wait for the previous step's commit, and note its time."""
        if not self.at:
            return
        self.at -= 1
        self.settle()  # a failure here belongs to the previous step
        self.at += 1
        now = time.perf_counter()
        self._times.append(now - self._ended)
        self._ended = now

    def settle(self) -> None:
        """Wait for the last commit, and free the memory that it read."""
        self.ballot.settle()
        self._held = []

    @property
    def where(self) -> str:
        """Step and epoch of a failure, for its message."""
        epoch = self._epochs[self.at] if self.at < len(self._epochs) else self.shard.epoch + 1
        step = self._begin + self.at
        return f"ingest step {step}, epoch {epoch}, rank {self.shard.rank}; the epochs before it are committed"

    def done(self) -> dict[str, Any]:
        """Return the answer of the call."""
        counts, times = np.array(self._counts, np.int64), np.array(self._times)
        return {
            "counts": counts, "by_time": np.array(self._by_time, np.int64), "times": times, "before": self._before,
            "epochs": self._epochs, "answers": self._answers,
        }  # fmt: skip


class _Columns(NamedTuple):
    """Columns that any rank has in a step."""

    op: bool
    weight: bool
    time: bool
    operations: bool


_NONE = Operations([], [], [])


def _sorted(shard: Shard, batch: EdgeBatch | Operations | None, logs: bool) -> _Part | None:
    """Check a batch or operations, sort a batch, and make its record."""
    if batch is None:
        return None
    # Operations are only checked: sorting them needs the other ranks' counts.
    if isinstance(batch, Operations):
        spec = shard.spec
        check_kinds(batch, spec.weighted, shard.in_edges is not None, spec.combine, spec.times)
        check_vertices(batch, shard.n_vertices)
        columns = logged(*(getattr(batch, name) for name in OPERATIONS)) if logs else {}
        return _Part([], Record.of("batch", columns) if logs else None, batch)
    if batch.weight is not None and not shard.spec.weighted:
        raise InvalidBatch("the batch has weights and the graph is unweighted; create it with weighted=True")
    time = as_stamps(batch, shard.spec.times)
    runs = share_runs(shard, batch.src, batch.dst, batch.weight, batch.op, time, check=True)
    columns = {**{name: getattr(batch, name) for name in COLUMNS}, "time": time} if logs else {}
    return _Part(runs, Record.of("batch", columns) if logs else None)


def _next(ahead: ReadAhead[_Part | None]) -> tuple[_Part | None, Exception | None]:
    """Return the next part, or its error, to be raised after the other ranks know of it."""
    try:
        return ahead.next(), None
    except Aborted:
        raise
    except BaseException as error:  # even an error that would end the process is only the part's failure here
        return None, plain(error)


def _routed(
    shard: Shard, runs: list[Run] | None, columns: _Columns, keys: KeyLog | None
) -> tuple[list[Run], EdgeExpiry | None]:
    """Return this rank's edges of a step from all ranks, and the move of the window in a graph with times.

    `keys` are those of the vertices, on rank 0.
    """
    runs = runs or [Run(shard.device.empty(0, np.uint64))] * len(shard.structures)
    with nullcontext() if shard.stream_route is None else shard.stream_route:
        runs, expiry = shard.admit([_completed(shard, run, columns) for run in runs])
        routed, expiry = expire_by_count(shard, [route(shard, run) for run in runs], expiry, keys)
    if shard.stream_route is not None:
        shard.device.xp.cuda.get_current_stream().wait_event(shard.stream_route.record())
    return routed, expiry


def _agreed(shard: Shard, part: _Part | None, problem: Exception | None) -> _Columns | None:
    """Agree on the columns of a step; None if no rank has a part. Batches beside operations are invalid."""
    # Maximum over the ranks: errors, batches, operations, and each optional column.
    mixed = part is not None and part.operations is not None
    of = None if part is None else part.operations if mixed else part.runs[0]
    present = [of is not None and getattr(of, name, None) is not None for name in ("op", "weight", "time")]
    mine = [problem is not None, part is not None and not mixed, mixed, *present]
    with shard.waiting():
        failed, batches, mixed, *present = shard.exchange.allreduce(np.array(mine, np.int8), "max").tolist()

    # Raise this rank's error, another's, or one for parts of two kinds.
    if problem is not None:
        raise problem
    if failed:
        raise Aborted(f"{shard}: another rank could not read its next part; nothing was changed")
    if batches and mixed:
        raise InvalidBatch("some parts of a step are operations and others are not; give all ranks parts of one sort")
    op, weight, time = map(bool, present)
    return _Columns(op, weight, time, bool(mixed)) if batches or mixed else None


def _completed(shard: Shard, run: Run, columns: _Columns) -> Run:
    """Return `run` with all agreed columns; missing ops are inserts, and missing weights 1.

    A run without times has only deletions, whose times are not used.
    """
    n = len(run)
    return Run(
        run.keys,
        shard.device.full(n, 1, np.int8) if columns.op and run.op is None else run.op,
        shard.device.full(n, 1, np.float32) if columns.weight and run.weight is None else run.weight,
        time=shard.device.full(n, MOST, np.int64) if columns.time and run.time is None else run.time,
        counted=run.counted,
    )
