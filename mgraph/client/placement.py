"""The creation of a graph: the choice of its workers, device and exchange, and of its shards' options."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from distributed import Client

from mgraph.algorithms.algorithm import GraphFacts
from mgraph.checks import check_number, check_whole
from mgraph.client.bridge import Bridge
from mgraph.client.coordinator import Coordinator
from mgraph.client.directory import Directory
from mgraph.client.numbering import Numbering
from mgraph.errors import DeviceError, InvalidOption, MgraphError
from mgraph.exchange.choice import check_exchange, choose_exchange
from mgraph.structures import parse

__all__ = [
    "DEVICES",
    "Options",
    "begin_graph",
    "check_client",
    "choose_device",
    "choose_workers",
    "fixed_order",
    "open_graph",
    "shards",
    "why_apart",
]

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 8  #: for which to wait for the scheduler's answer
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Options:
    """The options of a graph. `mgraph.graph.DynamicGraph` documents each of them.

    Raises
    ------
    InvalidOption
        A name is unknown, or a number is out of its range.
    """

    structure: str
    weighted: bool
    directed: bool
    reverse: bool
    exchange: str
    device: str
    reserve: int
    patience: float

    def __post_init__(self) -> None:
        parse(self.structure)
        if self.device not in DEVICES:
            raise InvalidOption(f"device {self.device!r} is none of {', '.join(map(repr, DEVICES))}")
        check_whole(self.reserve, "reserve")
        if not 0 < check_number(self.patience, "patience") < math.inf:
            raise InvalidOption(f"patience is {self.patience}; it must be a finite number of seconds above 0")

    def facts(self, n_vertices: int) -> GraphFacts:
        """The properties on which the check of an algorithm's arguments may depend."""
        return GraphFacts(n_vertices, self.directed, self.weighted, self.reverse or not self.directed)


def open_graph(
    client: Client,
    options: Options,
    addresses: Sequence[str],
    numbering: Numbering,
    storing: Any = None,
) -> tuple[Directory, Options]:
    """A new graph: opens a session with every worker, which makes its shard; with `storing`, a `Storing`, a store too.

    Returns
    -------
    Directory
        The graph's numbering and coordinator.
    Options
        `options` with the chosen device and exchange.

    Raises
    ------
    DeviceError
        GPUs were asked for and a worker has none, or a worker has no compiler.
    CapacityError
        A worker has too little memory.
    WorkerLost
        A worker cannot be reached.
    """
    coordinator = begin_graph(client, addresses, options.patience)
    try:
        options = shards(coordinator, options, numbering)
        if storing is not None:
            storing.create(coordinator, options, numbering.n_vertices)
    except BaseException:
        coordinator.close()
        raise
    return Directory(coordinator, numbering), options


def why_apart(coordinator: Coordinator, exchange: str, device: str) -> str:
    """Why the workers cannot map each other's memory; empty if they can, or if `exchange` does not need it.

    They try: each offers some, and each maps what the others offer. Two calls.
    """
    size = len(coordinator.addresses)
    if exchange not in ("auto", "peer") or size == 1:
        return ""
    offers = coordinator.call("offer_memory", {"device": device})
    why = next((offer["why"] for offer in offers if offer["why"]), "")
    if not why:
        addresses = [offer["address"] for offer in offers]
        tried = coordinator.call("map_memory", {"device": device, "addresses": addresses})
        why = next((answer["why"] for answer in tried if answer["why"]), "")
    if why and exchange == "auto":
        logger.info("graph %s: exchange peer cannot be used: %s", coordinator.graph, why)
    return why


def begin_graph(client: Client, addresses: Sequence[str], patience: float) -> Coordinator:
    """The coordinator of a new graph, with a session to every worker and no shards yet."""
    bridge, graph = Bridge(client.loop.asyncio_loop), uuid.uuid4().hex[:12]
    coordinator = Coordinator(graph, bridge, addresses, client.connection_args, patience=patience)
    coordinator.open()
    return coordinator


def shards(coordinator: Coordinator, options: Options, numbering: Numbering) -> Options:
    """Make the shards, empty; `options` with the chosen device and exchange."""
    found = coordinator.call("inspect")
    device = choose_device(options.device, coordinator.addresses, found)
    apart = why_apart(coordinator, options.exchange, device)
    exchange = choose_exchange(options.exchange, device, coordinator.addresses, found, apart)
    options = replace(options, device=device, exchange=exchange)
    coordinator.call("create", _shape(options, numbering))
    return options


def _shape(options: Options, numbering: Numbering) -> dict[str, Any]:
    """The arguments of the call `create`."""
    given = {name: getattr(options, name) for name in ("device", "exchange", "structure", "directed", "weighted")}
    reverse = options.reverse and options.directed
    return {
        **given, "reverse": reverse, "reserve": int(options.reserve),
        "starts": numbering.partition.starts, "order": numbering.order,
    }  # fmt: skip


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


def choose_workers(client: Client, workers: Sequence[str] | None, exchange: str = "auto") -> list[str]:
    """The addresses of the workers that hold the graph, in rank order; all workers of the cluster for None.

    Raises
    ------
    InvalidOption
        There are no workers, or `workers` names one twice or one that is not in the cluster; or `exchange` cannot
        connect so many.
    """
    # not scheduler_info(): the client's own updates, which ask for no workers, may overwrite what that returns
    there = sorted(client.sync(client.scheduler.identity, n_workers=-1)["workers"])
    if workers is None:
        if not there:
            raise InvalidOption("the cluster has 0 workers; a graph needs at least 1")
        check_exchange(exchange, len(there))
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
    check_exchange(exchange, len(chosen))
    return chosen


def fixed_order(order: Any) -> Any:
    """The order with which a graph begins: a permutation, or None. None for "degree", known after the first batch."""
    if isinstance(order, str):
        if order != "degree":
            raise InvalidOption(f'order {order!r} is neither "degree" nor a permutation of the vertices')
        return None
    return order


def choose_device(device: str, workers: Sequence[str], found: Sequence[dict[str, Any]]) -> str:
    """The kind of device to use, "cpu" or "cuda". "auto" chooses GPUs if every worker has one.

    Raises
    ------
    DeviceError
        GPUs were asked for, and a worker has none.
    """
    without = [address for address, worker in zip(workers, found, strict=True) if not worker["gpus"]]
    if device == "cuda" and without:
        raise DeviceError(
            f'device "cuda" was asked for and {len(without)} of {len(workers)} workers have no GPU that CuPy can use: '
            f'{", ".join(without)}; a GPU needs the NVIDIA driver and CuPy (pip install "dask-mgraph[cuda13]")'
        )
    return device if device != "auto" else "cpu" if without else "cuda"
