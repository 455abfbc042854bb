"""Which graphs are published on a cluster, as its workers say."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from mgraph.client.asynchronous import on_its_loop, run_in_thread
from mgraph.client.creation.place import NO_DASK
from mgraph.client.published.sharing import card_of
from mgraph.errors import MgraphError
from mgraph.facade import facade

__all__ = ["PublishedGraph", "list_graphs", "unpublish"]

Value = dict[str, Any]


@dataclass(frozen=True)
class PublishedGraph:
    """A graph that is published, as its workers say.

    Attributes
    ----------
    name : str
    id : str
        The graph's id, which error messages quote.
    epoch, num_vertices, num_edges, nbytes : int
        After the last call of any client, where all workers have answered it. 0 where the graph is lost.
    clients : int
        How many clients have it now.
    workers : tuple of str
        The workers that hold it, in rank order.
    lost : bool
        Whether some of its workers are gone. Only `unpublish` helps then.
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
        Workers that do not answer within a few seconds are left out, and graphs that they hold are `lost`.
    """
    return run_in_thread(partial(_listed, client)) if on_its_loop(client) else _listed(client)


@facade
def unpublish(client: Any, name: str) -> Any:
    """Take the name of a published graph back, also of one that was lost. It ends with the last client that has it.

    With an asynchronous client, await this function.

    Raises
    ------
    InvalidOption
        There is no such graph; the message lists those that there are.
    """
    return run_in_thread(partial(_ended, client, name)) if on_its_loop(client) else _ended(client, name)


def _listed(client: Any) -> list[PublishedGraph]:
    graphs: dict[str, list[Value]] = {}
    for one in sorted(_published_on(client), key=lambda one: (one["name"], one["graph"], one["rank"])):
        graphs.setdefault(one["graph"], []).append(one)
    return [_told(ranks) for ranks in graphs.values()]


def _published_on(client: Any, end: str | None = None) -> list[Value]:
    """Return the parts of published graphs by their workers, after the name `end` was withdrawn."""
    if client is None:
        raise TypeError("published graphs are on a cluster: give its dask.distributed.Client, not None")
    try:
        from mgraph.client.creation.placement import published_on
    except ImportError as error:
        raise MgraphError(f"{NO_DASK}: {error}") from error
    return published_on(client, end)


def _told(ranks: list[Value]) -> PublishedGraph:
    lost = len(ranks) < ranks[0]["size"]

    def total(what: str) -> int:
        return 0 if lost else sum(one[what] for one in ranks)

    return PublishedGraph(
        ranks[0]["name"],
        ranks[0]["graph"],
        epoch=0 if lost else min(one["epoch"] for one in ranks),
        num_vertices=total("vertices"),
        num_edges=total("edges"),
        nbytes=total("nbytes"),
        clients=max(one["clients"] for one in ranks),
        workers=tuple(one["address"] for one in ranks),
        lost=lost,
    )


def _ended(client: Any, name: str) -> None:
    found = _published_on(client)
    if not any(one["name"] == name for one in found):
        card_of(found, name)  # raises
    _published_on(client, end=name)
