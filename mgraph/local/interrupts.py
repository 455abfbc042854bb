"""Deferred Ctrl-C: the running call is stopped first."""

from __future__ import annotations

import signal
import threading

# `signal` wraps these: 3 us per call for conversions to enums.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable
from threading import get_ident
from typing import Any

__all__ = ["Interrupts"]

_MAIN, _INT = threading.main_thread().ident, int(signal.SIGINT)


class Interrupts:
    """Stop flag of the running call, and a deferral of Ctrl-C.

    Python raises `KeyboardInterrupt` between any two instructions, even in the middle of a commit. This context manager
    only records the signal. The call's exchange polls `stopped`, so the call ends between two supersteps, or before it
    votes on a change. On exit the previous handler is called.

    Attributes
    ----------
    closed : bool
        True after the graph was closed, by any thread. No call continues then.
    """

    def __init__(self) -> None:
        self.closed = self._hit = False
        self._before: Callable[..., Any] | None = None
        self._handler = self._note

    def stopped(self) -> bool:
        """Return True if the running call must stop."""
        return self.closed or self._hit

    def __enter__(self) -> None:
        self._hit, self._before = False, None
        if get_ident() == _MAIN and callable(before := getsignal(_INT)):
            self._before = before
            set_handler(_INT, self._handler)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        # Restore the handler, and run it if the signal came.
        before, self._before = self._before, None
        if before is None:
            return
        set_handler(_INT, before)
        if self._hit:
            before(signal.SIGINT, None)  # raises KeyboardInterrupt, unless the application has a handler of its own
            if kind is not None:
                raise KeyboardInterrupt

    def _note(self, number: int, frame: object) -> None:
        self._hit = True
