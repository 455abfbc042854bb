"""Batches that are born on the workers: one call, in which every rank reads, routes and commits step after step.

A step is one epoch: a part from each rank that has one left, in rank order. While the shard's thread exchanges, merges,
prepares and commits a step, the thread of `Ahead` reads and sorts the next. On a GPU the commit of a step runs on while
the next one is exchanged and merged, on a stream of its own; it is waited for before that is prepared. Besides what a
batch costs (see `mgraph.runtime.update`), a step takes one small allreduce, in which the ranks learn who has a part,
with which columns, and whether one could not be read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.errors import Aborted, InvalidBatch
from mgraph.runtime import update
from mgraph.runtime.ahead import Ahead
from mgraph.runtime.protocol import plain, retold
from mgraph.runtime.shard import Shard
from mgraph.runtime.sources import Reader
from mgraph.structures import Run

__all__ = ["COUNTS", "ingest"]

COUNTS = ("inserted", "updated", "deleted", "missing")

Answer = dict[str, Any]


def ingest(shard: Shard, read: Reader, apply: Callable[[list[Run]], Answer], settle: Callable[[], None]) -> Answer:
    """Apply what `read` gives here and on the other ranks, step after step, until no rank has more.

    Parameters
    ----------
    shard : Shard
    read : callable
        The checked batch of a step; None after the last. Called in another thread.
    apply : callable
        Prepares and votes on routed runs and begins their commit; gives the counts.
    settle : callable
        Waits for the commit that was begun last.

    Returns
    -------
    dict
        `counts`, int64[4 * steps]: those of each step, as `COUNTS` has them; `times`, float64[steps], seconds from the
        end of the step before.

    Raises
    ------
    Exception
        What reading or applying raised here, with the step and epoch named; the epochs before are committed.
    """
    counts: list[int] = []
    times: list[float] = []
    at, first, ended = 0, shard.epoch + 1, time.perf_counter()  # at: whose failure an error is
    held: list[list[Run]] = []
    name = f"mgraph-{shard.spec.graph}-{shard.rank}-ahead"

    def make(step: int) -> list[Run] | None:
        return _sorted(shard, read(step))

    try:
        with Ahead(name, shard.device, shard.stream_ahead, make, shard.exchange.aborted) as ahead:
            while True:
                runs, problem = _next(ahead)
                with update.working(shard):
                    routed = _routed(shard, runs, problem)
                    at -= 1
                    settle()  # where this fails, the step before did
                    at += 1
                    if at:
                        now = time.perf_counter()
                        times.append(now - ended)
                        ended = now
                    if routed is None:
                        return {"counts": np.array(counts, np.int64), "times": np.array(times)}
                    # the memory of both belongs to other streams than that of the commit which reads them: it is given
                    # back once that is over, and not before
                    held = [runs or [], routed]
                    answer = apply(routed)
                counts.extend(answer[count] for count in COUNTS)
                at += 1
    except Aborted:
        raise
    except Exception as error:
        where = f"ingest step {at}, epoch {first + at}, rank {shard.rank}; the epochs before it are committed"
        raise retold(error, where) from error.__cause__
    finally:
        settle()
        held.clear()


def _sorted(shard: Shard, batch: EdgeBatch | None) -> list[Run] | None:
    if batch is None:
        return None
    if batch.weight is not None and not shard.spec.weighted:
        raise InvalidBatch("the batch has weights and the graph is unweighted; create it with weighted=True")
    return update.share_runs(shard, batch.src, batch.dst, batch.weight, batch.op, check=True)


def _next(ahead: Ahead[list[Run] | None]) -> tuple[list[Run] | None, Exception | None]:
    """The next runs; a problem is told to the other ranks before it is raised."""
    try:
        return ahead.next(), None
    except Aborted:
        raise
    except BaseException as error:  # what would end the process too: here it is the part's failure
        return None, plain(error)


def _routed(shard: Shard, runs: list[Run] | None, problem: Exception | None) -> list[Run] | None:
    """What all ranks have for this one in this step; None where no rank has any more."""
    columns = _agreed(shard, runs, problem)
    if columns is None:
        return None
    runs = runs or [Run(shard.device.empty(0, np.uint64))] * len(shard.structures)
    if shard.stream_route is None:
        return [update.route(shard, _completed(shard, run, *columns)) for run in runs]
    with shard.stream_route:
        routed = [update.route(shard, _completed(shard, run, *columns)) for run in runs]
    shard.device.xp.cuda.get_current_stream().wait_event(shard.stream_route.record())
    return routed


def _agreed(shard: Shard, runs: list[Run] | None, problem: Exception | None) -> tuple[bool, bool] | None:
    """Whether any rank has ops, and weights, in this step; None where no rank has anything."""
    op, weight = (runs is not None and getattr(runs[0], name) is not None for name in ("op", "weight"))
    mine = [problem is not None, runs is not None, op, weight]
    with update.waiting(shard):
        failed, more, op, weight = shard.exchange.allreduce(np.array(mine, np.int8), "max").tolist()
    if problem is not None:
        raise problem
    if failed:
        raise Aborted(f"{shard}: another rank could not read its next part; nothing was changed")
    return (bool(op), bool(weight)) if more else None


def _completed(shard: Shard, run: Run, op: bool, weight: bool) -> Run:
    """The run with each column that is asked for: inserts, and weights of 1, where it has none."""
    n = len(run)
    return Run(
        run.keys,
        shard.device.full(n, 1, np.int8) if op and run.op is None else run.op,
        shard.device.full(n, 1, np.float32) if weight and run.weight is None else run.weight,
    )
