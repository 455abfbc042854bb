"""Deferral of Ctrl-C to places where nothing is lost: of calls by channels, and of calls in this process."""

from __future__ import annotations

import signal
import threading

# `signal` wraps these: 3 us per call for conversions to enums.
from _signal import getsignal  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable
from threading import get_ident
from typing import Any

__all__ = ["DeferredCtrlC", "Interrupts"]

_MAIN, _INT = threading.main_thread().ident, int(signal.SIGINT)


class DeferredCtrlC:
    """Defers Ctrl-C in a block, until `deliver` or its end.

    Python raises `KeyboardInterrupt` between any two instructions. In the block a signal is only recorded; then the
    previous handler is called. Does nothing in other threads than the main one, which get no signals. An object is for
    one thread at a time.

    Parameters
    ----------
    wake : callable, optional
        Called at once when a signal comes, to end a wait.
    """

    stops = False  #: True if a signal stops the block, whose error then ends with `KeyboardInterrupt`

    def __init__(self, wake: Callable[[], object] = lambda: None) -> None:
        self._hit, self._wake = False, wake
        self._before: Callable[..., Any] | None = None

    def __enter__(self) -> None:
        self._hit, self._before = False, None
        if get_ident() == _MAIN and callable(before := getsignal(_INT)):
            self._before = before
            set_handler(_INT, self._note)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        # Restore the handler, and run it if the signal came.
        before, self._before = self._before, None
        if before is None:
            return
        set_handler(_INT, before)
        if self._hit:
            before(signal.SIGINT, None)  # raises KeyboardInterrupt, unless the application has a handler of its own
            if self.stops and kind is not None:
                raise KeyboardInterrupt

    def end(self) -> None:
        """End the deferral before the block does."""
        self.__exit__(None)

    def deliver(self) -> None:
        """Run the previous handler now if a signal came. Unless it raises an error, the deferral goes on."""
        if self._hit and self._before is not None:
            self.end()
            self.__enter__()  # the handler may have set another one

    def _note(self, number: int, frame: object) -> None:
        self._hit = True
        self._wake()


class Interrupts(DeferredCtrlC):
    """Stop flag of the running call, and a deferral of Ctrl-C, which would come even in the middle of a commit.

    The call's exchange polls `stopped`, so the call ends between two supersteps, or before it votes on a change.

    Attributes
    ----------
    closed : bool
        True after the graph was closed, by any thread. No call continues then.
    """

    stops = True

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def stopped(self) -> bool:
        """Return True if the running call must stop."""
        return self.closed or self._hit
