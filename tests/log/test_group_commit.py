"""Changes in flight with ``sync="always"``: one sync does for several, and each is answered when it is on the disk."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import Future
from queue import SimpleQueue

import numpy as np
import pytest

from mgraph.errors import StoreError
from mgraph.log.files import DISK, File
from mgraph.log.log import Log
from mgraph.log.segments import Segments
from mgraph.protocol import AFTER, Call, Failure, Result, ShardState
from mgraph.worker.sessions.thread import Asked, ShardThread


def change(log: Log, epoch: int, ahead: bool) -> None:
    log.begin("batch", {"src": np.array([epoch], np.uint32), "dst": np.array([1], np.uint32)}, epoch, ahead)
    log.ready()
    log.keep()


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


def test_a_sync_that_fails_is_told(log, monkeypatch):
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


class Servant:
    """Answers with a future that ends later."""

    busy, state = None, ShardState(epoch=4)

    def __init__(self, after: Future[None]) -> None:
        self.after = after

    def find(self, method: str, attempt: int):
        return lambda: {"n": 1, AFTER: self.after if method == "later" else None}

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
        thread.requests.put(Asked(Call(seq, 1, method), posted.put))
    assert posted.get(timeout=10).seq == 2
    thread.stop()
    assert ended.wait(10)
    after.set_result(None) if error is None else after.set_exception(error)
    late = posted.get(timeout=10)
    assert late.seq == 1
    assert isinstance(late, Result if error is None else Failure)
    assert (late.state.epoch, late.state.broken) == (4, None if error is None else "the disk")
