"""Calls from a user's thread by channels, without the event loop."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence, Sized

import numpy as np

from mgraph.calls import RemoteCall
from mgraph.channel import Bell, Channel, pack, poll_awake
from mgraph.client.calls.admission import SMALL
from mgraph.client.calls.caller import Value
from mgraph.client.calls.exchange_lifecycle import ExchangeLifecycle
from mgraph.client.calls.loop_runner import POLL_SECONDS, STOP_SECONDS, STOPPED, LoopRunner
from mgraph.client.calls.send_lock import SendLock
from mgraph.client.connections.local_memory import large_bytes
from mgraph.client.connections.session import ChannelAnswer, Session
from mgraph.client.connections.sessions import Sessions
from mgraph.interrupts import DeferredCtrlC
from mgraph.parallel_copy import copied
from mgraph.protocol import ABORT_SECONDS, Answer, Call
from mgraph.shared import LEAST, is_large

__all__ = ["ChannelCalls"]


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
        self._ctrl_c = DeferredCtrlC()  # of the call that holds the lock
        self._poll.register(self._bell, select.POLLIN)
        self._by_descriptor: dict[int, tuple[Session, Channel]] = {}

    def call(self, call: RemoteCall, rank_args: list[Value], alike: bool) -> list[Value] | None:
        """Make a call and return all ranks' answers; of a rank that was not asked (`RemoteCall.rows`) an empty one.

        Return None if it must go by the comm (`Coordinator.call`); nothing was sent then. `alike` is True if all ranks
        get the same arguments.
        """
        # Ctrl-C in between would lose the lock, for which all others wait, or places in shared memory, which nobody
        # would free.
        ctrl_c, holder = DeferredCtrlC(self._bell.ring), object()
        with ctrl_c:
            try:
                if not self._lock.try_acquire(holder) or not self._possible(call, rank_args[0]):
                    return None
                self._ctrl_c = ctrl_c

                # Number the call, and pack it for each rank.
                epoch = self._sessions.epoch + 1 if call.epoch else None
                size, different = len(rank_args), rank_args[:1] if alike else rank_args
                if epoch is not None:
                    different = [{**args, "epoch": epoch} for args in different]
                calls = self._sessions.calls(call.handler, different, self._exchange.number)
                calls = calls * size if alike else calls
                ranks = range(len(calls)) if alike or calls[0].free else _owners(call, rank_args)
                sessions = [self._sessions.all[rank] for rank in ranks]
                packed = self._packed([calls[rank] for rank in ranks], sessions, alike)

                # Results that these calls would have freed are freed by the next one.
                if packed is None:
                    for result in calls[0].free:
                        self._sessions.forget(result)
                    return None
                answers = self._answers(call, calls[0].seq, packed, ranks, epoch)
            finally:
                self._lock.release(holder)
        if not call.reads_in_place:
            answers = [_owned(answer) for answer in answers]
        if len(ranks) == len(calls):
            return answers
        by_rank = dict(zip(ranks, answers, strict=True))
        return [by_rank.get(rank, {}) for rank in range(len(calls))]

    def _possible(self, call: RemoteCall, args: Value) -> bool:
        """Return True if a call may go by channels now."""
        exchange, sessions = self._exchange, self._sessions
        return (
            (exchange.connected or not call.exchange)
            and not (exchange.aborting or exchange.lost or sessions.closed)
            and self._may_call()
            and not (self._flying or self._queue)
            and sessions.by_channel
            and "sources" not in args  # a warning about a silent worker names the user's function
            and self._runner.alive
            and not self._runner.here
        )

    def _packed(self, calls: list[Call], sessions: list[Session], alike: bool) -> list[bytes] | None:
        """Pack the message of each session, with large arrays in shared memory; None if any must go by the comm."""
        large = [large_bytes(calls[0].args)] * len(calls) if alike else [large_bytes(call.args) for call in calls]
        # Large arrays for all ranks are written once, if all ranks read the same memory.
        if alike and 0 < large[0] <= SMALL and (common := self._sessions.common) is not None:
            args = common.put(calls[0].args)
            if args is not None:
                calls, large = [calls[0]._replace(args=args)] * len(calls), [0] * len(calls)
        # The workers may have to be asked for memory first.
        if sum(large) > SMALL:
            return None
        # The same small arguments for all ranks are packed once.
        filled = [session.with_freed(call) for session, call in zip(sessions, calls, strict=True)]
        if alike and not large[0] and filled == calls and (data := pack(calls[0])) is not None:
            return [data] * len(calls)

        # Move large arrays into shared memory, rank by rank.
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
        if len(packed) == len(calls):
            return packed

        # A rank has no room: free the arrays of the others.
        for session, call in zip(sessions, filled, strict=True):
            session.take_back(call)
        return None

    def _answers(
        self, call: RemoteCall, seq: int, packed: list[bytes], ranks: Sequence[int], epoch: int | None
    ) -> list[Value]:
        """Send the ranks their messages and return the answers. The event loop handles failures."""
        sessions, waiting = [self._sessions.all[rank] for rank in ranks], True
        try:
            asked = [session.begin(seq, data, self._bell) for session, data in zip(sessions, packed, strict=True)]

            # All of them answered by their channels.
            if (answers := self._wait(asked)) is not None:
                self._sessions.note(answers, ranks)
                return [answer.value for answer in answers]

            # A rank has failed or is lost: the event loop takes over, unless Ctrl-C comes before it has begun to.
            async def finish() -> list[Value]:
                nonlocal waiting
                waiting = False
                return await self._exchange.finish_call(call, self._sessions.outcomes(seq, ranks), epoch, ranks)

            self._ctrl_c.end()
            return self._runner.run(finish(), 2 * ABORT_SECONDS)
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

    def _wait(self, asked: list[ChannelAnswer]) -> list[Answer] | None:
        """Wait for all answers and return them; None as soon as a rank cannot answer."""
        stopped, poll = STOPPED.get(), self._poll
        if not self._by_descriptor:
            self._register()
        seconds = POLL_SECONDS if stopped is None else STOP_SECONDS
        while True:
            # Stop at the first failure: ranks may wait for the one that failed.
            answers = list[Answer]()
            for answer in asked:
                outcome = answer.outcome  # once: the event loop may put the loss of the rank in its place
                if type(outcome) is Answer:
                    answers.append(outcome)
                elif outcome is not None:
                    return None
            if len(answers) == len(asked):
                return answers
            for session in self._sessions.all:
                if session.channel is None:
                    return None  # a rank was lost, and others may wait for it

            # Wait for a message by a channel, or for the event loop's bell.
            for descriptor, _ in poll_awake(poll, 1000 * seconds):
                if descriptor == self._bell.fileno():
                    self._bell.silence()
                else:
                    self._by_descriptor[descriptor][0].receive()
            self._ctrl_c.deliver()
            if stopped is not None and stopped.is_set():
                raise KeyboardInterrupt
            if not self._runner.alive:
                return None

    def _register(self) -> None:
        for session in self._sessions.all:
            if (channel := session.channel) is not None:
                self._poll.register(channel, select.POLLIN)
                self._by_descriptor[channel.fileno()] = session, channel


def _owners(call: RemoteCall, rank_args: list[Value]) -> Sequence[int]:
    """Return the ranks to ask: the owners of the call's rows, or all."""
    rows = [args.get(call.rows) for args in rank_args]
    owners = [rank for rank, ids in enumerate(rows) if ids is None or len(ids)]
    return owners or range(len(rank_args))


def _owned(answer: Value) -> Value:
    """Return an answer with copies of its arrays in shared memory."""
    # Those alone are read-only.
    return {
        name: copied(value) if type(value) is np.ndarray and not value.flags.writeable and is_large(value) else value
        for name, value in answer.items()
    }
