"""What a graph says of itself: its kind, its size, where it is, and what its store has."""

from __future__ import annotations

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

__all__ = ["Properties"]


class Properties:
    """The properties of a `DynamicGraph`, and how it is shown."""

    _directory: Directory
    _options: Options
    _storing: Storing | None
    _by_vertex = by_vertex  # for algorithms that are written with `gather`

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
        """Whether edges have a weight."""
        return self._options.weighted

    @property
    def directed(self) -> bool:
        """Whether edges have a direction."""
        return self._options.directed

    @property
    def reverse(self) -> bool:
        """Whether the graph has in-edges: stored with ``reverse=True``, or those of an undirected graph."""
        return self._options.reverse or not self._options.directed

    @property
    def keys(self) -> str | None:
        """What users call vertices: "int64" or "string" keys, None for numbers; "undecided" before the first edges."""
        keys = self._directory.keys
        return "undecided" if keys == "auto" else keys

    @property
    def device(self) -> str:
        """Where the graph is stored, with "auto" resolved: "cpu" or "cuda"."""
        return self._options.device

    @property
    def exchange(self) -> str:
        """How the workers communicate, with "auto" resolved: "loopback", "peer", "tcp" or "ucx"."""
        return self._directory.options.exchange

    @property
    def workers(self) -> tuple[str, ...]:
        """The addresses of the workers that hold the graph, in rank order."""
        return self._directory.coordinator.status.addresses

    @property
    def _current(self) -> Directory:
        """The directory. After a Ctrl-C it first asks the workers what they have; of a lost graph that is unknown."""
        if self._directory.coordinator.status.unsettled:
            with suppress(MgraphError, RuntimeError):  # the latter on the event loop, where nobody can wait
                self._directory.check()
        return self._directory

    @property
    def num_vertices(self) -> int:
        """The number of vertices; without keys, deleted ones count too. Asks the workers only after a Ctrl-C."""
        with suppress(MgraphError):  # lost or closed: what was last known is given
            self._directory.check()
        return self._directory.n_vertices

    @property
    def num_edges(self) -> int:
        """The number of edges; an undirected edge counts once. O(1); asks the workers only after a Ctrl-C."""
        return sum(state.edges for state in self._current.coordinator.status.states)

    @property
    def epoch(self) -> int:
        """The number of committed changes of content: batches, `expire`, and vertices that were added or deleted.

        Asks the workers only after a Ctrl-C, where they may have committed a change of which no call heard.
        """
        return self._current.coordinator.status.epoch

    @property
    def nbytes(self) -> int:
        """Bytes of device memory that all workers together held for this graph after its last call."""
        return sum(state.nbytes for state in self._current.coordinator.status.states)

    @property
    def durable_epoch(self) -> int:
        """The last epoch that is on the disk on all workers; 0 without a store. With one, it asks the workers."""
        report = self.store
        return 0 if report is None else report.durable_epoch

    @property
    def store(self) -> StoreReport | None:
        """The state of the store: size, segments, snapshots, lag; None without one. One call to the workers."""
        return report_of(self._directory.coordinator, self._storing)

    @property
    def offsets(self) -> dict[str, int]:
        """The last committed place in each source, by `update`'s `offset`. With a store, it asks the workers."""
        report = self.store
        return {} if report is None else report.offsets

    @property
    def recoveries(self) -> tuple[Recovery, ...]:
        """The losses after which the graph came back, in their order, with ``recover="auto"``."""
        return tuple(getattr(self._directory.coordinator, "recoveries", ()))

    def __len__(self) -> int:
        return self.num_vertices

    def __bool__(self) -> bool:
        return True

    def __contains__(self, vertex: Any) -> bool:
        """Return True if `vertex` is a vertex of the graph, as NetworkX does. Asks the workers only after a Ctrl-C."""
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
