"""Opening a session with a worker."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

import dask.config
from distributed.comm import Comm, connect

from mgraph.channel import Listener
from mgraph.client.connections.local_memory import shared_bytes
from mgraph.client.connections.session import Session
from mgraph.comms import outlast
from mgraph.errors import MgraphError, WorkerLost
from mgraph.failures import decode_error
from mgraph.protocol import SILENCE_SECONDS, VERSION, Hello
from mgraph.wire import SESSION_HANDLER, encode

__all__ = ["open_session", "reach"]

logger = logging.getLogger(__name__)

OPTION = "mgraph.channels"  #: of Dask's configuration: False sends every call by the comm
ATTEMPT_SECONDS = 0.25  #: of the first attempt to connect; a later one lasts `LONGER` times the one before it
LONGER = 4


async def open_session(hello: Hello, address: str, connection_args: dict[str, Any]) -> Session:
    """An open session with the worker at `address`. Logs a warning after `SILENCE_SECONDS` without an answer.

    Raises
    ------
    WorkerLost
        Nobody listens at the address, which is found at once; or the worker does not answer within ``hello.patience``
        seconds.
    MgraphError
        The worker does not have mgraph, or has another version of its protocol.
    """
    who = f"graph {hello.graph}: the worker at {address} (rank {hello.rank})"
    note = f"{who} has not answered for {SILENCE_SECONDS:g} s; it counts as lost after {hello.patience:g} s"
    late = asyncio.get_running_loop().call_later(SILENCE_SECONDS, logger.warning, note)
    comm, channel, why = None, None, f"{OPTION} is False"
    listener = None if hello.attach or not dask.config.get(OPTION, True) else Listener()
    try:
        async with asyncio.timeout(hello.patience):
            comm = await reach(address, hello.patience, connection_args)
            if listener is not None:
                hello = replace(hello, channel=listener.name)
            await comm.write({"op": SESSION_HANDLER, "hello": encode(hello)})
            message = await comm.read()
            _check_welcome(message, address)
            if listener is not None:
                channel, why = listener.accept(), str(message.get("why"))
            outlast(comm, hello.patience)
    except BaseException as error:
        if comm is not None:
            comm.abort()
        if not isinstance(error, OSError):  # TimeoutError and Dask's CommClosedError are OSErrors
            raise
        raise WorkerLost(
            f"{who} cannot be reached from this process: {str(error) or 'no answer'}; workers must be reachable from "
            "the client, not only from the scheduler"
        ) from error
    finally:
        late.cancel()
        if listener is not None:
            listener.close()
    session = Session(hello, address, comm, shared_bytes(address), channel)
    if channel is None and not hello.attach:
        session.why_no_channel = why
        logger.info("%s: calls go by the comm: %s", who, why)
    return session


async def reach(address: str, seconds: float, connection_args: dict[str, Any]) -> Comm:
    """A comm to `address` within `seconds`, or an `OSError`; where the connection is refused, after the first attempt.

    Dask's `connect` hides a refusal: it tries again until its time is over. So it is given little time at first.
    """
    end, attempt = time.monotonic() + seconds, ATTEMPT_SECONDS
    while True:
        left = end - time.monotonic()
        try:
            return await connect(address, timeout=min(attempt, left), **connection_args)
        except OSError as error:
            if left <= attempt or _refused(error):
                raise
        attempt *= LONGER


def _refused(error: BaseException | None) -> bool:
    """Whether the error comes of a refused connection: nobody listens there."""
    while error is not None and not isinstance(error, ConnectionRefusedError):
        error = error.__cause__
    return error is not None


def _check_welcome(message: Any, address: str) -> None:
    """Raise unless `message` says that the worker at `address` has opened the session."""
    if message is None:
        raise MgraphError(
            f"the worker at {address} has no mgraph plugin (no handler {SESSION_HANDLER!r}); install the same version "
            "of mgraph on every worker"
        )
    if message.get("status") == "uncaught-error":
        raise message.get("exception") or MgraphError(message.get("exception_text"))
    if "error" in message:
        raise decode_error(message["error"])
    if message.get("version") != VERSION:
        raise MgraphError(
            f"the worker at {address} has version {message.get('version')} of mgraph's protocol and this client has "
            f"version {VERSION}; install the same version of mgraph on both"
        )
