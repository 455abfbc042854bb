"""Dispatcher of a Dask worker: passes the comms that other ranks open to their exchanges.

A dispatcher uses the worker's event loop, but does not refer to the worker or to graphs. `CommDispatcher.accept` is
registered as the worker's comm handler `HANDLER`. The first message of a rank that connects, and the answer:

    {"op": HANDLER, "key": key, "source": rank, "target": rank}
    {"status": "OK"} | {"status": "error", "message": text}
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from distributed.comm import Comm
from distributed.comm import connect as open_comm
from distributed.core import Status

from mgraph.errors import ExchangeError

__all__ = ["HANDLER", "CommDispatcher", "Inbox", "Key"]

HANDLER = "mgraph_exchange"  #: the name of `CommDispatcher.accept` among a worker's comm handlers

Key = tuple[str, int]  #: the graph's id and the number of the attempt


class Inbox:
    """Comms from the other ranks to an exchange.

    Used on the event loop only.

    Attributes
    ----------
    comms : dict of rank to comm
        The comm of each rank that has connected.
    full : asyncio.Event
        Set once every other rank has connected.
    closed : asyncio.Event
        Set when the exchange is closed, so that the handlers of the comms return.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.comms: dict[int, Comm] = {}
        self.full, self.closed = asyncio.Event(), asyncio.Event()
        if size == 1:
            self.full.set()

    def add(self, source: int, comm: Comm) -> None:
        """Store the comm of rank `source`.

        Raises `ExchangeError` for an unknown rank, or a second comm of a rank.
        """
        if not 0 <= source < self.size or source == self.rank:
            raise ExchangeError(f"rank {self.rank} of {self.size} got a hello from rank {source}")
        if source in self.comms:
            raise ExchangeError(f"rank {self.rank} got a second hello from rank {source}")
        self.comms[source] = comm
        if len(self.comms) == self.size - 1:
            self.full.set()

    def close(self) -> None:
        """Abort the comms and let their handlers return."""
        self.closed.set()
        for comm in self.comms.values():
            comm.abort()


class CommDispatcher:
    """Dispatcher of incoming comms and connector of outgoing ones, for all graphs of a worker.

    Parameters
    ----------
    address : str
        The worker's contact address, at which other workers reach it.
    loop : asyncio.AbstractEventLoop
        The running event loop that the comms belong to.
    connection_args : mapping, optional
        The worker's ``connection_args`` for `distributed.comm.connect`, with TLS and interfaces.
    deserialize : bool
        True to deserialize what outgoing comms read, like the worker's own comms.
    """

    def __init__(
        self,
        address: str,
        loop: asyncio.AbstractEventLoop,
        connection_args: Mapping[str, Any] | None = None,
        *,
        deserialize: bool = True,
    ) -> None:
        self.address, self.loop, self.deserialize = address, loop, deserialize
        self.connection_args = dict(connection_args or {})
        self._inboxes: dict[tuple[Key, int], Inbox] = {}

    def __len__(self) -> int:
        """Return the number of open exchanges on this worker."""
        return len(self._inboxes)

    def open(self, key: Key, rank: int, size: int) -> Inbox:
        """Open an inbox for rank `rank` of `key`. Callable from any thread.

        Raises `ExchangeError` if it is open already.
        """
        inbox = Inbox(rank, size)
        if self._inboxes.setdefault((key, rank), inbox) is not inbox:
            raise ExchangeError(
                f"graph {key[0]}, attempt {key[1]}: rank {rank} has an exchange on {self.address} already"
            )
        return inbox

    def release(self, key: Key, rank: int) -> None:
        """Close an inbox and remove it, on the event loop.

        Ignores unknown keys.
        """
        inbox = self._inboxes.pop((key, rank), None)
        if inbox is not None:
            inbox.close()

    def close(self) -> None:
        """Close every inbox, so that waiting calls raise `Aborted`.

        Call it on the event loop.
        """
        for key, rank in list(self._inboxes):
            self.release(key, rank)

    async def accept(self, comm: Comm, key: tuple[Any, ...], source: int, target: int) -> Status:
        """Pass a comm from rank `source` to the inbox of rank `target`: the comm handler `HANDLER`.

        Returns only when the exchange closes, because a Dask server reads from a comm after its handler has returned.
        """
        # Find the inbox. A refusal is the answer to the sender.
        inbox = self._inboxes.get(((str(key[0]), int(key[1])), target))
        try:
            if inbox is None:
                raise ExchangeError(f"{self.address} has no rank {target} of graph {key[0]}, attempt {key[1]}")
            inbox.add(source, comm)
        except ExchangeError as error:
            await comm.write({"status": "error", "message": str(error)})
            await comm.close()
            return Status.dont_reply
        comm.allow_offload = False  # deserializing makes views, cheaper than a switch of threads

        # Keep the comm open until the exchange closes.
        try:
            await comm.write({"status": "OK"})
            await inbox.closed.wait()
        finally:
            comm.abort()
        return Status.dont_reply

    async def connect(self, address: str, key: Key, source: int, target: int, timeout: float) -> Comm:
        """Open a comm from rank `source` on this worker to rank `target` at `address`.

        Raises
        ------
        OSError, TimeoutError
            The worker at `address` does not answer within `timeout` seconds.
        ExchangeError
            The worker has no such exchange, or no handler `HANDLER`.
        """
        comm = await open_comm(address, timeout=timeout, deserialize=self.deserialize, **self.connection_args)
        # Say hello, and check the answer.
        try:
            comm.allow_offload = False
            await comm.write({"op": HANDLER, "key": key, "source": source, "target": target})
            answer = await comm.read()
            if not isinstance(answer, dict) or answer.get("status") != "OK":
                # a server without this handler answers None
                reason = answer.get("message") if isinstance(answer, dict) else "its worker has no comm dispatcher"
                raise ExchangeError(f"rank {target} at {address} refused rank {source}: {reason}")
        except BaseException:
            comm.abort()
            raise
        return comm
