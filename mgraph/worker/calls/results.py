"""Algorithms and their results, which stay on the rank until they are fetched or freed."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mgraph.algorithms import ALGORITHMS
from mgraph.device import Array
from mgraph.worker.calls.rank import Rank, Value
from mgraph.worker.results import arithmetic
from mgraph.worker.results.maintained import catch_up, columns
from mgraph.worker.shard.results import Result
from mgraph.worker.shard.shard import Shard

__all__ = ["combine", "fetch", "lend", "maintain", "reduced", "run", "top"]


def run(
    rank: Rank, name: str, generation: int, args: Value, result: str | None = None,
    data: dict[str, Value] | None = None, by_key: np.ndarray | None = None, named: int | None = None,
) -> Value:  # fmt: skip
    """Run an algorithm, and store its columns under the id `result`; without an id, answer with the columns.

    `data` has arguments with a number per vertex. If the order of the keys matters, `named` is their number, and
    `by_key` has users' ids in that order, or is None if they are in order.
    """
    shard = rank.same_ids(generation, named)
    rank.warm_up(name, lambda: ALGORITHMS[name].warm(shard))
    for argument, values in (data or {}).items():
        args = {**args, argument: _own_values(rank, generation, **values)}
    with shard.named_by(by_key):
        return _keep(rank, name, result, *ALGORITHMS[name].run(shard, **args))


def maintain(
    rank: Rank, live: str, name: str, result: str, generation: int, args: Value, data: dict[str, Value] | None = None,
    by_key: np.ndarray | None = None, named: int | None = None, first_name: int = 0,
) -> Value:  # fmt: skip
    """Compute or update the maintained result `live`, and store its columns as `run` does.

    `first_name` is larger than all names of communities that the user has seen, should they be lost here.
    """
    shard = rank.same_ids(generation, named)
    rank.warm_up(name, lambda: ALGORITHMS[name].warm(shard))
    for argument, values in (data or {}).items():
        args = {**args, argument: _own_values(rank, generation, **values)}
    took = catch_up(shard, live, ALGORITHMS[name], args, first_name)
    state = shard.maintained[live]
    assert state.result is not None
    memory, since, resumed = state.memory, None, False
    if memory is not None:
        since, memory.read, resumed, memory.resumed = memory.read, None, memory.resumed, False
    with shard.named_by(by_key):
        answer = {**_keep(rank, name, result, *columns(shard, state)), "took": took}

    # Rank 0 tells what changed since the last read, unless that failed.
    if memory is not None:
        memory.read = shard.epoch
        if shard.rank == 0:
            answer["passed"] = {**memory.passed, "since": since, "resumed": resumed, "next": memory.next}
    return answer


def fetch(rank: Rank, result: str, column: str | None, ids: np.ndarray | None = None) -> Value:
    """Return this rank's values of a column of a result, the first column for None.

    Of all vertices, or of `ids`: internal ids in the rank's range when the result was computed.
    """
    device, stored = rank.shard.device, rank.shard.result(result)
    values = stored.column(column)
    if ids is not None:
        places = device.asarray(ids) - np.uint32(stored.lo)
        rows = values if values.ndim > 1 else values[None]
        return {
            "values": np.stack([device.fetch(device.gather(row, places)) for row in rows]).reshape(
                *values.shape[:-1], len(ids)
            )
        }
    return {"values": rank.answered(values)}


def lend(rank: Rank, result: str, token: str) -> Value:
    """Copy all columns of a result to host memory, for the Dask task with this token. Returns their shapes."""
    device = rank.shard.device
    copies = {}
    for name, values in rank.shard.result(result).columns.items():
        copies[name] = device.host.empty(values.size, values.dtype).reshape(values.shape)
        copies[name][...] = device.to_host(values)
    rank.lent[token] = copies
    return {"rows": {name: values.shape[:-1] for name, values in copies.items()}}


def combine(rank: Rank, result: str, operation: str, like: str, operands: list[Value]) -> Value:
    """Compute a column from others, elementwise, and store it as `result`."""
    combined = arithmetic.combine(rank.shard, operation, like, operands)
    rank.shard.device.synchronize()
    rank.shard.results[result] = combined
    return {"dtype": str(combined.column(None).dtype)}


def reduced(rank: Rank, result: str, column: str, kind: str) -> Value:
    """Return the partial reductions of a column on this rank."""
    return {"numbers": arithmetic.reduced(rank.shard.device, rank.shard.result(result).column(column), kind)}


def top(rank: Rank, result: str, k: int, column: str | None = None) -> Value:
    """Return the `k` largest of this rank's values of a column, with internal ids."""
    ids, values = rank.shard.top(result, column, k)
    return {"ids": ids, "values": values}


def _keep(rank: Rank, name: str, result: str | None, columns: dict[str, Any], info: Value) -> Value:
    """Store the columns of a result, and return the client's answer, which has the columns if there is no id."""
    shard, kinds = rank.shard, ALGORITHMS[name].columns
    columns = {c: shard.ids_of_labels(v) if kinds[c] == "label" else v for c, v in columns.items()}
    if result is None:
        return {**{c: rank.answered(v, kept=False) for c, v in columns.items()}, "info": info}
    shard.device.synchronize()
    shard.results[result] = Result(columns, shard.lo)
    dtypes = {column: _name(values.dtype) for column, values in columns.items()}
    return {"info": info, "dtypes": dtypes, "epoch": shard.epoch, "lo": shard.lo, "hi": shard.hi}


@cache
def _name(dtype: np.dtype) -> str:
    return str(dtype)


def _own_values(
    rank: Rank,
    generation: int,
    starts: list[int],
    result: str | None = None,
    column: str | None = None,
    moved: bool = False,
    missing: str | None = None,
    values: Any = None,
) -> Any:
    """Return values of the own vertices: `values`, or those of an earlier result.

    Values that `moved` have the ranges of their own time, and are gathered from all ranks. Of a result of fewer
    vertices, `missing` tells the value of the others: "mean" or "zero".
    """
    shard = rank.owner(starts, generation)
    if result is None:
        return shard.device.host.asarray(values) if isinstance(values, np.ndarray) else values
    stored = shard.result(result).column(column)
    if moved:
        stored = shard.device.concatenate(shard.exchange.allgather(stored))[shard.lo : shard.hi]
    return stored if missing is None else _filled(shard, stored, missing)


def _filled(shard: Shard, values: Array, missing: str) -> Array:
    """Return float64[hi - lo]: `values`, and after their end 0, or the mean of the values of all ranks."""
    number = 0.0
    if missing == "mean":
        with np.errstate(over="ignore"):  # the program rejects values that are not finite
            own = np.array([float(values.sum(dtype=np.float64)), len(values)])
            total, count = shard.exchange.allreduce(own).tolist()
        number = total / count if count else 1.0
    filled = shard.device.full(shard.hi - shard.lo, number, np.float64)
    filled[: len(values)] = values
    return filled
