"""A line about a call that takes long: a bar by Rich in a terminal, HTML in a notebook, nothing elsewhere."""

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

QUIET_SECONDS = 0.5  #: for which nothing is shown: most calls have ended by then
REDRAW_SECONDS = 0.25


class Done(NamedTuple):
    """How far a call is: a number, of how many if that is known, and a few words."""

    done: int
    total: int | None
    words: str


Reads = list[Callable[[], Done]]

_SHOWN: ContextVar[Reads | None] = ContextVar("shown", default=None)  #: how far each call is, the innermost one last
_BUILD: ContextVar[list[Done] | None] = ContextVar("build", default=None)  #: what the build of this thread does now


class Display(Protocol):
    """Where progress is shown; made and used by one thread."""

    def draw(self, what: str, now: Done) -> None:
        """Show this."""

    def end(self) -> None:
        """The call has ended: show nothing any more."""


@contextmanager
def shown(what: str, read: Callable[[], Done], wanted: bool = True) -> Iterator[None]:
    """Show how far the block is, from a thread that calls `read` four times a second; the block itself pays nothing.

    Inside of another such block, of the same thread, `read` is what that one shows.

    Parameters
    ----------
    what : str
        What runs.
    read : callable
        Safe to call from another thread.
    wanted : bool
        Whether to show anything. Without a terminal or a notebook nothing is shown in any case.
    """
    if (outer := _SHOWN.get()) is not None:
        outer.append(read)
        try:
            yield
        finally:
            outer.pop()
        return
    made = _display() if wanted else None
    if made is None:
        yield
        return
    over, reads = threading.Event(), [read]
    innermost = lambda: reads[-1]()  # noqa: E731
    thread = threading.Thread(target=_redraw, args=(made, what, innermost, over), name="mgraph-progress", daemon=True)
    thread.start()
    token = _SHOWN.set(reads)
    try:
        yield
    finally:
        _SHOWN.reset(token)
        over.set()
        thread.join()


def building(function: F) -> F:
    """Have a function that makes a graph show its `stage`, and have Ctrl-C get a note that says where it was."""
    name = function.__name__

    @wraps(function)
    def build(*args: Any, **kwargs: Any) -> Any:
        if _BUILD.get() is not None:  # called by another one
            return function(*args, **kwargs)
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
    """Say what the build under way in this thread does now; elsewhere nothing happens."""
    if (now := _BUILD.get()) is not None:
        now[0] = Done(done, total, words)


def _redraw(made: Callable[[], Display], what: str, read: Callable[[], Done], over: threading.Event) -> None:
    if over.wait(QUIET_SECONDS):
        return
    try:
        display = made()
    except ImportError:  # Rich is not installed
        return
    try:
        display.draw(what, read())
        while not over.wait(REDRAW_SECONDS):
            display.draw(what, read())
    finally:
        display.end()


def _display() -> Callable[[], Display] | None:
    """What makes a notebook's display, or a terminal's; None where there is neither."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is not None:
        return Notebook
    return Terminal if sys.stderr is not None and sys.stderr.isatty() else None


class Terminal:
    """A bar on stderr, which goes away at the end."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[words]}"), TimeElapsedColumn()
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task: Any = None

    def draw(self, what: str, now: Done) -> None:
        """Show this."""
        if self._task is None:
            self._task = self._progress.add_task(what, words="")
            self._progress.start()
        self._progress.update(self._task, total=now.total, completed=now.done, words=now.words)
        self._progress.tasks[0].total = now.total  # `update` does not take a total away

    def end(self) -> None:
        """Take the bar away."""
        self._progress.stop()


class Notebook:
    """A line of HTML below the cell, which goes away at the end."""

    def __init__(self) -> None:
        self._handle: Any = None

    def draw(self, what: str, now: Done) -> None:
        """Show this."""
        from IPython.display import HTML, display

        bar = "" if now.total is None else f'<progress value="{now.done}" max="{now.total}"></progress> '
        line = HTML(f"<div>{escape(what)}: {bar}{escape(now.words)}</div>")
        if self._handle is None:
            self._handle = display(line, display_id=True)
        else:
            self._handle.update(line)

    def end(self) -> None:
        """Take the line away."""
        from IPython.display import HTML

        self._handle.update(HTML(""))
