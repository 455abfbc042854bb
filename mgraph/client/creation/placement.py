"""A graph's place on a Dask cluster: its workers, the sessions with them, and their exchange."""

from __future__ import annotations

import gc
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from distributed import Client

from mgraph.client.calls.caller import Caller
from mgraph.client.calls.coordinator import Coordinator
from mgraph.client.calls.loop_runner import LoopRunner
from mgraph.client.connections.discovery import find_published
from mgraph.client.creation.place import not_a_client
from mgraph.client.inputs.ingest import as_parts
from mgraph.client.inputs.source_parts import AsParts
from mgraph.errors import InvalidOption, MgraphError, WorkerLost
from mgraph.exchange.choice import RETIRED, best_exchange, check_exchange, choose_exchange
from mgraph.exchange.groups import Apart, Groups

__all__ = ["OnCluster", "beside", "check_client", "choose_workers", "published_on", "why_apart"]

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 8  #: time for the scheduler's answer
REPLACED_SECONDS = 5.0  #: time for workers to replace lost ones; after that the remaining ones are used
RESTART_SECONDS = 20.0  #: time for a nanny to restart a worker that does not answer
LOOK_SECONDS = 0.1  #: time between two queries for workers


class OnCluster:
    """The workers that hold a graph: a `mgraph.client.creation.place.Place`.

    Parameters
    ----------
    client : distributed.Client
    workers : list of str, optional
        Their addresses; by default all workers of the cluster.
    exchange : str
        The requested exchange.
    ensure : callable
        Installs mgraph's plugin on the workers.

    Raises
    ------
    TypeError
        `client` is not a Dask client, or is asynchronous on this event loop.
    InvalidOption
        A worker is not in the cluster, or the exchange cannot connect so many workers.
    """

    def __init__(
        self, client: Any, workers: Sequence[str] | None, exchange: str, ensure: Callable[[Client], None]
    ) -> None:
        check_client(client)
        self._client: Client = client
        self._ensure = ensure
        self._addresses = choose_workers(client, workers, exchange)
        self.size = self._wanted = len(self._addresses)
        described = workers_of(client)
        self._known = {address: described[address] for address in self._addresses if address in described}
        self._nannies = None if workers is None else {about["nanny"] for about in self._known.values()}

    def renewed(self, lost: Caller, end: float) -> OnCluster:
        """Return a place with as many workers as before, if possible: the remaining ones, then replacements.

        Replacements are workers that nannies start for the lost ones, and any worker of the cluster unless the user has
        named the workers. A worker that was lost because it did not answer is restarted by its nanny, since it still
        holds memory and the store.
        """
        place, silent = copy(self), set(lost.status.silent)
        place._ensure = lambda client: None  # the scheduler gives new workers the plugin
        self._restart(silent)

        # Wait a moment for replacements, and until `end` for any worker at all.
        soon = min(end, time.monotonic() + REPLACED_SECONDS)
        while True:
            available = {
                a: about
                for a, about in self._described_workers(end).items()
                if a not in silent and self._usable(a, about)
            }
            now = time.monotonic()
            if len(available) >= self._wanted or (available and now >= soon):
                break
            if now >= end:
                raise WorkerLost(f"graph {lost.status.graph}: no worker is there that the graph can be opened on")
            time.sleep(LOOK_SECONDS)

        # Ranks keep the order of the remaining workers; replacements come after them.
        remaining = [address for address in self._addresses if address in available]
        place._addresses = (remaining + [address for address in available if address not in remaining])[: self._wanted]
        place.size, place._known = len(place._addresses), {**self._known, **available}
        return place

    def _restart(self, silent: Iterable[str]) -> None:
        named = [address for address in silent if self._known.get(address, {}).get("nanny")]
        if named:
            logger.warning("workers that do not answer are restarted by their nannies: %s", ", ".join(named))
            with suppress(Exception):  # they may be gone, and so may the scheduler
                self._client.restart_workers(named, timeout=RESTART_SECONDS, raise_for_error=False)

    def _described_workers(self, end: float) -> dict[str, Any]:
        """Return the scheduler's description of each worker. `MgraphError` without an answer until `end`."""
        while self._client.status == "running":
            with suppress(OSError):  # TimeoutError too
                return workers_of(self._client, ANSWER_SECONDS)
            if time.monotonic() >= end:
                break
            time.sleep(LOOK_SECONDS)
        raise MgraphError("the scheduler does not answer: open the store with another client")

    def _usable(self, address: str, about: Mapping[str, Any]) -> bool:
        if address in self._known:
            return True
        return self._nannies is None or (about["nanny"] is not None and about["nanny"] in self._nannies)

    def begin(self, patience: float) -> tuple[Caller, AsParts]:
        """Install the plugin, collect garbage, and open all sessions.

        A graph in a reference cycle, as with an exception's traceback, is freed only by the garbage collector.
        """
        gc.collect()
        self._ensure(self._client)
        return beside(self._client, self._addresses, patience)

    def join(self, graph: str, addresses: Sequence[str], patience: float) -> tuple[Caller, AsParts]:
        """Open a session with every worker of a published graph; returns the same as `begin`."""
        return _opened(self._client, graph, addresses, patience, attach=True)

    def published(self) -> list[dict[str, Any]]:
        """Return the workers' parts of published graphs."""
        return published_on(self._client)

    def exchange(self, caller: Caller, exchange: str, device: str, answers: Sequence[dict[str, Any]]) -> str:
        """Return the exchange that the workers can use. If they cannot map each other's memory, log the reason."""
        exchange = RETIRED.get(exchange, exchange)
        apart = why_apart(caller, exchange, device)
        name = choose_exchange(exchange, device, self._addresses, answers, apart)

        # Shared memory is preferred: log why it is not used.
        if exchange == "auto" and apart:
            one_host = len({urlsplit(address).hostname for address in self._addresses}) == 1
            level = logging.WARNING if one_host else logging.INFO  # on several hosts this is normal
            why = best_exchange(device, self._addresses, answers, apart)[1]
            logger.log(level, "graph %s: exchange %s, because %s", caller.status.graph, name, why)
        return name


def beside(client: Client, addresses: Sequence[str], patience: float, advice: str = "") -> tuple[Caller, AsParts]:
    """Open sessions for a new graph with workers that have mgraph's plugin; returns the same as `Place.begin`.

    `advice` is added to the error after the loss of a worker.
    """
    return _opened(client, uuid.uuid4().hex[:12], addresses, patience, advice=advice)


def _opened(
    client: Client, graph: str, addresses: Sequence[str], patience: float, attach: bool = False, advice: str = ""
) -> tuple[Caller, AsParts]:
    """Open all sessions of a graph."""
    runner = LoopRunner(client.loop.asyncio_loop)
    coordinator = Coordinator(graph, runner, addresses, client.connection_args, patience=patience)
    coordinator.client, coordinator.sessions.advice = client, advice
    coordinator.open(attach)
    return coordinator, partial(_parts, client, coordinator)


def _parts(
    client: Client, coordinator: Coordinator, source: Any, steps: Any, columns: Any, seats: Sequence[int]
) -> Any:
    workers = [coordinator.status.addresses[seat] for seat in seats]
    return as_parts(client, source, workers, steps, columns, coordinator.check)


def why_apart(caller: Caller, exchange: str, device: str) -> Apart:
    """Return why the workers cannot map each other's memory, and their groups; empty if they can, or need not.

    To find out, each worker offers memory, and each maps the others' offers. Two calls.
    """
    size = len(caller.status.addresses)
    if not exchange.startswith(("auto", "peer")) or ":" in exchange or size == 1:
        return Apart()

    # Each offers a piece of memory, and maps those of the others.
    offers = caller.call("offer_memory", {"device": device})
    addresses = [offer["address"] for offer in offers]
    answers = caller.call("map_memory", {"device": device, "addresses": addresses})
    why = next((answer["why"] for answer in (*offers, *answers) if answer["why"]), "")
    return Apart(why, Groups.by_reach([answer["reach"] for answer in answers]))


def check_client(client: Any) -> None:
    """Raise an error unless `client` is a Dask client with a running scheduler that may be waited for here.

    Later requests to the scheduler have no time limit in Dask, so its answer is checked here.

    Raises
    ------
    TypeError
        It is not a Dask client, or this is the event loop on which it is asynchronous.
    InvalidOption
        It is closed.
    MgraphError
        Its scheduler does not answer.
    """
    if not isinstance(client, Client):
        raise not_a_client(client)
    if client.asynchronous:
        raise TypeError(
            "this call blocks, and the client is asynchronous: await it, as the calls of an mgraph.AsyncDynamicGraph"
        )
    if client.status != "running":
        raise InvalidOption(f"the Dask client is {client.status}; a graph needs a running one")

    # Ask with a time limit: later requests have none.
    try:
        client.sync(client.scheduler.identity, callback_timeout=ANSWER_SECONDS)
    except TimeoutError:
        raise MgraphError(
            f"the scheduler at {client.scheduler.address} did not answer within {ANSWER_SECONDS} s; is it stopped?"
        ) from None


def published_on(client: Client, end: str | None = None) -> list[dict[str, Any]]:
    """Return each worker's parts of published graphs; the graph with the name `end` is withdrawn first."""
    check_client(client)
    query = find_published(workers_of(client, ANSWER_SECONDS), client.connection_args, ANSWER_SECONDS, end)
    return LoopRunner(client.loop.asyncio_loop).run(query, ANSWER_SECONDS)


def workers_of(client: Client, seconds: float | None = None) -> dict[str, Any]:
    """Return the scheduler's description of each worker, by address."""
    # Not scheduler_info(): the client's own updates, which ask for no workers, may overwrite its result.
    return dict(client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=seconds)["workers"])


def choose_workers(client: Client, workers: Sequence[str] | None, exchange: str = "auto") -> list[str]:
    """Return the addresses of the graph's workers, in rank order; for None all workers of the cluster.

    Raises
    ------
    InvalidOption
        The cluster has no workers; `workers` names a worker twice, or a worker outside the cluster; or `exchange`
        cannot connect so many.
    """
    addresses = sorted(workers_of(client))
    if workers is None:
        if not addresses:
            raise InvalidOption("the cluster has 0 workers; a graph needs at least 1")
        check_exchange(exchange, len(addresses))
        return addresses
    if isinstance(workers, str):
        raise InvalidOption(f"workers is the text {workers!r}; it must be a list of addresses")
    if not isinstance(workers, Iterable):
        raise InvalidOption(
            f"workers is {workers!r}; it must be a list of addresses; client.nthreads() has those of the cluster"
        )

    # Check the addresses that the user named.
    chosen = list(workers)
    if not chosen:
        raise InvalidOption("workers is empty; a graph needs at least 1")
    for address in chosen:
        if chosen.count(address) > 1:
            raise InvalidOption(f"worker {address} is named {chosen.count(address)} times; each holds one part only")
        if address not in addresses:
            raise InvalidOption(f"worker {address!r} is not in the cluster, which has {', '.join(addresses) or 'none'}")
    check_exchange(exchange, len(chosen))
    return chosen
