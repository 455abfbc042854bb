"""Socket options of sessions and exchanges on Dask's comms."""

from __future__ import annotations

import socket
from contextlib import suppress

from distributed.comm import Comm

__all__ = ["outlast"]


def outlast(comm: Comm, seconds: float) -> None:
    """Make the operating system keep `comm` open for `seconds` without acknowledgements.

    Dask sets a TCP option by which the system closes a connection whose bytes are not acknowledged for 30 s
    (``distributed.comm.timeouts.tcp``). A worker whose GIL is held by user code for longer would then be lost in the
    middle of a large batch. Comms other than TCP connections, and systems without this option, are left unchanged.
    """
    sock = getattr(getattr(comm, "stream", None), "socket", None)
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if sock is None or option is None:
        return
    with suppress(OSError):  # closed meanwhile: the next read reports it
        milliseconds = sock.getsockopt(socket.IPPROTO_TCP, option)
        if 0 < milliseconds < 1000 * seconds:
            sock.setsockopt(socket.IPPROTO_TCP, option, int(1000 * seconds))
