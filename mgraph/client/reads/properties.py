"""Properties of a graph: its kind, its size, its place, and the state of its store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from mgraph.client.options import Options
from mgraph.client.reports import report
from mgraph.client.reports.report import WorkerLoad, balance_of
from mgraph.client.results.value_inputs import by_vertex
from mgraph.client.stores.recovery import Recovery
from mgraph.client.stores.storing import StoreReport, Storing, report_of
from mgraph.client.vertices.directory import Directory
from mgraph.errors import InvalidBatch, MgraphError, UnknownVertex
from mgraph.tables.times import as_window

__all__ = ["Properties"]


class Properties:
    """The properties of a `DynamicGraph`, and its display."""

    _directory: Directory
    _options: Options
    _storing: Storing | None
    _by_vertex = by_vertex  # used by algorithms that are written with `gather`

    @property
    def id(self) -> str:
        """The graph's id, which error messages quote."""
        return self._directory.coordinator.status.graph

    @property
    def structure(self) -> str:
        """The data structure on each worker, with its options."""
        return self._options.structure

    @property
    def weighted(self) -> bool:
        """True if edges have weights."""
        return self._options.weighted

    @property
    def combine(self) -> str:
        """The weight of an edge that is inserted again: "last", "sum", "min" or "max"."""
        return self._options.combine

    @property
    def times(self) -> str | None:
        """The dtype of the edges' times, such as "datetime64[ns]"; None if they have none."""
        return self._options.times

    @property
    def window(self) -> Any:
        """The window of time: a ``numpy.timedelta64``, an int for integer times, None without one."""
        return as_window(self._options.window, self._options.times)

    @property
    def window_edges(self) -> int | None:
        """The largest number of edges that the graph keeps; None without a limit."""
        return self._options.window_edges

    @property
    def directed(self) -> bool:
        """True if edges have a direction."""
        return self._options.directed

    @property
    def reverse(self) -> bool:
        """True if the graph has in-edges: it is undirected, or stored with ``reverse=True``."""
        return self._options.reverse or not self._options.directed

    @property
    def keys(self) -> str | None:
        """The kind of keys: "int64" or "string"; None for ids; "undecided" before the first edges."""
        keys = self._directory.keys
        return "undecided" if keys == "auto" else keys

    @property
    def device(self) -> str:
        """The kind of device, with "auto" resolved: "cpu" or "cuda"."""
        return self._options.device

    @property
    def exchange(self) -> str:
        """The workers' exchange, with "auto" resolved: "loopback", "peer", "tcp" or "ucx".

        On several hosts "peer+tcp" or "peer+ucx" with the group of each worker, such as "peer+ucx:0,0,1,1".
        """
        return self._directory.options.exchange

    @property
    def workers(self) -> tuple[str, ...]:
        """The addresses of the workers that hold the graph, in rank order."""
        return self._directory.coordinator.status.addresses

    @property
    def _current(self) -> Directory:
        """The directory. After a Ctrl-C it is first updated from the workers, unless the graph is lost.

        On the client's event loop it is as it was: a wait there, for a lock too, would never end.
        """
        coordinator = self._directory.coordinator
        if coordinator.status.unsettled and not coordinator.runner.here:
            with suppress(MgraphError, RuntimeError):  # RuntimeError of a loop that has ended
                self._directory.check()
        return self._directory

    @property
    def num_vertices(self) -> int:
        """The number of vertices; without keys, deleted ones count too. Asks the workers only after a Ctrl-C."""
        if not self._directory.coordinator.runner.here:
            with suppress(MgraphError):  # lost or closed: return the last known number
                self._directory.check()
        return self._directory.n_vertices

    @property
    def num_edges(self) -> int:
        """The number of edges; an undirected edge counts once. O(1); asks the workers only after a Ctrl-C."""
        return sum(state.edges for state in self._current.coordinator.states)

    @property
    def epoch(self) -> int:
        """The number of committed changes of content: batches, `expire`, added and deleted vertices.

        After a Ctrl-C the workers are asked, since they may have committed a change that no call reported.
        """
        return self._current.coordinator.epoch

    @property
    def nbytes(self) -> int:
        """The bytes of device memory that all workers together held for this graph after its last call."""
        return sum(state.nbytes for state in self._current.coordinator.states)

    @property
    def durable_epoch(self) -> int:
        """The last epoch on the disks of all workers; 0 without a store. With a store, asks the workers."""
        report = self.store
        return 0 if report is None else report.durable_epoch

    @property
    def store(self) -> StoreReport | None:
        """The state of the store: size, segments, snapshots, lag; None without a store. One call."""
        return report_of(self._directory.coordinator, self._storing)

    @property
    def offsets(self) -> dict[str, int]:
        """The last committed place in each source, by `update`'s `offset`. With a store, it asks the workers."""
        report = self.store
        return {} if report is None else report.offsets

    @property
    def recoveries(self) -> tuple[Recovery, ...]:
        """The losses after which the graph was recovered, in order, with ``recover="auto"``."""
        return tuple(getattr(self._directory.coordinator, "recoveries", ()))

    def __len__(self) -> int:
        return self.num_vertices

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the vertices in the order of `vertices`. O(n), without a call to the workers."""
        return iter(self._directory.read(lambda now: now.all_names()).tolist())

    def __contains__(self, vertex: Any) -> bool:
        """Return True if `vertex` is a vertex of the graph. Asks the workers only after a Ctrl-C."""
        try:
            self._directory.ids([vertex], "vertex")
        except (UnknownVertex, InvalidBatch):
            return False
        return True

    def __repr__(self) -> str:
        return report.as_text(report.title(self), self._loads())

    def _repr_html_(self) -> str:
        return report.as_html(report.title(self), self._loads())

    def _loads(self) -> tuple[WorkerLoad, ...]:
        status = self._directory.coordinator.status
        return balance_of(status.addresses, status.states).workers
