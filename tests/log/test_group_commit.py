"""Changes in flight with ``sync="always"``: one sync does for several, and each is answered when it is on the disk.

Changes that are decided together are written at once.
"""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from mgraph.errors import StoreError
from mgraph.log import log as log_module
from mgraph.log.files import DISK, File
from mgraph.log.log import Log
from mgraph.log.recovery_scan import kept_changes
from mgraph.log.scan import scan
from mgraph.log.segments import Segments
from mgraph.protocol import AFTER, Call, Failure, Result, ShardState
from mgraph.shared import LARGE
from mgraph.worker.sessions.thread import Asked, ShardThread


def change(log: Log, epoch: int, ahead: bool) -> None:
    log.begin("batch", {"src": np.array([epoch], np.uint32), "dst": np.array([1], np.uint32)}, epoch, ahead)
    log.ready()
    log.keep()


def columns(epoch: int) -> dict[str, np.ndarray]:
    """The columns of a change, of another length each."""
    return {"src": np.full(7 * epoch % 5, epoch, np.uint32), "dst": np.arange(7 * epoch % 5, dtype=np.uint32)}


def begin_together(log: Log, epoch: int, count: int, ahead: bool = False) -> None:
    first, *more = map(columns, range(epoch, epoch + count))
    log.begin("batch", first, epoch, ahead, more)


def epochs(folder: Path) -> list[tuple[str, int]]:
    found = scan(DISK, str(folder), 7, verify=True)
    assert found.broken is None
    assert [entry.n for entry in found.entries if entry.kind == "batch"] == [
        7 * entry.epoch % 5 for entry in found.entries if entry.kind == "batch"
    ]
    return [(entry.kind, entry.epoch) for entry in found.entries]


@pytest.fixture
def log(tmp_path):
    made = Log(Segments(DISK, str(tmp_path), 7), "always", 0)
    yield made
    made.close()


def test_one_sync_does_for_several(log, monkeypatch):
    go, syncs, sync = threading.Event(), [], File.sync

    def slow(file: File) -> None:
        syncs.append(file.path)
        assert go.wait(10)
        sync(file)

    monkeypatch.setattr(File, "sync", slow)
    for epoch in range(1, 11):
        change(log, epoch, ahead=True)
    assert (log.durable, log.safe.done()) == (0, False)
    go.set()
    log.safe.result(10)
    assert log.durable == 10
    assert len(syncs) <= 3
    change(log, 11, ahead=False)
    assert log.durable == 11


@pytest.mark.parametrize("ahead", [False, True])
def test_changes_that_are_decided_together_have_one_write_and_one_sync(log, tmp_path, monkeypatch, ahead):
    calls: list[str] = []

    def note(name: str, call: Callable[..., None]) -> None:
        monkeypatch.setattr(File, name, lambda *args: (calls.append(name), call(*args)))

    note("write", File.write)
    note("sync", File.sync)
    begin_together(log, 1, 64, ahead)
    log.ready()
    log.keep()
    if ahead:
        log.safe.result(10)
    assert calls == ["write", "sync", "write"]  # the last is the mark of the sync
    assert log.durable == 64
    assert epochs(tmp_path) == [("batch", epoch) for epoch in range(1, 65)]


def test_a_write_of_several_changes_that_is_torn_leaves_the_first_of_them(log, tmp_path):
    begin_together(log, 1, 9, ahead=True)
    log.ready()
    (path,) = tmp_path.iterdir()
    data, torn, seen = path.read_bytes()[: log.place], tmp_path / "torn", set[int]()
    log.keep()
    for cut in range(0, len(data) + 1, 4):
        torn.mkdir()
        (torn / path.name).write_bytes(data[:cut] + bytes(100))
        kept = epochs(torn)
        assert kept == [("batch", epoch) for epoch in range(1, len(kept) + 1)]
        seen.add(len(kept))
        shutil.rmtree(torn)
    assert seen == set(range(10))


def test_changes_that_are_refused_together_are_refused_one_by_one(log, tmp_path):
    """Those that are tried again, each alone or with others, have attempts of their own."""
    wanted, rng = [], np.random.default_rng(3)
    epoch = 1
    while epoch < 60:
        count, kept = int(rng.choice([1, 2, 9])), bool(rng.random() < 0.5)
        begin_together(log, epoch, count)
        log.ready()
        log.keep() if kept else log.refuse()
        kinds = ["batch"] if kept else ["batch", "refused"]
        wanted += [(kind, at) for kind in kinds for at in range(epoch, epoch + count)]
        epoch += count * kept
    assert epochs(tmp_path) == wanted
    found = kept_changes([scan(DISK, str(tmp_path), 7)], 0)
    assert (found.epoch, found.given_up) == (epoch - 1, 0)


def test_nothing_is_logged_after_a_refusal_for_which_there_was_no_memory(log, monkeypatch):
    """The attempt that was not refused would come before later ones, and is not whole on all ranks."""
    draft = log_module.draft

    def fails(kind: str, *rest: Any) -> Any:
        if kind == "refused":
            raise MemoryError
        return draft(kind, *rest)

    begin_together(log, 1, 3)
    log.ready()
    with monkeypatch.context() as patch:
        patch.setattr(log_module, "draft", fails)
        what = "a refusal cannot be logged.*MemoryError.*epochs 1 to 3 were not made; whether the store has them"
        with pytest.raises(StoreError, match=what) as refused:
            log.refuse()
    assert (refused.value.undecided, log.undecided) == (3, 3)
    with pytest.raises(StoreError, match="open the store again"):
        begin_together(log, 1, 1)


def test_a_log_without_room_for_all_refusals_of_several_changes_takes_none(log, monkeypatch):
    def full(file: File, end: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    change(log, 1, ahead=False)
    with monkeypatch.context() as patch:
        patch.setattr(File, "allocate", full)
        with pytest.raises(StoreError, match="no room in the log"):
            begin_together(log, 2, 64)
        log.refuse()
    begin_together(log, 2, 64)
    log.ready()
    log.refuse()
    assert log._segments.end <= log._segments._allocated


def test_a_failing_sync_is_reported(log, monkeypatch):
    def fails(file: File) -> None:
        raise OSError(errno.EIO, "Input/output error")

    change(log, 1, ahead=True)
    log.safe.result(10)
    with monkeypatch.context() as patch:
        patch.setattr(File, "sync", fails)
        change(log, 2, ahead=True)
        with pytest.raises(StoreError, match="cannot be synced"):
            log.safe.result(10)
    assert log.durable == 1
    with pytest.raises(StoreError, match="open the store again"):
        change(log, 3, ahead=True)


def test_a_sync_after_one_that_failed_fails_too(log, monkeypatch):
    """The disk may have dropped what the first was to write, and would say nothing."""
    go, syncs, sync = threading.Event(), [], File.sync

    def fails_once(file: File) -> None:
        assert go.wait(10)
        syncs.append(file.path)
        if len(syncs) == 1:
            raise OSError(errno.EIO, "Input/output error")
        sync(file)

    monkeypatch.setattr(File, "sync", fails_once)
    safe = []
    for epoch in (1, 2):
        change(log, epoch, ahead=True)
        safe.append(log.safe)
    go.set()
    for future in safe:
        with pytest.raises(StoreError, match="cannot be synced"):
            future.result(10)
    log.close()
    assert (log.durable, log.synced) == (0, 0)


class Servant:
    """Answers with a future that ends later."""

    busy, state = None, ShardState(epoch=4)

    def __init__(self, after: Future[None], value: Any = 1) -> None:
        self.after, self.value = after, value

    def find(self, method: str, attempt: int):
        return lambda: {"n": self.value, AFTER: self.after if method == "later" else None}

    def free(self, results) -> None:
        """Nothing is held."""

    def share(self, shared) -> None:
        """Its answers are small."""

    def prefetch(self, call) -> None:
        """Nothing is copied ahead."""

    close = received = lambda self: None


@pytest.mark.parametrize("error", [None, StoreError("the disk")])
def test_an_answer_waits_and_others_do_not(error):
    after, posted, ended = Future(), SimpleQueue(), threading.Event()
    thread = ShardThread("mgraph-test", lambda aborted: Servant(after), ended.set)
    thread.start()
    for seq, method in enumerate(["later", "now"], 1):
        thread.requests.put(Asked(Call(seq, 1, method, {}), posted.put))
    assert posted.get(timeout=10).seq == 2
    thread.stop()
    assert ended.wait(10)
    after.set_result(None) if error is None else after.set_exception(error)
    late = posted.get(timeout=10)
    assert late.seq == 1
    assert isinstance(late, Result if error is None else Failure)
    assert (late.state.epoch, late.state.broken) == (4, None if error is None else "the disk")


def test_an_answer_that_cannot_be_posted_after_its_future_is_an_error():
    """Arrays of a large answer need memory, on a GPU for their way to the host."""

    class Large:
        def put(self, values, wait):
            raise MemoryError("no room")

    after, posted, ended = Future(), SimpleQueue(), threading.Event()
    thread = ShardThread("mgraph-test", lambda aborted: Servant(after, np.zeros(LARGE, bool)), ended.set)
    thread.start()
    thread.requests.put(Asked(Call(1, 1, "later", {}), posted.put, Large(), whole=True))
    thread.requests.put(Asked(Call(2, 1, "now", {}), posted.put))
    assert posted.get(timeout=10).seq == 2
    after.set_result(None)
    late = posted.get(timeout=10)
    assert isinstance(late, Failure)
    assert (late.seq, late.state.epoch, late.state.broken) == (1, 4, None)
    thread.stop()
    assert ended.wait(10)
