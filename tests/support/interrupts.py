"""What happens to a block while it runs: a Ctrl-C, or somebody's death."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

__all__ = ["after", "ctrl_c", "when"]


@contextmanager
def when(begun: Callable[[], bool], act: Callable[[], object]) -> Iterator[None]:
    """Do it once `begun` says so; not at all if that is after the block, so that no other test is hit."""
    over = threading.Event()

    def watch() -> None:
        while not begun():
            if over.wait(0.02):
                return
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def after(seconds: float, act: Callable[[], object]) -> AbstractContextManager[None]:
    """Do it `seconds` from now."""
    end = time.monotonic() + seconds
    return when(lambda: time.monotonic() >= end, act)


def ctrl_c() -> None:
    """Press it, as at a terminal: a signal, which wakes the main thread whatever it waits for."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
