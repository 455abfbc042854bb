"""Worker's end of a session: runs in the comm handler's coroutine, and frees its shard at the end.

The shard of a published graph stays, and other sessions may call it (`mgraph.worker.sessions.published`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from distributed.comm import Comm, CommClosedError

from mgraph.calls import IN_PLACE
from mgraph.channel import Channel, ChannelClosed, pack, unpack
from mgraph.comms import outlast
from mgraph.errors import DeviceError, InvalidOption, MgraphError
from mgraph.failures import encode_error
from mgraph.protocol import (
    BEAT_SECONDS,
    Abort,
    Beat,
    Call,
    Close,
    Done,
    Failure,
    Freed,
    Hello,
    Message,
    Part,
    Publish,
    Result,
    ShardState,
    Share,
    Turn,
    Wanted,
    Welcome,
)
from mgraph.shared import Shared
from mgraph.wire import decode, encode
from mgraph.worker.sessions.published import LockQueue, Published, PublishedShards
from mgraph.worker.sessions.thread import Asked, Servant, ShardThread

__all__ = ["Session"]

logger = logging.getLogger(__name__)

_RESULTS = frozenset(("result", "live"))  # arguments that name a result


class Session:
    """Session on a comm: reads calls, passes them to the shard's thread, and writes answers.

    Parameters
    ----------
    comm : Comm
        Only this session may use it from now on.
    hello : Hello
        The graph and the rank of the shard.
    make : callable
        Makes the shard's servant, for `ShardThread`.
    shards : PublishedShards
        The worker's published shards.
    published : Published, optional
        An existing shard; by default a new one is made.

    Attributes
    ----------
    ended : asyncio.Event
        Set once the shard is freed.
    """

    def __init__(
        self,
        comm: Comm,
        hello: Hello,
        make: Callable[[Callable[[], bool]], Servant],
        shards: PublishedShards,
        published: Published | None = None,
    ) -> None:
        self.comm, self.graph, self.rank, self._patience = comm, hello.graph, hello.rank, hello.patience
        self._size, self._shards, self._published = hello.size, shards, published
        self._loop = asyncio.get_running_loop()
        self._outbox: asyncio.Queue[Message | None] = asyncio.Queue()
        self._stopping = asyncio.Event()
        self._under_way: dict[int, int] = {}  # attempts of unanswered calls, by their number
        self._results: set[str] = set()  # results that this client may have on the shard
        self._shared: Shared | None = None  # memory of a client on this host
        if published is None:
            self.ended = asyncio.Event()
            self.thread = ShardThread(f"mgraph-{self.graph}-{self.rank}", make, self._thread_ended)
        else:
            self.ended, self.thread = published.ended, published.thread
            published.sessions.add(self)
        self._channel, self._why = Channel.connect(hello.channel) if hello.channel else (None, "")
        self._split: set[int] = set()  # calls by the channel whose answers are too large for it
        if self._channel is not None:
            self.thread.requests.listen(self._channel, self._read_channel)

    async def run(self) -> None:
        """Serve until the comm closes; return when the shard is freed."""
        # Start the reader, the writer and the beats.
        outlast(self.comm, self._patience)
        self._outbox.put_nowait(Welcome(why=self._why))
        if self._published is None:
            self.thread.start()
        self._beating = self._loop.call_later(BEAT_SECONDS, self._beat)
        reader, writer = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        try:
            await self._until_over(reader, writer)
        finally:
            # Free the shard if it ends with this session.
            if self._leave():
                self.thread.stop()
                await self.ended.wait()  # this ends, because a stopped thread runs only until it polls its flag
            self._channel = None  # closes the socket, once the thread has dropped it too
            self._beating.cancel()
            if self._shared is not None:
                self._shared.close()

            # Answer `Close`, for which the client waits, and end the comm.
            if not reader.cancelled() and reader.exception() is None:
                self._outbox.put_nowait(Result(reader.result(), {}, ShardState()))
                self._outbox.put_nowait(None)
                await asyncio.wait([writer], timeout=self._patience)
            writer.cancel()
            await asyncio.wait([writer])
            self._log_end(reader, writer)
            await self.comm.close()

    def stop(self) -> None:
        """End `run` as if the client had closed the comm. Does not wait."""
        self._stopping.set()

    async def _until_over(self, reader: asyncio.Task[int], writer: asyncio.Task[None]) -> None:
        """Wait for `stop`, or for the end of reader, writer or thread; then cancel the reader."""
        events = [asyncio.create_task(event.wait()) for event in (self._stopping, self.ended)]
        try:
            await asyncio.wait([reader, writer, *events], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reader, *events):
                task.cancel()
            await asyncio.wait([reader])

    def _log_end(self, *tasks: asyncio.Task[Any]) -> None:
        """Log the errors with which the tasks ended."""
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None:  # a closed comm is normal: most graphs end together with their client
                level = logging.DEBUG if isinstance(error, CommClosedError) else logging.WARNING
                what = "the session of graph %s, rank %d, ended: %s: %s"
                logger.log(level, what, self.graph, self.rank, type(error).__name__, error)

    def _leave(self) -> bool:
        """Return True if the shard ends with this session. Otherwise abort its calls and free its results."""
        published = self._published
        if published is None or self._shards.leave(published, self):
            return True
        # The shard's thread may add to both, or answer a call, meanwhile.
        if (attempt := max(self._under_way.values(), default=None)) is not None:
            self.thread.abort(attempt)
            self.thread.requests.put(Asked(Abort(-1, attempt), _ignore))
        if results := self._results.copy():
            self.thread.requests.put(Asked(Call(-1, -1, "inspect", {}, tuple(results)), _ignore))
        return False

    # ---- in --------------------------------------------------------------------------------------------------------

    async def _read(self) -> int:
        """Read requests until `Close`, and return its number."""
        while True:
            # Calls and aborts are answered by the thread, the others here.
            message = decode(await self.comm.read())
            match message:
                case Call():
                    self._note(message)
                    if self._shared is not None:
                        self._read_shared(message, self._shared)
                    self.thread.received()
                    self.thread.requests.put(Asked(message, self._post, self._shared))
                case Abort():
                    self.thread.abort(message.attempt)
                    self.thread.requests.put(Asked(message, self._post))
                case Share():
                    self._outbox.put_nowait(Result(message.seq, {"why": self._share(message)}, self.thread.state))
                case Freed():
                    if self._shared is not None:
                        self._shared.free(message.places)
                case Publish():
                    self._outbox.put_nowait(self._publish(message))
                case Turn():
                    self._request_lock(message.seq)
                case Done():
                    if self._published is not None:
                        self._published.lock.end(self, message.turn, message.attempt, message.known)
                case Close():
                    return message.seq
                case _:
                    raise MgraphError(f"a client has sent a {type(message).__name__}, which is not a client's message")
            del message

    def _note(self, call: Call) -> None:
        """Record a call and its results, for the case that this session ends before its answer."""
        self._under_way[call.seq] = call.attempt
        if not _RESULTS.isdisjoint(call.args):
            self._results.update(call.args[name] for name in _RESULTS.intersection(call.args))
        if call.free:
            self._results.difference_update(call.free)

    # ---- shared memory -----------------------------------------------------------------------------------------------

    def _share(self, message: Share) -> str:
        """Map the client's memory. Returns the error if that fails, or ""."""
        try:
            if message.common:
                if self._shared is None:
                    return "this session has no memory of its own"
                self._shared.map_common(message.place)
                return ""
            self._shared = Shared.of_worker(message.place, self._loop, self._tell_freed)
        except DeviceError as error:
            return str(error)
        return ""

    def _read_shared(self, call: Call, shared: Shared) -> None:
        """Replace offsets by arrays in shared memory: views of columns, copies of others."""
        if dict not in map(type, call.args.values()):
            return
        for name, value in call.args.items():
            array = shared.view(value)
            if array is not value:
                call.args[name] = array if name in IN_PLACE else array.copy()

    def _tell_freed(self, places: tuple[int, ...]) -> None:
        self._outbox.put_nowait(Freed(places))

    # ---- a published graph -------------------------------------------------------------------------------------------

    def _publish(self, message: Publish) -> Message:
        """Publish the shard under a name, or withdraw its name."""
        if message.name is None:
            if self._published is not None:
                self._published.name = None
        elif self._published is None or self._published.name is None:
            if (taken := self._shards.named(message.name)) is not None:
                error = InvalidOption(f"graph {taken.graph} is published as {message.name!r} already")
                return Failure(message.seq, encode_error(error), self.thread.state)
            # The shard now belongs to the worker; this session uses it.
            if self._published is None:
                lock = LockQueue(message.attempt, message.known)
                shard = self.graph, self.rank, self._size, self.thread, self.ended, message.card, lock
                self._published = self._shards[self.graph, self.rank] = Published(*shard, sessions={self})
            self._published.name = message.name
        return Result(message.seq, {}, self.thread.state)

    def _request_lock(self, seq: int) -> None:
        """Request the graph's lock; an unpublished graph needs none."""
        if self._published is None:
            self._give(seq, {"attempt": None})
        else:
            want = partial(self._outbox.put_nowait, Wanted(seq))
            self._published.lock.ask(self, seq, partial(self._give, seq), want)

    def _give(self, seq: int, value: dict[str, Any]) -> None:
        self._outbox.put_nowait(Result(seq, value, self.thread.state))

    # ---- out -------------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        """Write the messages in the outbox. Only this coroutine writes to the comm."""
        while (message := await self._outbox.get()) is not None:
            try:
                await self.comm.write(encode(message), on_error="raise")
            except Exception as error:
                if self.comm.closed() or not isinstance(message, Part | Result):
                    raise
                # The answer cannot be serialized, or does not fit into memory: only its own call fails.
                await self.comm.write(encode(Failure(message.seq, encode_error(error), self.thread.state)))
            del message

    def _beat(self) -> None:
        """Send a `Beat` now, and again every `BEAT_SECONDS`."""
        self._beating = self._loop.call_later(BEAT_SECONDS, self._beat)
        self._outbox.put_nowait(Beat(self.thread.busy, self.thread.live.epoch))

    # ---- from the shard's thread -------------------------------------------------------------------------------------

    def _post(self, message: Message) -> None:
        with suppress(RuntimeError):  # the worker's event loop is closed, so nothing can be sent
            self._loop.call_soon_threadsafe(self._answered, message)

    def _answered(self, message: Message) -> None:
        if isinstance(message, Result | Failure):
            self._under_way.pop(message.seq, None)
            message = self._with_freed(message)
        self._outbox.put_nowait(message)

    def _with_freed(self, message: Result | Failure) -> Result | Failure:
        """Return an answer with the places of arrays that were read here. A `Failure` has none."""
        if isinstance(message, Result) and self._shared is not None and (read := self._shared.take_read()):
            return message._replace(freed=message.freed + read)
        return message

    def _read_channel(self, data: bytes) -> Asked:
        """Return the request in a message of the channel."""
        call = unpack(data)
        if not isinstance(call, Call):
            raise MgraphError(f"a client has sent a {type(call).__name__} by its channel, which carries calls only")
        self._note(call)
        if self._shared is not None:
            if call.freed:
                self._shared.free(call.freed)
            self._read_shared(call, self._shared)
        return tuple.__new__(Asked, (call, self._post_to_channel, self._shared, True))

    def _post_to_channel(self, message: Message) -> None:
        """Answer a call that came by the channel: there, or by the comm if the answer is large."""
        assert isinstance(message, (Result, Failure, Part))
        if isinstance(message, Part):
            self._split.add(message.seq)
        elif message.seq in self._split:
            self._split.discard(message.seq)
        else:
            # First, since a client that has its answer may leave, and another one continues with this attempt.
            self._under_way.pop(message.seq, None)
            message = self._with_freed(message)  # otherwise a message by the comm would report them
            if self._send(message):
                return
        self._post(message)

    def _send(self, message: Result | Failure) -> bool:
        """Send a message by the channel. Return False if it is too large for it, or the client has ended."""
        channel, data = self._channel, pack(message)
        try:
            return channel is not None and data is not None and channel.send(data)
        except ChannelClosed:
            return False

    def _thread_ended(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.ended.set)


def _ignore(message: Message) -> None:
    """Drop the answer to a client that has left."""
