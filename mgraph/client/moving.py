"""Moving a graph to another place: another cluster, the cluster from this process, or back."""

from __future__ import annotations

from typing import Any

from mgraph.batch import EdgeBatch
from mgraph.client.edges import edges_of, ranges
from mgraph.client.restoring import check_seen
from mgraph.client.storing import check_opening
from mgraph.errors import InvalidOption, MgraphError

__all__ = ["move_to"]

CHUNK = 1 << 22  #: edges that pass through this process at a time


def move_to(self: Any, client: Any = None, **options: Any) -> None:
    """Move the graph: to the workers of another cluster, or of this one, or to this process.

    Edges, vertices, epoch, and the store stay the same, and so does this object. Results of algorithms are lost. Do not
    change the graph from other threads meanwhile.

    Parameters
    ----------
    client : distributed.Client or None
        None for this process.
    **options
        As in `open`, for the graph there.

    Raises
    ------
    InvalidOption
        An option is unknown, the client has no workers, the graph is published, or it has keys and no store.
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
    if self._directory.has_keys and self._storing is None:
        raise InvalidOption(f"move_to moves a graph with {self.keys} keys by its store only; create it with store=")
    options = {"structure": self.structure, **options}
    moved = _by_edges(self, client, options) if self._storing is None else _by_store(self, client, options)
    left = self._directory.coordinator
    vars(self).update(vars(moved))
    left.close()


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
    kind["combine"] = graph._options.combine
    kind["keys"] = graph._options.keys if grows and not n else None
    moved = type(graph)(client, None if grows else n, **{**kind, **options})
    try:
        if grows and n:
            moved.add_vertices(n)
        with moved.pipeline() as pipeline:
            for first, end in ranges(graph.degrees(), CHUNK):
                pipeline.update(EdgeBatch(*edges_of(graph, first, end)))
        moved._updates.order_first()
        if graph.epoch != epoch:
            raise MgraphError(f"graph {graph.id} was changed while it was moved: epoch {epoch} became {graph.epoch}")
        moved._directory.coordinator.call("begin_at", {"epoch": epoch})
    except BaseException:
        moved.close()
        raise
    return moved
