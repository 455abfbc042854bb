"""The client's end of one session: requests out, answers in, and the watch over a worker that falls silent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import numpy as np
from distributed.comm import Comm, connect

from mgraph.errors import MgraphError, WorkerLost
from mgraph.runtime.protocol import LOST_SECONDS, SESSION_HANDLER, VERSION, decode_error

__all__ = ["Link"]

TICKS = 14  #: looks at the clock per `LOST_SECONDS`


class Link:
    """One rank as the coordinator sees it. Everything here runs on the client's event loop.

    Attributes
    ----------
    rank, address
        The rank, and the address of the worker that holds it.
    lost : WorkerLost | None
        Why the rank can no longer be reached; never reset.
    """

    def __init__(self, graph: str, rank: int, address: str, comm: Comm) -> None:
        self.graph, self.rank, self.address = graph, rank, address
        self.lost: WorkerLost | None = None
        self._comm = comm
        self._heard = False
        self._writing = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._parts: dict[tuple[int, str], list[np.ndarray]] = {}
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._watch())]

    @classmethod
    async def open(cls, graph: str, rank: int, size: int, address: str, connection_args: dict[str, Any]) -> Link:
        """Open the session of `rank` with the worker at `address`.

        Raises
        ------
        WorkerLost
            The worker cannot be reached from this process, or does not answer within `LOST_SECONDS`.
        MgraphError
            It answers, but has no mgraph, or another version of it.
        """
        hello = {"version": VERSION, "graph": graph, "rank": rank, "size": size}
        comm = None
        try:
            async with asyncio.timeout(LOST_SECONDS):
                comm = await connect(address, timeout=LOST_SECONDS, **connection_args)
                await comm.write({"op": SESSION_HANDLER, "hello": hello})
                cls._check_welcome(await comm.read(), address)
        except OSError as error:  # TimeoutError is one, and so is what Dask raises for a closed comm
            if comm is not None:
                comm.abort()
            raise WorkerLost(
                f"graph {graph}: this client cannot open a session with the worker at {address} (rank {rank}): "
                f"{error or 'no answer'}; workers must be reachable from the client, not only from the scheduler"
            ) from error
        except BaseException:
            if comm is not None:
                comm.abort()
            raise
        return cls(graph, rank, address, comm)

    @staticmethod
    def _check_welcome(message: Any, address: str) -> None:
        if message is None:
            raise MgraphError(
                f"the worker at {address} has no mgraph plugin (no handler {SESSION_HANDLER!r}); the same mgraph must "
                "be installed on every worker"
            )
        if message.get("status") == "uncaught-error":
            raise message.get("exception") or MgraphError(message.get("exception_text"))
        if message.get("type") == "error":
            raise decode_error(message["error"])
        if message.get("version") != VERSION:
            raise MgraphError(
                f"the worker at {address} speaks version {message.get('version')} of mgraph's protocol and this "
                f"client version {VERSION}: install the same mgraph on both"
            )

    # ---- requests ----------------------------------------------------------------------------------------------------

    def request(self, seq: int, message: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        """Send `message` as number `seq`; the future has its answer, or the error, or `WorkerLost`."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda f: f.cancelled() or f.exception())  # read or not, it has been looked at
        if self.lost is not None:
            future.set_exception(self.lost)
            return future
        self._waiting[seq] = future
        self._tasks.append(asyncio.create_task(self._send({**message, "seq": seq})))
        self._tasks = [task for task in self._tasks if not task.done()]
        return future

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            async with self._writing:  # a large message takes turns of the loop: none may overtake it
                await self._comm.write(message, on_error="raise")
        except OSError:
            self._lose("closed its session")
        except Exception as error:  # arguments that will not serialize: nothing was sent
            self._finish(message["seq"], error)

    # ---- answers -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            while True:
                message = await self._comm.read()
                self._heard = True
                self._take(message)
                del message
        except OSError:
            self._lose("closed its session")

    def _take(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "part":
            self._parts.setdefault((message["seq"], message["name"]), []).append(message["array"])
        elif kind in ("result", "error"):
            parts = self._parts_of(message["seq"])
            try:
                outcome = decode_error(message["error"]) if kind == "error" else {**message["value"], **_joined(parts)}
            except Exception as error:  # an answer for which there is no room here fails its call, and no other
                outcome = error
            self._finish(message["seq"], outcome)

    def _parts_of(self, seq: int) -> dict[str, list[np.ndarray]]:
        return {name: self._parts.pop((of, name)) for of, name in list(self._parts) if of == seq}

    def _finish(self, seq: int, outcome: dict[str, Any] | BaseException) -> None:
        future = self._waiting.pop(seq, None)
        if future is None or future.done():
            return
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    # ---- the end -----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Lose the rank after `LOST_SECONDS` of silence.

        Counts its own ticks, not the clock: if this process was stopped or its event loop was held up, then the beats
        lie unread in the socket, and the clock alone would call every worker dead.
        """
        silent = 0
        while silent < TICKS:
            await asyncio.sleep(LOST_SECONDS / TICKS)
            silent = 0 if self._heard else silent + 1
            self._heard = False
        self._lose(f"has not answered for {LOST_SECONDS:g} s")

    def _lose(self, why: str) -> None:
        if self.lost is None:
            self.lost = WorkerLost(f"graph {self.graph}: rank {self.rank}, the worker at {self.address}, {why}")
        self.drop()

    async def close(self, seq: int, timeout: float) -> bool:
        """End the session; returns whether the worker said that the shard is freed, within `timeout` seconds."""
        freed = False
        if self.lost is None:
            done, _ = await asyncio.wait({self.request(seq, {"type": "close"})}, timeout=timeout)
            freed = any(future.exception() is None for future in done)
        self.drop()
        await asyncio.wait(self._tasks)  # ends: all of them were cancelled
        return freed

    def drop(self) -> None:
        """Close the comm without a word and end the tasks; the worker frees the shard when it notices."""
        self.lost = self.lost or WorkerLost(f"graph {self.graph}: the session of rank {self.rank} was closed")
        self.abandon()
        for seq in list(self._waiting):
            self._finish(seq, self.lost)
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()

    def abandon(self) -> None:
        """Close the comm and nothing else: what can still be done when the event loop has ended."""
        with suppress(RuntimeError, OSError):
            self._comm.abort()


def _joined(parts: dict[str, list[np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}
