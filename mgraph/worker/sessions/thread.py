"""The thread in which a shard does all its work, so that the worker's event loop is never blocked."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

from mgraph.device import Device
from mgraph.errors import Aborted
from mgraph.failures import encode_error
from mgraph.protocol import AFTER, Abort, Call, Failure, Message, Part, ShardState, answer_messages
from mgraph.shared import Shared, is_large
from mgraph.worker.sessions.inbox import Inbox

__all__ = ["Asked", "Counters", "Servant", "ShardThread"]

logger = logging.getLogger(__name__)

Post = Callable[[Message], None]


class Asked(NamedTuple):
    """A request, what is called in the thread with each message of its answer, and the memory shared with its client.

    Large arrays of the answer go through that memory.
    """

    request: Call | Abort
    post: Post
    shared: Shared | None = None


class Counters(NamedTuple):
    """What a shard has done; other threads may read it while a call runs.

    Attributes
    ----------
    epoch, edges, operations : int
        The epoch, the edges that the shard counts, and the different edges that its batches have named since the shard
        was made.
    seconds : float
        The time of the last batch, without waiting for other ranks.
    """

    epoch: int = 0
    edges: int = 0
    operations: int = 0
    seconds: float = 0.0


class Servant(Protocol):
    """What a shard's thread drives. Everything but `busy`, `counters` and `received` is called in that thread."""

    @property
    def state(self) -> ShardState:
        """The shard's current state. It must be cheap, since every answer carries it."""

    @property
    def busy(self) -> str | None:
        """The name of the user's function that runs now, or None. Read by the event loop."""

    @property
    def counters(self) -> Counters:
        """What the shard has done. Read by the event loop, while a call runs too."""

    def received(self) -> None:
        """Note that a call's arguments are in memory; called on the event loop."""

    def share(self, shared: Shared | None) -> None:
        """The next call's client shares this memory; its arguments may lie there, and arrays of a GPU may answer it."""

    def prefetch(self, call: Call | None) -> None:
        """Prepare for `call`, which comes after the one that is about to run; None if it is not known."""

    def find(self, method: str, attempt: int) -> Callable[..., dict[str, Any] | None]:
        """The function to run for a call of this name in this attempt: from the call's arguments to its answer."""

    def with_rank(self, error: BaseException) -> BaseException:
        """Return the error that the client gets, with the rank where it matters."""

    def free(self, results: Iterable[str]) -> None:
        """Free these results; unknown ones are ignored."""

    def settle(self) -> None:
        """Destroy the exchange of an aborted attempt."""

    def close(self) -> None:
        """Free everything. Called once, at the end."""


class ShardThread(threading.Thread):
    """A thread that runs the calls of a shard's session, in order; or of several sessions.

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
        The call that runs, or for an algorithm its name, and since when by `time.monotonic`.
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
        self._aborted_attempt = -1

    # ---- from the event loop -----------------------------------------------------------------------------------------

    @property
    def busy(self) -> str | None:
        """The name of the user's function that the servant runs now, or None."""
        return None if self._servant is None else self._servant.busy

    @property
    def counters(self) -> Counters:
        """What the shard has done so far, during a call too."""
        return Counters() if self._servant is None else self._servant.counters

    def received(self) -> None:
        """Note that a call's arguments are in memory: what was reserved for them is free."""
        if self._servant is not None:
            self._servant.received()

    def abort(self, attempt: int) -> None:
        """End the waits of an attempt. The acknowledgement is queued behind the calls that fail because of this."""
        self._aborted_attempt = max(self._aborted_attempt, attempt)

    def stop(self) -> None:
        """End all waits, skip queued calls, free everything and end the thread. Does not wait for it."""
        self._stopping = True
        self.requests.stop()

    # ---- in the thread -----------------------------------------------------------------------------------------------

    def aborted(self) -> bool:
        """Whether the running call should stop. It is cheap, since every wait polls it."""
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
        """The next request; the servant is told of the one after it, if that has come."""
        if (asked := self.requests.get()) is None:
            return None
        after = self.requests.peek()
        try:
            servant.prefetch(after.request if after is not None and isinstance(after.request, Call) else None)
        except Exception:  # nothing was asked for yet: the calls say what is wrong
            logger.exception("%s: the next call could not be made ready", self.name)
        return asked

    def _work(self, servant: Servant, asked: Asked) -> Callable[[], dict[str, Any] | None]:
        """The function that does what is requested."""
        request = asked.request
        if isinstance(request, Abort):
            late = request.attempt < self._latest  # by a client that was lost, and another has gone on
            return dict if late else partial(_settle, servant, self.name)
        servant.free(request.free)
        self._attempt, self._latest = request.attempt, max(self._latest, request.attempt)
        self.doing = str(request.args.get("name", request.method)), time.monotonic()
        if self.aborted():
            raise Aborted(f"{self.name}: {request.method} came with attempt {request.attempt}, which was aborted")
        servant.share(asked.shared)
        work = partial(servant.find(request.method, request.attempt), **request.args)
        request.args.clear()  # so that nothing refers to large arguments when the call is answered
        return work

    def _answer(self, servant: Servant, asked: Asked, value: dict[str, Any]) -> None:
        self.state = servant.state
        if (after := value.pop(AFTER, None)) is not None:
            after.add_done_callback(partial(self._answer_after, asked, value, self.state))
        else:
            self._post_all(asked, value, self.state)

    def _answer_after(self, asked: Asked, value: dict[str, Any], state: ShardState, after: Future[None]) -> None:
        """Answer a call when what it waits for has ended; the thread has gone on meanwhile."""
        if (error := after.exception()) is None:
            self._post_all(asked, value, state)
        else:
            asked.post(Failure(asked.request.seq, encode_error(error), state._replace(broken=str(error))))

    def _post_all(self, asked: Asked, value: dict[str, Any], state: ShardState) -> None:
        shared = asked.shared
        for message in answer_messages(asked.request.seq, value, state, is_large if shared else None):
            if shared and isinstance(message, Part):
                array = shared.put({"array": message.array}, wait=True)["array"]
                message = replace(message, array=array if isinstance(array, dict) else Device.to_host(array))
            asked.post(message)

    def _fail(self, servant: Servant, seq: int, post: Post, error: BaseException) -> None:
        told = encode_error(servant.with_rank(error))
        _forget_frames(error)
        self.state = servant.state
        post(Failure(seq, told, self.state))


def _forget_frames(error: BaseException | None) -> None:
    """Free what the frames refer to that an error has passed: arrays would stay until the collector runs."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def _settle(servant: Servant, name: str) -> None:
    """Settle the servant. Errors are logged only, since the client needs the shard's state in any case."""
    try:
        servant.settle()
    except Exception:
        logger.exception("%s: the exchange of an aborted attempt could not be destroyed", name)
