"""Ingest: one call in which every rank reads or generates batches, routes and commits them, step by step.

A step is one epoch: a part from each rank that has one left, in rank order. While the shard's thread exchanges, merges,
prepares and commits a step, the thread of `Ahead` reads and sorts the next part. On a GPU, the commit of a step still
runs while the next step is exchanged and merged on another stream; it is waited for before that step is prepared. In
addition to the cost of a batch (see `mgraph.worker.route`), a step needs one small allreduce, which tells the ranks
whether any has a part, with which columns, and whether one could not be read.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from mgraph.batch import COLUMNS, COUNTS, EdgeBatch
from mgraph.errors import Aborted, InvalidBatch
from mgraph.protocol import plain, retold
from mgraph.structures import Run
from mgraph.worker.ahead import Ahead
from mgraph.worker.ballot import Ballot
from mgraph.worker.change import BatchChange, Record
from mgraph.worker.route import route, share_runs
from mgraph.worker.shard import Shard
from mgraph.worker.sources import Reader

__all__ = ["ingest"]


class _Part(NamedTuple):
    """A part that this rank has read: its sorted runs, one for each structure, and its record for the log."""

    runs: list[Run]
    record: Record | None


def ingest(shard: Shard, ballot: Ballot, read: Reader) -> dict[str, Any]:
    """Apply the parts that `read` returns on all ranks, step by step, until no rank has more.

    Parameters
    ----------
    shard : Shard
    ballot : Ballot
        Decides on each step.
    read : callable
        Returns the checked batch of a step; None after the last one. Called in another thread.

    Returns
    -------
    dict
        `counts`, int64[4 * steps]: the counts of each step, in the order of `COUNTS`. `times`, float64[steps]: the
        seconds from the end of the previous step. `epoch`: the epoch of the last step.

    Raises
    ------
    Exception
        What reading or applying raised on this rank, with the step and epoch named. Earlier epochs are committed.
    """
    steps, name = _Steps(shard, ballot), f"mgraph-{shard.spec.graph}-{shard.rank}-ahead"
    try:
        make = lambda step: _sorted(shard, read(step), ballot.log is not None)  # noqa: E731
        with Ahead(name, shard.device, shard.stream_ahead, make, shard.exchange.aborted) as ahead:
            while steps.apply(*_next(ahead)):
                pass
    except Aborted:
        raise
    except Exception as error:
        raise retold(error, steps.where) from error.__cause__
    finally:
        steps.settle()
    return steps.done()


class _Steps:
    """The steps of one ingest.

    Attributes
    ----------
    at : int
        The step to which a failure belongs. While the commit of the previous step is waited for, it is that step.
    """

    def __init__(self, shard: Shard, ballot: Ballot) -> None:
        self.shard, self.ballot, self.at, self.first = shard, ballot, 0, shard.epoch + 1
        self._counts: list[int] = []
        self._times: list[float] = []
        self._held: list[list[Run]] = []
        self._ended = time.perf_counter()

    def apply(self, part: _Part | None, problem: Exception | None) -> bool:
        """Exchange, prepare and vote on a step, and begin its commit. False if no rank has a part any more."""
        with self.shard.working():
            columns = _agreed(self.shard, part and part.runs, problem)
            if columns is None:
                self._end_step_before()
                return False
            with self.ballot.attempt(part.record if part else self._no_part()):
                routed = _routed(self.shard, part and part.runs, *columns)
                self._end_step_before()
                # both were allocated on other streams than the one on which the commit reads them, so their memory may
                # be freed only when the commit is done
                self._held = [part.runs if part else [], routed]
                change = BatchChange(self.shard, routed)
                self.ballot.decide(change, settle=False)
        self._counts.extend(getattr(change.counts, name) for name in COUNTS)
        self.at += 1
        return True

    def _no_part(self) -> Record | None:
        """What a log is to keep of a step in which this rank has no part: an epoch is whole if every rank logged it."""
        none = np.empty(0, np.uint32)
        return None if self.ballot.log is None else Record("batch", {"src": none, "dst": none})

    def _end_step_before(self) -> None:
        self.at -= 1
        self.settle()  # a failure here belongs to the previous step
        self.at += 1
        if self.at:
            now = time.perf_counter()
            self._times.append(now - self._ended)
            self._ended = now

    def settle(self) -> None:
        """Wait for the last commit, and free the memory that it read."""
        self.ballot.settle()
        self._held = []

    @property
    def where(self) -> str:
        """The place of a failure, for its message."""
        epoch = self.first + self.at
        return f"ingest step {self.at}, epoch {epoch}, rank {self.shard.rank}; the epochs before it are committed"

    def done(self) -> dict[str, Any]:
        """The answer of the call."""
        counts, times = np.array(self._counts, np.int64), np.array(self._times)
        return {"counts": counts, "times": times, "epoch": self.shard.epoch}


def _sorted(shard: Shard, batch: EdgeBatch | None, logged: bool) -> _Part | None:
    if batch is None:
        return None
    if batch.weight is not None and not shard.spec.weighted:
        raise InvalidBatch("the batch has weights and the graph is unweighted; create it with weighted=True")
    runs = share_runs(shard, batch.src, batch.dst, batch.weight, batch.op, check=True)
    return _Part(runs, Record.of("batch", {name: getattr(batch, name) for name in COLUMNS}) if logged else None)


def _next(ahead: Ahead[_Part | None]) -> tuple[_Part | None, Exception | None]:
    """The next part, or the error in reading it, which is raised after the other ranks know of it."""
    try:
        return ahead.next(), None
    except Aborted:
        raise
    except BaseException as error:  # even an error that would end the process is only the part's failure here
        return None, plain(error)


def _routed(shard: Shard, runs: list[Run] | None, *columns: bool) -> list[Run]:
    """The edges of this step that this rank owns, from all ranks, with the `columns` op and weight."""
    runs = runs or [Run(shard.device.empty(0, np.uint64))] * len(shard.structures)
    if shard.stream_route is None:
        return [route(shard, _completed(shard, run, *columns)) for run in runs]
    with shard.stream_route:
        routed = [route(shard, _completed(shard, run, *columns)) for run in runs]
    shard.device.xp.cuda.get_current_stream().wait_event(shard.stream_route.record())
    return routed


def _agreed(shard: Shard, runs: list[Run] | None, problem: Exception | None) -> tuple[bool, bool] | None:
    """Whether any rank has ops, and weights, in this step; None if no rank has a part."""
    op, weight = (runs is not None and getattr(runs[0], name) is not None for name in ("op", "weight"))
    mine = [problem is not None, runs is not None, op, weight]
    with shard.waiting():
        failed, more, op, weight = shard.exchange.allreduce(np.array(mine, np.int8), "max").tolist()
    if problem is not None:
        raise problem
    if failed:
        raise Aborted(f"{shard}: another rank could not read its next part; nothing was changed")
    return (bool(op), bool(weight)) if more else None


def _completed(shard: Shard, run: Run, op: bool, weight: bool) -> Run:
    """`run` with the columns that any rank has: if it has none itself, all ops are inserts and all weights 1."""
    n = len(run)
    return Run(
        run.keys,
        shard.device.full(n, 1, np.int8) if op and run.op is None else run.op,
        shard.device.full(n, 1, np.float32) if weight and run.weight is None else run.weight,
    )
