"""A graph's methods about its store; `DynamicGraph` binds them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, TypeVar, Unpack

from mgraph.client.options import OpenOptions, PlaceOptions
from mgraph.client.stores.storing import (
    Storing,
    check_opening,
    path_of,
    place_of,
    report_of,
    split,
    write,
    write_snapshot,
)
from mgraph.errors import MgraphError

__all__ = ["at", "load", "open_graph", "save", "snapshot"]

G = TypeVar("G")  #: the class of the graph


def open_graph(
    cls: Any,
    client: Any = None,
    store: Any = None,
    epoch: int | None = None,
    *,
    repair: bool = False,
    sync: Literal["always", "background"] = "always",
    **options: Unpack[OpenOptions],
) -> Any:
    """Open the graph of a store, as of its last whole epoch or of an earlier epoch.

    It has every acknowledged change. A change that was under way when the graph ended is complete or absent.

    Parameters
    ----------
    client : distributed.Client, optional
        The cluster for the graph; None for this process. ``DynamicGraph.open("roads")``, with the path alone, opens it
        in this process, too.
    store : path
        The folder of the store.
    epoch : int, optional
        Open the graph as it was after this epoch. It is read-only, and another graph may use the store.
    repair : bool
        If a complete record is damaged, or a file is missing, open the graph as it was before, and warn of the loss.
        Otherwise `StoreError` names the file.
    sync : "always" | "background"
        The point at which later changes are acknowledged, as in `DynamicGraph`. It is not taken from the store.
    **options
        Options of a new graph's store: `lag_bytes`, `lag_seconds`, `snapshot_bytes`, `retain`, `recover`,
        `max_recoveries`; and options of a new graph: `structure`, `reverse`, `order`, `balance`, `workers`, `exchange`,
        `device`, `reserve`, `patience`. `structure` and `reverse` default to those of the stored graph. The number of
        workers and the order may differ from those of the graph that wrote the store.

    Returns
    -------
    DynamicGraph
        The graph at the restored `epoch`; later changes continue from it, and are logged.

    Raises
    ------
    StoreError
        The folder has no store; or the store is in use, damaged, or of a newer version of mgraph.
    InvalidOption
        The store has no such epoch, or an option is unknown.
    CapacityError, DeviceError, WorkerLost
        As for a new graph.

    Notes
    -----
    O(m log m) for m logged operations, divided over the workers.
    """
    client, store = _in_order(client, store)
    storing, place = split(store, sync, options)
    return cls._opened(client, storing, place, epoch=epoch, repair=repair, logged=True)


def snapshot(self: Any, wait: bool = True) -> int:
    """Write the edges to the store, so that opening it reads only later changes from the log.

    Each worker copies its edges while the graph waits, on the GPU if it has room. It then writes them while the graph
    continues, as an Arrow IPC file with the columns src, dst and in a weighted graph weight, by users' ids.

    Parameters
    ----------
    wait : bool
        Wait until it is written, and before that for any snapshot that the graph has begun by itself. Otherwise `store`
        lists it later, and `MgraphError` is raised while another snapshot is being written.

    Returns
    -------
    int
        The epoch of the snapshot.

    Raises
    ------
    InvalidOption
        The graph has no store.
    StoreError
        It cannot be written, or pyarrow is missing on a worker. The store is as it was.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.
    """
    return write_snapshot(self._directory.coordinator, self._storing, wait)


def at(self: G, epoch: int, **options: Unpack[OpenOptions]) -> G:
    """Open the graph as it was after `epoch`: a read-only graph from the store, on this graph's workers.

    Parameters
    ----------
    epoch : int
        At most the last acknowledged epoch.
    **options
        Options of `open`. `workers`, `structure`, `reverse` and `device` default to those of this graph.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    InvalidOption
        The graph has no store, or the store has no such epoch.
    StoreError, CapacityError, DeviceError, WorkerLost
        As for `open`.
    """
    graph: Any = self
    defaults: dict[str, Any] = {"structure": graph.structure, "device": graph.device}
    defaults |= {} if graph._client is None else {"workers": graph.workers}
    path = place_of(graph._storing, epoch, graph.epoch)
    with suppress(MgraphError):  # a graph that lost its workers still has its store
        report_of(graph._directory.coordinator, graph._storing)  # flushes all acknowledged changes
    snapshot_graph: G = type(graph).open(graph._client, path, epoch, **{**defaults, **options})
    return snapshot_graph


def save(self: Any, path: Any) -> None:
    """Write the current graph to a folder that all workers share, or to a URL: a snapshot without a log.

    Parameters
    ----------
    path : path or URL of fsspec
        The folder, which is made if it does not exist.

    Raises
    ------
    InvalidOption
        The folder holds a store or a saved graph.
    StoreError
        It cannot be written, a worker does not see it, or pyarrow is missing on a worker.
    WorkerLost, GraphLost, GraphClosed
        The graph cannot be used.

    Notes
    -----
    O(n + m), divided over the workers. Each needs 44 bytes per edge of its own meanwhile.
    """
    write(self._directory, self._options, path)


def load(cls: Any, client: Any = None, path: Any = None, **options: Unpack[PlaceOptions]) -> Any:
    """Load the graph of a folder of `save`, or of a store, which stays as it is: changes are not logged.

    Parameters
    ----------
    client : distributed.Client, optional
        The cluster for the graph; None for this process. ``DynamicGraph.load("roads")``, with the path alone, loads it
        into this process, too.
    path : path or URL
        The folder.
    **options
        Options of a new graph, as in `open`.

    Returns
    -------
    DynamicGraph

    Raises
    ------
    StoreError
        The folder holds neither, is damaged, or was written by a newer version of mgraph.
    InvalidOption
        An option is unknown.
    CapacityError, DeviceError, WorkerLost
        As for a new graph.

    Notes
    -----
    O(m log m) for m edges and logged operations, divided over the workers.
    """
    client, path = _in_order(client, path)
    check_opening(options)
    return cls._opened(client, Storing(path_of(path)), options, logged=False)


def _in_order(client: Any, path: Any) -> tuple[Any, Any]:
    """Return the client and the path of a call; a path alone is for a graph in this process."""
    return (None, client) if path is None else (client, path)
