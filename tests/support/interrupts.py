"""What happens to a block while it runs: a Ctrl-C, a fork, or somebody's death."""

from __future__ import annotations

import linecache
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from patience import patience

__all__ = ["after", "assert_quiet", "at_line", "ctrl_c", "in_child", "when"]

ROOT = Path(__file__).parents[2]


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


@contextmanager
def at_line(number: int, files: Container[str], act: Callable[[], object]) -> Iterator[Callable[[], bool]]:
    """Do it before the block's line of this number in `files`, counted from 0. Yields whether that came.

    Lines that begin with ``with`` or ``try`` do not count: there Python runs no signal handler, unlike a trace.
    """
    left = number + 1

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if event == "line" and not line.startswith(("with", "try")):
            left -= 1
            if not left:
                sys.settrace(None)
                act()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: left <= 0
    finally:
        sys.settrace(before)


def in_child(work: Callable[[], object]) -> int:
    """The exit status of a child that runs `work`; 0 where it raises nothing."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + patience(20)
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


def assert_quiet(printed: str) -> None:
    """Check that a command that was stopped printed no traceback, but for those of Dask's heartbeats as it closes."""
    ours = re.search(rf'KeyboardInterrupt|File "(<string>|{ROOT}/(mgraph|cluster|workloads)/)', printed)
    assert not ours, printed
