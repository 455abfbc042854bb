"""Progress of a long call: a bar by Rich in a terminal, HTML in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from html import escape
from typing import Any, NamedTuple, Protocol, TypeVar

__all__ = ["Done", "building", "shown", "stage"]

F = TypeVar("F", bound=Callable[..., Any])

QUIET_SECONDS = 0.5  #: time before the bar appears: most calls have ended by then
REDRAW_SECONDS = 0.25


class Done(NamedTuple):
    """The progress of a call: a number, the total if known, and a few words."""

    done: int
    total: int | None
    words: str


Reads = list[Callable[[], Done]]

_SHOWN: ContextVar[Reads | None] = ContextVar("shown", default=None)  #: the progress of each call, the innermost last
_BUILD: ContextVar[list[Done] | None] = ContextVar("build", default=None)  #: the current stage of this thread's build


class Display(Protocol):
    """A display of progress; one thread makes and uses it."""

    def draw(self, what: str, now: Done) -> None:
        """Show the progress of `what`."""

    def end(self) -> None:
        """Remove the display, since the call has ended."""


@contextmanager
def shown(what: str, read: Callable[[], Done], wanted: bool = True) -> Iterator[None]:
    """Show the progress of the block, from a thread that calls `read` four times a second.

    The block itself pays nothing. Inside another such block of the same thread, that block's display shows `read`.

    Parameters
    ----------
    what : str
        The name of the call.
    read : callable
        Safe to call from another thread.
    wanted : bool
        False to show nothing. Without a terminal or a notebook nothing is shown in any case.
    """
    # Inside another block, use its display.
    if (outer := _SHOWN.get()) is not None:
        outer.append(read)
        try:
            yield
        finally:
            outer.pop()
        return
    make_display = _display() if wanted else None
    if make_display is None:
        yield
        return

    # A thread draws, until the block ends.
    over, reads = threading.Event(), [read]
    innermost = lambda: reads[-1]()  # noqa: E731
    thread = threading.Thread(
        target=_redraw, args=(make_display, what, innermost, over), name="mgraph-progress", daemon=True
    )
    thread.start()
    token = _SHOWN.set(reads)
    try:
        yield
    finally:
        _SHOWN.reset(token)
        over.set()
        thread.join()


def building(function: F) -> F:
    """Show the `stage` of a function that makes a graph. A Ctrl-C gets a note with the last stage."""
    name = function.__name__

    @wraps(function)
    def build(*args: Any, **kwargs: Any) -> Any:
        if _BUILD.get() is not None:  # called by another such function
            return function(*args, **kwargs)

        # `stage` replaces the entry, and the display reads it.
        now = [Done(0, None, "begins")]
        token = _BUILD.set(now)
        try:
            with shown(name, lambda: now[0]):
                return function(*args, **kwargs)
        except KeyboardInterrupt as error:
            error.__notes__ = [f"{name} was stopped; no graph was made. What it did last: {now[0].words}"]
            raise
        finally:
            _BUILD.reset(token)

    return build  # type: ignore[return-value]


def stage(words: str, done: int = 0, total: int | None = None) -> None:
    """Set the stage of this thread's build, if any."""
    if (now := _BUILD.get()) is not None:
        now[0] = Done(done, total, words)


def _redraw(make_display: Callable[[], Display], what: str, read: Callable[[], Done], over: threading.Event) -> None:
    if over.wait(QUIET_SECONDS):
        return
    try:
        display = make_display()
    except ImportError:  # Rich is not installed
        return
    try:
        display.draw(what, read())
        while not over.wait(REDRAW_SECONDS):
            display.draw(what, read())
    finally:
        display.end()


def _display() -> Callable[[], Display] | None:
    """Return the display of a notebook or terminal; None without."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is not None:
        return Notebook
    return Terminal if sys.stderr is not None and sys.stderr.isatty() else None


class Terminal:
    """A bar on stderr, which is removed at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn()
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task: Any = None

    def draw(self, what: str, now: Done) -> None:
        """Show the progress of `what`."""
        if self._task is None:
            self._task = self._progress.add_task(what, words="")
            self._progress.start()
        self._progress.update(self._task, total=now.total, completed=now.done, words=now.words)
        self._progress.tasks[0].total = now.total  # `update` cannot remove a total

    def end(self) -> None:
        """Remove the bar."""
        self._progress.stop()


class Notebook:
    """A line of HTML below the cell, which is removed at the end."""

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, what: str, now: Done) -> None:
        """Show the progress of `what`."""
        from IPython.display import HTML, display

        bar = "" if now.total is None else f'<progress value="{now.done}" max="{now.total}"></progress> '
        line = HTML(f"<div>{escape(what)}: {bar}{escape(now.words)}</div>")
        if self._handle is None:
            self._handle = display(line, display_id=True)
        else:
            self._handle.update(line)

    def end(self) -> None:
        """Remove the line."""
        from IPython.display import HTML

        self._handle.update(HTML(""))
