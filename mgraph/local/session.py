"""Session of a graph in this process, run in the caller's thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import Any
from weakref import WeakValueDictionary

from mgraph.budget import Budget
from mgraph.device import Device
from mgraph.exchange import Exchange, Loopback
from mgraph.protocol import ShardState
from mgraph.worker.calls import HANDLERS, Calls, Host

__all__ = ["Session"]

_NOWHERE = nullcontext()
_ranks: WeakValueDictionary[str, Calls] = WeakValueDictionary()  # the graphs in this process, by id


class LiveState:
    """The state of a shard in this process, with the attributes of `ShardState`, as they are when they are read.

    Attributes
    ----------
    shard : Shard
    states : list of LiveState
        This alone, as the states of a graph's only rank.
    """

    def __init__(self, rank: Calls) -> None:
        self._rank, self.shard = rank, rank.shard
        self.states: list[Any] = [self]

    generation, lo, hi = (property(attrgetter(f"shard.{name}")) for name in ("generation", "lo", "hi"))
    edges = property(attrgetter("shard.num_edges"))


for _name in set(ShardState._fields) - set(vars(LiveState)):  # a `__getattr__` would make all attributes slow
    setattr(LiveState, _name, property(attrgetter(f"_rank.state.{_name}")))


class Session:
    """Calls on the single shard, as in a worker's session. Not thread-safe.

    Parameters
    ----------
    graph : str
        The graph's id.
    stopped : callable
        Returns True if the running call must stop; its exchange polls it.

    Attributes
    ----------
    calls : Calls
        The rank, with the shard and its state.
    """

    def __init__(self, graph: str, stopped: Callable[[], bool]) -> None:
        threads = len(os.sched_getaffinity(0))
        host = Host(
            _open_exchange, threads, Budget(), _itself, rank_of=lambda graph, number: _ranks.get(graph),
            thread_per_rank=False,
        )  # fmt: skip
        self.calls = _ranks[graph] = Calls(graph, 0, 1, stopped, host)

    @property
    def device(self) -> str:
        """The kind of the shard's device: "cpu" or "cuda"."""
        return "cpu" if self.calls.device is None else self.calls.device.kind

    @property
    def broken(self) -> str | None:
        """Why a commit failed; None if none has."""
        return None if self.calls._ballot is None else self.calls._ballot.broken

    def live(self) -> LiveState | None:
        """Return the shard's state as it is whenever it is read; None on a GPU, whose memory a child cannot read."""
        return LiveState(self.calls) if self.device == "cpu" else None

    @property
    def reached(self) -> int:
        """The shard's current epoch, for other threads."""
        return self.calls.live(ShardState()).epoch

    def ask(self, handler: str, args: dict[str, Any], free: Sequence[str] = ()) -> dict[str, Any]:
        """Free the results `free`, then run a call and return its answer.

        A change that was stopped before its ballot was decided is discarded: with a single rank, no other can have
        committed.
        """
        calls = self.calls
        if free:
            calls.free(free)
        device, function = calls.device, HANDLERS[handler]
        # On the CPU no device is selected.
        try:
            if device is not None and device.kind == "cpu":
                return function(calls, **args) or {}
            with self._on_device(args.get("device")):
                return function(calls, **args) or {}
        except BaseException as error:
            # Settle a change that was stopped during its ballot.
            if calls.state.in_doubt:
                with self._on_device():
                    calls.ballot.resolve(calls.shard.changes)
            if (described := calls.with_rank(error)) is error:
                raise
            described.__suppress_context__ = True
            raise described  # noqa: B904

    def forked(self) -> None:
        """Detach from the parent's resources in a child process."""
        self.calls.forked()

    def close(self) -> None:
        """Free the shard."""
        with self._on_device():
            self.calls.close()

    def _on_device(self, wanted: str | None = None) -> AbstractContextManager[Any]:
        """Return a context that selects the shard's device.

        `wanted` is the device of a shard that does not exist yet.
        """
        device = self.calls.device
        if device is None and wanted == "cuda":
            device = Device(wanted)
        return _NOWHERE if device is None else device.selected()


def _open_exchange(name: str, rank: int, size: int, attempt: int, device: Any, aborted: Callable[[], bool]) -> Exchange:
    return Loopback(aborted)


def _itself(data: Any) -> Any:
    """Return a key as its own value, without a registry."""
    return data
