"""Publish a graph under a name, and attach to a published graph; `DynamicGraph` binds these."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from mgraph.client.batches.source_ingest import Ingest
from mgraph.client.batches.updates import Updates
from mgraph.client.creation.place import directory
from mgraph.client.options import Options
from mgraph.client.stores.storing import Storing
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphLost, InvalidOption, MgraphError
from mgraph.partition import Partition
from mgraph.plain import pack, unpack

__all__ = ["attach", "card_of", "publish", "unpublish"]

Value = dict[str, Any]


def publish(self: Any, name: str) -> None:
    """Publish the graph under a name, by which other clients attach to it.

    The workers then keep it until `unpublish` or the end of the cluster, whether a client uses it or not: `close` and
    the end of this process only end this client's use. The calls of all clients take turns, so that each sees whole
    epochs. If a client dies in a call, its turn ends; the call is then made completely or not at all, as after a
    Ctrl-C.

    Parameters
    ----------
    name : str
        A name that no other graph of the cluster has.

    Raises
    ------
    InvalidOption
        The name is taken. The graph has another name, is in this process, was made with ``recover="auto"`` or a
        store's earlier epoch, or waits for its first edges to be ordered by degree.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    Each call waits for its turn among the calls of all clients. A turn costs a round trip to rank 0 before the first of
    several calls, and a message after the last: a client keeps it between its calls, until another client waits or for
    0.05 seconds. A pipeline keeps its turn until its block is left. `num_edges`, `epoch` and other properties have the
    state after this client's last call.

    In a graph with keys, each client has a table of them, and the worker of rank 0 has their list. A client that
    attaches gets all keys. After another client has changed them, a client gets the difference with its next call.
    """
    _check(self, name)
    place, coordinator = self._placed(self._client, {"workers": self.workers}), self._directory.coordinator
    _check_free(place.published(), name)

    try:
        # Under the lock, rank 0 gets the keys, and all ranks the card.
        with coordinator.lock:
            self._directory.check()
            card = {
                "graph": self.id, "addresses": self.workers, "options": asdict(self._options),
                "storing": None if self._storing is None else asdict(self._storing),
            }  # fmt: skip
            self._directory.announce_keys(logged=self._storing is not None)
            self._published = name
            coordinator.publish(name, pack(card))

        # Another client may have taken the name meanwhile, for a graph on other workers: look again.
        _check_free([part for part in place.published() if part["graph"] != self.id], name)
    except BaseException:
        with suppress(MgraphError):  # the first error is raised, such as a loss
            unpublish(self)  # Ctrl-C may have come after the last worker's answer
        self._published = None
        raise


def _check(graph: Any, name: Any) -> None:
    """Raise `InvalidOption` unless a graph can be published under a name."""
    if not isinstance(name, str) or not name:
        raise InvalidOption(f"the name is {name!r}; it must be a text that is not empty")
    obstacle = None
    if graph._client is None:
        obstacle = "is in this process, and no other can reach it: make it with a Dask client"
    elif graph._published is not None:
        obstacle = f"is published as {graph._published!r}; unpublish it first"
    elif graph._as_of is not None:
        obstacle = f"is that of epoch {graph._as_of} of a store, which each client opens for itself"
    elif graph._storing is not None and graph._storing.recover is not None:
        obstacle = 'has recover="auto", which is for a graph of one client: leave it out'
    elif graph._updates.order_due:
        obstacle = "is ordered by degree after its first edges: insert them first"
    if obstacle is not None:
        raise InvalidOption(f"graph {graph.id} cannot be published as {name!r}: it {obstacle}")


def _check_free(parts: list[Value], name: str) -> None:
    """Raise `InvalidOption` if a graph has the name."""
    other = next((part["graph"] for part in parts if part["name"] == name), None)
    if other is not None:
        raise InvalidOption(f"graph {other} is published as {name!r} already; choose another name, or unpublish it")


def unpublish(self: Any) -> None:
    """Withdraw the graph's name.

    The graph ends when its last client closes it, or ends. Does nothing if the graph is not published.
    """
    if self._published is not None:
        self._directory.coordinator.publish(None)
        self._published = None


def attach(cls: Any, client: Any, name: str) -> Any:
    """Attach to the graph that is published under a name, from any client of the cluster.

    Its `close` leaves the graph to its workers and to other clients.

    Parameters
    ----------
    client : distributed.Client
    name : str

    Raises
    ------
    TypeError
        `client` is not a `distributed.Client`.
    InvalidOption
        No graph has this name; the message lists the names.
    GraphLost
        Some of its workers are gone.
    WorkerLost
        A worker cannot be reached.
    """
    if client is None:
        raise TypeError("attach takes a dask.distributed.Client, got None: only graphs on a cluster are published")
    place = cls._placed(client, {})
    card = card_of(place.published(), name)
    options, storing = card["options"], card["storing"]

    # Open the sessions, and take over the ranks' numbering and the keys.
    coordinator, parts = place.join(card["graph"], card["addresses"], options.patience)
    graph = cls.__new__(cls)
    try:
        with coordinator.lock:
            graph._directory = directory(coordinator, options, _numbering(coordinator))
            if options.keys is not None:
                graph._directory.join()
    except BaseException:
        coordinator.close()
        raise

    # Set up the graph without its constructor, which would make shards.
    graph._client, graph._storing, graph._options, graph._published = client, storing, options, name
    graph._updates = Updates(graph._directory, options, order_due=False, logged=storing is not None)
    graph._ingest = Ingest(graph._updates, graph._directory, parts)
    return graph


def card_of(parts: list[Value], name: str) -> Value:
    """Return the card of the graph with this name; `InvalidOption` if unknown, `GraphLost` if incomplete."""
    ranks = [part for part in parts if part["name"] == name]
    first = next((part for part in ranks if part["rank"] == 0), None)
    if not ranks:
        names = ", ".join(sorted({repr(part["name"]) for part in parts})) or "none"
        raise InvalidOption(f"no graph is published as {name!r}; there are: {names}")

    # The card is on rank 0, and all ranks must answer.
    if first is None or len(ranks) < first["size"]:
        answered = f"{len(ranks)} of {ranks[0]['size']}"
        raise GraphLost(
            f"graph {ranks[0]['graph']}, published as {name!r}, was lost: {answered} workers that held it answer; "
            f"mgraph.unpublish(client, {name!r}) frees what is left of it"
        )
    card: Value = unpack(first["card"])
    storing = card["storing"]
    return card | {"options": Options(**card["options"]), "storing": None if storing is None else Storing(**storing)}


def _numbering(coordinator: Any) -> Numbering:
    """Return the numbering of the ranks."""
    states = coordinator.states
    shares = [{"wanted": rank == 0} for rank in range(len(states))]
    order = coordinator.call("order", shares=shares)[0].get("order")
    ranges = Partition((*(state.lo for state in states), states[-1].hi))
    return Numbering(ranges, order, states[0].generation)
