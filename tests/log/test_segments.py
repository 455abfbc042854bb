"""Segments of a log where a disk is full as one begins."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import OrderedDict
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from patience import patience

from mgraph.errors import StoreError
from mgraph.log.files import DISK, File
from mgraph.log.log import Log
from mgraph.log.records import Draft, draft
from mgraph.log.scan import scan
from mgraph.log.segments import Segments

LOG = 77


def put(segments: Segments, epoch: int) -> None:
    ids = np.arange(5, dtype=np.uint32)
    record = draft("batch", {"src": ids, "dst": ids}, epoch, 0)
    segments.put([record], segments.claim(record.size))


@pytest.mark.parametrize("removed", [True, False])
def test_what_follows_a_segment_that_could_not_be_begun_is_read(tmp_path, monkeypatch, removed):
    segments = Segments(DISK, str(tmp_path), LOG)
    put(segments, 1)

    def full(file: File, end: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(File, "allocate", full)
        if not removed:  # by a process that is killed before
            patch.setattr(type(DISK), "remove", lambda files, path: None)
        with pytest.raises(OSError, match="No space left"):
            segments.rotate()
    assert len(list(tmp_path.iterdir())) == 2 - removed
    put(segments, 2)
    segments.rotate()
    put(segments, 3)
    segments.close()
    found = scan(DISK, str(tmp_path), LOG, verify=True)
    assert found.broken is None
    assert [entry.epoch for entry in found.entries] == [1, 2, 3]


def test_an_empty_segment_keeps_its_room(tmp_path):
    segments = Segments(DISK, str(tmp_path), LOG)
    (path,) = Path(tmp_path).iterdir()
    room = os.stat(path).st_size
    segments.rotate()
    assert os.stat(path).st_size == room > 0
    put(segments, 1)
    segments.close()
    assert [entry.epoch for entry in scan(DISK, str(tmp_path), LOG).entries] == [1]


def test_a_sync_that_begins_while_a_place_is_claimed_does_not_count_its_record(tmp_path):
    """Its record is not written yet, and a crash may lose it."""
    segments, syncs = Segments(DISK, str(tmp_path), LOG), list[threading.Thread]()

    class Noticed(OrderedDict[int, None]):
        def __setitem__(self, place: int, value: None) -> None:
            if not syncs:
                syncs.append(threading.Thread(target=segments.sync))
                syncs[0].start()
                syncs[0].join(0.3)
            super().__setitem__(place, value)

    segments._unwritten = Noticed()
    place = segments.claim(800)
    syncs[0].join()
    assert segments.synced <= place < segments.end


def begin(log: Log, epoch: int) -> None:
    log.begin("batch", {"src": np.array([epoch], np.uint32), "dst": np.array([1], np.uint32)}, epoch)


@pytest.mark.parametrize("problem", [None, OSError(errno.EIO, "Input/output error"), MemoryError()], ids=repr)
def test_a_change_is_not_ready_while_a_mark_before_it_is_not_written(tmp_path, monkeypatch, problem):
    """Who reads the log of a killed process stops at a place that is claimed and empty."""
    put, claimed = Segments.put, threading.Event()

    def slow_mark(segments: Segments, records: list[Draft], place: int, *hasher: object) -> None:
        if records[0].kind == "mark":
            claimed.set()
            time.sleep(0.3)
            if problem is not None:
                raise problem
        put(segments, records, place, *hasher)

    log = Log(Segments(DISK, str(tmp_path), LOG), "background", 0)
    with monkeypatch.context() as patch:
        patch.setattr(Segments, "put", slow_mark)
        # The first change finds it already if the disk is fast.
        with nullcontext() if problem is None else pytest.raises(StoreError, match="cannot be written"):
            begin(log, 1)
            log.ready()
            log.keep()
            assert claimed.wait(patience(20))
            begin(log, 2)
            log.ready()
        if problem is None:
            assert [entry.epoch for entry in scan(DISK, str(tmp_path), LOG).entries] == [1, 2]
            log.keep()
    log.close()


@pytest.mark.parametrize("problem", [OSError(errno.EIO, "Input/output error"), MemoryError()], ids=repr)
def test_a_refusal_behind_a_mark_that_is_not_written_does_not_count(tmp_path, monkeypatch, problem):
    """A reader stops between the change and its refusal, and has the change."""
    put, append, claimed, refusing = Segments.put, Segments.append, threading.Event(), threading.Event()

    def failing_mark(segments: Segments, records: list[Draft], place: int, *hasher: object) -> None:
        if records[0].kind == "mark" and not refusing.is_set():
            claimed.set()
            assert refusing.wait(patience(20))
            raise problem
        put(segments, records, place, *hasher)

    def append_refusal(segments: Segments, record: Draft) -> None:
        if record.kind == "refused":
            refusing.set()
        append(segments, record)

    monkeypatch.setattr(Segments, "put", failing_mark)
    monkeypatch.setattr(Segments, "append", append_refusal)
    log = Log(Segments(DISK, str(tmp_path), LOG), "background", 0)
    with log._segments._appending:  # the mark of change 1 comes behind change 2
        begin(log, 1)
        log.keep()
        begin(log, 2)
    assert claimed.wait(patience(20))
    with pytest.raises(StoreError, match="epoch 2 was not made; whether the store has it is known") as refused:
        log.refuse()
    assert (refused.value.undecided, log.undecided) == (2, 2)
    entries = scan(DISK, str(tmp_path), LOG).entries
    assert [(entry.kind, entry.epoch) for entry in entries] == [("batch", 1), ("batch", 2)]
    log.close()  # and writes the mark
    entries = scan(DISK, str(tmp_path), LOG).entries
    assert [(entry.kind, entry.epoch) for entry in entries] == [("batch", 1), ("batch", 2), ("refused", 2)]


def test_a_sync_beside_one_that_fails_does_not_count(tmp_path, monkeypatch):
    """The system tells one of them that pages are lost, and the other one nothing."""
    segments = Segments(DISK, str(tmp_path), LOG)
    put(segments, 1)
    begun, fails = threading.Event(), threading.Event()
    errors: dict[threading.Thread, str | None] = {}

    def sync(file: File) -> None:
        if not begun.is_set():
            begun.set()
            fails.wait()
            raise OSError(errno.EIO, "Input/output error")

    def syncing() -> None:
        try:
            segments.sync()
        except OSError as error:
            errors[threading.current_thread()] = error.strerror

    monkeypatch.setattr(File, "sync", sync)
    threads = [threading.Thread(target=syncing) for _ in range(2)]
    threads[0].start()
    begun.wait()
    threads[1].start()
    threads[1].join(0.2)
    fails.set()
    for thread in threads:
        thread.join()
    assert [errors[thread] for thread in threads] == ["Input/output error", "an earlier sync has failed"]
    assert segments.synced == 0


def test_a_scan_says_what_may_not_be_on_the_disk(tmp_path):
    segments = Segments(DISK, str(tmp_path), LOG)
    put(segments, 1)
    end = segments.end
    assert scan(DISK, str(tmp_path), LOG).unsynced == (0, end)
    segments.sync()
    assert segments.end > end  # by a mark
    assert scan(DISK, str(tmp_path), LOG).unsynced == (end, segments.end)
    segments.rotate()
    assert scan(DISK, str(tmp_path), LOG).unsynced == (0, 0)
    begin = segments.end
    put(segments, 2)
    assert scan(DISK, str(tmp_path), LOG).unsynced == (0, segments.end - begin)
    segments.close()
