"""An event loop of asyncio by the virtual clock."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from fibers import Fiber, Killed, Process, World

__all__ = ["Loop"]


class Loop(asyncio.AbstractEventLoop):
    """The event loop of a process: a guest, unless fibers give way between lines.

    Parameters
    ----------
    world : World
    process : Process
    """

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process
        self._handles: deque[asyncio.Handle] = deque()
        self._waiting: deque[Fiber] = deque()
        self._guest = None if world.lines else Fiber(0, process, "loop", self._run_some)
        if self._guest is None:
            world.spawn(process, "loop", self.run_forever)

    def run_forever(self) -> None:
        """Run what is called, until the process ends."""
        events._set_running_loop(self)
        try:
            while True:
                while not self._handles:
                    self._world.block(self._waiting)
                self._world.give_way(0.05)
                self._run_one()
        finally:
            events._set_running_loop(None)

    def _run_one(self) -> None:
        handle = self._handles.popleft()
        if not handle.cancelled():
            handle._run()

    def _run_some(self) -> None:
        """Run what was called; others run before the rest if the seed says so."""
        events._set_running_loop(self)
        try:
            while self._handles and not self._process.dead:
                self._run_one()
                if self._handles and self._world.rng.random() < 0.05:
                    self._world.invite(self._guest)
                    return
        finally:
            events._set_running_loop(None)

    # ---- callbacks ---------------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """Call back as soon as the loop comes to it."""
        handle = asyncio.Handle(callback, args, self, context)
        self._append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Do so for another thread."""
        if self._process.dead:
            raise RuntimeError("Event loop is closed")
        return self.call_soon(callback, *args, context=context)

    def _append(self, handle: asyncio.Handle) -> None:
        if not handle.cancelled():
            self._handles.append(handle)
            if self._guest is None:
                self._world.wake(self._waiting)
            else:
                self._world.invite(self._guest)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back after some virtual time."""
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self._world.after(delay, self._process, lambda: self._append(handle))
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call back at a time of the process's clock."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: the handle is skipped."""

    # ---- state -------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the time by the process's clock."""
        return self._world.now + self._process.ahead

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        """Start a task."""
        return asyncio.Task(coro, loop=self, name=name or "task", context=context)

    def is_running(self) -> bool:
        """Return True: who asks after the end of the process is killed, too."""
        if self._process.dead:
            raise Killed
        return True

    def is_closed(self) -> bool:
        """Return False."""
        return False

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error that nobody has seen: a problem of the run."""
        error = context.get("exception")
        if not self._process.dead:
            self._world.fail(error or RuntimeError(context["message"]))
