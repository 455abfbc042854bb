"""Maintained results, which are updated when they are read. `DynamicGraph.maintain` makes them."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from mgraph.algorithms import ALGORITHMS
from mgraph.checks import check_flag, check_whole, is_choice
from mgraph.client.options import Options
from mgraph.client.results.community_history import CommunityChanges, CommunityHistory
from mgraph.client.results.results import VertexValues, column_of
from mgraph.client.results.run import run_algorithm
from mgraph.client.vertices.directory import Directory
from mgraph.client.vertices.numbering import Numbering
from mgraph.errors import GraphClosed, InvalidOption
from mgraph.facade import at_facade, hint
from mgraph.forks import renew_in_children

__all__ = ["Live", "LiveReport", "maintain"]

HISTORY = 100  #: reads of communities whose changes are kept
STARTS = ("start", "nstart")  #: names of arguments with a starting vector


@dataclass(frozen=True)
class LiveReport:
    """The cost of updating a maintained result.

    Attributes
    ----------
    how : "unchanged" | "incremental" | "recomputed"
        "unchanged" if no relevant change was made; "incremental" if the last result was updated; "recomputed" if it was
        computed anew.
    touched : int
        The number of edges that changed since the last update: inserted, deleted, or with another weight; 0 if the
        result was computed anew before an update was completed. An undirected edge counts once. If vertices without
        edges were removed meanwhile, the result was updated before each removal, and this is the sum.
    edges : int
        The number of edge visits, in each direction; 0 with "recomputed", which visits all edges.
    ms : float
        The duration of the call in milliseconds.
    moved : int
        Of communities, the number of vertices whose community has another name than at the last read; else 0.
    """

    how: str
    touched: int
    edges: int
    ms: float
    moved: int = 0


@at_facade
class Live:
    """A result that is kept up to date with the graph; made by `DynamicGraph.maintain`.

    Reading it updates it. Use it as a context manager, or call `close`, to free its state on the workers; that also
    ends with the last reference to it, and with the graph. Several threads may use it.
    """

    def __init__(
        self, directory: Directory, options: Options, name: str, arguments: Mapping[str, Any], history: int = HISTORY
    ) -> None:
        self.name = name
        self._history = None if ALGORITHMS[name].memory is None else CommunityHistory(history)
        self._directory, self._options, self._arguments = directory, options, dict(arguments)
        self._lock = threading.RLock()
        renew_in_children(self)
        self._result: VertexValues | None = None
        self._seen: tuple[str, int] | None = None  # the graph and its changes that the result has
        self._epoch, self._report = -1, LiveReport("recomputed", 0, 0, 0.0)
        self._keep()

    if not TYPE_CHECKING:  # type checkers must see unknown names

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(f"a maintained result has no {name!r}; result() returns the current values")

    def _keep(self) -> None:
        """Choose a new key, under which the workers keep the result's state from the next call on."""
        self._key = secrets.token_hex(16)
        self._free = weakref.finalize(self, self._directory.coordinator.forget, self._key)
        self._free.atexit = False

    def result(self) -> VertexValues:
        """Return the result for the current graph, as the method of the same name does.

        Later changes of the graph do not change the returned result. Without changes, all calls return the same object;
        if it was closed, a call returns another one.

        Raises
        ------
        GraphClosed
            This or the graph was closed, or the graph was moved.
        Exception
            An error of the method of the same name for the current graph. A later call tries again.
        """
        with self._directory.coordinator.lock, self._lock:
            return self._read()

    def _read(self) -> VertexValues:
        if self.closed:
            raise GraphClosed(f"this maintained result of {self.name} was closed")
        directory, began, last = self._directory, time.perf_counter(), self._result
        if directory.moved:
            graph = directory.coordinator.status.graph
            raise GraphClosed(
                f"this maintained result of {self.name} is of graph {graph}, which was moved: maintain it again"
            )
        directory.check()

        # Without a change since the last read, and without batches in flight, the last result holds.
        waiting, seen = directory.coordinator.queued, _seen(directory)
        if last is not None and not waiting and not last._remote.closed and self._seen == seen:
            self._report = LiveReport("unchanged", 0, 0, 1000 * (time.perf_counter() - began))
            return last
        self._result = result = self._updated()
        # A change that another thread makes meanwhile may be in the result, or not.
        self._seen = seen if _seen(directory) == seen else None
        self._epoch = result.epoch
        passed, moved = result._remote.passed, 0
        if passed is not None and self._history is not None:
            self._history.note(passed, result.epoch, result._remote.numbering)
            moved = len(passed["vertex"])
        self._report = LiveReport(**result._remote.took, ms=1000 * (time.perf_counter() - began), moved=moved)
        return result

    def _updated(self) -> VertexValues:
        """Have the workers update the result, and return it.

        PageRank's ranks that have converged are updated, and `start` is not sent again. Ranks that have not converged
        begin with `start` each time, as the method does.
        """
        arguments, last = self._arguments, self._result
        without_start = {name: value for name, value in arguments.items() if name not in STARTS}
        if last is not None and last.info.get("converged") and len(without_start) < len(arguments):
            result = self._asked(without_start)
            if result.info["converged"]:
                return result
            before = self._free
            # So that the workers do not go on from these ranks.
            self._keep()
            before()
        return self._asked(arguments)

    def _asked(self, arguments: Mapping[str, Any]) -> VertexValues:
        directory, checked = self._directory, partial(self._checked, arguments)
        first_name = 0 if self._history is None else self._history.next
        result: VertexValues = directory.read(
            partial(run_algorithm, directory.coordinator, self.name, checked, live=self._key, first_name=first_name)
        )
        return result

    def _checked(self, arguments: Mapping[str, Any], now: Numbering) -> dict[str, Any]:
        return ALGORITHMS[self.name].arguments(self._options.facts(now), arguments)

    def names(self) -> VertexValues:
        """Return the name of each vertex's community in the current graph: int64, on the workers. A read.

        A community keeps its name while most of its members stay together, and no name comes back. It is the column
        ``name`` of the result.

        Raises
        ------
        InvalidOption
            This is no result of communities.
        GraphClosed, Exception
            As `result`.
        """
        self._communities("names")
        return column_of(self.result()._remote, "name")

    def changes(self, since: int) -> CommunityChanges:
        """Return the changes of communities at the reads after epoch `since`, as tables of Arrow. Makes no call.

        Raises
        ------
        InvalidOption
            This is no result of communities, the history begins later, or there was no read at `since` or after it.
        MgraphError
            There is no pyarrow.

        Examples
        --------
        >>> live = g.maintain("leiden")  # doctest: +SKIP
        >>> before = live.epoch  # doctest: +SKIP
        >>> g.delete([2], [3])  # doctest: +SKIP
        >>> live.result()  # doctest: +SKIP
        >>> live.changes(since=before).communities.to_pandas()  # doctest: +SKIP
           epoch       event  name  other  before  after
        0      2      shrunk     0   <NA>       6      3
        1      2  split from     1      0       0      3
        """
        history = self._communities("changes")
        with self._lock:
            return history.since(since)

    def _communities(self, method: str) -> CommunityHistory:
        """Return the history. Raises `InvalidOption` if the result has none."""
        if self._history is None:
            names = " and ".join(repr(name) for name, algorithm in ALGORITHMS.items() if algorithm.memory is not None)
            raise InvalidOption(f"{method} is of communities, and {self.name} has none; maintain {names} have")
        return self._history

    @property
    def epoch(self) -> int:
        """The graph's epoch at the last update; makes no call."""
        return self._epoch

    @property
    def report(self) -> LiveReport:
        """The cost of the update at the last read."""
        return self._report

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return not self._free.alive

    def close(self) -> None:
        """Free the result's state on the workers, with the graph's next call.

        May be called twice. Results that were returned stay as long as you refer to them. Waits for a read of another
        thread.
        """
        with self._lock:
            self._free()
            self._result, self._arguments = None, {}

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<live {self.name}: epoch {self.epoch}, last read: {self._report.how}{state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a maintained result cannot be pickled, since it is on the workers; pickle result().to_numpy() instead"
        )


def _seen(directory: Directory) -> tuple[str, int]:
    """Return the graph and the number of its changes. Both begin anew after a recovery."""
    status = directory.coordinator.status
    return status.graph, status.changes


def maintain(self: Any, name: str, eager: bool = False, history: int = HISTORY, **arguments: Any) -> Live:
    """Compute a result now, and update it whenever it is read.

    Parameters
    ----------
    name : "bfs" | "connected_components" | "leiden" | "louvain" | "pagerank" | "sssp" | "triangles"
        The name of a method of the graph.
    eager : bool
        Update the result after each batch and each other change, so that reading it takes no time. `ingest` counts as
        one change. `stream`, `follow` and a pipeline then send a batch after the update for the batch before, so that
        no batches overlap. A failure is logged, and raised by the next read.
    history : int
        For "leiden" and "louvain", the number of last reads with changes that `Live.changes` keeps in this process; 1
        or more.
    **arguments
        Arguments of the method. As long as PageRank does not converge, each computation begins with `start`. Do not
        close a result that is `start`: a read would raise `GraphClosed`. After a `reorder`, its values are sent through
        this process each time.

    Returns
    -------
    Live
        Its ``result()`` is the method's result for the current graph; ``report`` has the cost; ``close()`` frees it.

    Raises
    ------
    InvalidOption
        Results of this name cannot be maintained, or `eager` is neither True nor False.
    Exception
        An error of the method.

    Notes
    -----
    The workers log the changes of batches, up to a quarter of the arcs and at most 4,194,304 arcs per worker: 9 bytes
    per arc, 17 with weights. A result is updated from this log. It is computed again if that takes less time, if more
    was changed, and after `rebalance`, `reorder` and `delete_vertices`. It equals the method's result; PageRank's is
    within its bound. Communities are updated by other rules: the guide has them. Several results may be maintained at
    once. `nbytes` counts their memory.

    After small batches a result is updated in undirected graphs, and in directed graphs with ``reverse=True``. A
    directed graph without it has no in-edges: after deletions components are computed again, and so are path lengths
    ("bfs", "sssp") after a shortest path was lost. PageRank is updated in all graphs as long as it converges.
    "triangles" needs an undirected graph.

    Examples
    --------
    >>> with g.maintain("connected_components") as live:  # doctest: +SKIP
    ...     g.insert([0, 3], [1, 4])
    ...     live.result().to_numpy(), live.report.how
    (array([0, 0, 2, 3, 3]), 'incremental')
    """
    names = sorted(name for name, algorithm in ALGORITHMS.items() if algorithm.maintain is not None)
    if not is_choice(name, names):
        listed = ", ".join(map(repr, names))
        raise InvalidOption(f"results of {name!r:.200} cannot be maintained, but those of {listed}{hint(name, names)}")
    with_each_change = check_flag(eager, "eager")
    if check_whole(history, "history") == 0:
        raise InvalidOption("history is 0; it must be 1 or more")

    # The first read computes the result.
    live = Live(self._directory, self._options, name, arguments, history)
    live.result()
    if with_each_change:
        self._updates.register(live)
    return live
