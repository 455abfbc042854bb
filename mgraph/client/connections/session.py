"""The client's end of a session: it sends requests, receives answers, and detects a silent worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from distributed.comm import Comm, CommClosedError

from mgraph.channel import Bell, Channel, ChannelClosed, unpack
from mgraph.client.connections.local_memory import LocalMemory, SplitArray, large_bytes
from mgraph.errors import MgraphError, WorkerLost
from mgraph.failures import decode_error
from mgraph.protocol import (
    SILENCE_SECONDS,
    Abort,
    Answer,
    Beat,
    Call,
    Close,
    Done,
    Failure,
    Freed,
    Hello,
    Part,
    Publish,
    Result,
    Share,
    Turn,
    from_dict,
)
from mgraph.wire import decode, encode

__all__ = ["Session"]

logger = logging.getLogger(__name__)

Request = Call | Abort | Close | Publish | Share | Turn

TICKS = 16  #: checks for silence in `SILENCE_SECONDS`, or in `patience` if that is shorter


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


class Session:
    """The client's session with one rank.

    Its methods run on the client's event loop unless they say otherwise.

    Parameters
    ----------
    hello : Hello
        The graph, the rank, and the patience with a silent worker.
    address : str
        The worker's address.
    comm : Comm
        The comm on which the worker has answered `Welcome`. From now on only this session may use it.
    shared_bytes : int
        The most bytes of memory to share with the worker, if that is on this host.
    channel : Channel, optional
        The channel to the shard's thread, if that is on this host.

    Attributes
    ----------
    lost : WorkerLost | None
        The error of a rank that can no longer be reached; never reset.
    silent : bool
        True if it was lost because it did not answer.
    reading : asyncio.Task
        Ends when the rank is lost.
    why_no_channel : str
        The reason why calls go by the comm; empty if they may go by the channel.

    Notes
    -----
    If the connection is closed, the rank is lost at once. If no message comes, a warning is logged after
    `SILENCE_SECONDS`, and the rank is lost after ``hello.patience`` seconds. The time between allows for user code that
    holds Python's GIL on the worker, which cannot answer then but is not damaged.
    """

    def __init__(
        self, hello: Hello, address: str, comm: Comm, shared_bytes: int = 0, channel: Channel | None = None
    ) -> None:
        self.graph, self.rank, self.address, self.patience = hello.graph, hello.rank, address, hello.patience
        self.lost: WorkerLost | None = None
        self.silent, self.why_no_channel = False, ""
        self._comm, self.channel, self._loop = comm, channel, asyncio.get_running_loop()
        self._heard, self._busy = False, ""
        # The user's function that a call runs, by the call's number.
        self._calls: dict[int, str] = {}
        self.reached = 0
        self._writing = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[Answer] | ChannelAnswer] = {}
        self._parts: dict[tuple[int, str], SplitArray | Exception] = {}
        who = f"graph {self.graph}: rank {self.rank}, the worker at {address}"
        self._memory = LocalMemory(who, shared_bytes, self._ask_now, self._tell_freed)
        self._senders: set[asyncio.Task[Any]] = set()
        self.reading, self._watching = asyncio.create_task(self._read()), asyncio.create_task(self._watch())
        for task in (self.reading, self._watching):
            task.add_done_callback(self._ended)

    # ---- requests ----------------------------------------------------------------------------------------------------

    async def ask(self, message: Request, nbytes: int | None = None) -> Answer:
        """Send `message` and return its answer.

        Messages of separate tasks are sent in the order of the tasks. `nbytes` are the bytes of a call's arguments, if
        known.

        Raises
        ------
        WorkerLost
            The rank is lost, or was lost before the answer came.
        Exception
            The call's error on the worker, or the error in sending its arguments.
        """
        if self.lost is not None:
            raise WorkerLost(*self.lost.args)

        # Register the call before it is sent: its answer may come at once.
        seq = message.seq
        self._waiting[seq] = asyncio.get_running_loop().create_future()
        if isinstance(message, Call) and (function := _function_of(message)):
            self._calls[seq] = function
        try:
            # Large arrays go into shared memory, and the rest by the comm.
            with self._sending(message):
                # Writing a large message takes several turns of the loop; keep the order.
                async with self._writing:
                    if isinstance(message, Call):
                        message = await self._memory.packed(message, len(self._waiting) > 1, nbytes)
                    try:
                        await self._comm.write(encode(message), on_error="raise")
                    except Exception:
                        # Its arguments cannot be serialized, or the session is lost.
                        if isinstance(message, Call):
                            self._memory.take_back(message)
                        raise
            # Its arguments may be large, and the answer may take long.
            del message
            # Not a local variable, to which an error's traceback would refer.
            return await self._future(seq)
        finally:
            del self._waiting[seq]
            self._calls.pop(seq, None)

    async def _ask_now(self, message: Share) -> Answer:
        """Send a message while another is being packed, and return its answer."""
        self._waiting[message.seq] = asyncio.get_running_loop().create_future()
        try:
            await self._comm.write(encode(message), on_error="raise")
            return await self._future(message.seq)
        finally:
            del self._waiting[message.seq]

    async def tell(self, message: Done | Freed) -> None:
        """Send a message that has no answer, in the same order."""
        with self._sending(message):
            async with self._writing:
                await self._comm.write(encode(message), on_error="raise")

    @contextmanager
    def _sending(self, message: Request | Done | Freed) -> Iterator[None]:
        """Pass errors in this block to the waiter of the answer. `drop` cancels the task that is in the block."""
        # `drop` finds the tasks to cancel in `_senders`.
        sender = asyncio.current_task()
        assert sender is not None
        self._senders.add(sender)
        try:
            yield
        except Exception as error:
            if isinstance(message, Call) and not self._comm.closed():  # its arguments cannot be serialized
                self._finish(message.seq, error)
            else:
                self._lose(_why(error, "cannot be written to"))
        except asyncio.CancelledError:
            if self.lost is None:
                raise
            # Cancelled by `drop`: the caller gets the loss instead.
            sender.uncancel()
        finally:
            self._senders.discard(sender)

    # ---- calls by the channel, by the thread that makes the call -----------------------------------------------------

    def share_arrays(self, args: dict[str, Any]) -> dict[str, Any] | None:
        """Return `args` with its large arrays in shared memory; None without room."""
        return self._memory.put(args)

    def take_back(self, call: Call) -> None:
        """Free the room of arrays of a call that is not sent."""
        self._memory.take_back(call)

    def begin(self, seq: int, data: bytes, bell: Bell) -> ChannelAnswer:
        """Send a packed call and return its pending answer. Call `end` when that is not awaited any more."""
        answer = self._waiting[seq] = ChannelAnswer(bell)
        assert self.channel is not None
        if self.lost is not None:
            answer.outcome = WorkerLost(*self.lost.args)
            return answer
        try:
            # No other call is under way, so the worker has ended or was stopped.
            if not self.channel.send(data):
                answer.outcome = WorkerLost(f"rank {self.rank}, the worker at {self.address}, reads no calls")
        except ChannelClosed:
            self.close_channel()
        return answer

    def receive(self) -> None:
        """Take the messages that came by the channel. The event loop may call it, too."""
        if (channel := self.channel) is None:
            return
        try:
            while (data := channel.receive()) is not None:
                message = from_dict(unpack(data))
                if isinstance(message, Result | Failure):
                    self._answer(message.seq, self._outcome(message, {}))
        except ChannelClosed:
            self.close_channel()

    def _answer(self, seq: int, outcome: Answer | BaseException) -> None:
        """End the call `seq`, from any thread."""
        waiter = self._waiting.get(seq)
        if isinstance(waiter, ChannelAnswer):
            waiter.outcome = outcome
        elif waiter is not None:
            self._loop.call_soon_threadsafe(self._finish, seq, outcome)

    def close_channel(self) -> None:
        """Drop the channel that the rank has closed, and have the event loop mark the rank as lost."""
        self.channel = None
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._lose, "closed its session")

    def end(self, seq: int) -> None:
        """Stop waiting for the answer to a call."""
        self._waiting.pop(seq, None)

    async def outcome(self, seq: int) -> Answer:
        """Wait on the event loop for the answer to a call that was sent by the channel."""
        answer, channel = self._waiting[seq], self.channel
        assert isinstance(answer, ChannelAnswer)

        # The event loop takes over from the thread: the answer may be here, or come by channel.
        self._waiting[seq] = self._loop.create_future()
        try:
            if answer.outcome is not None:
                self._finish(seq, answer.outcome)
            elif self.lost is not None:
                self._finish(seq, WorkerLost(*self.lost.args))
            elif channel is not None:
                self._loop.add_reader(channel, self.receive)
            return await self._future(seq)
        finally:
            del self._waiting[seq]
            if channel is not None:
                self._loop.remove_reader(channel)

    def _future(self, seq: int) -> asyncio.Future[Answer]:
        """Return the future of a call that a coroutine waits for."""
        future = self._waiting[seq]
        assert isinstance(future, asyncio.Future)
        return future

    # ---- answers -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while True:
            message = decode(await self._comm.read())
            self._heard = True
            self._take(message)
            del message

    def _take(self, message: Any) -> None:
        # Beats and freed memory need no answer; parts and results belong to calls.
        match message:
            case Beat():
                self._busy, self.reached = message.busy or "", message.epoch
            case Part():
                self._take_part(message)
            case Freed():
                if self._memory.shared is not None:
                    self._memory.shared.free(message.places)
            case Result() | Failure():
                self._busy = ""
                if isinstance(message, Result):
                    self._memory.passed(large_bytes(message.value))
                    if message.freed and self._memory.shared is not None:
                        self._memory.shared.free(message.freed)
                self._end(message)
            case _:
                raise MgraphError(f"a worker has sent a {type(message).__name__}, which is not a worker's message")

    def _take_part(self, part: Part) -> None:
        """Start to copy a part of an answer to its place."""
        array = part.array
        if self._memory.shared is not None:
            array = self._memory.shared.view(array)
        if array is part.array:
            self._memory.passed(array.nbytes)

        # Parts of calls that nobody waits for are ignored.
        key = part.seq, part.name
        whole = self._parts.get(key)
        if part.seq not in self._waiting or isinstance(whole, Exception):
            return
        try:
            if whole is None:
                whole = self._parts[key] = SplitArray(part, array)
            whole.add(part, array)
        except Exception as error:
            # If there is no memory for the answer, only its own call fails.
            self._parts[key] = error

    def _end(self, message: Result | Failure) -> None:
        """End a call once all parts of its answer are in place."""
        wholes = {name: self._parts.pop((seq, name)) for seq, name in list(self._parts) if seq == message.seq}
        pending = [copy for whole in wholes.values() if isinstance(whole, SplitArray) for copy in whole.pending]
        if not pending:
            self._finish(message.seq, self._outcome(message, wholes))
            return
        copied = asyncio.gather(*map(asyncio.wrap_future, pending), return_exceptions=True)
        copied.add_done_callback(lambda _: self._finish(message.seq, self._outcome(message, wholes)))

    def _outcome(self, message: Result | Failure, wholes: dict[str, SplitArray | Exception]) -> Answer | BaseException:
        try:
            if isinstance(message, Failure):
                return decode_error(message.error)
            for whole in wholes.values():
                if isinstance(whole, Exception):
                    return whole

            # Join arrays that came in parts with the rest of the answer.
            joined = {name: whole.result() for name, whole in wholes.items() if isinstance(whole, SplitArray)}
            return Answer({**message.value, **joined}, message.state)
        except Exception as error:
            return error

    def _tell_freed(self, places: tuple[int, ...]) -> None:
        if self.lost is None:
            self._telling = asyncio.create_task(self.tell(Freed(places)))

    def _finish(self, seq: int, outcome: Answer | BaseException) -> None:
        future = self._waiting.get(seq)
        if future is None or future.done():
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    # ---- silence -----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Log a warning if the worker is silent, and lose the rank after `patience` seconds of silence.

        Ticks are counted instead of reading the clock. If this process was stopped, or its event loop blocked, beats
        wait unread in the socket, and by the clock every worker would look dead.
        """
        tick, silent, warned = min(SILENCE_SECONDS, self.patience) / TICKS, 0, False
        while silent * tick < self.patience:
            await asyncio.sleep(tick)
            silent = 0 if self._heard else silent + 1
            self._heard = False
            if warned != (silent * tick >= SILENCE_SECONDS):
                warned = not warned
                self._tell(warned)
        self.silent = self.lost is None
        self._lose(f"has not answered for {self.patience:g} s{self._doing}")

    def _tell(self, silent: bool) -> None:
        who = f"graph {self.graph}: rank {self.rank}, the worker at {self.address},"
        if silent:
            end = f"it counts as lost after {self.patience:g} s"
            logger.warning("%s has not answered for %g s%s; %s", who, SILENCE_SECONDS, self._doing, end)
        else:
            logger.info("%s answers again", who)

    @property
    def _doing(self) -> str:
        if self._busy:
            return f" while it runs the user's function {self._busy}"
        function = next(iter(self._calls.values()), None)  # it may hold the GIL before a beat names it
        return "" if function is None else f" in an ingest that calls the user's function {function}()"

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Lose the rank when the reader or the watch ends: waits for answers need both of them."""
        if task.cancelled():
            self.drop()
        elif (error := task.exception()) is not None:
            self._lose(_why(error, "cannot be read from"))

    def _lose(self, why: str) -> None:
        if self.lost is None:
            self.lost = WorkerLost(f"graph {self.graph}: rank {self.rank}, the worker at {self.address}, {why}")
        self.drop()

    async def close(self, seq: int, timeout: float) -> None:
        """End the session. Wait at most `timeout` seconds for the worker to free the shard."""
        try:
            with suppress(WorkerLost, TimeoutError):
                async with asyncio.timeout(timeout):
                    await self.ask(Close(seq))
        finally:
            self.drop()
        await asyncio.wait([self.reading, self._watching])  # both were cancelled, so this ends

    def drop(self) -> None:
        """Close the comm without a message and end the tasks; the worker then frees the shard."""
        if self.lost is None:
            self.lost = WorkerLost(f"graph {self.graph}: the session of rank {self.rank} at {self.address} was closed")

        # Close all ways to the worker, then fail whoever waits for it.
        self.abandon()
        if self.channel is not None:
            self.channel.shut()
        self._memory.close()
        for seq in list(self._waiting):
            self._finish(seq, WorkerLost(*self.lost.args))
        current = asyncio.current_task()
        for task in (self.reading, self._watching, *self._senders):
            if task is not current:
                task.cancel()

    def abandon(self) -> None:
        """Close the comm only, even after the event loop has ended."""
        with suppress(RuntimeError, OSError):
            self._comm.abort()


def _function_of(call: Call) -> str:
    """Return the name of a call's user function, empty if none."""
    return next((str(source["name"]) for source in call.args.get("sources", ()) if source["kind"] == "function"), "")


def _why(error: BaseException, problem: str) -> str:
    closed = isinstance(error, CommClosedError)
    return "closed its session" if closed else f"{problem} any more: {type(error).__name__}: {error}"
