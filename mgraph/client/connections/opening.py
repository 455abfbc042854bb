"""Open a session with a worker."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import dask.config
from distributed.comm import Comm, connect, get_address_host_port

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

OPTION = "mgraph.channels"  #: option of Dask's configuration: False sends every call by the comm
LOOK_SECONDS = 0.25  #: time without a connection before a check whether it is refused, and time for the check


async def open_session(hello: Hello, address: str, connection_args: dict[str, Any]) -> Session:
    """Open a session with the worker at `address`.

    Logs a warning after `SILENCE_SECONDS` without an answer.

    Raises
    ------
    WorkerLost
        The connection is refused, which is reported at once; or the worker does not answer within ``hello.patience``
        seconds.
    MgraphError
        The worker does not have mgraph, or has another version of its protocol.
    """
    who = f"graph {hello.graph}: the worker at {address} (rank {hello.rank})"
    note = f"{who} has not answered for {SILENCE_SECONDS:g} s; it counts as lost after {hello.patience:g} s"

    # Warn of a silent worker while this waits.
    late = asyncio.get_running_loop().call_later(SILENCE_SECONDS, logger.warning, note)

    # Offer a channel, unless the option forbids it.
    comm, channel, why = None, None, f"{OPTION} is False"
    listener = Listener() if dask.config.get(OPTION, True) else None
    try:
        async with asyncio.timeout(hello.patience):
            comm = await reach(address, hello.patience, connection_args)
            if listener is not None:
                hello = hello._replace(channel=listener.name)
            await comm.write({"op": SESSION_HANDLER, "hello": encode(hello)})
            message = await comm.read()
            _check_welcome(message, address)
            if listener is not None:
                channel, why = listener.accept(), str(message.get("why"))
            outlast(comm, hello.patience)

    # Whatever happens, leave no comm open.
    except BaseException as error:
        if comm is not None:
            comm.abort()
        # TimeoutError and Dask's CommClosedError are OSErrors.
        if not isinstance(error, OSError):
            raise
        raise WorkerLost(
            f"{who} cannot be reached from this process: {str(error) or 'no answer'}; workers must be reachable from "
            "the client, not only from the scheduler"
        ) from error
    finally:
        late.cancel()
        if listener is not None:
            listener.close()

    # Without a channel all calls go by the comm.
    session = Session(hello, address, comm, shared_bytes(address), channel)
    if channel is None:
        session.why_no_channel = why
        logger.info("%s: calls go by the comm: %s", who, why)
    return session


async def reach(address: str, seconds: float, connection_args: dict[str, Any]) -> Comm:
    """Connect to `address` within `seconds`.

    Raises `OSError`, soon if the connection is refused. Dask's `connect` hides a refusal and retries until its time is
    over. It gets all of the time: a connection that is made just as an attempt is cancelled would stay open.
    """
    connecting = asyncio.create_task(connect(address, timeout=seconds, **connection_args))
    try:
        await asyncio.wait([connecting], timeout=LOOK_SECONDS)
        if not connecting.done():
            await _check_listening(address)
        return await connecting
    except BaseException:
        connecting.cancel()
        await asyncio.wait([connecting])
        if not connecting.cancelled() and connecting.exception() is None:
            connecting.result().abort()
        raise


async def _check_listening(address: str) -> None:
    """Raise `ConnectionRefusedError` if nothing listens at a TCP address."""
    if not address.startswith(("tcp:", "tls:")):
        return
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            _, writer = await asyncio.open_connection(*get_address_host_port(address))
            writer.close()
            await writer.wait_closed()
    except ConnectionRefusedError:
        raise
    except OSError:  # only Dask's connection counts
        pass


def _check_welcome(message: Any, address: str) -> None:
    """Raise an error unless the worker has opened the session."""
    if message is None:
        raise MgraphError(
            f"the worker at {address} has no mgraph plugin (no handler {SESSION_HANDLER!r}); install the same version "
            "of mgraph on every worker"
        )

    # Dask reports an exception of the handler in its own form, mgraph in another.
    if message.get("status") == "uncaught-error":
        raise message.get("exception") or MgraphError(message.get("exception_text"))
    if "error" in message:
        raise decode_error(message["error"])
    if message.get("version") != VERSION:
        raise MgraphError(
            f"the worker at {address} has version {message.get('version')} of mgraph's protocol and this client has "
            f"version {VERSION}; install the same version of mgraph on both"
        )
