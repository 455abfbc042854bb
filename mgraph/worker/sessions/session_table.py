"""Sessions of a worker: opens them for the comms of clients, and ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from distributed.comm import Comm
from distributed.core import Status

from mgraph.errors import GraphClosed, MgraphError
from mgraph.failures import encode_error
from mgraph.protocol import VERSION, Failure, Hello, ShardState
from mgraph.wire import decode, encode
from mgraph.worker.sessions.published import PublishedShards
from mgraph.worker.sessions.session import Session
from mgraph.worker.sessions.thread import Servant

__all__ = ["SessionTable"]


class SessionTable:
    """Sessions of a worker. `accept` handles the comms that open them.

    Parameters
    ----------
    make : callable
        ``make(hello, aborted)`` makes the servant of a session, in the session's thread.

    Attributes
    ----------
    sessions : dict of Session
        By graph and rank, the sessions whose clients have created their shards.
    published : PublishedShards
    """

    def __init__(self, make: Callable[[Hello, Callable[[], bool]], Servant]) -> None:
        self.sessions: dict[tuple[str, int], Session] = {}
        self.published = PublishedShards()
        self._make = make

    async def accept(self, comm: Comm, hello: dict[str, Any]) -> Status:
        """Serve a session on `comm` until it closes; `hello` is a `Hello` as a dict."""
        try:
            request = self._checked(hello)
        except MgraphError as error:
            await comm.write(encode(Failure(0, encode_error(error), ShardState())))
            return Status.dont_reply
        # Sessions that attach are in the published shard's set.
        key = request.graph, request.rank
        session = Session(
            comm, request, partial(self._make, request), self.published, self.published[key] if request.attach else None
        )
        if not request.attach:
            self.sessions[key] = session
        try:
            await session.run()
        finally:
            if not request.attach:
                del self.sessions[key]
        return Status.dont_reply

    def _checked(self, hello: dict[str, Any]) -> Hello:
        """Decode a `Hello`; `MgraphError` if its session cannot be opened."""
        # The version comes first, since other versions have other fields.
        if hello.get("version") != VERSION:
            raise MgraphError(
                f"this worker has version {VERSION} of mgraph's protocol and the client version "
                f"{hello.get('version')}; install the same version of mgraph on both"
            )
        request: Hello = decode(hello)
        if self.published.closed:
            raise MgraphError(f"graph {request.graph}: the worker of rank {request.rank} is closing")

        # Attach to a published shard, or create a new one.
        published = self.published.get((request.graph, request.rank))
        if request.attach:
            if published is None or published.name is None or published.ended.is_set():
                raise GraphClosed(
                    f"graph {request.graph} is not published any more by the worker of rank {request.rank}"
                )
        elif (request.graph, request.rank) in self.sessions or published is not None:
            raise MgraphError(f"rank {request.rank} of graph {request.graph} is already held by this worker")
        return request

    async def close(self, timeout: float) -> None:
        """End every session; wait at most `timeout` seconds for their shards."""
        self.published.closed = True
        for session in list(self.sessions.values()):
            session.stop()
        for published in self.published.values():
            published.thread.stop()
            for session in published.sessions:
                session.stop()
        # Wait for all shards at once.
        ended = [shard.ended for shards in (self.sessions, self.published) for shard in shards.values()]
        waiting = [asyncio.create_task(event.wait()) for event in ended]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=timeout)
            for task in late:
                task.cancel()
