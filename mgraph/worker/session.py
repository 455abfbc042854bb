"""The worker's end of a session. It runs in the comm handler's coroutine, and frees its shard when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from distributed.comm import Comm, CommClosedError
from distributed.core import Status

from mgraph.comms import outlast
from mgraph.errors import MgraphError
from mgraph.protocol import (
    BEAT_SECONDS,
    VERSION,
    Abort,
    Beat,
    Call,
    Close,
    Failure,
    Hello,
    Message,
    Part,
    Result,
    ShardState,
    Welcome,
    encode_error,
)
from mgraph.wire import decode, encode
from mgraph.worker.thread import Servant, ShardThread

__all__ = ["Session", "SessionTable"]

logger = logging.getLogger(__name__)


class Session:
    """Reads calls from one comm, passes them to the shard's thread, and writes their answers.

    Parameters
    ----------
    comm : Comm
        Only this session may use it from now on.
    hello : Hello
        The graph and the rank of the shard.
    make : callable
        Makes the shard's servant; see `ShardThread`.

    Attributes
    ----------
    ended : asyncio.Event
        Set once the shard is freed.
    """

    def __init__(self, comm: Comm, hello: Hello, make: Callable[[Callable[[], bool]], Servant]) -> None:
        self.comm, self.graph, self.rank, self._patience = comm, hello.graph, hello.rank, hello.patience
        self._loop = asyncio.get_running_loop()
        self._outbox: asyncio.Queue[Message | None] = asyncio.Queue()
        self.ended, self._stopping = asyncio.Event(), asyncio.Event()
        self.thread = ShardThread(f"mgraph-{self.graph}-{self.rank}", make, self._post, self._thread_ended)

    async def run(self) -> None:
        """Serve until the comm closes for any reason; return when the shard is freed."""
        outlast(self.comm, self._patience)
        self._outbox.put_nowait(Welcome())
        self.thread.start()
        self._beating = self._loop.call_later(BEAT_SECONDS, self._beat)
        reader, writer = asyncio.create_task(self._read()), asyncio.create_task(self._write())
        try:
            await self._until_over(reader, writer)
        finally:
            self.thread.stop()
            await self.ended.wait()  # this ends, because a stopped thread runs only until it polls its flag
            self._beating.cancel()
            if not reader.cancelled() and reader.exception() is None:  # the client waits for the answer to `Close`
                self._outbox.put_nowait(Result(reader.result(), {}, ShardState()))
                self._outbox.put_nowait(None)
                await asyncio.wait([writer], timeout=self._patience)
            writer.cancel()
            await asyncio.wait([writer])
            self._log_end(reader, writer)
            await self.comm.close()

    def stop(self) -> None:
        """Make `run` end as if the client had closed the comm. Does not wait."""
        self._stopping.set()

    async def _until_over(self, reader: asyncio.Task[int], writer: asyncio.Task[None]) -> None:
        """Wait for `stop`, or until the reader, the writer or (by a bug) the thread has ended; then end the reader."""
        events = [asyncio.create_task(event.wait()) for event in (self._stopping, self.ended)]
        try:
            await asyncio.wait([reader, writer, *events], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reader, *events):
                task.cancel()
            await asyncio.wait([reader])

    def _log_end(self, *tasks: asyncio.Task[Any]) -> None:
        for task in tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None:  # a closed comm is normal: most graphs end together with their client
                level = logging.DEBUG if isinstance(error, CommClosedError) else logging.WARNING
                what = "the session of graph %s, rank %d, ended: %s: %s"
                logger.log(level, what, self.graph, self.rank, type(error).__name__, error)

    # ---- in --------------------------------------------------------------------------------------------------------

    async def _read(self) -> int:
        """Read requests until `Close`; returns its number."""
        while True:
            message = decode(await self.comm.read())
            match message:
                case Call():
                    self.thread.arrived()
                    self.thread.requests.put(message)
                case Abort():
                    self.thread.abort(message.attempt)
                    self.thread.requests.put(message)
                case Close():
                    return message.seq
                case _:
                    raise MgraphError(f"a client has sent a {type(message).__name__}, which is not a client's message")
            del message

    # ---- out -------------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        """Write the messages in the outbox. Only this coroutine writes to the comm."""
        while (message := await self._outbox.get()) is not None:
            try:
                await self.comm.write(encode(message), on_error="raise")
            except Exception as error:
                if self.comm.closed() or not isinstance(message, Part | Result):
                    raise
                # the answer cannot be serialized, or there is no memory for it: only its own call fails
                await self.comm.write(encode(Failure(message.seq, encode_error(error), self.thread.state)))
            del message

    def _beat(self) -> None:
        """Send a `Beat` now, and again every `BEAT_SECONDS`."""
        self._beating = self._loop.call_later(BEAT_SECONDS, self._beat)
        self._outbox.put_nowait(Beat(self.thread.busy))

    # ---- from the shard's thread -------------------------------------------------------------------------------------

    def _post(self, message: Message) -> None:
        with suppress(RuntimeError):  # the worker's event loop is closed, so nothing can be sent
            self._loop.call_soon_threadsafe(self._outbox.put_nowait, message)

    def _thread_ended(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.ended.set)


class SessionTable:
    """The sessions of one worker. `accept` is the handler of comms that open one.

    Parameters
    ----------
    make : callable
        ``make(hello, aborted)`` makes the servant of a session, in the session's thread.
    """

    def __init__(self, make: Callable[[Hello, Callable[[], bool]], Servant]) -> None:
        self.sessions: dict[tuple[str, int], Session] = {}
        self._make = make
        self._closed = False

    async def accept(self, comm: Comm, hello: dict[str, Any]) -> Status:
        """Serve one session on `comm` until it closes; `hello` is a `Hello` as a dict."""
        try:
            said = self._checked(hello)
        except MgraphError as error:
            await comm.write(encode(Failure(0, encode_error(error), ShardState())))
            return Status.dont_reply
        key = said.graph, said.rank
        session = self.sessions[key] = Session(comm, said, partial(self._make, said))
        try:
            await session.run()
        finally:
            del self.sessions[key]
        return Status.dont_reply

    def _checked(self, hello: dict[str, Any]) -> Hello:
        """The `Hello` in `hello`; `MgraphError` if its session cannot be opened."""
        if hello.get("version") != VERSION:  # checked first, since another version has other fields
            raise MgraphError(
                f"this worker has version {VERSION} of mgraph's protocol and the client version "
                f"{hello.get('version')}; install the same version of mgraph on both"
            )
        said: Hello = decode(hello)
        if self._closed:
            raise MgraphError(f"graph {said.graph}: the worker of rank {said.rank} is closing")
        if (said.graph, said.rank) in self.sessions:
            raise MgraphError(f"rank {said.rank} of graph {said.graph} is already held by this worker")
        return said

    async def close(self, timeout: float) -> None:
        """End every session; wait at most `timeout` seconds until the shards are freed."""
        self._closed = True
        for session in list(self.sessions.values()):
            session.stop()
        waiting = [asyncio.create_task(session.ended.wait()) for session in self.sessions.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=timeout)
            for task in late:
                task.cancel()
