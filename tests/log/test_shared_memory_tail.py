"""Records that are held in shared memory: a process that is killed before it has written them loses none."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from patience import patience

from mgraph import DynamicGraph
from mgraph.device import Device
from mgraph.errors import DeviceError, StoreError
from mgraph.exchange.segment import FOLDER
from mgraph.log import shared_memory_tail
from mgraph.log.files import DISK, File
from mgraph.log.log import Lag, Log
from mgraph.log.scan import scan
from mgraph.log.segments import Segments
from mgraph.log.shared_memory_tail import NAME, PAGE, SharedMemoryTail, finish, laid
from mgraph.worker.stores.shared_memory_tail import tail_of

LOG = 0xFEDCBA9876543210


class Copies:
    def mark(self) -> None:
        pass

    def begin(self, parts, views) -> None:
        for view, part, at in laid(parts, views):
            view[:] = part.view(np.uint8)[at : at + len(view)]

    def wait(self) -> None:
        """The host has copied."""


def names() -> list[str]:
    """What is there of the tests' logs, and of no other process."""
    return sorted(path.name for path in Path(FOLDER).glob(f"{NAME}{LOG:016x}*"))


@pytest.fixture(autouse=True)
def nothing_stays(tmp_path):
    yield
    tails = [shared_memory_tail._seen(str(path)) for path in Path(FOLDER).glob(f"{NAME}*")]
    assert not [one for one in tails if one is not None and one.store.startswith(str(tmp_path))]
    assert not names()


@pytest.fixture
def log(tmp_path):
    """A log in the background with two pages of shared memory, whose file takes nothing until `log.go` is set."""
    go, write = threading.Event(), File.write

    def slow(file, at, parts):
        assert go.wait(20)
        write(file, at, parts)

    folder = tmp_path / "store" / "term-000001" / "rank-0000"
    made = Log(Segments(DISK, str(folder), LOG, 3 * PAGE), "background", 0, lag=Lag(1 << 20, 60.0))
    made.attach_tail(lambda: (SharedMemoryTail(2 * PAGE, LOG, str(folder)), Copies()))
    made.flush()
    made.go, made.folder, made.store = go, str(folder), str(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(File, "write", slow)
        yield made
        go.set()
        tail = made._segments._tail
        made.close()
        tail.close()


def change(log: Log, epoch: int, n: int) -> None:
    log.begin("batch", {"src": np.full(n, epoch, np.uint32), "dst": np.arange(n, dtype=np.uint32)}, epoch)
    log.ready()
    log.keep()


def read(log: Log) -> list[tuple[int, int]]:
    """The epochs and sizes of what the file has, all columns verified."""
    found = scan(DISK, log.folder, LOG, verify=True)
    assert found.broken is None
    return [(entry.epoch, entry.n) for entry in found.entries if entry.kind == "batch"]


def finished(log: Log, own: bool = False, store: Path | None = None) -> int:
    """What `finish` writes, while the log's own thread does not get on."""
    with pytest.MonkeyPatch.context() as patch:
        write_at_once(patch)
        return finish(str(store or log.store), own)


def write_at_once(patch: pytest.MonkeyPatch) -> None:
    """Have the calling thread write to files, while the log's own thread does not get on."""
    slow, mine = File.write, threading.current_thread()

    def write(file, at, parts):
        if threading.current_thread() is mine:
            os.pwritev(file._fd, list(parts), at)
        else:
            slow(file, at, parts)

    patch.setattr(File, "write", write)


def killed(log: Log) -> int:
    """What `finish` finds if the process ends now: its lock is the kernel's."""
    log._segments._tail._lock.close()
    return finished(log)


def test_a_record_is_ready_before_it_is_written_and_is_found_after_a_kill(log):
    sizes = [100, 3, 0, 400]
    for epoch, n in enumerate(sizes, 1):
        change(log, epoch, n)
    assert read(log) == []
    assert finish(log.store) == 0, "while its process lives"
    assert read(log) == []
    assert killed(log) == 4
    assert read(log) == list(enumerate(sizes, 1))
    assert not names()


def test_changes_that_are_decided_together_are_all_found_after_a_kill(log):
    ids = np.arange(5, dtype=np.uint32)
    first, *more = ({"src": ids[:n], "dst": ids[:n]} for n in (4, 0, 5, 1))
    log.begin("batch", first, 1, more=more)
    log.ready()
    log.keep()
    log.begin("batch", first, 5, more=more)  # undecided, and not acknowledged
    assert killed(log) == 4
    assert read(log) == [(1, 4), (2, 0), (3, 5), (4, 1)]
    assert not names()


def test_bytes_come_round_and_a_record_without_room_is_written_at_once(log):
    rng = np.random.default_rng(5)
    log.go.set()
    sizes = [int(n) for n in rng.integers(0, 700, 120)]
    sizes[60] = 5000  # more than the tail has
    for epoch, n in enumerate(sizes, 1):
        change(log, epoch, n)
    log.flush()
    assert [n for _, n in read(log)] == sizes
    assert log._segments._start > 0, "segments were turned"
    assert killed(log) == 0


def test_a_refusal_holds_and_no_room_waits(log):
    change(log, 1, 10)
    log.begin("batch", {"src": np.zeros(5, np.uint32), "dst": np.zeros(5, np.uint32)}, 2)
    log.proceed()
    threading.Timer(0.2, log.go.set).start()
    log.refuse()
    change(log, 2, 7)
    log.flush()
    entries = [(entry.kind, entry.epoch, entry.n) for entry in scan(DISK, log.folder, LOG, verify=True).entries]
    assert entries == [("batch", 1, 10), ("batch", 2, 5), ("refused", 2, 0), ("batch", 2, 7)]


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_refusal_of_what_could_not_be_copied_holds_after_a_kill(log, monkeypatch, failing):
    """The tail may have the records by then, and the file none of those before them."""
    change(log, 1, 10)
    begin, calls, ids = Copies.begin, list[int](), np.arange(5, dtype=np.uint32)

    def fails(copies, parts, views):
        calls.append(len(parts))
        if len(calls) == failing:
            raise MemoryError
        begin(copies, parts, views)

    monkeypatch.setattr(Copies, "begin", fails)
    with pytest.raises(MemoryError):
        log.begin("batch", {"src": ids, "dst": ids}, 2, more=2 * [{"src": ids, "dst": ids}])
    write_at_once(monkeypatch)
    threading.Timer(0.3, log.go.set).start()
    log.refuse()
    assert killed(log) == 0
    entries = [(entry.kind, entry.epoch) for entry in scan(DISK, log.folder, LOG, verify=True).entries]
    assert entries == [("batch", 1), ("refused", 2), ("refused", 3), ("refused", 4)]


def test_a_flush_waits_for_a_mark_before_the_last_change(log, monkeypatch):
    """A reader stops where a place is claimed and not written."""
    put, claimed, go_on = Segments.put, threading.Event(), threading.Event()

    def slow_mark(segments, records, place, hasher=None):
        if records[0].kind == "mark":
            claimed.set()
            assert go_on.wait(20)
        put(segments, records, place, hasher)

    log.go.set()
    monkeypatch.setattr(Segments, "put", slow_mark)
    change(log, 1, 10)
    log._hurry()
    assert claimed.wait(20)
    change(log, 2, 7)
    log._hurry()
    log._written.result(20)
    assert read(log) == [(1, 10)]
    threading.Timer(0.2, go_on.set).start()
    log.flush()
    assert read(log) == [(1, 10), (2, 7)]


@pytest.mark.parametrize("problem", [None, OSError(5, "Input/output error")], ids=repr)
def test_a_change_is_not_ready_while_a_mark_before_it_has_no_room_and_is_not_written(log, monkeypatch, problem):
    """After a kill the tail is read up to the first place that it lacks."""
    put, sync, syncing, full, claimed, go_on = Segments.put, File.sync, *(threading.Event() for _ in range(4))

    def slow_sync(file):
        syncing.set()
        assert full.wait(20)
        sync(file)

    def slow_mark(segments, records, place, hasher=None):
        if records[0].kind == "mark":
            claimed.set()
            assert go_on.wait(20)
            if problem is not None:
                raise problem
        put(segments, records, place, hasher)

    monkeypatch.setattr(File, "sync", slow_sync)
    monkeypatch.setattr(Segments, "put", slow_mark)
    log.go.set()
    change(log, 1, 10)
    log._hurry()
    assert syncing.wait(20)
    log.flush()
    log.go.clear()
    change(log, 2, 1003)  # fills the tail, which has no room for the mark
    full.set()
    assert claimed.wait(20)
    log.go.set()
    log._hurry()
    log._written.result(20)
    log.begin("batch", {"src": np.zeros(5, np.uint32), "dst": np.zeros(5, np.uint32)}, 3)
    assert log._open.written is None, "there is room for it"
    threading.Timer(0.2, go_on.set).start()
    with nullcontext() if problem is None else pytest.raises(StoreError, match="cannot be written"):
        log.ready()
        log.keep()
    if problem is None:
        killed(log)
        assert read(log) == [(1, 10), (2, 1003), (3, 5)]
    else:
        with pytest.raises(StoreError, match="whether the store has it is known"):
            log.refuse()


def test_what_is_put_off_is_held_before_the_vote(log, monkeypatch):
    def begin(epoch: int) -> None:
        log.begin("batch", {"src": [0, 1, 2], "dst": [2, 2, 2]}, epoch)  # no array of the host's

    begin(1)
    assert log.place == 0, "nothing is claimed yet"
    log.proceed()
    place = log.place
    assert place > 0
    log.ready()
    log.keep()
    begin(2)
    log.refuse()  # before anything was written of it
    assert log.place == place
    with monkeypatch.context() as patch:
        patch.setattr(log._segments, "claim", _no_room)
        begin(2)
        log.proceed()
        with pytest.raises(StoreError, match=r"no room in the log.*No space left"):
            log.ready()
    log.refuse()
    assert log.place == place
    change(log, 2, 7)
    log.go.set()
    log.flush()
    assert read(log) == [(1, 3), (2, 7)]


def _no_room(size: int, records: int) -> int:
    raise OSError(28, "No space left on device")


def test_a_write_that_fails_ends_the_log_and_another_process_can_still_write(log):
    def fails(file, at, parts):
        raise OSError(5, "Input/output error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(File, "write", fails)
        change(log, 1, 10)
        log.flush()
        with pytest.raises(StoreError, match=r"cannot be written.*open the store again"):
            change(log, 2, 10)
    log.go.set()
    log._segments._tail.close(keep=True)
    assert finish(log.store) == 1
    assert read(log) == [(1, 10)]


def test_what_refers_to_a_closed_log_does_not_keep_its_memory(tmp_path):
    made = Log(Segments(DISK, str(tmp_path / "store" / "term-000001" / "rank-0000"), LOG), "background", 0)
    made.attach_tail(lambda: (SharedMemoryTail(PAGE, LOG, made._segments.folder), Copies()))
    made.flush()
    change(made, 1, 10)
    memory = weakref.ref(made._segments._tail.memory)
    made.close()
    assert memory() is None


@pytest.mark.parametrize("own", [False, True])
def test_a_process_that_is_about_to_end_is_waited_for_by_who_has_the_store(log, own):
    change(log, 1, 10)
    ends = threading.Timer(0.3, log._segments._tail._lock.close)
    ends.start()
    assert finished(log, own) == own
    assert read(log) == [(1, 10)] * own
    ends.join()


def test_who_reads_waits_for_another_process_that_writes_what_was_left(log, monkeypatch):
    change(log, 1, 10)
    log._segments._tail._lock.close()
    other = shared_memory_tail._locked(log._segments._tail.path)
    shared_memory_tail._LeftTail(log._segments._tail.path).leave()
    monkeypatch.setattr(shared_memory_tail, "WAIT_SECONDS", 0.1)
    with pytest.raises(StoreError, match=rf"{log.store} is in use by a process of this host, which has {FOLDER}"):
        finish(log.store)
    threading.Timer(0.3, other.close).start()
    monkeypatch.setattr(shared_memory_tail, "WAIT_SECONDS", 5.0)
    assert finished(log) == 1


@pytest.mark.parametrize("what", ["copy", "term", "dropped", "moved", "gone", "unseen"])
def test_a_tail_is_for_the_file_that_its_process_wrote(log, tmp_path, monkeypatch, what):
    change(log, 1, 10)
    log._segments._tail._lock.close()
    store, segment, moved = Path(log.store), Path(log.folder) / f"{0:016x}.log", tmp_path / "moved"
    later = store / "term-000002.json"
    if what == "copy":
        shutil.copytree(store, moved)
        assert finish(str(moved)) == 0
        SharedMemoryTail(PAGE, LOG, f"{moved}/term-000001/rank-0000").close()  # of the same log, in another folder
        assert finished(log) == 1
        assert read(log) == [(1, 10)]
    elif what == "term":
        later.touch()
        assert finish(log.store) == 0
        assert read(log) == []
    elif what == "dropped":
        segment.unlink()
        assert finish(log.store) == 0
        assert names(), "the file may come back"
        later.touch()
        assert finish(log.store) == 0
    elif what == "moved":
        store.rename(moved)
        shutil.copytree(moved, store)
        assert finish(log.store) == 0
        assert finished(log, store=moved) == 1
    else:
        store.rename(moved)
        with monkeypatch.context() as patch:
            if what == "unseen":  # by another container
                patch.setattr(shared_memory_tail, "_sees", lambda: "another")
            SharedMemoryTail(PAGE, 1, log.folder).close()
        assert bool(names()) == (what == "unseen")
        assert finished(log, store=moved) == (what == "unseen")
        moved.rename(store)
    assert not names()


def test_what_a_process_left_half_made_or_written_is_removed_and_that_of_another_version_is_not(log, tmp_path):
    log.go.set()
    change(log, 1, 10)
    log.flush()
    log._segments._tail._lock.close()
    half, other = (Path(FOLDER) / f"{NAME}{LOG:016x}-{what}" for what in ("half", "other"))
    half.write_bytes(bytes(3 * PAGE))
    other.write_bytes(b"MGSPOOL9" + bytes(3 * PAGE))
    end = time.monotonic() + patience(10)
    SharedMemoryTail(PAGE, 1, log.folder).close()
    while names() != [other.name] and time.monotonic() < end:  # another test's process may just look at one of them
        time.sleep(0.05)
        SharedMemoryTail(PAGE, 1, log.folder).close()
    assert names() == [other.name]
    assert finish(log.store) == 0
    other.unlink()


def test_without_room_in_shared_memory(tmp_path, caplog, monkeypatch):
    def full(descriptor: int, at: int, nbytes: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(DeviceError, match="a path of [0-9]+ bytes; shared memory has room for 3968"):
        SharedMemoryTail(PAGE, 1, "/" + 700 * "ä" + "/term-000001/rank-0000")
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DeviceError, match="12345 bytes of shared memory cannot be had in /dev/shm: No space"):
        SharedMemoryTail(12345, 1, str(tmp_path))
    with caplog.at_level("INFO", "mgraph"):
        assert tail_of(Device("cpu"), 12345, 1, str(tmp_path)) is None
    assert "records are written to the log before they are acknowledged: 15431 bytes" in caplog.text


def test_a_file_of_another_user_is_left_alone(tmp_path, monkeypatch):
    path = Path(FOLDER) / f"{NAME}{1:016x}"
    path.write_bytes(b"theirs")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    shared_memory_tail._remove_leftovers()
    assert finish(str(tmp_path)) == 0
    assert path.read_bytes() == b"theirs"
    path.unlink()


CHILD = """
import os, signal, sys, threading, time
import numpy as np
from mgraph import DynamicGraph
from mgraph.log.files import File
from mgraph.worker.stores import storage
storage.TAILED = {"cpu"}
path, seed = sys.argv[1], int(sys.argv[2])
rng = np.random.default_rng(seed)
g = DynamicGraph(n_vertices=1000, device="cpu", store=path, sync="background")
write = File.write
def slow(file, at, parts):
    time.sleep(rng.random() * .02)
    write(file, at, parts)
File.write = slow
while True:
    n = int(rng.integers(0, 3000))
    report = g.insert(rng.integers(0, 1000, n), rng.integers(0, 1000, n))
    print(report.epoch, g.num_edges, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_graph_that_is_killed_has_all_that_it_acknowledged(tmp_path, seed):
    path, wait = str(tmp_path / "store"), 0.2 + 0.2 * seed
    with subprocess.Popen([sys.executable, "-c", CHILD, path, str(seed)], stdout=subprocess.PIPE, text=True) as child:
        said = [child.stdout.readline()]
        threading.Timer(wait, child.kill).start()
        said += child.stdout
    epoch, edges = last(said)
    with DynamicGraph.open(None, path, device="cpu") as graph:
        print(seed, epoch, graph.epoch)
        assert epoch <= graph.epoch <= epoch + 1
        if graph.epoch == epoch:
            assert graph.num_edges == edges
    with DynamicGraph.open(None, path, device="cpu") as graph:
        assert graph.epoch >= epoch


def last(said: list[str]) -> tuple[int, int]:
    return max(tuple(map(int, line.split())) for line in said if line.endswith("\n"))


def test_a_store_is_opened_while_its_process_is_about_to_end(tmp_path):
    path = str(tmp_path / "store")
    with subprocess.Popen([sys.executable, "-c", CHILD, path, "7"], stdout=subprocess.PIPE, text=True) as child:
        said = [child.stdout.readline() for _ in range(20)]
        child.send_signal(signal.SIGSTOP)
        threading.Timer(1.0, child.kill).start()
        with DynamicGraph.open(None, path, device="cpu") as graph:
            opened = graph.epoch
        said += child.stdout
    assert last(said)[0] <= opened <= last(said)[0] + 1
