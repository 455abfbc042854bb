"""Exchanges that the workers of a cluster can use: the default and the times.

An exchange is measured where graphs use it: in the threads of shards, over the library's own connections, by a program
that runs as an algorithm does.
"""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from distributed import Client

from cluster.choice import kind_of
from mgraph.algorithms import ALGORITHMS, Algorithm
from mgraph.algorithms.algorithm import Columns, Shard
from mgraph.client.calls.coordinator import Coordinator
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.client.creation import placement
from mgraph.client.options import choose_device
from mgraph.errors import MgraphError
from mgraph.exchange.choice import IN_CLEAR, best_exchange, encrypted, why_unusable
from mgraph.exchange.groups import Apart, network_of
from mgraph.partition import Partition
from mgraph.worker import plugin

__all__ = ["BULK", "compare", "connect_ranks", "look", "open_ranks"]

BULK = 64 << 20  #: bytes sent per rank in the measured alltoallv, in equal parts to the others
PROGRAM = "time_exchange"
MEASURED = ("peer", "tcp", "ucx")  #: UCX last: it can end a worker
SMALL_CALLS, BULK_CALLS = 300, 7
CALLS = 100  #: empty calls that are timed


def compare(client: Client, device: str = "auto", bulk: int = BULK) -> dict[str, Any]:
    """Return the default exchange of a graph on all workers, and the times of every exchange.

    Takes seconds.

    Parameters
    ----------
    client : distributed.Client
        Its workers must be able to import this module.
    device : "auto" | "cpu" | "gpu"
    bulk : int
        Bytes that each rank sends to the others together.

    Returns
    -------
    dict
        `ranks`, `device`, `auto` and `why`; `call_s`, the median of an empty call on all ranks; `calls_by_comm`, why
        calls go by the comms and not by channels, or ""; and `exchanges`, a list with a dict for each: its name as
        `exchange`, and either `why` it cannot be used, or `allreduce_s`, the time of an allreduce of six numbers,
        `bulk_s`, that of an alltoallv of `bulk` bytes, and `bulk_bytes`. Times are medians in seconds, of the slowest
        rank.
    """
    # Ask the workers first: every exchange needs their answers.
    with open_ranks(client) as ranks:
        kind, inspections, apart = look(ranks, device)
        addresses, calls = ranks.addresses, time_calls(ranks)

    # Measure each exchange with fresh sessions, because a failure can end a worker.
    auto, why = best_exchange(kind, addresses, inspections, apart)
    names = dict.fromkeys([*MEASURED[:-1], auto, *MEASURED[-1:]]) if len(addresses) > 1 else {}
    measured = [_measured(client, name, kind, inspections, apart, bulk) for name in names]
    return {"ranks": len(addresses), "device": kind, "auto": auto, "why": why, **calls, "exchanges": measured}


def _measured(
    client: Client, name: str, device: str, inspections: list[dict[str, Any]], apart: Apart, bulk: int
) -> dict[str, Any]:
    try:
        with open_ranks(client) as ranks:
            why = why_unusable(name, ranks.addresses, inspections, apart)
            if not why and network_of(name) in IN_CLEAR and encrypted(ranks.addresses):
                why = "it sends unencrypted, and the cluster uses TLS"
            if why:
                return {"exchange": name, "why": why}
            connect_ranks(ranks, device, name)
            call = {"name": PROGRAM, "result": "times", "generation": 0, "args": {"bulk": bulk}}
            client.run(register)
            try:
                answers = ranks.call("run", call)
            finally:
                client.run(unregister)
    except MgraphError as error:
        return {"exchange": name, "why": str(error)}
    return {"exchange": name, **answers[0]["info"]["times"]}


# ---- ranks without a graph -------------------------------------------------------------------------------------------


@contextmanager
def open_ranks(client: Client) -> Iterator[Coordinator]:
    """Open sessions with all workers of a cluster, and close them at the end."""
    plugin.ensure(client)
    runner, graph = LoopRunner(client.loop.asyncio_loop), uuid.uuid4().hex[:12]
    ranks = Coordinator(graph, runner, placement.choose_workers(client, None), client.connection_args)
    try:
        ranks.open()
        yield ranks
    finally:
        ranks.close()


def look(ranks: Coordinator, device: str, exchange: str = "auto") -> tuple[str, list[dict[str, Any]], Apart]:
    """Return the device of the ranks' shards, the workers' inspections, and why memory cannot be mapped."""
    inspections = ranks.call("inspect")
    kind = choose_device(kind_of(device), ranks.addresses, inspections)
    return kind, inspections, placement.why_apart(ranks, exchange, kind)


def time_calls(ranks: Coordinator) -> dict[str, Any]:
    """Time an empty call, and return why calls go by the comms, if they do."""
    seconds = []
    for _ in range(CALLS):
        began = time.perf_counter()
        ranks.call("inspect")
        seconds.append(time.perf_counter() - began)
    why = next((session.why_no_channel for session in ranks.sessions.all if session.why_no_channel), "")
    return {"call_s": statistics.median(seconds), "calls_by_comm": why}


def connect_ranks(ranks: Coordinator, device: str, exchange: str) -> None:
    """Give each rank a shard of a single vertex, and set the exchange for the first call to connect."""
    starts = Partition.equal(len(ranks.addresses), len(ranks.addresses)).starts
    spec = {"structure": "csr", "directed": True, "weighted": False, "reverse": False}
    ranks.call("create", {"device": device, "exchange": exchange, "starts": starts, **spec})


# ---- on the workers --------------------------------------------------------------------------------------------------


def register() -> None:
    """Add the program to the algorithms of a worker's process."""
    ALGORITHMS[PROGRAM] = Algorithm(PROGRAM, dict, times, {}, ("times",), lambda shard: None)


def unregister() -> None:
    """Remove the program from the algorithms of a worker's process.

    Workers may share a process.
    """
    ALGORITHMS.pop(PROGRAM, None)


def times(shard: Shard, bulk: int) -> Columns:
    """Time an allreduce and an alltoallv.

    A program: all ranks run it in lockstep.
    """
    exchange, counters = shard.exchange, np.zeros(6, np.int64)
    each = bulk // (shard.size - 1)
    parts = [shard.device.full(0 if r == shard.rank else each, shard.rank, np.uint8) for r in range(shard.size)]
    # The slowest rank counts: the maximum of the ranks' medians.
    medians = np.array(
        [
            _median(shard, SMALL_CALLS, lambda: exchange.allreduce(counters)),
            _median(shard, BULK_CALLS, lambda: exchange.alltoallv(parts)),
        ]
    )
    small, large = exchange.allreduce(medians, "max").tolist()
    return {}, {"times": {"allreduce_s": small, "bulk_s": large, "bulk_bytes": each * (shard.size - 1)}}


def _median(shard: Shard, calls: int, call: Callable[[], Any]) -> float:
    """Return the median seconds of `call`, after a warm-up."""
    taken = []
    for _ in range(calls + 1):
        shard.device.synchronize()
        began = time.perf_counter()
        call()
        shard.device.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])
