"""The creation of a graph on a Dask cluster: the choice of its workers, device and exchange."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from distributed import Client

from mgraph.client.bridge import Bridge
from mgraph.client.coordinator import Coordinator
from mgraph.client.directory import Directory
from mgraph.client.ingest import as_parts
from mgraph.client.numbering import Numbering
from mgraph.client.options import Options, choose_device, shape
from mgraph.client.parts import AsParts, Parts
from mgraph.errors import InvalidOption, MgraphError
from mgraph.exchange.choice import choose_exchange

__all__ = ["check_client", "choose_workers", "open_graph"]

ANSWER_SECONDS = 8  #: for which to wait for the scheduler's answer


def open_graph(
    client: Client, options: Options, addresses: Sequence[str], numbering: Numbering
) -> tuple[Directory, Options, AsParts]:
    """A new graph: opens a session with every worker, which makes its shard.

    Returns
    -------
    Directory
        The graph's numbering and coordinator.
    Options
        `options` with the chosen device and exchange.
    AsParts
        Makes the parts of a source of an ingest.

    Raises
    ------
    DeviceError
        GPUs were asked for and a worker has none, or a worker has no compiler.
    CapacityError
        A worker has too little memory.
    WorkerLost
        A worker cannot be reached.
    """
    bridge, graph = Bridge(client.loop.asyncio_loop), uuid.uuid4().hex[:12]
    coordinator = Coordinator(graph, bridge, addresses, client.connection_args, patience=options.patience)
    coordinator.open()
    try:
        found = coordinator.call("inspect")
        device = choose_device(options.device, addresses, found)
        exchange = choose_exchange(options.exchange, device, addresses, found)
        options = replace(options, device=device, exchange=exchange)
        coordinator.call("create", shape(options, numbering))
    except BaseException:
        coordinator.close()
        raise
    return Directory(coordinator, numbering), options, partial(_parts, client, coordinator)


def _parts(
    client: Client, coordinator: Coordinator, source: Any, steps: int | None, columns: Mapping[str, str] | None
) -> Parts:
    return as_parts(client, source, coordinator.addresses, steps, columns, coordinator.check)


def check_client(client: Any) -> None:
    """Raise unless `client` is a synchronous Dask client whose scheduler answers.

    Later requests to the scheduler have no time limit in Dask, so its answer is checked here.

    Raises
    ------
    TypeError
        It is not a Dask client, or is asynchronous.
    InvalidOption
        It is closed.
    MgraphError
        Its scheduler does not answer.
    """
    if not isinstance(client, Client):
        raise TypeError(f"DynamicGraph takes a dask.distributed.Client, got {type(client).__name__}")
    if client.asynchronous:
        raise TypeError("DynamicGraph's calls block, so it needs a synchronous client: Client(..., asynchronous=False)")
    if client.status != "running":
        raise InvalidOption(f"the Dask client is {client.status}; a graph needs a running one")
    try:
        client.sync(client.scheduler.identity, callback_timeout=ANSWER_SECONDS)
    except TimeoutError:
        raise MgraphError(
            f"the scheduler at {client.scheduler.address} did not answer within {ANSWER_SECONDS} s; is it stopped?"
        ) from None


def choose_workers(client: Client, workers: Sequence[str] | None) -> list[str]:
    """The addresses of the workers that hold the graph, in rank order; all workers of the cluster for None.

    Raises
    ------
    InvalidOption
        There are no workers, or `workers` names one twice or one that is not in the cluster.
    """
    # not scheduler_info(): the client's own updates, which ask for no workers, may overwrite what that returns
    there = sorted(client.sync(client.scheduler.identity, n_workers=-1)["workers"])
    if workers is None:
        if not there:
            raise InvalidOption("the cluster has 0 workers; a graph needs at least 1")
        return there
    if isinstance(workers, str):
        raise InvalidOption(f"workers is the text {workers!r}; it must be a list of addresses")
    chosen = list(workers)
    if not chosen:
        raise InvalidOption("workers is empty; a graph needs at least 1")
    for address in chosen:
        if chosen.count(address) > 1:
            raise InvalidOption(f"worker {address} is named {chosen.count(address)} times; each holds one part only")
        if address not in there:
            raise InvalidOption(f"worker {address!r} is not in the cluster, which has {', '.join(there) or 'none'}")
    return chosen
