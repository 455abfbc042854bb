"""Ctrl-C as a terminal sends it: a signal, which wakes the main thread whatever it waits for."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

__all__ = ["ctrl_c_after", "ctrl_c_when"]


@contextmanager
def ctrl_c_when(begun: Callable[[], bool]) -> Iterator[None]:
    """Press it once `begun` says so; not at all if that is after the block, so that no other test is hit."""
    over = threading.Event()

    def press() -> None:
        while not begun():
            if over.wait(0.02):
                return
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ctrl_c_after(seconds: float) -> AbstractContextManager[None]:
    """Press it `seconds` from now."""
    end = time.monotonic() + seconds
    return ctrl_c_when(lambda: time.monotonic() >= end)
