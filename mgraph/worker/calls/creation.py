"""Creation of a shard, and its connection to the other ranks."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from mgraph.algorithms import warm
from mgraph.device import Device, gpu_count, touch_pages
from mgraph.errors import CapacityError, DeviceError, GraphClosed, MgraphError
from mgraph.exchange.peer import PeerExchange, reach
from mgraph.exchange.ucxx_api import ucx_installed
from mgraph.kernels import compile_together
from mgraph.partition import Partition
from mgraph.worker.calls.rank import Rank, Value
from mgraph.worker.commit.ballot import Ballot
from mgraph.worker.commit.route import least_bytes
from mgraph.worker.memory import map_pages
from mgraph.worker.results.reconcile import reconcile
from mgraph.worker.shard.keys import KeyLog
from mgraph.worker.shard.shard import Shard, ShardSpec, Unconnected
from mgraph.worker.stores.all_or_none import all_or_none
from mgraph.worker.vertices.copying import bytes_of_copy, copied

__all__ = [
    "adopt", "connect_exchange", "copy", "create", "inspect", "map_memory", "offer_memory", "open_exchange", "reserve",
]  # fmt: skip


def inspect(rank: Rank) -> Value:
    """Return the worker's number of GPUs, its support of UCX, and its process id."""
    return {"gpus": gpu_count(), "ucx": ucx_installed(), "pid": os.getpid()}


def offer_memory(rank: Rank, device: str) -> Value:
    """Offer memory to the other ranks for a test mapping.

    Returns
    -------
    dict
        `address`: its address; `why`: the reason why it cannot be shared, or empty.
    """
    try:
        rank.trial = PeerExchange(rank.number, rank.size, rank.aborted, _made_device(rank, device))
    except (CapacityError, DeviceError) as error:
        return {"address": b"", "why": f"rank {rank.number}: {error}"}
    return {"address": rank.trial.address, "why": ""}


def map_memory(rank: Rank, device: str, addresses: list[bytes]) -> Value:
    """Try to map the ranks' memory at `addresses`. The offers end with the next call, `create`.

    Returns
    -------
    dict
        `reach`: the ranks whose memory can be mapped; `why`: the reason why another's cannot, or empty.
    """
    ranks, why = reach([bytes(address) for address in addresses], rank.number, _made_device(rank, device))
    return {"reach": ranks, "why": f"rank {rank.number}: {why}" if why else ""}


def _made_device(rank: Rank, name: str) -> Device:
    """Return the named device, in use by this thread."""
    wanted, host = Device.of(name), rank.host
    touch = map_pages if wanted.kind == "cpu" else touch_pages  # a host of GPUs may have no compiler
    device = Device(wanted.kind, wanted.index, host.threads, host.budget, touch)
    device.use()
    return device


def reserve(rank: Rank, nbytes: int, operations: int = 0, columns: bool = False) -> Value:
    """Reserve memory for the next call, if its client is not sure that it fits.

    Parameters
    ----------
    nbytes : int
        The bytes of its arguments, which a comm allocates without a check.
    operations : int
        For an update, the number of its operations; with `columns` each has an op or a weight. Applying them takes
        memory too, and is checked before they are sent.

    Returns
    -------
    dict
        `lack`: the error if the memory does not suffice, or None.
    """
    rank.received()
    what = "what is to be sent" if operations == 0 else f"{operations} operations that are to be sent"
    try:
        work = least_bytes(rank.shard, operations, columns) if operations else 0
        rank.reservation = rank.host.budget.reserve(nbytes + work, what)
    except CapacityError as error:
        return {"lack": f"rank {rank.number}: {error}"}
    return {"lack": None}


def create(
    rank: Rank,
    device: str,
    exchange: str,
    starts: list[int],
    order: np.ndarray | None = None,
    reserve: int = 0,
    **spec: Any,
) -> None:
    """Make an empty shard on `device`, with `reserve` bytes of its memory reserved. The exchange is opened later."""
    rank.end_trial()
    rank.exchange_name = exchange
    made = _made_device(rank, device).with_stream()
    rank.select(made)
    shape = ShardSpec(rank.graph, rank.number, Partition(tuple(starts)), order=order, **spec)
    with made.selected(), compile_together():
        made.reserve(reserve)
        ballot = Ballot(Shard(shape, Unconnected(), made))
        if shape.window_edges is not None and rank.number == 0:  # keys order the edges of one time
            ballot.keys = KeyLog(generation=shape.generation)
        rank.take(ballot)
        warm(rank.shard)


def copy(rank: Rank, graph: str, structure: str) -> None:
    """Copy the shard for the rank with this number of another graph, which takes it over by `adopt`.

    All ranks make their copies, or none does. The copies' kernels leave a core of a CPU to this graph, and a part of a
    GPU.
    """
    shard, device = rank.shard, rank.shard.device
    # Look for the memory on all ranks before any takes some.
    with all_or_none(shard):
        device.check_room(bytes_of_copy(shard, structure), f"a copy of {shard}")

    # Copy on the copy's stream, which waits for no other.
    device.synchronize()
    threads = max(1, rank.host.threads - 1) if device.kind == "cpu" else device.threads
    device = replace(device, threads=threads, background=True, stream=None).with_stream()
    with all_or_none(shard), device.selected():
        twin, other = copied(shard, graph, structure, device), rank.host.rank_of(graph, rank.number)
        device.synchronize()
        if other is None:
            raise GraphClosed(f"graph {graph}, the copy of {shard}, was closed before it was made")
        other.offer(twin)


def adopt(rank: Rank, exchange: str) -> None:
    """Take over the shard that was copied for this rank. The exchange is opened later."""
    shard = rank.take_offered()
    rank.select(shard.device)
    rank.exchange_name = exchange
    rank.take(Ballot(shard))
    with compile_together():
        warm(shard)


def open_exchange(rank: Rank, attempt: int) -> Value:
    """Open the exchange of an attempt and return its address."""
    # Otherwise ranks of two exchanges with the same number would wait for each other for ever.
    if rank.size > 1 and rank.exchange is not None and rank.attempt == attempt:
        raise MgraphError(f"rank {rank.number}: the exchange of attempt {attempt} is open already")
    rank.settle()
    assert rank.device is not None
    make = rank.host.open_exchange
    rank.exchange = make(rank.exchange_name, rank.number, rank.size, attempt, rank.device, rank.aborted)
    rank.attempt = attempt
    if rank.storage is not None and rank.storage.log is not None:
        rank.storage.log.attempt = attempt
    return {"address": rank.exchange.address}


def connect_exchange(rank: Rank, addresses: list[bytes]) -> None:
    """Connect the exchange to the other ranks. After an aborted call they agree on their maintained results."""
    assert rank.exchange is not None
    rank.exchange.connect([bytes(address) for address in addresses])
    rank.shard.exchange = rank.exchange
    if rank.attempt and rank.size > 1:
        reconcile(rank.shard)
