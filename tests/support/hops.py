"""How many functions of mgraph a call passes through, from the user's line to the first kernel, over all threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mgraph
from mgraph.channel import Channel

__all__ = ["Hops", "breadth"]

PACKAGE = str(Path(mgraph.__file__).parent)


def stack() -> list[str]:
    """The functions of mgraph that the calling thread is in, the outermost first."""
    frame, found = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE) and not code.co_name.endswith("comp>"):  # no frames from Python 3.12 on
            found.append(f"{Path(code.co_filename).stem}.{code.co_qualname}")
        frame = frame.f_back  # type: ignore[assignment]
    return found[::-1]


class Hops:
    """The functions on the way of calls that go by a channel. Made before the graph, within `watched`."""

    def __init__(self) -> None:
        self._found: dict[str, list[str]] = {}

    def launching(self, kernel: str) -> None:
        """Note the stack at the first kernel of a call, for `watched`."""
        if "user's thread" in self._found:
            self._found.setdefault("shard's thread", [*stack(), kernel])

    def of(self, call: Callable[[], Any]) -> dict[str, list[str]]:
        """In the user's thread, when the message is sent; in the shard's thread, when the first kernel runs."""
        found = self._found = {}
        user, send = threading.current_thread(), Channel.send

        def sending(channel: Channel, data: bytes) -> bool:
            if threading.current_thread() is user:
                found.setdefault("user's thread", stack())
            return send(channel, data)

        with patch.object(Channel, "send", sending):
            call()
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
