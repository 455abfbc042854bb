"""Ctrl-C as a terminal sends it: a signal, which wakes the main thread whatever it waits for."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

__all__ = ["ctrl_c_after", "ctrl_c_when"]


def ctrl_c() -> None:
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def ctrl_c_after(seconds: float) -> None:
    threading.Timer(seconds, ctrl_c).start()


def ctrl_c_when(begun: Path) -> None:
    """Once somebody made the file `begun`."""

    def wait() -> None:
        end = time.monotonic() + 20
        while not begun.exists() and time.monotonic() < end:
            time.sleep(0.02)
        ctrl_c()

    threading.Thread(target=wait).start()
