"""The worker's end of a session: it lives in the handler's coroutine, and its shard lives as long as it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed.comm import Comm
from distributed.core import Status

from mgraph.errors import MgraphError
from mgraph.runtime.protocol import BEAT_SECONDS, VERSION, encode_error
from mgraph.runtime.thread import Call, Servant, ShardThread

__all__ = ["Session", "SessionTable"]

logger = logging.getLogger(__name__)


class Session:
    """Reads calls from one comm, has the shard's thread run them, and writes their answers.

    Parameters
    ----------
    comm : Comm
        Taken over: nothing else reads or writes it.
    graph : str
        The graph's id.
    rank : int
        The rank that the shard is.
    make : callable
        Makes the shard's servant; see `ShardThread`.

    Attributes
    ----------
    ended : asyncio.Event
        Set once the shard is freed.
    """

    def __init__(self, comm: Comm, graph: str, rank: int, make: Callable[[Callable[[], bool]], Servant]) -> None:
        self.comm, self.graph, self.rank = comm, graph, rank
        self._loop = asyncio.get_running_loop()
        self._outbox: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.ended, self._stopping = asyncio.Event(), asyncio.Event()
        self.thread = ShardThread(f"mgraph-{graph}-{rank}", make, self._post, self._thread_ended)

    async def run(self) -> None:
        """Serve until the comm closes, for whatever reason; returns when the shard is freed."""
        closing: int | None = None
        writer = asyncio.create_task(self._write())
        self._outbox.put_nowait({"type": "welcome", "version": VERSION})
        self.thread.start()
        try:
            closing = await self._read_while_served()
        except OSError:  # the client closed, died, or cannot be reached: its graph ends with it
            logger.debug("session of graph %s rank %d: the client is gone", self.graph, self.rank)
        finally:
            self.thread.stop()
            await self.ended.wait()  # ends: a stopped thread runs at most to the next poll of its flag
            if closing is not None:
                self._outbox.put_nowait({"type": "result", "seq": closing, "value": {}})
            self._outbox.put_nowait(None)
            await writer
            await self.comm.close()

    def stop(self) -> None:
        """Have `run` end as if the client had closed the comm. Never waits."""
        self._stopping.set()

    async def _read_while_served(self) -> int | None:
        """Read until the comm closes, `stop`, or the shard's thread ends by itself, which only a defect makes it do."""
        reader = asyncio.create_task(self._read())
        others = [asyncio.create_task(event.wait()) for event in (self._stopping, self.ended)]
        await asyncio.wait([reader, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in (reader, *others):
            task.cancel()
        await asyncio.wait([reader])
        return None if reader.cancelled() else reader.result()

    async def _read(self) -> int | None:
        """Take calls; returns the number of the call that closes the session."""
        while True:
            message = await self.comm.read()
            kind = message["type"]
            if kind == "call":
                self.thread.submit(
                    Call(message["seq"], message["attempt"], message["method"], message["args"], tuple(message["free"]))
                )
            elif kind == "abort":
                self.thread.abort(message["seq"], message["attempt"])
            elif kind == "close":
                return int(message["seq"])
            else:
                raise MgraphError(f"session of graph {self.graph} rank {self.rank}: unknown message type {kind!r}")
            del message

    async def _write(self) -> None:
        """Write what is in the outbox; a comm has one writer."""
        beats = asyncio.create_task(self._beat())
        try:
            while (message := await self._outbox.get()) is not None:
                await self.comm.write(message)
        except OSError:  # the reader sees it too, and ends the session
            pass
        finally:
            beats.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self._outbox.put_nowait({"type": "beat"})

    def _post(self, message: dict[str, Any]) -> None:
        with suppress(RuntimeError):  # the worker's event loop is closed: there is nobody left to tell
            self._loop.call_soon_threadsafe(self._outbox.put_nowait, message)

    def _thread_ended(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.ended.set)


class SessionTable:
    """The sessions of one worker; its `accept` is the handler of the comms that ask for one.

    Parameters
    ----------
    make : callable
        ``make(hello, aborted)`` makes the servant of a session, in the session's thread.
    """

    def __init__(self, make: Callable[[dict[str, Any], Callable[[], bool]], Servant]) -> None:
        self.sessions: dict[tuple[str, int], Session] = {}
        self._make = make
        self._closed = False

    async def accept(self, comm: Comm, hello: dict[str, Any]) -> Status:
        """Serve one session on `comm`, until it closes."""
        try:
            self._check(hello)
        except MgraphError as error:
            await comm.write({"type": "error", "error": encode_error(error)})
            return Status.dont_reply
        key = (str(hello["graph"]), int(hello["rank"]))
        session = self.sessions[key] = Session(comm, *key, lambda aborted: self._make(hello, aborted))
        try:
            await session.run()
        finally:
            del self.sessions[key]
        return Status.dont_reply

    def _check(self, hello: dict[str, Any]) -> None:
        if hello.get("version") != VERSION:
            raise MgraphError(
                f"this worker speaks version {VERSION} of mgraph's protocol and the client version "
                f"{hello.get('version')}: install the same mgraph on both"
            )
        if self._closed:
            raise MgraphError("this worker is closing")
        if (hello["graph"], hello["rank"]) in self.sessions:
            raise MgraphError(f"rank {hello['rank']} of graph {hello['graph']} is already held by this worker")

    async def close(self, timeout: float) -> None:
        """End every session; waits at most `timeout` seconds for the shards to be freed."""
        self._closed = True
        for session in list(self.sessions.values()):
            session.stop()
        waiting = [asyncio.create_task(session.ended.wait()) for session in self.sessions.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=timeout)
            for task in late:
                task.cancel()
