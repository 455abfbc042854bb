"""What a worker process does before a step of mgraph: die or stop there, take its time, or refuse it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from pkgutil import resolve_name

from mgraph import CapacityError

__all__ = ["before", "cut", "hit", "note", "refuse", "rest"]

STEPS = {
    "sort": "mgraph.worker.calls.changes.share_runs mgraph.worker.commit.ballot.share_runs",  # one in two modules
    "route": "mgraph.structures.run.Run.cuts",
    "exchange": "mgraph.exchange.peer.PeerExchange.alltoallv",
    "prepare": "mgraph.worker.commit.change.BatchChange.prepare",
    "vote": "mgraph.worker.commit.ballot.Ballot._vote",
    "commit": "mgraph.worker.commit.change.BatchChange.commit",
    "prepare vertices": "mgraph.worker.commit.change.VerticesChange.prepare",
    "commit vertices": "mgraph.worker.commit.change.VerticesChange.commit",
    "remove": "mgraph.worker.vertices.removal.rebuilt",
    "move": "mgraph.worker.vertices.rebalance.move",
    "switch": "mgraph.worker.vertices.rebalance.Move.commit",
    "superstep": "mgraph.exchange.world.World._drive",
    "grow": "mgraph.exchange.world.World._grow",
    "gather": "mgraph.worker.shard.shard.Shard.result",
    "measure for a copy": "mgraph.worker.calls.creation.bytes_of_copy",
    "copy": "mgraph.worker.calls.creation.copied",
    "offer the copy": "mgraph.worker.calls.rank.Rank.offer",
    "adopt the copy": "mgraph.worker.calls.rank.Rank.take_offered",
}


def before(step: str, act: Callable[..., object], *given: object, at: int = 0) -> None:
    """In this process do ``act(*given, *args)`` once, before the call of a step numbered `at`, counted from now.

    For `Client.run`. `args` are those of the step, which goes on unless the act raises or ends the process.
    """
    steps, calls = [path.rpartition(".") for path in STEPS[step].split()], count()
    as_it_was = resolve_name(STEPS[step].split()[0])

    def replaced(*args, **options):
        if next(calls) == at:
            act(*given, *args)
        return as_it_was(*args, **options)

    for where, _, name in steps:
        setattr(resolve_name(where), name, replaced)


def hit(number: int, *_: object) -> None:
    """Send this process a signal, and do nothing until it has taken effect."""
    os.kill(os.getpid(), number)
    time.sleep(1)


def cut(*_: object) -> None:
    """End all sessions of this process as if their connections broke, and the step."""
    from distributed import Worker

    for worker in Worker._instances:
        for session in worker.plugins["mgraph"].table.sessions.values():
            worker.loop.add_callback(session.comm.abort)
    time.sleep(0.3)
    raise ConnectionError("the connection was cut")


def rest(seconds: float, begun: Path | None, *_: object) -> None:
    """Take `seconds`; the file `begun` says that they have begun."""
    if begun is not None:
        begun.touch()
    time.sleep(seconds)


def note(file: Path, *_: object) -> None:
    """Make a file, which says that the step was reached."""
    file.touch()


def refuse(shard: object, *_: object) -> None:
    """Fail as where memory does not suffice."""
    raise CapacityError(f"{shard}: no room")
