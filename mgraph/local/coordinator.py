"""Calls of a graph in this process, serialized, each in its caller's thread."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from time import perf_counter
from typing import Any
from weakref import WeakSet, finalize

from mgraph.calls import CALLS, CallSize, Kind
from mgraph.client.calls.batch_group import MOST, BatchGroup, SmallBatch, committed_counts, first_group
from mgraph.client.calls.caller import Flight, GraphStatus, Value
from mgraph.errors import Aborted, GraphClosed, GraphLost, MgraphError, StoreError
from mgraph.interrupts import Interrupts
from mgraph.local.closing import close_later
from mgraph.local.session import LiveState, Session

__all__ = ["Coordinator"]

ADDRESS = "this process"  #: the "address" of a graph in this process
_ADDRESSES = (ADDRESS,)
_READ = Kind.READ
_NOT_AHEAD = {"ahead": False}  # a group must be safe when its call returns
CLOSE_SECONDS = 5.0  #: wait of `close` for a call of another thread
ALONE_SECONDS = 1e-3  #: time after the last batch from which a small batch goes alone
SWEEP_SECONDS = 5e-3  #: wait of small batches for others, or twice that
FORK_SECONDS = 1.0  #: wait of a fork for small batches that another thread applies


_OPEN: WeakSet[Coordinator] = WeakSet()  # all coordinators of this process, to adapt them in forked children


class _AppliedBefore(Exception):
    """A signal handler has applied a group that was about to be sent."""


class _Here:
    """Runner of the calls, for `Caller`."""

    alive, here = True, False


class Coordinator:
    """Executor of one graph's calls on its single shard.

    Calls of several threads run one after another. Ctrl-C stops a call between two supersteps, or before it votes on a
    change. The graph then stays at its last committed epoch. A forked child gets a copy of a graph on the CPU, unless a
    call was running; it cannot use a graph on a GPU.

    Small batches of a pipeline wait for others, and share a call (`mgraph.client.calls.batch_group`).

    Parameters
    ----------
    graph : str
        The graph's id.

    Attributes
    ----------
    runner, client, groups, write_once, lock, one_process
        As on a cluster. The graph has no other clients and a single rank.
    status : GraphStatus
        Of the shard after the last call; replaced as a whole. A call is always answered, so nothing is unsettled unless
        the graph is lost. A usable graph is `settled`.
    """

    status: GraphStatus
    epoch = property(attrgetter("status.epoch"))
    states = property(attrgetter("status.states"))
    settled = property(attrgetter("status.usable"))
    runner, client, groups, write_once, one_process = _Here(), None, True, False, True
    lock: AbstractContextManager[None] = nullcontext()

    def __init__(self, graph: str) -> None:
        self.graph = graph
        self._interrupts = Interrupts()
        self._session: Session | None = Session(graph, self._interrupts.stopped)
        self._dropped = finalize(self, close_later, self._session)
        self._dropped.atexit = False
        self._connected = False
        self._garbage = deque[str]()
        self._lost: str | None = None
        self._kept: Session | None = None
        # `_owner` is a hint: Ctrl-C may keep it from being reset.
        self._lock, self._owner = threading.RLock(), 0
        self._live: LiveState | None = None
        # Small batches that wait, the order in which pipelines' batches are applied, and the time of the last one.
        self._waiting, self._order, self._posted = deque[SmallBatch](), threading.RLock(), 0.0
        self._leaving = 0  # batches of the group that is being applied
        self._sweeping = False  # True while a thread applies batches that wait for long
        self._note()
        _OPEN.add(self)

    def _note(self) -> None:
        """Replace the status after a change of the shard's state."""
        closed, lost, live, session = self._interrupts.closed, self._lost is not None, self._live, self._session
        usable = not (closed or lost)
        now: Any
        if live is not None and usable:
            states, now = live.states, live.shard
        else:
            states = self.status.states if session is None else [session.calls.state]
            now = states[0]
        # In the order of `GraphStatus`, whose own constructor takes twice as long.
        status = self.graph, _ADDRESSES, True, 0, states, now.epoch, now.changes, closed, usable, lost, ()
        self.status = tuple.__new__(GraphStatus, status)

    # ---- calls -------------------------------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        args: Value | None = None,
        shares: Sequence[Value] | None = None,
        sent: Callable[[int], None] | None = None,
    ) -> list[Value]:
        """Run a call and return the shard's answer, in a list. Small batches that wait come first.

        `sent` is for batches of pipelines: it gets the epoch before the call begins, and no others come first.
        """
        if self._waiting and sent is None:
            self.flush()
        call, arguments = CALLS[name], {**(args or {}), **(shares[0] if shares else {})}
        # Lock the graph, unless this thread has it.
        if self._owner or self._lock._is_owned():  # type: ignore[attr-defined]
            self._check_thread()
        try:
            with self._lock:
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
                        arguments["epoch"] = epoch = self.status.epoch + 1
                        if sent is not None:
                            sent(epoch)
                    return [self._change(session, call.handler, arguments)]
                finally:
                    self._owner = 0
        finally:
            # The graph was closed meanwhile.
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
                except StoreError as error:
                    if error.undecided and self._interrupts.stopped():  # Ctrl-C takes the place of this error
                        self._lost = f"a change was interrupted: {error}"
                    raise
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
        """Apply a batch of a pipeline, after those that wait. `sent` gets its flight, done on return."""
        with self._order:
            self.flush()
            self._launch(name, shares, room, sent)

    def _launch(
        self,
        name: str,
        shares: Sequence[Value],
        room: Callable[[], Awaitable[None]],
        sent: Callable[[Flight, int], None],
        group: BatchGroup | None = None,
    ) -> None:
        """Apply a batch, or a group. Exceptions before it was `sent` are raised; others are those of its flight."""
        _run(room())
        flight, begun = Future[list[Value]](), list[int]()

        def begin(epoch: int) -> None:
            sent(flight, epoch)
            begun.append(epoch)

        try:
            answers = self.call(name, None if group is None else _NOT_AHEAD, shares, begin)
        except BaseException as error:
            if not begun:
                raise
            if group is not None:
                group.done = committed_counts([error])
            if not isinstance(error, Exception):
                flight.cancel()
                raise
            flight.set_exception(error)
        else:
            flight.set_result(answers)

    def post(self, small: SmallBatch) -> None:
        """Take a small batch. It is applied at once if none came just before, otherwise with others, soon.

        Those that wait are applied when there are `MOST`, before any other call, or after `SWEEP_SECONDS`.
        """
        self._check_thread()
        self._waiting.append(small)
        before, self._posted = self._posted, perf_counter()
        alone = self._posted - before > ALONE_SECONDS
        if not alone and not self._sweeping:
            try:
                self._sweeping = True
                threading.Thread(target=self._sweep, name="mgraph-sweep").start()
            except RuntimeError:  # no more threads
                self._sweeping, alone = False, True
            except BaseException:  # Ctrl-C; a second thread does no harm
                self._sweeping = False
                raise
        if alone or len(self._waiting) >= MOST:
            self.flush()

    def flush(self, wait: bool = True) -> None:
        """Apply the small batches that wait.

        Without `wait`, leave them to the sweeping thread if a call runs.
        """
        if not self._waiting:
            return
        self._check_thread()
        if wait or not self._owner:
            self._apply()

    def _apply(self) -> None:
        """Apply the small batches that wait. On return no other thread applies any."""
        with self._order:
            while self._waiting:
                self._apply_group()

    def _apply_group(self) -> None:
        """Apply the first batches of the queue, or refuse them if their pipeline has ended or the graph is closed.

        Ctrl-C before they are sent drops them.
        """
        try:
            group = first_group(self._waiting)
        except IndexError:  # a signal handler has emptied the queue
            return
        sender = group.items[0].sender

        def sent(flight: Flight, epoch: int) -> None:
            if not (self._waiting and self._waiting[0] is group.items[0]):
                raise _AppliedBefore
            self._leaving = len(group.items)
            self._remove(group)
            sender.group_sent(group, flight, epoch)

        try:
            self._launch("updates", group.shares(), sender.room(group.nbytes), sent, group)
        except _AppliedBefore:
            pass
        except BaseException as error:
            self._remove(group)
            sender.group_refused(group, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._leaving = 0

    def _remove(self, group: BatchGroup) -> None:
        """Remove those of a group's batches that the queue still has."""
        for item in group.items:
            if self._waiting and self._waiting[0] is item:
                self._waiting.popleft()

    def _sweep(self) -> None:
        """Apply batches that wait for long, in a thread that ends when none do."""
        try:
            while True:
                with self._order:
                    first = self._waiting[0] if self._waiting else None
                time.sleep(SWEEP_SECONDS)
                with self._order:
                    if self._waiting and self._waiting[0] is first:
                        self.flush()
                self._sweeping = False
                # A batch that came before the line above started no other thread.
                if not self._waiting:
                    return
                self._sweeping = True
        except BaseException:
            # The next batch starts another thread.
            self._sweeping = False
            raise

    @property
    def queued(self) -> int:
        """The number of small batches that wait or are being applied."""
        return len(self._waiting) + self._leaving

    def land(self) -> None:
        """Apply the small batches that wait, and wait for those that another thread applies."""
        self._check_thread()
        self._apply()

    def recall(self) -> bool:
        """Refuse the small batches that wait, and wait for those that another thread applies. Returns True."""
        self.land()
        return True

    def forget(self, result: str) -> None:
        """Queue a result to be freed with the next call. Safe in a finalizer."""
        self._garbage.append(result)

    def close(self) -> None:
        """Free the shard, after stopping a call of another thread. Idempotent."""
        self._interrupts.closed = True
        self._note()
        # Wait for a call of another thread. A call that a signal handler interrupted frees the shard at its end.
        if self._lock._is_owned() or not self._lock.acquire(timeout=CLOSE_SECONDS):  # type: ignore[attr-defined]
            return
        self._lock.release()
        self.flush()  # refuses the waiting batches
        self._free()

    # ---- lock --------------------------------------------------------------------------------------------------------

    def _check_thread(self) -> None:
        """Raise if the running call waits for the calling thread."""
        inside = self._lock._is_owned()  # type: ignore[attr-defined]
        if inside or (self._owner and threading.current_thread().name.startswith(f"mgraph-{self.graph}-")):
            raise MgraphError(
                f"graph {self.graph}: a call was made inside another call of the same graph, by a source function or a "
                "signal handler; it would wait for ever"
            )

    def forked(self) -> None:
        """Take over the copy of the graph in a child process."""
        # The parent's lock may be held by a thread that does not exist here.
        running = self._lock._is_owned() or not self._lock.acquire(False)  # type: ignore[attr-defined]
        self._owner = self._leaving = 0
        self._lock, self._order, self._sweeping = threading.RLock(), threading.RLock(), False
        if running:
            self._lost = "this process was forked while a call was running"

        # A child cannot use its parent's CUDA context.
        if self._session is not None and self._session.device == "cuda":
            self._lost = "this process was forked, and a child cannot use its parent's GPU memory"
            self._kept = self._session  # its memory is the parent's
            self._dropped.detach()
            self._session = None
        if self._session is not None:
            self._session.forked()
        self._note()

    def _free(self) -> None:
        """Free the shard, unless a call runs, which frees it at its end."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._note()  # a call may have noted the status of before `close`
            session, self._session = self._session, None
            self._dropped.detach()
            if session is not None:
                session.close()
        finally:
            self._lock.release()

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


class _Held(threading.local):
    """The locks that this thread holds while it forks, so that no other thread applies small batches meanwhile."""

    def __init__(self) -> None:
        self.locks: list[Any] = []


_HELD = _Held()


def _open() -> list[Coordinator]:
    while True:
        try:
            return list(_OPEN)
        except RuntimeError:  # another thread makes a graph
            continue


def _hold() -> None:
    """Wait until no other thread applies small batches: a child would find its graph in the middle of a call."""
    for coordinator in _open():
        if (order := coordinator._order).acquire(timeout=FORK_SECONDS):
            _HELD.locks.append(order)


def _let_go() -> None:
    while _HELD.locks:
        _HELD.locks.pop().release()


def _take_over() -> None:
    """Take over the graphs of the parent in a child process."""
    _let_go()
    for coordinator in list(_OPEN):
        coordinator.forked()


os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_take_over)


def _run(work: Any) -> None:
    """Run a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("in a graph of this process nothing is in flight that could be waited for")
