"""What makes the calls of one graph: over the sessions of a cluster's workers, or on a shard in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from mgraph.calls import CallSize
from mgraph.protocol import ShardState

__all__ = ["Alive", "Caller", "Flight", "Value"]

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


class Caller(Protocol):
    """One graph's calls, in the same order on every rank. Several threads may use it; their calls take turns.

    `mgraph.client.calls.coordinator.Coordinator` documents each member.
    """

    @property
    def graph(self) -> str: ...  # noqa: D102

    @property
    def addresses(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def one_process(self) -> bool: ...  # noqa: D102

    @property
    def bridge(self) -> Alive:
        """What runs the calls."""

    @property
    def client(self) -> Any:
        """The Dask client whose cluster holds the graph; None without one."""

    @property
    def groups(self) -> bool:
        """True if small batches of a pipeline share messages: `post` takes them."""

    @property
    def closed(self) -> bool: ...  # noqa: D102

    @property
    def epoch(self) -> int: ...  # noqa: D102

    @property
    def changes(self) -> int: ...  # noqa: D102

    @property
    def unsettled(self) -> bool: ...  # noqa: D102

    @property
    def silent(self) -> Sequence[str]: ...  # noqa: D102

    @property
    def life(self) -> int:
        """How often the graph was opened again after a loss; see `mgraph.client.stores.recovery`."""

    @property
    def states(self) -> list[ShardState]: ...  # noqa: D102

    @property
    def reached(self) -> int:
        """The epoch that all ranks have reached, as far as it is known now; during a call too."""

    def turn(self) -> AbstractContextManager[None]: ...  # noqa: D102

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
