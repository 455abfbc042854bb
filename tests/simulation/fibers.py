"""Fibers that take turns under a virtual clock: threads of which a seed chooses the one that runs.

Code of the product that blocks runs in fibers. A fiber is a thread of this process, but only one runs at a time: it
passes a baton on where it blocks, and where the seed says so. So the order of all steps depends on the seed alone.
"""

from __future__ import annotations

import heapq
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["LINE", "YIELD", "Fiber", "Killed", "Process", "Runner", "Stuck", "World", "world"]

YIELD = 0.15  #: probability that a fiber gives way where it does not have to
LOOKS = 10_000  #: at the clock in one step
LINE = 0.02  #: the same at a preemption point


class Killed(BaseException):
    """Ends the fibers of a process that is gone."""


class Stuck(Exception):
    """Nothing can happen any more, or nothing ends."""


class Process:
    """A simulated process: its fibers and timers stop together.

    Attributes
    ----------
    dead : bool
    paused : bool
    ahead, slept : float
        Seconds by which its clock is ahead of the world's, and for which it was paused.
    at_death : list of callable
        Called when it is killed: locks are released, and connections are closed.
    """

    def __init__(self, name: str) -> None:
        self.name, self.dead, self.paused, self.ahead, self.slept = name, False, False, 0.0, 0.0
        self.at_death: list[Callable[[], None]] = []
        self.fibers: dict[int, Fiber] = {}
        self.held: list[Callable[[], None]] = []  # timers that were due while it was paused

    def __repr__(self) -> str:
        return self.name


class Fiber:
    """A thread of a process, which `World.spawn` makes; or a guest, whose work does not block: any thread runs it."""

    def __init__(self, number: int, process: Process, name: str, work: Callable[[], object]) -> None:
        self.number, self.process, self.name, self.work = number, process, name, work
        self.queue: Any = None  # of what it waits for
        self.waits, self.woken = 0, False
        self.interrupted = False
        self.runner: Runner | None = None
        self.invited = False

    def __repr__(self) -> str:
        return f"{self.process}/{self.name}"


class Runner:
    """A thread of the system, which runs one fiber after another."""

    idle: list[Runner] = []

    def __init__(self) -> None:
        self.baton = threading.Lock()
        self.baton.acquire()
        self.fiber: Fiber | None = None
        self.thread = threading.Thread(target=self._run, name="simulation", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            self.baton.acquire()
            if self.fiber is None:
                return
            world().run_fiber(self.fiber)

    @classmethod
    def end(cls) -> None:
        """End all threads, which are idle."""
        while cls.idle:
            runner = cls.idle.pop()
            runner.fiber = None
            runner.baton.release()
            runner.thread.join()


class World:
    """Virtual time, and the choice of what happens next.

    Parameters
    ----------
    seed : int
    lines : bool
        True if fibers, also those of event loops, give way at preemption points.
    line : float
        Probability that they do so at one.
    most : int
        Steps after which the world is stuck.
    """

    current: World | None = None

    def __init__(self, seed: int, lines: bool = False, line: float = LINE, most: int = 60_000) -> None:
        self.rng, self.now, self.steps, self._most = random.Random(seed), 0.0, 0, most
        self.problem: BaseException | None = None
        self.lines, self.line = lines, line
        self._timers: list[tuple[float, int, Process | None, Callable[[], None]]] = []
        self._numbers = self._paused = self._looks = 0
        self._faults: list[tuple[int, Callable[[], None]]] = []
        self._ready: list[Fiber] = []
        self.processes: list[Process] = []
        self.fiber: Fiber | None = None
        self._main = threading.Lock()
        self._main.acquire()
        self._over = False
        World.current = self

    # ---- time --------------------------------------------------------------------------------------------------------

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def time(self) -> float:
        """Return the time by the clock of the running process."""
        self._looks += 1
        if self._looks > LOOKS:
            self.fail(Stuck(f"{self.fiber} looks at its clock and does nothing else: {self.waiting()}"))
            raise Killed
        return self.now + (self.fiber.process.ahead if self.fiber else 0.0)

    def after(self, seconds: float, process: Process | None, act: Callable[[], None]) -> None:
        """Call `act` later, unless its process is gone; it must not block."""
        self._numbers += 1
        heapq.heappush(self._timers, (self.now + seconds if seconds > 0 else self.now, self._numbers, process, act))

    def at_steps(self, faults: list[tuple[int, Callable[[], None]]]) -> None:
        """Call each function at a step; it must not block."""
        self._faults = sorted(faults, key=lambda fault: -fault[0])

    def jump(self, process: Process, seconds: float) -> None:
        """Set the clock of a process forward; its timers come earlier."""
        process.ahead += seconds
        self._timers = [
            (max(self.now, when - seconds) if owner is process else when, number, owner, act)
            for when, number, owner, act in self._timers
        ]
        heapq.heapify(self._timers)

    # ---- processes ---------------------------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        """Start a process."""
        self.processes.append(process := Process(name))
        return process

    def kill(self, process: Process) -> None:
        """End a process at once. Its fibers end when they come to run, and can do nothing that others see."""
        if process.dead:
            return
        self._paused -= process.paused
        process.dead, process.paused = True, False
        for act in process.at_death:
            act()
        for fiber in process.fibers.values():
            self._wake(fiber)

    def pause(self, process: Process, seconds: float) -> None:
        """Stop a process for some time, as SIGSTOP does."""
        if not process.dead and not process.paused:
            process.paused = True
            process.slept += seconds
            self._paused += 1
            self.after(seconds, None, lambda: self._resume(process))

    def _resume(self, process: Process) -> None:
        if not process.paused:  # it was killed meanwhile
            return
        self._paused -= 1
        process.paused, held, process.held = False, process.held, []
        for act in held:
            if not process.dead:
                act()

    def spawn(self, process: Process, name: str, work: Callable[[], object]) -> Fiber:
        """Start a fiber."""
        fiber = Fiber(self._number(), process, name, work)
        process.fibers[fiber.number] = fiber
        self._ready.append(fiber)
        return fiber

    def invite(self, guest: Fiber | None) -> None:
        """Let a guest do its work soon."""
        assert guest is not None
        if not guest.invited:
            guest.invited = True
            self._ready.append(guest)

    def interrupt(self, fiber: Fiber) -> None:
        """Raise KeyboardInterrupt in a fiber, where it waits next."""
        fiber.interrupted = True
        self._wake(fiber)

    # ---- what the fibers call ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """End the running fiber if its process is gone."""
        if self.fiber is not None and self.fiber.process.dead:
            raise Killed

    def give_way(self, chance: float = YIELD) -> None:
        """Let others run, if the seed says so."""
        fiber = self.fiber
        assert fiber is not None, "outside of the simulation"
        if fiber.process.dead:
            raise Killed
        if fiber.number and self.rng.random() < chance:
            self._ready.append(fiber)
            self._switch(fiber)

    def point(self, value: Any = None) -> Any:
        """Let others run at a preemption point, if the seed says so. Return `value`."""
        fiber = self.fiber
        if fiber is not None and not fiber.process.dead and not self._over and self.rng.random() < self.line:
            self._ready.append(fiber)
            self._switch(fiber)
        return value

    def block(self, queue: Any, seconds: float | None = None) -> bool:
        """Wait until `wake` is called for this queue. Return False after `seconds`."""
        fiber = self.fiber
        assert fiber is not None, "outside of the simulation"
        if fiber.process.dead:
            raise Killed
        assert fiber.number, "a guest blocks"
        fiber.waits, fiber.woken, fiber.queue = fiber.waits + 1, False, queue
        queue.append(fiber)
        if fiber.interrupted:
            self._wake(fiber)
        elif seconds is not None:
            wait = fiber.waits

            def late() -> None:
                if fiber.waits == wait and fiber.queue is not None:
                    self._wake(fiber)

            self.after(seconds, fiber.process, late)
        self._switch(fiber)
        if fiber.interrupted:
            fiber.interrupted = False
            raise KeyboardInterrupt
        return fiber.woken

    def sleep(self, seconds: float) -> None:
        """Wait for some virtual time."""
        self.block([], seconds)

    def wake(self, queue: Any, count: int | None = None) -> None:
        """Wake the fibers that wait for a queue, or the first `count`."""
        for fiber in list(queue)[:count]:
            fiber.woken = True
            self._wake(fiber)

    def _wake(self, fiber: Fiber) -> None:
        queue, fiber.queue = fiber.queue, None
        if queue is not None:
            queue.remove(fiber)
            self._ready.append(fiber)

    # ---- the choice --------------------------------------------------------------------------------------------------

    def run(self, until: Callable[[], bool]) -> None:
        """Run until the condition holds, and raise the first problem."""
        self._until = until
        self._pass_on(self._next())
        self._main.acquire()
        if self.problem is not None:
            raise self.problem

    def end(self) -> None:
        """Kill all processes, and wait for the ends of their fibers."""
        self._over = True
        self._timers.clear()
        for process in self.processes:
            self.kill(process)
        while (fiber := next((f for p in self.processes for f in p.fibers.values()), None)) is not None:
            if fiber in self._ready:
                self._ready.remove(fiber)
            self._pass_on(fiber)
            self._main.acquire()
        World.current = None

    def fail(self, problem: BaseException) -> None:
        """End the run with a problem, the first one counts."""
        self.problem = self.problem or problem

    def _next(self) -> Fiber | None:
        """Return the fiber that runs next; None for the end."""
        while True:
            if self._over or self.problem is not None or self._until():
                return None
            self.steps, self._looks = self.steps + 1, 0
            while self._faults and self._faults[-1][0] <= self.steps:
                self.fiber = None
                self._faults.pop()[1]()
            if self.steps > self._most:
                self.fail(Stuck(f"no end after {self.steps} steps, at {self.now:.1f} s: {self.waiting()}"))
                continue

            # Fibers of paused processes wait; time passes when no other is ready.
            if (fiber := self._take_ready()) is not None:
                if fiber.number:
                    return fiber
                self.fiber, fiber.invited = fiber, False
                if not fiber.process.dead:
                    fiber.work()
                continue
            if not self._timers:
                self.fail(Stuck(f"nothing can happen any more at {self.now:.1f} s: {self.waiting()}"))
                continue
            when, _, process, act = heapq.heappop(self._timers)
            self.now = max(self.now, when)
            if process is None or not (process.dead or process.paused):
                self.fiber = None
                act()
            elif process.paused:
                process.held.append(act)

    def _take_ready(self) -> Fiber | None:
        ready = self._ready
        if not self._paused:
            if not ready:
                return None
            return ready.pop(int(self.rng.random() * len(ready)) if len(ready) > 1 else 0)
        places = [at for at, fiber in enumerate(ready) if not fiber.process.paused]
        return ready.pop(self.rng.choice(places)) if places else None

    def waiting(self) -> str:
        """Return the fibers that wait, with the lines of the product where they do."""
        places = []
        frames = sys._current_frames()
        for process in self.processes:
            for fiber in process.fibers.values():
                frame = frames.get(fiber.runner.thread.ident or 0) if fiber.runner else None
                while frame is not None and "/mgraph/" not in frame.f_code.co_filename:
                    frame = frame.f_back
                where = f" in {frame.f_code.co_qualname}:{frame.f_lineno}" if frame else ""
                places.append(f"{fiber}{where}")
        return ", ".join(places)

    def _pass_on(self, fiber: Fiber | None) -> None:
        if fiber is None:
            self.fiber = None
            self._main.release()
            return
        self.fiber = fiber
        if fiber.runner is None:
            fiber.runner = Runner.idle.pop() if Runner.idle else Runner()
            fiber.runner.fiber = fiber
        fiber.runner.baton.release()

    def _switch(self, fiber: Fiber) -> None:
        successor = self._next()
        if successor is not fiber:
            assert fiber.runner is not None
            self._pass_on(successor)
            fiber.runner.baton.acquire()
        self.fiber = fiber
        if fiber.process.dead:
            raise Killed

    def run_fiber(self, fiber: Fiber) -> None:
        """Run a fiber to its end, in a thread that is free afterwards."""
        if not fiber.process.dead:
            try:
                fiber.work()
            except Killed:
                pass
            except BaseException as problem:
                self.fail(problem)
        del fiber.process.fibers[fiber.number]
        assert fiber.runner is not None
        successor = None if self._over else self._next()
        Runner.idle.append(fiber.runner)
        self._pass_on(successor)


def world() -> World:
    """Return the world that runs."""
    assert World.current is not None, "no simulation runs"
    return World.current
