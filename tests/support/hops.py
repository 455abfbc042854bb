"""How many functions of mgraph a call passes through, from the user's line to the first kernel, over all threads."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from unittest.mock import patch

from distributed.comm.inproc import InProc

import mgraph
from mgraph.kernels import Kernel
from mgraph.kernels.launch import Bound

__all__ = ["breadth", "hops", "watched"]

PACKAGE = str(Path(mgraph.__file__).parent)

_found: dict[str, list[str]] | None = None  #: filled while a call is watched


def stack() -> list[str]:
    """The functions of mgraph that the calling thread is in, the outermost first."""
    frame, found = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE) and not code.co_name.endswith("comp>"):  # no frames from Python 3.12 on
            found.append(f"{Path(code.co_filename).stem}.{code.co_qualname}")
        frame = frame.f_back  # type: ignore[assignment]
    return found[::-1]


class Queue(SimpleQueue):
    """The queue between a worker's event loop and its shard's thread."""

    def put(self, item: Any, *args: Any, **options: Any) -> None:
        if _found is not None and item and getattr(item[0], "method", None) in ("update", "run"):
            _found.setdefault("worker's loop", stack())
        super().put(item, *args, **options)


@contextmanager
def watched() -> Iterator[None]:
    """Graphs that are made in here can be watched."""
    with patch("mgraph.worker.sessions.thread.SimpleQueue", Queue):
        yield


def hops(call: Callable[[], Any], method: str) -> dict[str, list[str]]:
    """The functions on the way of `call`, whose message to the worker names `method`.

    In the user's thread, when the client's event loop is given the call; on that loop, those that led to the task which
    writes the message, and those in that task; on the worker's loop, when the shard's thread is given the call; in that
    thread, when the first kernel runs.
    """
    global _found
    found = _found = {}
    user, made = threading.current_thread(), dict[int, list[str]]()
    post, write, create, launch = (
        asyncio.BaseEventLoop.call_soon_threadsafe, InProc.write, asyncio.create_task, Kernel.__call__,
    )  # fmt: skip
    launch_bound = Bound.__call__

    def posting(loop: Any, *args: Any, **options: Any) -> Any:
        if threading.current_thread() is user and (here := stack()):
            found.setdefault("user's thread", here)
        return post(loop, *args, **options)

    def creating(work: Any, **options: Any) -> Any:
        task = create(work, **options)
        made[id(task)] = stack()
        return task

    async def writing(comm: Any, message: Any, *args: Any, **options: Any) -> Any:
        if isinstance(message, dict) and message.get("method") == method:
            before = made.get(id(asyncio.current_task()), [])
            found.setdefault("client's loop", [*before, *stack()])
        return await write(comm, message, *args, **options)

    def launching(kernel: Any, items: int, **fields: Any) -> Any:
        if "worker's loop" in found and items > 0:
            found.setdefault("shard's thread", [*stack(), launch.__qualname__])
        return launch(kernel, items, **fields)

    def launching_bound(bound: Any, items: int, **fields: Any) -> Any:
        if "worker's loop" in found and items > 0:
            found.setdefault("shard's thread", [*stack(), launch_bound.__qualname__])
        return launch_bound(bound, items, **fields)

    with (
        patch.object(asyncio.BaseEventLoop, "call_soon_threadsafe", posting),
        patch.object(InProc, "write", writing),
        patch("asyncio.create_task", creating),
        patch.object(Kernel, "__call__", launching),
        patch.object(Bound, "__call__", launching_bound),
    ):
        call()
    _found = None
    return found


def breadth(call: Callable[[], Any]) -> dict[str, list[str]]:
    """The functions of mgraph that run in the calling thread during `call`, by file; comprehensions are none."""
    found: dict[str, list[str]] = {}

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.endswith("comp>"):
            functions = found.setdefault(code.co_filename[len(PACKAGE) + 1 :], [])
            if code.co_qualname not in functions:
                functions.append(code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found
