"""Ctrl-C at any line of a call by channels: it comes, the graph goes on, and no memory that is shared stays taken."""

from __future__ import annotations

import gc
import signal
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes import fake_cluster
from interrupts import at_line
from patience import patience

from mgraph import channel, shared
from mgraph import interrupts as deferral
from mgraph.calls import CALLS
from mgraph.client.calls import channel_calls
from mgraph.client.connections import answers, local_memory, session
from mgraph.interrupts import DeferredCtrlC

pytestmark = pytest.mark.timeout(120)

MODULES = channel, shared, channel_calls, deferral, answers, local_memory, session
FILES = {module.__file__ for module in MODULES}


def hit() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("part", range(4))
def test_ctrl_c_at_any_line_leaves_no_memory_taken(monkeypatch, part):
    column = np.arange(1 << 14)
    with fake_cluster(2) as (coordinator, _):
        monkeypatch.setitem(CALLS, "read", replace(CALLS["big"], reads_in_place=True))
        for _ in range(2):  # to share memory
            coordinator.call("big", {"n": 1 << 20})
        ends = [end for end in gc.get_objects() if isinstance(end, shared.Shared)]
        assert len(ends) >= 4
        came, line = True, part
        while came:
            method, args = ("read", {"n": 1 << 14}) if line // 4 % 2 else ("flags", {"array": column})
            try:
                with at_line(line, FILES, hit) as hits:
                    coordinator.call(method, args)
            except KeyboardInterrupt:
                assert hits()
            came = hits()
            # The next call takes what is left of an answer, and the one after it reports that this was read.
            for _ in range(2):
                assert coordinator.call("echo", {"i": line})[1]["i"] == line
            end = time.monotonic() + patience(2)
            while any(taken := [dict(end._room._taken) for end in ends]) and time.monotonic() < end:
                time.sleep(0.005)
            assert not any(taken), line
            line += 4


def test_it_is_deferred_until_it_is_delivered_or_the_block_ends():
    came = list[Any]()
    woken, before = list[int](), signal.signal(signal.SIGINT, lambda *args: came.append(args))
    try:
        deferred, own = DeferredCtrlC(lambda: woken.append(1)), signal.getsignal(signal.SIGINT)
        with deferred:
            hit()
            assert (woken, came) == ([1], [])
            deferred.deliver()
            assert len(came) == 1
            deferred.deliver()
            assert len(came) == 1
            hit()
            assert len(came) == 1
        assert len(came) == 2 and signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(KeyboardInterrupt), deferred:
        hit()
        came.clear()
    assert came == [] and signal.getsignal(signal.SIGINT) is before


def test_another_thread_defers_nothing():
    handlers = list[Any]()

    def look() -> None:
        with DeferredCtrlC():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]


def test_a_call_of_another_thread_does_not_end_the_deferral(monkeypatch):
    """The main thread waits for an answer, and another thread makes a call, which finds the lock taken."""
    own, came = signal.getsignal(signal.SIGINT), list[int]()
    with fake_cluster(1) as (coordinator, _):
        coordinator.call("echo", {"i": 0})
        ways = coordinator._channels

        def meanwhile(*args: Any) -> Any:
            thread = threading.Thread(target=ways.call, args=(CALLS["echo"], {"i": 1}, [{}]))
            thread.start()
            thread.join()
            hit()
            came.append(1)
            return answers(*args)

        answers = ways._answers
        monkeypatch.setattr(ways, "_answers", meanwhile)
        with pytest.raises(KeyboardInterrupt):
            ways.call(CALLS["echo"], {"i": 2}, [{}])
        assert came and signal.getsignal(signal.SIGINT) is own
