"""The session of a graph in this process: it runs each call on the one shard, in the thread that makes it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from mgraph.budget import Budget
from mgraph.device import Device
from mgraph.exchange import Exchange, Loopback
from mgraph.worker.calls import HANDLERS, Calls, Host

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

    Attributes
    ----------
    calls : Calls
        The rank, with the shard and its state.
    """

    def __init__(self, graph: str, stopped: Callable[[], bool]) -> None:
        host = Host(_open_exchange, len(os.sched_getaffinity(0)), Budget(), _itself)
        self.calls = Calls(graph, 0, 1, stopped, host)

    @property
    def device(self) -> str:
        """The kind of the shard's device: "cpu" or "cuda"."""
        return "cpu" if self.calls.device is None else self.calls.device.kind

    @property
    def reached(self) -> int:
        """The shard's epoch now, for another thread."""
        return self.calls.counters.epoch

    def ask(self, handler: str, args: dict[str, Any], free: Sequence[str] = ()) -> dict[str, Any]:
        """Return the answer to a call, or raise what it raises. Frees results first.

        A change that was stopped before it knew the outcome of its vote is not made: no other rank can have made it.
        """
        calls = self.calls
        if free:
            calls.free(free)
        device, function = calls.device, HANDLERS[handler]
        try:
            if device is not None and device.kind == "cpu":
                return function(calls, **args) or {}
            with self._on_device(args.get("device")):
                return function(calls, **args) or {}
        except BaseException as error:
            if calls.state.in_doubt:
                with self._on_device():
                    calls.ballot.resolve(calls.shard.changes)
            if (told := calls.with_rank(error)) is error:
                raise
            told.__suppress_context__ = True
            raise told  # noqa: B904

    def forked(self) -> None:
        """In a child process: leave to the parent what is only one's."""
        self.calls.forked()

    def close(self) -> None:
        """Free the shard."""
        with self._on_device():
            self.calls.close()

    def _on_device(self, wanted: str | None = None) -> AbstractContextManager[Any]:
        """Where calls run: on the shard's GPU and its default stream, whatever the calling thread uses meanwhile.

        `wanted` is the device of a shard that is to be made.
        """
        device = self.calls.device
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
