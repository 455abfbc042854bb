"""The client's end of a session: it sends requests, receives answers, and detects a silent worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Any

from distributed.comm import Comm, CommClosedError

from mgraph.channel import Channel, ChannelClosed, unpack
from mgraph.client.connections.answers import ChannelAnswer, PendingAnswers
from mgraph.client.connections.local_memory import LocalMemory, large_bytes
from mgraph.errors import MgraphError, WorkerLost
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
    Wanted,
)
from mgraph.shared import LARGE, Shared
from mgraph.wire import decode, encode

__all__ = ["Session"]

logger = logging.getLogger(__name__)

Request = Call | Abort | Close | Publish | Share | Turn

TICKS = 16  #: checks for silence in `SILENCE_SECONDS`, or in `patience` if that is shorter


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
    expect, end : callable
        ``expect(seq, bell)`` registers a call by the channel, before it is sent, and returns its pending answer.
        ``end(seq)`` stops waiting for it.
    reading : asyncio.Task
        Ends when the rank is lost.
    memory_due : bool
        True if a call should go by the comm, to open shared memory.
    wanted : callable
        Called with the number of a `Turn` whose lock another client waits for.
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
        self.wanted: Callable[[int], None] = lambda turn: None
        self._writing = asyncio.Lock()
        who = f"graph {self.graph}: rank {self.rank}, the worker at {address}"
        self._memory = LocalMemory(who, shared_bytes, self._ask_now, self._tell_freed)
        self._answers = PendingAnswers(self._loop, self._memory)
        self.expect, self.end = self._answers.expect_in_thread, self._answers.forget
        self._senders: set[asyncio.Task[Any]] = set()
        self.reading, self._watching = asyncio.create_task(self._read()), asyncio.create_task(self._watch())
        for task in (self.reading, self._watching):
            task.add_done_callback(self._ended)

    memory_due = property(attrgetter("_memory.due"))

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
        self._answers.expect(seq)
        if isinstance(message, Call) and (function := _function_of(message)):
            self._calls[seq] = function
        try:
            # Large arrays go into shared memory, and the rest by the comm.
            with self._sending(message):
                # Writing a large message takes several turns of the loop; keep the order.
                async with self._writing:
                    if isinstance(message, Call):
                        message = await self._memory.packed(message, len(self._answers) > 1, nbytes)
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
            return await self._answers.future(seq)
        finally:
            self._answers.forget(seq)
            self._calls.pop(seq, None)

    async def _ask_now(self, message: Share) -> Answer:
        """Send a message while another is being packed, and return its answer."""
        self._answers.expect(message.seq)
        try:
            await self._comm.write(encode(message), on_error="raise")
            return await self._answers.future(message.seq)
        finally:
            self._answers.forget(message.seq)

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
                self._answers.finish(message.seq, error)
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

    def share_arrays(self, args: dict[str, Any], least: int = LARGE) -> dict[str, Any] | None:
        """Return `args` with arrays of `least` bytes and more in shared memory; None without room."""
        return self._memory.put(args, least)

    @property
    def shared(self) -> Shared | None:
        """The memory that the worker has mapped, for large arrays; None without."""
        return self._memory.agreed

    def take_back(self, call: Call) -> None:
        """Free the room of arrays of a call that is not sent, and report the places in it otherwise."""
        self._memory.take_back(call)
        if call.freed and self._memory.shared is not None:
            self._memory.shared.put_back(call.freed)

    def take_read(self) -> tuple[int, ...]:
        """Return the places of arrays that were read here, for the next call's `freed`."""
        shared = self._memory.shared
        return () if shared is None else shared.take_read()

    def send(self, answer: ChannelAnswer, data: bytes) -> bool:
        """Send a packed call, whose `answer` is expected. If it returns False, the answer or the channel shows why."""
        if self.lost is not None:
            answer.outcome = WorkerLost(*self.lost.args)
        elif (channel := self.channel) is not None:  # otherwise the event loop has found it closed
            try:
                if channel.send(data):
                    return True
                # No other call is under way, so the worker has ended or was stopped.
                answer.outcome = WorkerLost(f"rank {self.rank}, the worker at {self.address}, reads no calls")
            except ChannelClosed:
                self.close_channel()
        return False

    def receive(self) -> bool:
        """Take a message that came by the channel; return True if a thread waited for this answer, which is no error.

        The event loop may call it, too.
        """
        if (channel := self.channel) is None:
            return False
        try:
            if (data := channel.receive()) is None:
                return False
        except ChannelClosed:
            self.close_channel()
            return False
        message = unpack(data)
        if isinstance(message, Call):
            return False
        if type(message) is Result and message.freed:
            self._free(message.freed)
        return self._answers.finish_from_thread(message)

    def close_channel(self) -> None:
        """Drop the channel that the rank has closed, and have the event loop mark the rank as lost."""
        self.channel = None
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._lose, "closed its session")

    async def outcome(self, seq: int) -> Answer:
        """Wait on the event loop for the answer to a call that was sent by the channel."""
        # The event loop takes over from the thread: the answer may be here, or come by channel.
        outcome, channel = self._answers.take_over(seq), self.channel
        try:
            if outcome is not None:
                self._answers.finish(seq, outcome)
            elif self.lost is not None:
                self._answers.finish(seq, WorkerLost(*self.lost.args))
            elif channel is not None:
                self._loop.add_reader(channel, self.receive)
            return await self._answers.future(seq)
        finally:
            self._answers.forget(seq)
            if channel is not None:
                self._loop.remove_reader(channel)

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
                self._answers.add_part(message)
            case Wanted():
                self.wanted(message.turn)
            case Freed():
                self._free(message.places)
            case Result() | Failure():
                self._busy = ""
                if isinstance(message, Result):
                    self._memory.passed(large_bytes(message.value))
                    if message.freed:
                        self._free(message.freed)
                self._answers.end(message)
            case _:
                raise MgraphError(f"a worker has sent a {type(message).__name__}, which is not a worker's message")

    def _free(self, places: tuple[int, ...]) -> None:
        """Free arrays that the rank has read. Any thread."""
        if (shared := self._memory.shared) is not None:
            shared.free(places)

    def _tell_freed(self, places: tuple[int, ...]) -> None:
        if self.lost is None:
            self._telling = asyncio.create_task(self.tell(Freed(places)))

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
            if (shared := self._memory.shared) is not None:
                shared.tell_read()
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
        self._answers.fail(self.lost)
        current = asyncio.current_task()
        for task in (self.reading, self._watching, *self._senders):
            if task is not current:
                task.cancel()

    def abandon(self) -> None:
        """Close only the comm. Works even after the event loop has ended."""
        with suppress(RuntimeError, OSError):
            self._comm.abort()


def _function_of(call: Call) -> str:
    """Return the name of a call's user function, empty if none."""
    return next((str(source["name"]) for source in call.args.get("sources", ()) if source["kind"] == "function"), "")


def _why(error: BaseException, problem: str) -> str:
    closed = isinstance(error, CommClosedError)
    return "closed its session" if closed else f"{problem} any more: {type(error).__name__}: {error}"
