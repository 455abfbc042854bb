"""The one thread in which a shard does everything, beside the worker's event loop and never on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Protocol

from mgraph.errors import Aborted
from mgraph.runtime.protocol import answer, encode_error

__all__ = ["Call", "Servant", "ShardThread"]


class Servant(Protocol):
    """What a shard's thread drives; everything is called in that thread."""

    def call(self, method: str, attempt: int, args: dict[str, Any]) -> dict[str, Any]:
        """Run one call and return its answer."""

    def free(self, results: Iterable[str]) -> None:
        """Forget these results; unknown ones are no error."""

    def settle(self) -> dict[str, Any]:
        """Destroy the exchange of an aborted attempt; returns the shard's state."""

    def close(self) -> None:
        """Free everything; called once, last."""


@dataclass(frozen=True)
class Call:
    """One call of a session; `method` is None for the acknowledgement of an abort."""

    seq: int
    attempt: int
    method: str | None
    args: dict[str, Any] = field(default_factory=dict)
    free: tuple[str, ...] = ()


class ShardThread(threading.Thread):
    """Runs the calls of one session in the order given.

    Parameters
    ----------
    name : str
        The thread's name, for debuggers and for tests that look for leftovers.
    make : callable
        Makes the servant, in this thread; given `aborted`, which the servant's waits poll.
    post : callable
        Takes each answer, a message, from this thread.
    ended : callable
        Called last, when everything is freed.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Callable[[], bool]], Servant],
        post: Callable[[dict[str, Any]], None],
        ended: Callable[[], None],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._make, self._post, self._ended = make, post, ended
        self.servant: Servant | None = None
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._stopping = False
        self._attempt = 0
        self._aborted_attempt = -1

    # ---- from the event loop -----------------------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        """Queue a call."""
        self._calls.put(call)

    def abort(self, seq: int, attempt: int) -> None:
        """Release what waits in `attempt`; the acknowledgement queues behind the calls that this makes fail."""
        self._aborted_attempt = max(self._aborted_attempt, attempt)
        self._calls.put(Call(seq, attempt, None))

    def stop(self) -> None:
        """Release what waits, skip what is queued, free everything and end. Never waits."""
        self._stopping = True
        self._calls.put(None)

    # ---- in the thread -----------------------------------------------------------------------------------------------

    def aborted(self) -> bool:
        """Whether the running call should give up; cheap, and polled by every wait."""
        return self._stopping or self._attempt <= self._aborted_attempt

    def run(self) -> None:
        """Serve until stopped."""
        try:
            self.servant = self._make(self.aborted)
            self._serve(self.servant)
        finally:
            self._ended()

    def _serve(self, servant: Servant) -> None:
        try:
            while (call := self._calls.get()) is not None and not self._stopping:
                self._answer(servant, call)
                del call  # its arguments may be large, and the next call may be long in coming
        finally:
            servant.close()

    def _answer(self, servant: Servant, call: Call) -> None:
        try:
            for message in answer(call.seq, self._value(servant, call)):
                self._post(message)
        except BaseException as error:  # whatever it was, the client waits for it
            self._post({"type": "error", "seq": call.seq, "error": encode_error(error)})

    def _value(self, servant: Servant, call: Call) -> dict[str, Any]:
        servant.free(call.free)
        if call.method is None:
            return servant.settle()
        self._attempt = call.attempt
        if self.aborted():
            raise Aborted(f"call {call.seq} ({call.method}) came with attempt {call.attempt}, which was aborted")
        return servant.call(call.method, call.attempt, call.args)
