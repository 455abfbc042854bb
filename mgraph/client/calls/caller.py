"""Interface of a graph's calls: over the sessions of a cluster's workers, or on a shard in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from mgraph.batch import TOLD
from mgraph.calls import CallSize
from mgraph.protocol import ShardState

__all__ = ["UNKNOWN", "Alive", "Caller", "Flight", "GraphStatus", "Value", "unknown_counts"]

Value = dict[str, Any]

UNKNOWN = -1  #: each count of a committed change whose answers were lost


def unknown_counts(epoch: int) -> list[Value]:
    """Return the answer to a change that all ranks committed, and of which an answer was lost."""
    return [{"epoch": epoch, **dict.fromkeys(TOLD, UNKNOWN)}]


class Flight(Protocol):
    """A batch in flight: a future of the ranks' answers."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> object:
        """Call `function` with this object when the batch has ended."""

    def cancelled(self) -> bool:
        """Return True if Ctrl-C dropped the batch."""

    def exception(self) -> BaseException | None:
        """Return the batch's error, or None."""

    def result(self) -> list[Value]:
        """Return the ranks' answers."""


class Alive(Protocol):
    """An event loop or thread that may end during a call."""

    @property
    def alive(self) -> bool:
        """True while it runs."""

    @property
    def here(self) -> bool:
        """True in its own thread, where a call would wait for itself."""


class GraphStatus(NamedTuple):
    """The client's knowledge of a graph. Reading it makes no call.

    Attributes
    ----------
    graph : str
        The graph's id, another one in each incarnation.
    addresses : tuple of str
        The workers, in rank order.
    one_process : bool
        True if all workers are in this process.
    incarnation : int
        The number of times the graph was opened again after a loss.
    states : list of ShardState
        The last state of each rank. A graph on a CPU of this process has its present state.
    epoch : int
        The last epoch that every rank acknowledged.
    changes : int
        The number of changes of any kind, of content or of the ranges, that every rank acknowledged.
    closed : bool
        True if the user closed the graph.
    usable : bool
        True if calls are possible. If not, `Caller.check` raises the reason, or recovers the graph.
    unsettled : bool
        True if the ranks may have changes that this client does not know of: from a Ctrl-C to the answer of the next
        call, and after the loss of a rank.
    silent : tuple of str
        The workers that were lost because they did not answer, and may still run.
    """

    graph: str
    addresses: tuple[str, ...]
    one_process: bool
    incarnation: int
    states: list[ShardState]
    epoch: int
    changes: int
    closed: bool
    usable: bool
    unsettled: bool
    silent: tuple[str, ...] = ()


class Caller(Protocol):
    """Makes a graph's calls, in the same order on every rank.

    Calls of several threads take turns. `mgraph.client.calls.coordinator.Coordinator` documents each member.
    """

    @property
    def status(self) -> GraphStatus: ...  # noqa: D102

    @property
    def epoch(self) -> int:
        """The epoch of `status`, without its other values."""

    @property
    def states(self) -> Sequence[ShardState]:
        """The states of `status`, without its other values."""

    @property
    def settled(self) -> bool:
        """True if `status` is usable and not unsettled."""

    @property
    def one_process(self) -> bool:
        """True if all workers are in this process."""

    @property
    def runner(self) -> Alive:
        """The event loop or thread that runs the calls."""

    @property
    def client(self) -> Any:
        """The Dask client whose cluster holds the graph; None without one."""

    @property
    def groups(self) -> bool:
        """True if small batches of a pipeline share messages: `post` takes them."""

    @property
    def write_once(self) -> bool: ...  # noqa: D102

    @property
    def reached(self) -> int:
        """The epoch that all ranks have reached, even during a call."""

    @property
    def queued(self) -> int:
        """The number of batches that wait or are in flight."""

    @property
    def lock(self) -> AbstractContextManager[None]: ...  # noqa: D102

    def call(  # noqa: D102
        self, name: str, args: Value | None = None, shares: Sequence[Value] | None = None
    ) -> list[Value]: ...

    def launch(  # noqa: D102
        self,
        name: str,
        shares: Sequence[Value],
        sizes: Sequence[CallSize],
        room: Callable[[], Awaitable[None]],
        sent: Callable[..., None],
    ) -> None: ...

    def post(self, small: Any) -> None: ...  # noqa: D102

    def flush(self, wait: bool = True) -> None:
        """Apply the batches of `post` now if nothing else would before a call: in the user's process.

        Without `wait`, only if no other call runs; they are applied after it.
        """

    def land(self) -> None: ...  # noqa: D102

    def recall(self) -> bool:
        """Drop what is in flight and return True if no queued batch is left, which would be refused later."""

    def check(self) -> None: ...  # noqa: D102

    def forget(self, result: str) -> None: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102
