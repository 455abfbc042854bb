"""Answers that a session of the client waits for: one waiter per call, and the parts of large answers."""

from __future__ import annotations

import asyncio

from mgraph.channel import Bell
from mgraph.client.connections.local_memory import LocalMemory, SplitArray
from mgraph.failures import decode_error
from mgraph.protocol import Answer, Failure, Part, Result

__all__ = ["ChannelAnswer", "PendingAnswers"]


class ChannelAnswer:
    """The answer to a call by a channel, set by the waiting thread, or by the event loop, which rings a bell.

    Attributes
    ----------
    outcome : Answer or BaseException or None
        None until it arrives.
    """

    __slots__ = ("_bell", "outcome")

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self.outcome: Answer | BaseException | None = None

    def done(self) -> bool:
        """Return True if there is an outcome."""
        return self.outcome is not None

    def set_result(self, answer: Answer) -> None:
        """Set the answer, which came by the comm."""
        self.outcome = answer
        self._bell.ring()

    def set_exception(self, error: BaseException) -> None:
        """Set the error, which came by the comm, or the loss of the rank."""
        self.outcome = error
        self._bell.ring()


class PendingAnswers:
    """Waiters of a session's calls, by the numbers of the calls.

    A waiter is a future of the event loop or a `ChannelAnswer`. Methods run on the event loop unless they say
    otherwise.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
    memory : LocalMemory
        The memory that may hold parts of answers.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, memory: LocalMemory) -> None:
        self._loop, self._memory = loop, memory
        self._waiters: dict[int, asyncio.Future[Answer] | ChannelAnswer] = {}
        self._parts: dict[tuple[int, str], SplitArray | Exception] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def expect(self, seq: int) -> None:
        """Let a coroutine wait for the answer to call `seq`."""
        self._waiters[seq] = self._loop.create_future()

    def expect_in_thread(self, seq: int, bell: Bell) -> ChannelAnswer:
        """Let a thread wait for the answer to call `seq`; `bell` wakes it. Any thread."""
        answer = self._waiters[seq] = ChannelAnswer(bell)
        return answer

    def forget(self, seq: int) -> None:
        """Stop waiting for the answer to call `seq`. Any thread."""
        self._waiters.pop(seq, None)

    def future(self, seq: int) -> asyncio.Future[Answer]:
        """Return the future of a call that a coroutine waits for."""
        future = self._waiters[seq]
        assert isinstance(future, asyncio.Future)
        return future

    def finish(self, seq: int, outcome: Answer | BaseException) -> None:
        """End the call `seq`, unless it ended already or nobody waits for it."""
        future = self._waiters.get(seq)
        if future is None or future.done():
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    def finish_from_thread(self, message: Result | Failure) -> bool:
        """End a call whose answer is complete; return True if a thread waits for it and it is no error. Any thread."""
        waiter, outcome = self._waiters.get(message.seq), self._outcome(message)
        if type(waiter) is ChannelAnswer:
            waiter.outcome = outcome
            return type(outcome) is Answer
        if waiter is not None:
            self._loop.call_soon_threadsafe(self.finish, message.seq, outcome)
        return False

    def take_over(self, seq: int) -> Answer | BaseException | None:
        """Let a coroutine wait for a call that a thread waited for; return the outcome if it is here."""
        answer = self._waiters[seq]
        assert isinstance(answer, ChannelAnswer)
        self.expect(seq)
        return answer.outcome

    def fail(self, error: Exception) -> None:
        """End all calls, each with a copy of an error."""
        for seq in list(self._waiters):
            self.finish(seq, type(error)(*error.args))

    # ---- parts -------------------------------------------------------------------------------------------------------

    def add_part(self, part: Part) -> None:
        """Start to copy a part of an answer to its place."""
        array = part.array
        if self._memory.shared is not None:
            array = self._memory.shared.view(array)
        if array is part.array:
            self._memory.passed(array.nbytes)

        # Parts of calls that nobody waits for are ignored.
        key = part.seq, part.name
        whole = self._parts.get(key)
        if part.seq not in self._waiters or isinstance(whole, Exception):
            return
        try:
            if whole is None:
                whole = self._parts[key] = SplitArray(part, array)
            whole.add(part, array)
        except Exception as error:
            # If there is no memory for the answer, only its own call fails.
            self._parts[key] = error

    def end(self, message: Result | Failure) -> None:
        """End a call once all parts of its answer are in place."""
        wholes = {name: self._parts.pop((seq, name)) for seq, name in list(self._parts) if seq == message.seq}
        pending = [copy for whole in wholes.values() if isinstance(whole, SplitArray) for copy in whole.pending]
        if not pending:
            self.finish(message.seq, self._outcome(message, wholes))
            return
        copied = asyncio.gather(*map(asyncio.wrap_future, pending), return_exceptions=True)
        copied.add_done_callback(lambda _: self.finish(message.seq, self._outcome(message, wholes)))

    def _outcome(
        self, message: Result | Failure, wholes: dict[str, SplitArray | Exception] | None = None
    ) -> Answer | BaseException:
        """Return the answer or the error of a message, with its arrays in shared memory, and those from parts."""
        try:
            if isinstance(message, Failure):
                return decode_error(message.error)
            value = self._memory.views(message.value)
            if not wholes:
                viewed = value is not message.value
                return tuple.__new__(Answer, (value, message.state, viewed))  # half the time of its own constructor
            for whole in wholes.values():
                if isinstance(whole, Exception):
                    return whole

            # Join arrays that came in parts with the rest of the answer.
            joined = {name: whole.result() for name, whole in wholes.items() if isinstance(whole, SplitArray)}
            return Answer({**value, **joined}, message.state, viewed=True)
        except Exception as error:
            return error
