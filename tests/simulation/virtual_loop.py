"""An event loop of asyncio by the virtual clock."""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from fibers import Fiber, Killed, Process, World

__all__ = ["Loop"]


class _Handle:
    """A callback, which may be cancelled: `asyncio.Handle` without what it does for debugging."""

    __slots__ = ("_args", "_callback", "_context")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args, self._context = args, context or copy_context()

    def cancel(self) -> None:
        self._callback, self._args = None, ()

    def cancelled(self) -> bool:
        return self._callback is None

    def run(self, loop: Loop) -> None:
        if self._callback is None:
            return
        try:
            self._context.run(self._callback, *self._args)
        except Exception as error:
            loop.call_exception_handler({"exception": error})


class Loop(asyncio.AbstractEventLoop):
    """The event loop of a process: a guest, unless fibers give way between lines.

    Parameters
    ----------
    world : World
    process : Process
    """

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process
        self._handles: deque[_Handle] = deque()
        self._waiting: deque[Fiber] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
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
                self._handles.popleft().run(self)
        finally:
            events._set_running_loop(None)

    def _run_some(self) -> None:
        """Run what was called; others run before the rest if the seed says so."""
        events._set_running_loop(self)
        try:
            handles, process, chance = self._handles, self._process, self._world.rng.random
            while handles and not process.dead:
                handles.popleft().run(self)
                if handles and chance() < 0.05:
                    self._world.invite(self._guest)
                    return
        finally:
            events._set_running_loop(None)

    # ---- callbacks ---------------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        """Call back as soon as the loop comes to it."""
        handle = _Handle(callback, args, context)
        self._append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        """Do so for another thread."""
        if self._process.dead:
            raise RuntimeError("Event loop is closed")
        return self.call_soon(callback, *args, context=context)

    def _append(self, handle: _Handle) -> None:
        if not handle.cancelled():
            self._handles.append(handle)
            if self._guest is None:
                self._world.wake(self._waiting)
            else:
                self._world.invite(self._guest)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        """Call back after some virtual time."""
        handle = _Handle(callback, args, context)
        self._world.after(delay, self._process, lambda: self._append(handle))
        return handle

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        """Call back at a time of the process's clock."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    # ---- state -------------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the time by the process's clock."""
        return self._world.now + self._process.ahead

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        """Start a task."""
        self._tasks.append(task := asyncio.Task(coro, loop=self, name=name or "task", context=context))
        return task

    def close(self) -> None:
        """Close the coroutines that have not ended. Left to the collector, they would end in an order of its own."""
        events._set_running_loop(self)
        try:
            for task in self._tasks:
                if not task.done():
                    with suppress(BaseException):  # what a coroutine does at its end needs a world that goes on
                        task.get_coro().close()
        finally:
            events._set_running_loop(None)
            self._tasks.clear()
            self._handles.clear()

    def is_running(self) -> bool:
        """Return True: who asks after the end of the process is killed, too. False after the simulation."""
        if World.current is not self._world:
            return False
        if self._process.dead:
            raise Killed
        return True

    def is_closed(self) -> bool:
        """Return False."""
        return False

    get_debug = bool  # False, without a frame of Python for each future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error that nobody has seen: a problem of the run."""
        error = context.get("exception")
        if not self._process.dead:
            self._world.fail(error or RuntimeError(context["message"]))
