"""A change whose record has a place in the log and cannot be written is refused, and the log goes on behind it."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from crashing import CrashingFiles

from mgraph.device import Device
from mgraph.errors import StoreError
from mgraph.log.log import Log
from mgraph.log.scan import scan
from mgraph.log.segments import Segments
from mgraph.log.store import Store

FOLDER, LOG = "/data/log", 7


@pytest.fixture
def log():
    files = CrashingFiles()
    files.now["/data"] = files.disk["/data"] = None
    made = Log(Segments(files, FOLDER, LOG), "always", 0)
    made.files = files
    yield made
    made.close()


def begin(log: Log, epoch: int, count: int = 1) -> None:
    first, *more = ({"src": np.array([at], np.uint32), "dst": np.array([0], np.uint32)} for at in range(count))
    log.begin("batch", first, epoch, more=more)


def keep(log: Log, epoch: int) -> None:
    begin(log, epoch)
    log.ready()
    log.keep()


def entries(log: Log) -> list[tuple[str, int]]:
    found = scan(log.files, FOLDER, LOG, verify=True)
    assert found.broken is None
    return [(entry.kind, entry.epoch) for entry in found.entries if entry.kind in ("batch", "refused")]


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [("device", "staged", MemoryError("no page-locked memory")), ("writer", "submit", RuntimeError("no new thread"))],
)
@pytest.mark.parametrize("ends", ["refuse", "close"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_record_that_is_not_handed_over_is_refused(log, monkeypatch, owner, name, error, ends, count):
    def fail(*args: object) -> None:
        raise error

    keep(log, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Device if owner == "device" else log._writer, name, staticmethod(fail))
        with pytest.raises(type(error), match=str(error)):
            begin(log, 2, count)
    if ends == "close":  # the change is undecided
        return
    log.refuse()
    keep(log, 2)
    keep(log, 3)
    refused = [("refused", epoch) for epoch in range(2, 2 + count)]
    assert entries(log) == [("batch", 1), *refused, ("batch", 2), ("batch", 3)]


@pytest.mark.parametrize(("number", "raises"), [(errno.EIO, True), (errno.EACCES, False)])
def test_a_folder_that_exists_and_whose_name_cannot_be_synced(monkeypatch, number, raises):
    """An attempt before may have made it, and could not make its name durable either."""

    def fail(path: str) -> None:
        raise OSError(number, "of this test", path)

    files = CrashingFiles()
    files.now["/data"] = files.disk["/data"] = None
    store = Store("/data/store", files)
    store.make_folder()
    monkeypatch.setattr(files, "sync_folder", fail)
    if raises:
        with pytest.raises(StoreError, match="the folder of the store cannot be made"):
            store.make_folder()
    else:
        store.make_folder()


def test_a_folder_whose_sync_failed_is_durable_after_the_next_attempt():
    """Another rank has put something into the folder, so it is not removed again."""
    failing = ["sync folder"]

    def fail(what: str, path: str) -> None:
        if [what] == failing and path == "/data":
            failing.clear()
            files.open("/data/store/rank-0001.lock")
            raise OSError(errno.EIO, "of this test", path)

    files = CrashingFiles(fail)
    files.now["/data"] = files.disk["/data"] = None
    store = Store("/data/store", files)
    with pytest.raises(StoreError, match="the folder of the store cannot be made"):
        store.make_folder()
    assert "/data/store" in files.now
    store.make_folder()
    assert "/data/store" in files.disk


def test_a_store_whose_description_cannot_be_synced_is_made_anew():
    """Its name may be lost, and that of a term which a later graph begins may not."""
    failing = ["/data/store"]

    def fail(what: str, path: str) -> None:
        if what == "sync folder" and [path] == failing:
            failing.clear()
            raise OSError(errno.EIO, "of this test", path)

    files = CrashingFiles(fail)
    files.now["/data"] = files.disk["/data"] = None
    store = Store("/data/store", files)
    store.make_folder()
    with pytest.raises(StoreError, match="the store cannot be written"):
        store.create({"n_vertices": 10})
    assert not store.exists
    store.create({"n_vertices": 10})
    assert "/data/store/store.json" in files.disk
