"""Closing of graphs of this process that were collected without `close`, so that their stores can be opened again."""

from __future__ import annotations

import logging
import os
import threading
from _thread import LockType, allocate_lock, start_new_thread

from mgraph.local.session import Session

__all__ = ["await_closed", "close_later"]

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0  #: wait of a new graph for graphs that are being closed

_closing: list[LockType] = []  # a lock per graph that is being closed, held until then


def close_later(session: Session) -> None:
    """Close a session with a store in another thread. Safe in a finalizer.

    Otherwise the store's threads, files and lock would stay. A finalizer may run in any thread, even one of the store,
    and under any lock. So it waits for nothing, and another thread makes even the `threading.Thread`.
    """
    if session.calls.storage is None:
        return
    done = allocate_lock()
    done.acquire()
    _closing.append(done)
    start_new_thread(_begin, (session, done))


def _begin(session: Session, done: LockType) -> None:
    name = f"mgraph-{session.calls.graph}-close"
    try:
        threading.Thread(target=_close, args=(session, done), name=name, daemon=False).start()
    except RuntimeError:  # the interpreter ends, or has no more threads
        _end(done)


def _close(session: Session, done: LockType) -> None:
    try:
        session.close()
    except Exception as error:  # nobody waits for it
        logger.warning("graph %s was not closed: %s", session.calls.graph, error)
    finally:
        _end(done)


def _end(done: LockType) -> None:
    _closing.remove(done)
    done.release()


def await_closed() -> None:
    """Wait until collected graphs are closed: the next one may open the store of one of them."""
    for done in list(_closing):
        if done.acquire(timeout=CLOSE_SECONDS):
            done.release()


os.register_at_fork(after_in_child=_closing.clear)  # a child has none of these threads
