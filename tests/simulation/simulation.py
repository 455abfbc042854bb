"""Runs a seed: a plan of programs and faults is drawn from it, then all that happens.

PYTHONPATH=tests/support python tests/simulation/simulation.py 17            # replay a seed, and shrink it if it fails
PYTHONPATH=tests/support python tests/simulation/simulation.py 0 10000       # run seeds
PYTHONPATH=tests/support python tests/simulation/simulation.py 0 10000 --shape small

An event is a choice of the world: a fiber or an event loop that is ready runs until it waits, or an entry of virtual
time comes due: a message, the end of a wait or of an operation of the disk, a fault. To create a store on two ranks,
make one change, stop the machine and read the store takes about 700 events, so a seed of 200 would not get so far.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fibers import LINE, World
from preemption import Preemption
from simulated_client import LONG
from simulated_cluster import RATES, Cluster, Setting, simulated
from simulated_history import Violation

__all__ = ["Plan", "Result", "run", "shrunk"]

KINDS = ("alone", "recovering", "rivals", "published")
FAULTS = (
    "kill worker", "kill client", "power", "pause worker", "pause client", "hang worker", "jump", "slow",
    "cut", "interrupt", "interrupt", "power", "end",
)  # fmt: skip
CALM = 300  #: steps after the last fault, from which on disks do not fail any more
FLIPPED = (("read",), ("insert", 3, (), ()), ("reopen",), ("read",))  #: the last program, where a bit has flipped
MOMENTS = ("", "", "answer", "vote")  #: at which a fault comes after its step
PRODUCT = Preemption("/mgraph/")
DISKS = ("", "", "eio", "full", "eio full", "lost", "lying")
LINES = ("mgraph/log/", "mgraph/client/calls/send_lock.py", "mgraph/client/stores/recovery.py")
#: the steps of a program, with the probabilities up to and with each
STEPS = (
    ("insert", 0.45), ("pipeline", 0.65), ("read", 0.75), ("together", 0.8), ("durable", 0.9), ("sleep", 0.97),
    ("reopen", 1.0),
)  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """How large the plans of seeds are.

    Parameters
    ----------
    workers, clients : int
        At most.
    steps : (int, int)
        Of a program, at least and at most.
    faults : tuple of int
        Numbers of faults, of which one is drawn.
    span : (int, int)
        Events between which faults come.
    lines : float
        Probability that fibers give way between lines, too.
    unread, flip : float
        Probabilities that reads of the disk fail, and that a bit flips before the last opening.
    threads : float
        Probability that a step is a change beside reads of several threads.
    kinds, syncs, disks, what, moments : tuple of str
        Of a setting and its faults, of which each is drawn.
    mix : tuple
        See `STEPS`.
    few : float
        Probability that a graph is opened on some of the workers only.
    traced : tuple of str
        Parts of the paths of files between whose lines fibers give way; see `Preemption`.
    line, slow : float
        Probabilities that they do so at a line, and that an operation of the disk takes long.
    """

    workers: int
    clients: int
    steps: tuple[int, int]
    faults: tuple[int, ...]
    span: tuple[int, int]
    lines: float
    unread: float = 0.0
    flip: float = 0.0
    threads: float = 0.0
    kinds: tuple[str, ...] = KINDS
    syncs: tuple[str, ...] = ("always", "background")
    disks: tuple[str, ...] = DISKS
    what: tuple[str, ...] = FAULTS
    moments: tuple[str, ...] = MOMENTS
    mix: tuple[tuple[str, float], ...] = STEPS
    few: float = 0.3
    traced: tuple[str, ...] = LINES
    line: float = LINE
    slow: float = 0.1


SHAPES = {
    "large": Shape(3, 3, (2, 9), (0, 1, 1, 2, 2, 3, 5), (50, 2000), 0.15, 0.15, 0.1),
    "small": Shape(2, 2, (1, 3), (0, 1, 1, 1, 2), (20, 600), 0.05, 0.15, 0.1),
    "threads": Shape(2, 2, (2, 4), (0, 1, 1, 2), (100, 1000), 1.0, 0.15, 0.1, 0.7),
    # The threads of a log, when the machine stops or a process ends just as a change is acknowledged.
    "log": Shape(
        2, 1, (2, 6), (1,), (300, 1200), 1.0, kinds=("alone",), disks=("",),
        what=("power", "power", "end"), moments=("answer",),
        mix=(("insert", 0.3), ("pipeline", 0.7), ("durable", 1.0)), traced=("mgraph/log/segments.py",), line=0.2,
        slow=0.4,
    ),
    # A machine that stops just as a client is told how far the store is durable.
    "durable": Shape(
        3, 1, (2, 6), (1,), (200, 1000), 0.0, kinds=("alone",), syncs=("background",), disks=("",), what=("power",),
        moments=("answer",), mix=(("insert", 0.5), ("durable", 1.0)), slow=0.5,
    ),
    # Threads of a client whose graph comes back after the loss of a worker.
    "recoveries": Shape(
        2, 1, (2, 4), (1, 2), (300, 1000), 1.0, threads=0.9, kinds=("recovering",), disks=("",), what=("kill worker",),
        moments=("", "answer"), traced=("mgraph/client/stores/recovery.py",), line=0.2,
    ),
    # Ctrl-C of calls that wait behind those of other threads.
    "interrupts": Shape(
        2, 1, (3, 6), (3, 5), (300, 1500), 0.0, threads=0.9, kinds=("alone",), disks=("",), what=("interrupt",),
        moments=("",),
    ),
    # A rank that goes on while its graph is opened again elsewhere.
    "left behind": Shape(
        3, 1, (2, 4), (1, 2), (300, 1500), 0.0, kinds=("alone", "recovering"), syncs=("always",), disks=("",),
        what=("kill and pause",), moments=("sync",), mix=(("insert", 1.0),), few=0.6, slow=0.5,
    ),
    # A store that is opened again and again, from a disk that fails.
    "openings": Shape(
        2, 1, (2, 5), (2, 3), (200, 1200), 0.0, 0.7, 0.5, kinds=("alone", "recovering"), disks=("", "eio"),
        what=("power", "end", "kill worker"), moments=("", "answer"), mix=(("insert", 0.5), ("pipeline", 1.0)),
    ),
    # Machines that cannot reach each other, while others can.
    "partitions": Shape(
        3, 3, (3, 7), (1, 2, 2, 3), (150, 700), 0.0, disks=("",),
        what=(*("partition",) * 7, "kill worker", "kill client", "interrupt"), moments=("", "answer", "sync", "vote"),
        mix=(("insert", 0.4), ("pipeline", 0.7), ("read", 0.9), ("durable", 1.0)),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What a seed makes happen: its repr makes it again."""

    seed: int
    setting: Setting
    programs: tuple[tuple[tuple[Any, ...], ...], ...]
    faults: tuple[tuple[int, str, int, float, str], ...]
    lines: tuple[str, ...] = ()
    line: float = LINE

    @classmethod
    def of(cls, seed: int, shape: str = "large") -> Plan:
        """Draw the plan of a seed."""
        rng, size = random.Random(seed), SHAPES[shape]
        kind = rng.choice(size.kinds)
        clients = rng.randint(2, size.clients) if kind in ("rivals", "published") else 1
        disk = rng.choice(size.disks)
        rates = {name: rng.choice([0.005, 0.03]) for name in disk.split()}
        workers, sync = rng.randint(1, size.workers), rng.choice(size.syncs)
        programs = tuple(_program(rng, rng.randint(*size.steps), size) for _ in range(clients))
        count = rng.choice(size.faults)
        faults = sorted(_fault(rng, size) for _ in range(count))
        lines = size.traced if rng.random() < size.lines else ()
        if rng.random() < size.unread:
            rates["unread"] = rng.choice([0.01, 0.05])
        flip = rng.random() < size.flip and not {"lost", "lying"} & rates.keys()
        setting = Setting(kind, workers, clients, sync, few=size.few, slow=size.slow, flip=flip, **rates)
        return cls(seed, setting, programs, tuple(faults), lines, size.line)


def _fault(rng: random.Random, size: Shape) -> tuple[int, str, int, float, str]:
    """A step, the kind of a fault, its target and amount, and the moment after the step at which it comes."""
    return rng.randrange(*size.span), rng.choice(size.what), rng.randrange(6), rng.random(), rng.choice(size.moments)


def _program(rng: random.Random, count: int, size: Shape) -> tuple[tuple[Any, ...], ...]:
    steps: list[tuple[Any, ...]] = []
    for _ in range(count):
        choice = rng.random()
        if size.threads and rng.random() < size.threads:
            steps.append(("together", rng.randint(1, 3)))
            continue
        match next(step for step, upto in size.mix if choice < upto):
            case "insert":
                steps.append(("insert", *_batch(rng)))
            case "pipeline":
                steps.append(("pipeline", tuple(_batch(rng) for _ in range(rng.randint(2, 6)))))
            case "together":
                steps.append(("together", rng.randint(1, 2)))
            case "sleep":
                steps.append(("sleep", rng.random() * 0.3))
            case step:
                steps.append((step,))
    return tuple(steps)


def _batch(rng: random.Random) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """The edges of a change, the ranks that refuse it, and those that fail before."""
    refuse = (rng.randrange(3),) if rng.random() < 0.1 else ()
    return rng.randint(3, 12), refuse, (rng.randrange(3),) if rng.random() < 0.04 else ()


@dataclass
class Result:
    """What became of a plan.

    Attributes
    ----------
    problem : BaseException or None
    steps : int
        Choices of what happens next.
    seconds : float
        Virtual seconds.
    acknowledged : int
        Changes.
    mark : float
        Differs if another choice was made.
    story : list of str
        What happened.
    """

    problem: BaseException | None
    steps: int
    seconds: float
    acknowledged: int
    mark: float
    story: list[str]


def run(plan: Plan) -> Result:
    """Run a plan; the same plan always gives the same result."""
    world = World(plan.seed, bool(plan.lines), plan.line)
    with PRODUCT.between_lines(plan.lines, world.point):
        return _run(plan, world)


def _run(plan: Plan, world: World) -> Result:
    problem = None
    try:
        cluster = Cluster(world, plan.setting, peaceful=not plan.faults and not any(plan.setting.rates))
        for program in plan.programs:
            cluster.start_client(program)
        faults = [(step, partial(cluster.inject, *fault)) for step, *fault in plan.faults]
        last = max((step for step, *_ in plan.faults), default=0)
        world.at_steps([*faults, (last + CALM, cluster.heal)])
        world.run(lambda: not cluster.busy)

        # The sessions of clients that are gone end: no rank waits for ever.
        world.at_steps([])
        end = world.now + LONG
        world.run(lambda: not cluster.sessions or world.now > end)
        if cluster.sessions:
            raise Violation(f"{LONG:g} s after the last client these sessions go on: {cluster.sessions}")

        # The machine stops, or all processes end; then somebody opens the store.
        cluster.inject(world.rng.choice(["power", "end"]), 0, 0.1)
        cluster.heal()
        cluster.setting = replace(plan.setting, kind="alone")
        if plan.setting.flip and cluster.history.created:
            cluster.flip()
        cluster.start_client(FLIPPED if cluster.history.flipped else (("read",),))
        world.run(lambda: not cluster.busy)
    except Exception as error:
        problem = error
    finally:
        world.end()
        cluster.network.close()
    return Result(problem, world.steps, world.now, cluster.history.acknowledged, world.rng.random(), cluster.story)


def shrunk(plan: Plan, attempts: int = 150) -> Plan:
    """Return a smaller plan that fails, too."""
    kind, smaller = _kind(run(plan)), True
    while smaller:
        smaller = False
        for candidate in _smaller(plan):
            attempts -= 1
            if attempts < 0:
                return plan
            if _kind(run(candidate)) == kind:
                plan, smaller = candidate, True
                break
    return plan


def _kind(result: Result) -> str:
    """Return the first words of a problem: a smaller plan has to have the same."""
    problem = result.problem
    return "" if problem is None else " ".join([type(problem).__name__, *str(problem).split()[:2]])


def _smaller(plan: Plan) -> Iterator[Plan]:
    if plan.lines:
        yield replace(plan, lines=())
    for name in RATES:
        if getattr(plan.setting, name):
            yield replace(plan, setting=replace(plan.setting, **{name: 0.0}))
    if plan.setting.flip:
        yield replace(plan, setting=replace(plan.setting, flip=False))
    if plan.setting.workers > 1:
        yield replace(plan, setting=replace(plan.setting, workers=plan.setting.workers - 1))
    for at in range(len(plan.faults)):
        yield replace(plan, faults=plan.faults[:at] + plan.faults[at + 1 :])
    for client, program in enumerate(plan.programs):
        rest = plan.programs[client + 1 :]
        if len(plan.programs) > 1:
            yield replace(plan, programs=plan.programs[:client] + rest)
        for at in range(len(program)):
            yield replace(plan, programs=(*plan.programs[:client], program[:at] + program[at + 1 :], *rest))


def main() -> None:
    """Run seeds, or replay one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--shape", choices=SHAPES, default="large")
    options = parser.parse_args()
    began, steps, acknowledged, failures = time.process_time(), 0, 0, 0
    with simulated():
        for seed in range(options.first, options.first + options.count):
            plan = Plan.of(seed, options.shape)
            result = run(plan)
            steps, acknowledged = steps + result.steps, acknowledged + result.acknowledged
            if result.problem is not None:
                failures += 1
                print(f"seed {seed}: {type(result.problem).__name__}: {result.problem}", flush=True)
                if options.count == 1:
                    print(*result.story[:200], sep="\n")
                    traceback.print_exception(result.problem)
                    small = shrunk(plan)
                    result = run(small)
                    print(*result.story, sep="\n")
                    print(f"smaller: {small}\n{result.problem!r}")
            if seed % 50 == 49:
                gc.collect()
    seconds = time.process_time() - began
    print(
        f"{options.count} {options.shape} seeds, {steps} events, {acknowledged} changes, {failures} failures, "
        f"{seconds:.1f} s of a core"
    )


if __name__ == "__main__":
    main()
