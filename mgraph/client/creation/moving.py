"""Move a graph to another place: another cluster, the cluster from this process, or back."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from mgraph.batch import EdgeBatch
from mgraph.client.creation.restoring import check_seen
from mgraph.client.options import Options, PlaceOptions
from mgraph.client.reads.edges import edges_of, once, ranges
from mgraph.client.stores.storing import check_opening
from mgraph.errors import InvalidOption, MgraphError
from mgraph.keys import KeyArray
from mgraph.tables.times import INTEGERS, as_shown

__all__ = ["move_to"]

CHUNK = 1 << 22  #: edges that pass through this process at a time


def move_to(self: Any, client: Any = None, **options: Unpack[PlaceOptions]) -> None:
    """Move the graph to the workers of another cluster or of this one, or to this process.

    Edges, vertices, epoch, and the store stay the same, and so does this object. Results of algorithms and maintained
    results are lost. Do not change the graph from other threads meanwhile.

    Parameters
    ----------
    client : distributed.Client or None
        None for this process.
    **options
        Options of `open`, for the moved graph.

    Raises
    ------
    InvalidOption
        An option is unknown, the client has no workers, the graph is published, or combines the insertions in a
        window and has no store.
    StoreError
        A worker there does not see the store.
    CapacityError, DeviceError, WorkerLost
        The new graph cannot be made. The graph stays where it was.
    MgraphError
        The graph was changed meanwhile, and stays where it was.

    Notes
    -----
    A graph with a store is closed in its place and opened in the new one. Without a store its edges pass through this
    process, 2**22 at a time; both places then hold the graph for a while.
    """
    check_opening(options)
    self._directory.check()
    if self._published is not None:
        raise InvalidOption(
            f"the graph is published as {self._published!r}, and other clients may have it: unpublish it"
        )

    # A combined weight in a window depends on insertions that edges alone do not show.
    if self._options.combine != "last" and self._options.window is not None and self._storing is None:
        raise InvalidOption(
            f"the graph combines the insertions in a window by {self._options.combine!r}, and move_to moves these by a "
            "store only; create it with store="
        )
    place = {"structure": self.structure, **options}
    moved = _by_edges(self, client, place) if self._storing is None else _by_store(self, client, place)

    # This object takes over the moved graph's state; the old one ends.
    old_directory = self._directory
    old_directory.moved = True
    vars(self).update(vars(moved))
    old_directory.coordinator.close()


def _by_store(graph: Any, client: Any, options: dict[str, Any]) -> Any:
    """Close the graph and open it from its store in the new place. On failure, open it in its place again."""
    storing, epoch = graph._storing, graph._as_of
    opened = type(graph)._opened
    arguments = {"epoch": epoch, "logged": True}
    check_seen(graph._placed(client, options), storing, graph.epoch)
    if epoch is not None:  # several graphs may read it
        return opened(client, storing, options, **arguments)

    # The store has one writer, so the graph is closed before it is opened.
    graph.close()
    try:
        return opened(client, storing, options, **arguments)
    except BaseException:
        mine = {"structure": graph.structure, "device": graph.device}
        if graph._client is not None:
            mine["workers"] = graph.workers
        vars(graph).update(vars(opened(graph._client, storing, mine, **arguments)))
        raise


def _by_edges(graph: Any, client: Any, options: dict[str, Any]) -> Any:
    """Make a graph in the new place with the same edges."""
    # Make an empty graph of the same kind, with the same vertices.
    n, epoch, grows = graph.num_vertices, graph.epoch, graph._options.grows
    kind = {"weighted": graph.weighted, "directed": graph.directed, "reverse": graph._options.reverse}
    kind |= {"combine": graph._options.combine, **_by_time(graph._options)}
    with graph._directory.still() as table:
        names = None if table is None else table.names.first(n)
    requested_keys = graph._options.keys if grows and not n else None
    kind["keys"] = requested_keys if names is None else names.kind
    moved = type(graph)(client, None if grows else n, **{**kind, **options})
    try:
        if n and names is not None:
            moved.add_vertices(names.column())
        elif grows and n:
            moved.add_vertices(n)
        _copy_edges(graph, moved, names)

        # Edges were read over many calls, so a change meanwhile would be lost.
        if graph.epoch != epoch:
            raise MgraphError(f"graph {graph.id} was changed while it was moved: epoch {epoch} became {graph.epoch}")
        latest = graph._directory.coordinator.call("latest")[0]["latest"]
        moved._directory.coordinator.call("begin_at", {"epoch": epoch, "latest": latest})
    except BaseException:
        moved.close()
        raise
    return moved


def _copy_edges(graph: Any, moved: Any, names: KeyArray | None) -> None:
    """Insert a graph's edges into a graph with the same vertices."""
    times, key = graph._options.times, None if names is None else names.kind
    with moved._updates.pipeline(1 << 28, last=False) as pipeline:  # isolated vertices stay
        # An undirected edge is in two rows; take it once.
        for first, end in ranges(graph.degrees(), CHUNK):
            ids = np.arange(first, end, dtype=np.uint32)
            src, dst, weight, time = edges_of(graph, ids, times is not None)
            if not graph.directed:
                src, dst, weight, time = once(src, dst, weight, time)
            src, dst = (_named(names, column) for column in (src, dst))
            pipeline.update(EdgeBatch(src, dst, weight, None, key, as_shown(time, times)))
    moved._updates.order_first()


def _by_time(options: Options) -> dict[str, Any]:
    """Return the options about times, in the user's form."""
    span = None if options.window is None else np.int64(options.window)
    if span is not None and options.times != INTEGERS:
        span = span.view(str(options.times).replace("datetime64", "timedelta64"))
    names = ("times", "window_edges", "drop_isolated")
    return {"window": span, **{name: getattr(options, name) for name in names}}


def _named(names: KeyArray | None, ids: np.ndarray) -> Any:
    """Return a column of vertices in users' names."""
    return ids if names is None else names.take(ids) if names.kind == "int64" else names.column().take(ids)
