"""What makes the calls of one graph: over the sessions of a cluster's workers, or on a shard in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from mgraph.calls import CallSize
from mgraph.protocol import ShardState

__all__ = ["Alive", "Caller", "Flight", "GraphStatus", "Value"]

Value = dict[str, Any]


class Flight(Protocol):
    """A batch in flight, which ends with the ranks' answers: a future of `asyncio` or of `concurrent.futures`."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> object:
        """Call `function` with this object when the batch has ended."""

    def cancelled(self) -> bool:
        """Whether Ctrl-C dropped the batch."""

    def exception(self) -> BaseException | None:
        """Its error."""

    def result(self) -> list[Value]:
        """The ranks' answers."""


class Alive(Protocol):
    """What may end before the answer to a call comes."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""


class GraphStatus(NamedTuple):
    """What the client knows of a graph, as of now; it makes no call.

    Attributes
    ----------
    graph : str
        The graph's id, another one in each incarnation.
    addresses : tuple of str
        The workers, in rank order.
    one_process : bool
        True if all workers are in this process.
    incarnation : int
        How often the graph was opened again after a loss; see `mgraph.client.stores.recovery`.
    states : list of ShardState
        The last state of each rank; another list after each call.
    epoch : int
        The last epoch that every rank acknowledged.
    changes : int
        The number of changes of any kind, of content or of the ranges, that every rank acknowledged.
    closed : bool
        True if the user closed the graph.
    usable : bool
        True if calls are possible; if not, `Caller.check` says why, or recovers the graph.
    unsettled : bool
        True if the ranks may have changed without this client's knowing: after a Ctrl-C until the next call is
        answered, and from the loss of a rank on.
    silent : tuple of str
        The workers that are lost because they did not answer, and may still be there.
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
    """One graph's calls, in the same order on every rank. Several threads may use it; their calls take turns.

    `mgraph.client.calls.coordinator.Coordinator` documents each member.
    """

    @property
    def status(self) -> GraphStatus: ...  # noqa: D102

    @property
    def runner(self) -> Alive:
        """What runs the calls."""

    @property
    def client(self) -> Any:
        """The Dask client whose cluster holds the graph; None without one."""

    @property
    def groups(self) -> bool:
        """True if small batches of a pipeline share messages: `post` takes them."""

    @property
    def reached(self) -> int:
        """The epoch that all ranks have reached, as far as it is known now; during a call too."""

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

    def land(self) -> None: ...  # noqa: D102

    def recall(self) -> None: ...  # noqa: D102

    def check(self) -> None: ...  # noqa: D102

    def forget(self, result: str) -> None: ...  # noqa: D102

    def close(self) -> None: ...  # noqa: D102
