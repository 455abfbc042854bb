"""The session of a graph in this process: it runs each call on the one shard, in the thread that makes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from mgraph.budget import Budget
from mgraph.device import Device
from mgraph.exchange import Exchange, Loopback
from mgraph.protocol import ShardState
from mgraph.worker.calls import Calls, Host

__all__ = ["Session"]

_NOWHERE = nullcontext()


class Session:
    """One shard, which runs the calls that a worker's session has messages for. One thread at a time uses it.

    Parameters
    ----------
    graph : str
        The graph's id.
    stopped : callable
        Whether the running call is to stop; its exchange polls it.
    """

    def __init__(self, graph: str, stopped: Callable[[], bool]) -> None:
        host = Host(_open_exchange, len(os.sched_getaffinity(0)), Budget(), _itself)
        self._calls = Calls(graph, 0, 1, stopped, host)

    @property
    def device(self) -> str:
        """The kind of the shard's device: "cpu" or "cuda"."""
        return "cpu" if self._calls.device is None else self._calls.device.kind

    @property
    def state(self) -> ShardState:
        """The shard's state now."""
        return self._calls.state

    @property
    def reached(self) -> int:
        """The shard's epoch now, for another thread."""
        return self._calls.counters.epoch

    def ask(self, method: str, args: dict[str, Any], free: Sequence[str] = ()) -> dict[str, Any]:
        """The answer to a call; raises what the call raises. Frees results first.

        A change that was stopped before it knew the outcome of its vote is not made: no other rank can have made it.
        """
        calls = self._calls
        if free:
            calls.free(free)
        device, function = calls.device, calls.find(method, 0)
        try:
            if device is not None and device.kind == "cpu":
                return function(**args) or {}
            with self._on_device(args.get("device")):
                return function(**args) or {}
        except BaseException as error:
            if calls.state.in_doubt:
                with self._on_device():
                    calls.ballot.resolve(calls.shard.changes)
            if (told := calls.told(error)) is error:
                raise
            told.__suppress_context__ = True
            raise told  # noqa: B904

    def forked(self) -> None:
        """In a child process: leave to the parent what is only one's."""
        self._calls.forked()

    def close(self) -> None:
        """Free the shard."""
        with self._on_device():
            self._calls.close()

    def _on_device(self, wanted: str | None = None) -> AbstractContextManager[Any]:
        """Where calls run: on the shard's GPU and its default stream, whatever the calling thread uses meanwhile.

        `wanted` is the device of a shard that is to be made.
        """
        device = self._calls.device
        if device is None and wanted == "cuda":
            device = Device(wanted)
        if device is None or device.kind == "cpu":
            return _NOWHERE
        cuda = device.xp.cuda
        if cuda.runtime.getDevice() == device.index and cuda.get_current_stream().ptr == cuda.Stream.null.ptr:
            return _NOWHERE  # it is so already
        stack = ExitStack()
        stack.enter_context(device.xp.cuda.Device(device.index))
        stack.enter_context(device.xp.cuda.Stream.null)
        return stack


def _open_exchange(name: str, rank: int, size: int, attempt: int, device: Any, aborted: Callable[[], bool]) -> Exchange:
    return Loopback(aborted)


def _itself(data: Any) -> Any:
    """What a worker finds by a key is in this process the key itself."""
    return data
