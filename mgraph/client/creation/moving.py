"""Moving a graph to another place: another cluster, the cluster from this process, or back."""

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
    """Move the graph: to the workers of another cluster, or of this one, or to this process.

    Edges, vertices, epoch, and the store stay the same, and so does this object. Results of algorithms are lost, and
    those of `maintain`. Do not change the graph from other threads meanwhile.

    Parameters
    ----------
    client : distributed.Client or None
        None for this process.
    **options
        As in `open`, for the graph there.

    Raises
    ------
    InvalidOption
        An option is unknown, the client has no workers, the graph is published, or combines the insertions in a
        window and has no store.
    StoreError
        A worker there does not see the store.
    CapacityError, DeviceError, WorkerLost
        As for a new graph. The graph stays where it was.
    MgraphError
        The graph was changed meanwhile, and stays where it was.

    Notes
    -----
    A graph with a store is closed here and opened there. Without one its edges pass through this process, 2**22 at a
    time; both places then hold the graph for a while.
    """
    check_opening(options)
    self._directory.check()
    if self._published is not None:
        raise InvalidOption(
            f"the graph is published as {self._published!r}, and other clients may have it: unpublish it"
        )
    if self._options.combine != "last" and self._options.window is not None and self._storing is None:
        raise InvalidOption(
            f"the graph combines the insertions in a window by {self._options.combine!r}, and move_to moves these by a "
            "store only; create it with store="
        )
    place = {"structure": self.structure, **options}
    moved = _by_edges(self, client, place) if self._storing is None else _by_store(self, client, place)
    left = self._directory
    left.moved = True
    vars(self).update(vars(moved))
    left.coordinator.close()


def _by_store(graph: Any, client: Any, options: dict[str, Any]) -> Any:
    """The graph, opened from its store there; where that fails, opened here again."""
    storing, epoch = graph._storing, graph._as_of
    opened = type(graph)._opened
    how = {"epoch": epoch, "logged": True}
    check_seen(graph._placed(client, options), storing, graph.epoch)
    if epoch is not None:  # both may read it
        return opened(client, storing, options, **how)
    graph.close()
    try:
        return opened(client, storing, options, **how)
    except BaseException:
        mine = {"structure": graph.structure, "device": graph.device}
        if graph._client is not None:
            mine["workers"] = graph.workers
        vars(graph).update(vars(opened(graph._client, storing, mine, **how)))
        raise


def _by_edges(graph: Any, client: Any, options: dict[str, Any]) -> Any:
    """A graph there with the same edges."""
    n, epoch, grows = graph.num_vertices, graph.epoch, graph._options.grows
    kind = {"weighted": graph.weighted, "directed": graph.directed, "reverse": graph._options.reverse}
    kind |= {"combine": graph._options.combine, **_by_time(graph._options)}
    with graph._directory.still() as table:
        names = None if table is None else table.names.first(n)
    chosen = graph._options.keys if grows and not n else None
    kind["keys"] = chosen if names is None else names.kind
    moved = type(graph)(client, None if grows else n, **{**kind, **options})
    try:
        if n and names is not None:
            moved.add_vertices(names.column())
        elif grows and n:
            moved.add_vertices(n)
        _copy_edges(graph, moved, names)
        if graph.epoch != epoch:
            raise MgraphError(f"graph {graph.id} was changed while it was moved: epoch {epoch} became {graph.epoch}")
        latest = graph._directory.coordinator.call("latest")[0]["latest"]
        moved._directory.coordinator.call("begin_at", {"epoch": epoch, "latest": latest})
    except BaseException:
        moved.close()
        raise
    return moved


def _copy_edges(graph: Any, moved: Any, names: KeyArray | None) -> None:
    """Insert the edges of one graph into another, which has its vertices."""
    times, key = graph._options.times, None if names is None else names.kind
    with moved._updates.pipeline(1 << 28, last=False) as pipeline:  # which leaves vertices without edges there
        for first, end in ranges(graph.degrees(), CHUNK):
            ids = np.arange(first, end, dtype=np.uint32)
            src, dst, weight, time = edges_of(graph, ids, times is not None)
            if not graph.directed:
                src, dst, weight, time = once(src, dst, weight, time)
            src, dst = (_named(names, column) for column in (src, dst))
            pipeline.update(EdgeBatch(src, dst, weight, None, key, as_shown(time, times)))
    moved._updates.order_first()


def _by_time(options: Options) -> dict[str, Any]:
    """The options that are about times, as a user gives them."""
    span = None if options.window is None else np.int64(options.window)
    if span is not None and options.times != INTEGERS:
        span = span.view(str(options.times).replace("datetime64", "timedelta64"))
    names = ("times", "window_edges", "drop_isolated")
    return {"window": span, **{name: getattr(options, name) for name in names}}


def _named(names: KeyArray | None, ids: np.ndarray) -> Any:
    """A column of vertices as the graph's user names them."""
    return ids if names is None else names.take(ids) if names.kind == "int64" else names.column().take(ids)
