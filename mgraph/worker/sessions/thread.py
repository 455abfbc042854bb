"""Thread of a shard's work, so that the worker's event loop is never blocked."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, Protocol

from mgraph import protocol
from mgraph.budget import FRESH_SECONDS
from mgraph.calls import CALLS
from mgraph.device import Device
from mgraph.errors import Aborted
from mgraph.failures import encode_error
from mgraph.metrics import BATCH_SECONDS
from mgraph.protocol import AFTER, Abort, Call, Failure, Message, Part, Result, ShardState, answer_messages
from mgraph.shared import LARGE, Shared, is_large
from mgraph.worker.sessions.inbox import Inbox

__all__ = ["Asked", "Servant", "ShardThread"]

logger = logging.getLogger(__name__)

WHOLE = 16 << 20  #: most bytes of an answer that the client reads in shared memory; larger ones are copied in pieces

_NUMBERS = frozenset((int, float, bool))
_READS = frozenset(call.handler for call in CALLS.values() if call.rows)  # calls that leave the shard's state as it is

Post = Callable[[Message], None]


class Asked(NamedTuple):
    """Request, callback for each message of its answer, and memory shared with its client.

    With `whole`, the client reads the large arrays of an answer in that memory, if there are at most `WHOLE` bytes.
    """

    request: Call | Abort
    post: Post
    shared: Shared | None = None
    whole: bool = False


class Servant(Protocol):
    """Protocol of a thread's shard. All but `busy`, `live`, `batch_times`, `copy_of` and `received` run in it."""

    @property
    def state(self) -> ShardState:
        """The shard's current state. It must be cheap, since every answer carries it."""

    @property
    def busy(self) -> str | None:
        """The name of the running user function, or None. Read by the event loop."""

    def live(self, state: ShardState) -> ShardState:
        """Return `state`, that of the last answer, with the counters as they are now, during a call too."""

    @property
    def batch_times(self) -> list[int]:
        """The histogram of the batches' times. Read by the event loop."""

    @property
    def copy_of(self) -> str:
        """The id of the graph that this one is a copy of; empty if it is no copy. Read by the event loop."""

    def received(self) -> None:
        """Note that a call's arguments are in memory. Called on the event loop."""

    def share(self, shared: Shared | None) -> None:
        """Set the memory shared with the next call's client, for arguments and answer."""

    def prefetch(self, call: Call | None) -> None:
        """Prefetch for `call`, the second next one; None if it is unknown."""

    def find(self, method: str, attempt: int) -> Callable[..., dict[str, Any] | None]:
        """Return the handler of a call in this attempt."""

    def with_rank(self, error: BaseException) -> BaseException:
        """Return an error for the client, with the rank if it matters."""

    def free(self, results: Iterable[str]) -> None:
        """Free these results; unknown ids are ignored."""

    def settle(self) -> None:
        """Destroy the exchange of an aborted attempt."""

    def close(self) -> None:
        """Free everything. Called once, at the end."""


class ShardThread(threading.Thread):
    """Thread that runs the calls of a shard's sessions, in order.

    Parameters
    ----------
    name : str
        The thread's name, for debuggers and for tests that look for threads left behind.
    make : callable
        ``make(aborted)`` makes the servant, in this thread. The servant's waits poll `aborted`.
    ended : callable
        Called last, after everything is freed.

    Attributes
    ----------
    requests : Inbox
    state : ShardState
        The shard's state at its last answer; replaced as a whole, so that other threads can read it.
    doing : (str, float) or None
        The running call, or for an algorithm its name, and its start by `time.monotonic`.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Callable[[], bool]], Servant],
        ended: Callable[[], None],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._make, self._ended = make, ended
        self.state = ShardState()
        self.doing: tuple[str, float] | None = None
        self._servant: Servant | None = None
        self.requests: Inbox[Asked] = Inbox()
        self._stopping = False
        self._attempt = self._latest = 0
        # True during a read whose answer repeats `state`; the time until which reads may repeat it, now and next.
        self._reads, self._fresh, self._until = False, 0.0, 0.0
        self._aborted_attempt = -1

    # ---- from the event loop -----------------------------------------------------------------------------------------

    @property
    def busy(self) -> str | None:
        """The name of the running user function, or None."""
        return None if self._servant is None else self._servant.busy

    @property
    def live(self) -> ShardState:
        """The state of the last answer with the counters as they are now, during a call too."""
        return self.state if self._servant is None else self._servant.live(self.state)

    @property
    def batch_times(self) -> list[int]:
        """The histogram of the batches' times: a count for each of `BATCH_SECONDS`, and one for longer ones."""
        return [0] * (len(BATCH_SECONDS) + 1) if self._servant is None else self._servant.batch_times

    @property
    def copy_of(self) -> str:
        """The id of the graph that the shard's is a copy of; empty if it is no copy."""
        return "" if self._servant is None else self._servant.copy_of

    def received(self) -> None:
        """Release the memory reserved for a call's arguments, now received."""
        if self._servant is not None:
            self._servant.received()

    def abort(self, attempt: int) -> None:
        """End the waits of an attempt. The acknowledgement is queued behind its failing calls."""
        self._aborted_attempt = max(self._aborted_attempt, attempt)

    def stop(self) -> None:
        """End all waits, skip queued calls, free everything and end the thread. Does not wait."""
        self._stopping = True
        self.requests.stop()

    # ---- in the thread -----------------------------------------------------------------------------------------------

    def aborted(self) -> bool:
        """Return True if the running call must stop. Cheap, since every wait polls it."""
        return self._stopping or self._attempt <= self._aborted_attempt

    def run(self) -> None:
        """Serve until stopped."""
        try:
            servant = self._servant = self._make(self.aborted)
            with closing(servant):
                while (asked := self._next(servant)) is not None and not self._stopping:
                    try:
                        self._answer(servant, asked, self._work(servant, asked)() or {})
                    except BaseException as error:  # any error is an answer that the client waits for
                        self._fail(servant, asked.request.seq, asked.post, error)
                    self.doing = None
                    del asked  # it may be long until the next call
        finally:
            self.requests.close()
            self._ended()

    def _next(self, servant: Servant) -> Asked | None:
        """Return the next request, after the servant has seen the one behind it."""
        if (asked := self.requests.get()) is None:
            return None
        after = self.requests.peek()
        try:
            servant.prefetch(after.request if after is not None and isinstance(after.request, Call) else None)
        except Exception:  # the call itself will raise the error
            logger.exception("%s: the next call could not be made ready", self.name)
        return asked

    def _work(self, servant: Servant, asked: Asked) -> Callable[[], dict[str, Any] | None]:
        """Return the function that executes a request."""
        request, self._reads, self._until = asked.request, False, 0.0
        if isinstance(request, Abort):
            late = request.attempt < self._latest  # the client was lost, and another one continues
            return dict if late else partial(_settle, servant, self.name)
        # Free results, and begin the attempt.
        if request.free:
            servant.free(request.free)
        self._attempt = request.attempt
        if self._attempt > self._latest:
            self._latest = self._attempt
        method, now = request.method, time.monotonic()
        self.doing = str(request.args.get("name", method)), now
        self._reads = method in _READS and not request.free and now < self._fresh
        if not self._reads:
            self._until, self._fresh = now + FRESH_SECONDS, 0.0  # `_fresh` stays 0 if the call fails
        if self.aborted():
            raise Aborted(f"{self.name}: {method} came with attempt {request.attempt}, which was aborted")
        servant.share(asked.shared)
        work = partial(servant.find(method, request.attempt), **request.args)
        request.args.clear()  # frees large arguments before the answer
        return work

    def _answer(self, servant: Servant, asked: Asked, value: dict[str, Any]) -> None:
        """Answer a call now, or after the future in its answer."""
        if not self._reads:
            self.state, self._fresh = servant.state, self._until
        if (after := value.pop(AFTER, None)) is not None:
            after.add_done_callback(partial(self._answer_after, asked, value, self.state))
        else:
            self._post_all(asked, value, self.state)

    def _answer_after(self, asked: Asked, value: dict[str, Any], state: ShardState, after: Future[None]) -> None:
        """Answer a call after its future has ended; the thread continues meanwhile."""
        if (error := after.exception()) is None:
            try:
                self._post_all(asked, value, state)
            except BaseException as problem:  # a future only logs it, and the client waits
                asked.post(Failure(asked.request.seq, encode_error(problem), state))
        else:
            asked.post(Failure(asked.request.seq, encode_error(error), state._replace(broken=str(error))))

    def _post_all(self, asked: Asked, value: dict[str, Any], state: ShardState) -> None:
        """Post the messages of an answer, with large arrays in shared memory."""
        shared = asked.shared
        # Most answers are numbers or small arrays.
        least = LARGE if shared else protocol.PART_BYTES + 1
        numbers = _NUMBERS.issuperset(map(type, value.values()))
        if numbers or all(getattr(item, "nbytes", 0) < least for item in value.values()):
            asked.post(tuple.__new__(Result, (asked.request.seq, value, state, ())))
            return
        if shared and asked.whole and sum(array.nbytes for array in value.values() if is_large(array)) <= WHOLE:
            value = shared.put(value, wait=True)
        for message in answer_messages(asked.request.seq, value, state, is_large if shared else None):
            if shared and isinstance(message, Part):
                array = shared.put({"array": message.array}, wait=True)["array"]
                message = message._replace(array=array if isinstance(array, dict) else Device.to_host(array))
            asked.post(message)

    def _fail(self, servant: Servant, seq: int, post: Post, error: BaseException) -> None:
        """Answer a call with an error."""
        data = encode_error(servant.with_rank(error))
        _forget_frames(error)
        self.state = servant.state
        post(Failure(seq, data, self.state))


def _forget_frames(error: BaseException | None) -> None:
    """Clear the frames of an error: they would keep arrays alive until a garbage collection."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def _settle(servant: Servant, name: str) -> None:
    """Settle the servant. Errors are only logged, since the client needs the shard's state in any case."""
    try:
        servant.settle()
    except Exception:
        logger.exception("%s: the exchange of an aborted attempt could not be destroyed", name)
