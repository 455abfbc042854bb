"""Calls of a graph in this process, serialized, each in its caller's thread."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from weakref import WeakSet

from mgraph.calls import CALLS, CallSize, Kind
from mgraph.client.calls.caller import Flight, GraphStatus, Value
from mgraph.errors import Aborted, GraphClosed, GraphLost, MgraphError
from mgraph.local.interrupts import Interrupts
from mgraph.local.session import LiveState, Session

__all__ = ["Coordinator"]

ADDRESS = "this process"  #: stands where other graphs have the addresses of workers
_ADDRESSES = (ADDRESS,)
_READ = Kind.READ
CLOSE_SECONDS = 5.0  #: for which `close` waits for a call of another thread


_OPEN: WeakSet[Coordinator] = WeakSet()  # of this process, for its children


class _Here:
    """Runner of the calls, for `Caller`."""

    alive = True


class Coordinator:
    """Executor of one graph's calls on its single shard.

    Calls of several threads run one after another. Ctrl-C stops a call between two supersteps, or before it votes on a
    change. The graph then stays at its last committed epoch. A forked child gets a copy of a graph on the CPU, unless a
    call was running; it cannot use a graph on a GPU.

    Parameters
    ----------
    graph : str
        The graph's id.

    Attributes
    ----------
    runner, client, groups, queued, lock
        As on a cluster. No batches share messages, and the graph has no other clients.
    status : GraphStatus
        Of the shard after the last call; replaced as a whole. A call is always answered, so nothing is unsettled.
    """

    status: GraphStatus
    runner, client, groups, queued = _Here(), None, False, 0
    lock: AbstractContextManager[None] = nullcontext()

    def __init__(self, graph: str) -> None:
        self.graph = graph
        self._interrupts = Interrupts()
        self._session: Session | None = Session(graph, self._interrupts.stopped)
        self._connected = False
        self._garbage = deque[str]()
        self._lost: str | None = None
        self._kept: Session | None = None
        self._lock, self._owner = threading.Lock(), 0
        self._live: LiveState | None = None
        self._note()
        _OPEN.add(self)

    def _note(self) -> None:
        """Replace the status after a change of the shard's state."""
        closed, session, live = self._interrupts.closed, self._session, self._live
        usable = not closed and self._lost is None
        if live is not None and usable:
            states, epoch, changes = live.states, live.shard.epoch, live.shard.changes
        else:
            states = self.status.states if session is None else [session.calls.state]
            epoch, changes = states[0].epoch, states[0].changes
        # In the order of `GraphStatus`, whose own constructor takes twice as long.
        status = self.graph, _ADDRESSES, True, 0, states, epoch, changes, closed, usable, False, ()
        self.status = tuple.__new__(GraphStatus, status)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        args: Value | None = None,
        shares: Sequence[Value] | None = None,
    ) -> list[Value]:
        """Run a call and return the shard's answer, in a list."""
        call, arguments = CALLS[name], {**(args or {}), **(shares[0] if shares else {})}
        # Lock the graph, unless this thread would wait for itself.
        lock = self._lock
        if not lock.acquire(False):
            self._check_thread()
            lock.acquire()
        try:
            self._owner = threading.get_ident()
            session = self._session
            if session is None or not self.status.usable:
                self.check()
                assert session is not None, "an open graph has a session"
            # A read changes nothing, so Ctrl-C may stop it anywhere.
            if call.kind is _READ and not self._garbage:
                return [session.ask(call.handler, arguments)]
            if call.exchange and not self._connected:
                self._connect(session)
                self._live = session.live()
            if call.epoch:
                arguments["epoch"] = self.status.epoch + 1
            return [self._change(session, call.handler, arguments)]
        finally:
            # Unlock the graph; if it was closed meanwhile, free it.
            self._owner = 0
            lock.release()
            if self._interrupts.closed:
                self._free()

    def _connect(self, session: Session) -> None:
        """Open the shard's exchange, once."""
        opened = self._change(session, "open_exchange", {"attempt": 0})
        self._change(session, "connect_exchange", {"addresses": [opened["address"]]})
        self._connected = True

    def _change(self, session: Session, handler: str, arguments: Value) -> Value:
        """Run a call that may change the shard, free collected results, and update the status.

        Ctrl-C waits until the change is committed or discarded.
        """
        free = [self._garbage.popleft() for _ in range(len(self._garbage))] if self._garbage else ()
        try:
            with self._interrupts:
                try:
                    return session.ask(handler, arguments, free)
                finally:
                    if (broken := session.broken) is not None:
                        self._lost = f"a change was interrupted while it was made ({broken})"
                    self._note()
        except Aborted as error:
            epoch = self.status.epoch
            raise GraphClosed(f"graph {self.graph} was closed while a call was running (epoch {epoch})") from error

    def launch(
        self,
        name: str,
        shares: Sequence[Value],
        sizes: Sequence[CallSize],
        room: Callable[[], Awaitable[None]],
        sent: Callable[[Flight, int], None],
    ) -> None:
        """Apply a batch of a pipeline at once. `sent` gets its flight, done on return."""
        _run(room())
        flight: Future[list[Value]] = Future()
        sent(flight, self.status.epoch + 1)
        try:
            flight.set_result(self.call(name, shares=shares))
        except Exception as error:
            flight.set_exception(error)
        except BaseException:
            flight.cancel()
            raise

    def post(self, small: Any) -> None:
        """Refuse small batches: `groups` is False."""
        raise AssertionError("a graph of this process sends no messages that batches could share")

    def land(self) -> None:
        """Nothing is in flight."""

    def recall(self) -> None:
        """Nothing is in flight."""

    def forget(self, result: str) -> None:
        """Queue a result to be freed with the next call. Safe in a finalizer."""
        self._garbage.append(result)

    def close(self) -> None:
        """Free the shard, after stopping a call of another thread. Idempotent."""
        self._interrupts.closed = True
        self._note()
        # Wait for a call of another thread; at worst that thread frees the shard.
        if self._owner != threading.get_ident():
            if not self._lock.acquire(timeout=CLOSE_SECONDS):
                return  # the call that runs frees it
            self._lock.release()
        self._free()

    # ---- lock --------------------------------------------------------------------------------------------------------

    def _check_thread(self) -> None:
        """Raise if the running call waits for the calling thread."""
        reads = threading.current_thread().name.startswith(f"mgraph-{self.graph}-")
        if reads or self._owner == threading.get_ident():
            raise MgraphError(
                f"graph {self.graph}: a call was made inside another call of the same graph, by a source function or a "
                "signal handler; it would wait for ever"
            )

    def forked(self) -> None:
        """Take over the copy of the graph in a child process."""
        # The parent's lock may be held by a thread that does not exist here.
        running, self._owner = self._owner, 0
        self._lock = threading.Lock()
        if running:
            self._lost = "this process was forked while a call was running"

        # A child cannot use its parent's CUDA context.
        if self._session is not None and self._session.device == "cuda":
            self._lost = "this process was forked, and a child cannot use its parent's GPU memory"
            self._kept = self._session  # its memory is the parent's
            self._session = None
        if self._session is not None:
            self._session.forked()
        self._note()

    def _free(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # ---- the graph ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise `GraphClosed` or `GraphLost` if no call is possible any more."""
        if self._interrupts.closed:
            raise GraphClosed(f"graph {self.graph} is closed (epoch {self.status.epoch})")
        if self._lost is not None:
            epoch = self.status.epoch
            raise GraphLost(
                f"graph {self.graph} was lost: {self._lost}; the last whole epoch is {epoch}; only close() works"
            )

    @property
    def reached(self) -> int:
        """The shard's current epoch, during a call too. Safe from other threads."""
        session = self._session
        return self.status.epoch if session is None else session.reached


def _take_over() -> None:
    """Take over the graphs of the parent in a child process."""
    for coordinator in list(_OPEN):
        coordinator.forked()


os.register_at_fork(after_in_child=_take_over)


def _run(work: Any) -> None:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("in a graph of this process nothing is in flight that could be waited for")
