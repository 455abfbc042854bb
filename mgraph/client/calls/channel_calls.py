"""Calls from a user's thread by channels, without the event loop."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence, Sized
from itertools import compress
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Any

import numpy as np

from mgraph.calls import RemoteCall
from mgraph.channel import Bell, pack, poll_awake
from mgraph.client.calls.admission import SMALL
from mgraph.client.calls.caller import Value
from mgraph.client.calls.exchange_lifecycle import ExchangeLifecycle
from mgraph.client.calls.loop_runner import POLL_SECONDS, STOP_SECONDS, STOPPED, LoopRunner
from mgraph.client.calls.send_lock import SendLock
from mgraph.client.connections.answers import ChannelAnswer
from mgraph.client.connections.local_memory import large_bytes
from mgraph.client.connections.session import Session
from mgraph.client.connections.sessions import Sessions
from mgraph.interrupts import DeferredCtrlC
from mgraph.parallel_copy import copied
from mgraph.protocol import ABORT_SECONDS, Answer, Call
from mgraph.shared import LARGE, LEAST, is_large

__all__ = ["ChannelCalls"]

_VALUE, _VIEWED, _OUTCOME = map(attrgetter, ("value", "viewed", "outcome"))


class ChannelCalls:
    """Makes a graph's calls by channels if possible.

    Failures are left to the event loop. A call goes by channels if every rank has one, no other call is under way, and
    the ranks' messages are small beside the arrays that lie in shared memory. So the ranks run calls in one order,
    whichever way these came.

    Parameters
    ----------
    runner : LoopRunner
    sessions : Sessions
    exchange : ExchangeLifecycle
    lock : SendLock
        The lock that is held during a call.
    flying, queue : sized
        The batches in flight, and the batches of the queue.
    may_call : callable
        Returns False if another client may call the graph.
    """

    def __init__(
        self,
        runner: LoopRunner,
        sessions: Sessions,
        exchange: ExchangeLifecycle,
        lock: SendLock,
        flying: Sized,
        queue: Sized,
        may_call: Callable[[], bool],
    ) -> None:
        self._runner, self._sessions, self._exchange = runner, sessions, exchange
        self._lock, self._flying, self._queue, self._may_call = lock, flying, queue, may_call
        self._bell, self._poll = Bell(), select.poll()
        self._ctrl_c = DeferredCtrlC()  # used by the call that holds the lock
        self._poll.register(self._bell, select.POLLIN)
        self._by_descriptor: dict[int, Session] = {}

    def call(self, call: RemoteCall, args: Value, shares: Sequence[Value]) -> list[Value] | None:
        """Make a call with `args` and each rank's share, and return all ranks' answers.

        Of a rank that was not asked (`RemoteCall.rows`) the answer is empty. Return None if it must go by the comm
        (`Coordinator.call`); nothing was sent then.
        """
        # Ctrl-C in between would lose the lock, for which all others wait, or places in shared memory, which nobody
        # would free.
        ctrl_c = DeferredCtrlC(self._bell.ring)
        with ctrl_c:
            try:
                if not self._lock.try_acquire(ctrl_c) or not self._possible(call, args, shares[0]):
                    return None
                self._ctrl_c, every, size = ctrl_c, self._sessions, len(shares)

                # Once if all ranks get the same, else for the ranks to ask.
                free, sessions = every.garbage(), every.all
                ranks: Sequence[int] = range(size)
                if len(set(map(id, shares))) == 1:
                    shares = shares[:1]
                elif call.rows and not free:
                    ranks = _owners(call.rows, shares)
                    shares, sessions = [shares[rank] for rank in ranks], [sessions[rank] for rank in ranks]

                # Number the call, join its arguments, and pack it.
                epoch = None
                if call.epoch:
                    epoch = every.epoch + 1
                    args = {**args, "epoch": epoch}
                seq, common = every.next_number(), (self._exchange.number, call.handler)
                new = tuple.__new__  # half the time of its own constructor
                calls = [new(Call, (seq, *common, {**args, **share}, free, ())) for share in shares]
                packed = self._packed(calls, sessions)

                # Results that these calls would have freed are freed by the next one.
                if packed is None:
                    for result in free:
                        every.forget(result)
                    return None
                answers = self._answers(call, seq, packed, sessions, ranks, epoch)
            finally:
                self._lock.release(ctrl_c)
        if len(ranks) == size:
            return answers
        by_rank: list[Value] = [{}] * size
        for rank, answer in zip(ranks, answers, strict=True):
            by_rank[rank] = answer
        return by_rank

    def _possible(self, call: RemoteCall, args: Value, share: Value) -> bool:
        """Return True if a call, with `args` and such a share of each rank, may go by channels now."""
        exchange, sessions = self._exchange, self._sessions
        return (
            (exchange.connected or not call.exchange)
            and not (exchange.blocked or sessions.closed)
            and self._may_call()
            and not (self._flying or self._queue)
            and sessions.by_channel
            # A warning about a silent worker names the user's function.
            and "sources" not in args
            and "sources" not in share
            and self._runner.alive
            and not self._runner.here
        )

    def _packed(self, calls: list[Call], sessions: list[Session]) -> list[bytes] | None:
        """Pack the message of each session, with large arrays in shared memory; None if any must go by the comm.

        A single call is for all `sessions`.
        """
        # A message of less than `LARGE` bytes has no large arrays.
        size, messages = len(sessions), list[Any](map(pack, calls))
        large = [0] * len(calls)
        if None in messages or max(map(len, messages)) >= LARGE:
            large = [large_bytes(call.args) for call in calls]

        # Large arrays for all ranks are written once, if all ranks read the same memory.
        if len(calls) < size and 0 < large[0] <= SMALL and (common := self._sessions.common) is not None:
            args = common.put(calls[0].args)
            if args is not None:
                calls, large = [calls[0]._replace(args=args)], [0]
                messages = list[Any](map(pack, calls))
        # The workers may have to be asked for memory first.
        if sum(large) * size > SMALL * len(calls):
            return None
        reads = [session.take_read() for session in sessions]
        copies = size // len(calls)
        if not (any(large) or any(reads)) and all(messages):
            return messages * copies
        calls, large = calls * copies, large * copies

        # Move large arrays into shared memory, rank by rank.
        filled = [call._replace(freed=read) if read else call for call, read in zip(calls, reads, strict=True)]
        packed = list[bytes]()
        for at, (session, nbytes) in enumerate(zip(sessions, large, strict=True)):
            if nbytes:
                args = session.share_arrays(filled[at].args)
                if args is None:
                    break
                filled[at] = filled[at]._replace(args=args)
            data = pack(filled[at])
            # Several arrays may be too large together.
            if data is None and (args := session.share_arrays(filled[at].args, LEAST)) is not None:
                filled[at] = filled[at]._replace(args=args)
                data = pack(filled[at])
            if data is None:
                break
            packed.append(data)
        if len(packed) == size:
            return packed

        # A rank has no room: free the arrays of the others.
        for session, call in zip(sessions, filled, strict=True):
            session.take_back(call)
        return None

    def _answers(
        self,
        call: RemoteCall,
        seq: int,
        packed: list[bytes],
        sessions: list[Session],
        ranks: Sequence[int],
        epoch: int | None,
    ) -> list[Value]:
        """Send `ranks` their messages and return the answers. The event loop handles failures."""
        waiting = True
        try:
            # Do nothing between the sends: the rank that is called first waits for the others.
            asked = [session.expect(seq, self._bell) for session in sessions]
            left = len(asked)
            for session, answer, data in zip(sessions, asked, packed, strict=True):
                if not session.send(answer, data):
                    left = 0

            # All of them answered by their channels.
            if (answers := self._wait(asked, left)) is not None:
                self._sessions.note(answers, ranks)
                values = list(map(_VALUE, answers))
                viewed = not call.reads_in_place and any(map(_VIEWED, answers))
                return [_owned(value) for value in values] if viewed else values

            # A rank has failed or is lost: the event loop takes over, unless Ctrl-C comes before it has begun to.
            async def finish() -> list[Value]:
                nonlocal waiting
                waiting = False
                return await self._exchange.finish_call(call, self._sessions.outcomes(seq, ranks), epoch, ranks)

            self._ctrl_c.end()
            values = self._runner.run(finish(), 2 * ABORT_SECONDS)
            return values if call.reads_in_place else [_owned(value) for value in values]
        except KeyboardInterrupt:
            if waiting:
                # Ctrl-C again may cancel the wait before it begins, but not what is told before.
                self._runner.post(self._exchange.tell_abort)
                self._runner.run(self._exchange.finish_abort(), 2 * ABORT_SECONDS)
            raise
        finally:
            if waiting:
                for session in sessions:
                    session.end(seq)

    def _wait(self, asked: list[ChannelAnswer], left: int) -> list[Answer] | None:
        """Wait for all answers and return them; None as soon as a rank cannot answer.

        The next `left` answers that come are only counted, unless something else comes before.
        """
        stopped, poll = STOPPED.get(), self._poll
        if not self._by_descriptor:
            self._register()
        seconds = POLL_SECONDS if stopped is None else STOP_SECONDS
        while True:
            # Stop at the first failure: ranks may wait for the one that failed.
            if left <= 0:
                # Each is read once: the event loop may put the loss of the rank in its place.
                outcomes: list[Any] = list(map(_OUTCOME, asked))
                kinds = list(map(type, outcomes))
                left = kinds.count(NoneType)
                if left + kinds.count(Answer) < len(kinds):
                    return None
                if not left:
                    return outcomes
                for session in self._sessions.all:
                    if session.channel is None:
                        return None  # a rank was lost, and others may wait for it
                self._ctrl_c.deliver()
                if stopped is not None and stopped.is_set():
                    raise KeyboardInterrupt
                if not self._runner.alive:
                    return None

            # Wait for messages by channels, or for the bell of the event loop or of Ctrl-C.
            events = poll_awake(poll, 1000 * seconds)
            for descriptor, _ in events:
                if (sender := self._by_descriptor.get(descriptor)) is None:
                    self._bell.silence()
                    left = 0
                elif sender.receive():
                    left -= 1
                else:
                    left = 0
            if not events:
                left = 0

    def _register(self) -> None:
        for session in self._sessions.all:
            if (channel := session.channel) is not None:
                self._poll.register(channel, select.POLLIN)
                self._by_descriptor[channel.fileno()] = session


def _owners(rows: str, shares: Sequence[Value]) -> Sequence[int]:
    """Return the ranks to ask: the owners of the rows in the argument `rows`; all without any."""
    every = range(len(shares))
    return list(compress(every, map(len, map(itemgetter(rows), shares)))) or every


def _owned(answer: Value) -> Value:
    """Return an answer with copies of its arrays in shared memory."""
    # Those alone are read-only.
    return {
        name: copied(value) if type(value) is np.ndarray and not value.flags.writeable and is_large(value) else value
        for name, value in answer.items()
    }
