"""List published graphs of a cluster, and withdraw their names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from mgraph.client.asynchronous import on_its_loop, run_in_thread
from mgraph.client.creation.place import NO_DASK
from mgraph.client.published.publishing import card_of
from mgraph.errors import MgraphError
from mgraph.facade import facade

__all__ = ["PublishedGraph", "list_graphs", "unpublish"]

Value = dict[str, Any]


@dataclass(frozen=True)
class PublishedGraph:
    """A published graph, as described by its workers.

    Attributes
    ----------
    name : str
    id : str
        The graph's id, which error messages quote.
    epoch, num_vertices, num_edges, nbytes : int
        The state after the last call that all workers have answered, of any client. 0 if the graph is lost.
    clients : int
        The number of attached clients.
    workers : tuple of str
        The workers that hold it, in rank order.
    lost : bool
        True if some of its workers are gone. Only `unpublish` helps then.
    """

    name: str
    id: str
    epoch: int
    num_vertices: int
    num_edges: int
    nbytes: int
    clients: int
    workers: tuple[str, ...]
    lost: bool


@facade
def list_graphs(client: Any) -> Any:
    """Return the graphs that are published on a cluster, by name.

    Parameters
    ----------
    client : distributed.Client
        With an asynchronous client, await this function.

    Returns
    -------
    list of PublishedGraph
        Graphs on workers that do not answer within a few seconds are `lost`.
    """
    return run_in_thread(partial(_listed, client)) if on_its_loop(client) else _listed(client)


@facade
def unpublish(client: Any, name: str) -> Any:
    """Withdraw the name of a published graph, also of a lost graph.

    The graph ends with its last client. With an asynchronous client, await this function.

    Raises
    ------
    InvalidOption
        No graph has this name; the message lists the names.
    """
    return run_in_thread(partial(_withdraw, client, name)) if on_its_loop(client) else _withdraw(client, name)


def _listed(client: Any) -> list[PublishedGraph]:
    graphs: dict[str, list[Value]] = {}
    for part in sorted(_published_on(client), key=lambda part: (part["name"], part["graph"], part["rank"])):
        graphs.setdefault(part["graph"], []).append(part)
    return [_described(ranks) for ranks in graphs.values()]


def _published_on(client: Any, end: str | None = None) -> list[Value]:
    """Return the parts of published graphs by their workers, after the name `end` was withdrawn."""
    if client is None:
        raise TypeError("published graphs are on a cluster: give its dask.distributed.Client, not None")
    try:
        from mgraph.client.creation.placement import published_on
    except ImportError as error:
        raise MgraphError(f"{NO_DASK}: {error}") from error
    return published_on(client, end)


def _described(ranks: list[Value]) -> PublishedGraph:
    lost = len(ranks) < ranks[0]["size"]

    def total(name: str) -> int:
        return 0 if lost else sum(part[name] for part in ranks)

    # Totals need all ranks; the epoch is that of the slowest.
    return PublishedGraph(
        ranks[0]["name"],
        ranks[0]["graph"],
        epoch=0 if lost else min(part["epoch"] for part in ranks),
        num_vertices=total("vertices"),
        num_edges=total("edges"),
        nbytes=total("nbytes"),
        clients=max(part["clients"] for part in ranks),
        workers=tuple(part["address"] for part in ranks),
        lost=lost,
    )


def _withdraw(client: Any, name: str) -> None:
    parts = _published_on(client)
    if not any(part["name"] == name for part in parts):
        card_of(parts, name)  # raises an error
    _published_on(client, end=name)
