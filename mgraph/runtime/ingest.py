"""Batches that are born on the workers: one call, in which every rank reads, routes and commits step after step.

A step is one epoch: a part from each rank that has one left, in rank order. While the shard's thread exchanges, merges,
prepares and commits a step, the thread of `Ahead` reads and sorts the next; nothing else overlaps. Besides what a batch
costs (see `mgraph.runtime.update`), a step takes one small allreduce, in which the ranks learn who has a part, with
which columns, and whether one could not be read.
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
from mgraph.runtime.protocol import retold
from mgraph.runtime.shard import Shard
from mgraph.runtime.sources import Reader
from mgraph.structures import Run

__all__ = ["COUNTS", "ingest"]

COUNTS = ("inserted", "updated", "deleted", "missing")

Answer = dict[str, Any]


def ingest(shard: Shard, read: Reader, apply: Callable[[list[Run]], Answer]) -> Answer:
    """Apply what `read` gives here and on the other ranks, step after step, until no rank has more.

    Parameters
    ----------
    shard : Shard
    read : callable
        The checked batch of a step; None after the last. Called in another thread.
    apply : callable
        Prepares, votes and commits routed runs; gives the counts.

    Returns
    -------
    dict
        `counts`, int64[4 * steps]: those of each step, as `COUNTS` has them; `times`, float64[steps], seconds.

    Raises
    ------
    Exception
        What reading or applying raised here, with the step and epoch named; the epochs before are committed.
    """
    counts: list[int] = []
    times: list[float] = []
    first = shard.epoch + 1
    name = f"mgraph-{shard.spec.graph}-{shard.rank}-ahead"

    def make(step: int) -> list[Run] | None:
        return _sorted(shard, read(step))

    try:
        with Ahead(name, shard.device, shard.stream_ahead, make, shard.exchange.aborted) as ahead:
            while True:
                began = time.perf_counter()
                runs, problem = _next(ahead)
                ready = _agreed(shard, runs, problem)
                if ready is None:
                    return {"counts": np.array(counts, np.int64), "times": np.array(times)}
                # `runs` stays until the commit is over: its memory belongs to another stream
                with update.working(shard):
                    answer = apply([update.route(shard, run) for run in ready])
                counts.extend(answer[count] for count in COUNTS)
                times.append(time.perf_counter() - began)
    except Aborted:
        raise
    except Exception as error:
        at = f"ingest step {len(times)}, epoch {first + len(times)}, rank {shard.rank}"
        raise retold(error, f"{at}; the epochs before it are committed") from error.__cause__


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
    except Exception as error:
        return None, error


def _agreed(shard: Shard, runs: list[Run] | None, problem: Exception | None) -> list[Run] | None:
    """The runs with the columns that any rank has, empty where this rank has none; None where no rank has any."""
    op, weight = (runs is not None and getattr(runs[0], name) is not None for name in ("op", "weight"))
    mine = [problem is not None, runs is not None, op, weight]
    with update.waiting(shard):
        failed, more, op, weight = shard.exchange.allreduce(np.array(mine, np.int8), "max").tolist()
    if problem is not None:
        raise problem
    if failed:
        raise Aborted(f"{shard}: another rank could not read its next part; nothing was changed")
    if not more:
        return None
    none = Run(shard.device.empty(0, np.uint64))
    return [_completed(shard, run, op, weight) for run in runs or [none] * len(shard.structures)]


def _completed(shard: Shard, run: Run, op: bool, weight: bool) -> Run:
    """The run with each column that is asked for: inserts, and weights of 1, where it has none."""
    n = len(run)
    return Run(
        run.keys,
        shard.device.full(n, 1, np.int8) if op and run.op is None else run.op,
        shard.device.full(n, 1, np.float32) if weight and run.weight is None else run.weight,
    )
