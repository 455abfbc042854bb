"""Ctrl-C while a call runs in the user's own thread: the call is told, and the signal is handled when it has ended."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it: 3 us a call for conversions to enums
import signal
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Interrupts"]

_MAIN, _INT = threading.main_thread().ident, int(signal.SIGINT)


class Interrupts:
    """Whether the running call is to stop, and a context manager that holds Ctrl-C back while it runs.

    Python would raise `KeyboardInterrupt` between any two instructions, such as in the middle of a commit. In here the
    signal is noted only. The exchange of the call polls `stopped`, so a call stops between two supersteps, or before it
    votes on a change. When the block is left, the handler that was there before is called.

    Attributes
    ----------
    closed : bool
        Whether the graph was closed, by another thread too: no call goes on.
    """

    def __init__(self) -> None:
        self.closed = self._hit = False
        self._before: Callable[..., Any] | None = None

    def stopped(self) -> bool:
        """Whether the running call is to stop."""
        return self.closed or self._hit

    def __enter__(self) -> None:
        self._hit, self._before = False, None
        if threading.get_ident() == _MAIN and callable(before := _signal.getsignal(_INT)):
            self._before = before
            _signal.signal(_INT, self._note)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        before, self._before = self._before, None
        if before is None:
            return
        _signal.signal(_INT, before)
        if self._hit:
            before(signal.SIGINT, None)  # raises KeyboardInterrupt, unless the application has a handler of its own
            if kind is not None:
                raise KeyboardInterrupt

    def _note(self, number: int, frame: object) -> None:
        self._hit = True
