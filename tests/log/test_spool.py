"""Records that are held in shared memory: a process that is killed before it has written them loses none."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

from mgraph import DynamicGraph
from mgraph.device import Device
from mgraph.errors import DeviceError, StoreError
from mgraph.exchange.segment import FOLDER
from mgraph.log.files import DISK, File
from mgraph.log.log import Lag, Log
from mgraph.log.scan import scan
from mgraph.log.segments import Segments
from mgraph.log.spool import NAME, PAGE, Spool, finish, laid
from mgraph.worker.spool import spool_of

LOG = 0xFEDCBA9876543210


class Copies:
    def begin(self, parts, views) -> None:
        for view, part, at in laid(parts, views):
            view[:] = part.view(np.uint8)[at : at + len(view)]

    def wait(self) -> None:
        """The host has copied."""


def names() -> list[str]:
    return sorted(path.name for path in Path(FOLDER).glob(f"{NAME}*"))


@pytest.fixture(autouse=True)
def nothing_stays():
    before = names()
    yield
    assert names() == before


@pytest.fixture
def log(tmp_path):
    """A log in the background with a spool of two pages, whose file takes nothing until `log.go` is set."""
    go, write = threading.Event(), File.write

    def slow(file, at, parts):
        assert go.wait(20)
        write(file, at, parts)

    folder = tmp_path / "store" / "term-000001" / "rank-0000"
    made = Log(Segments(DISK, str(folder), LOG, 3 * PAGE), "background", 0, lag=Lag(1 << 20, 60.0))
    made.hold(lambda: (Spool(2 * PAGE, LOG, str(tmp_path / "store")), Copies()))
    made.flush()
    made.go, made.folder, made.store = go, str(folder), str(tmp_path / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(File, "write", slow)
        yield made
        go.set()
        spool = made._segments._spool
        made.close()
        spool.close()


def change(log: Log, epoch: int, n: int) -> None:
    log.begin("batch", {"src": np.full(n, epoch, np.uint32), "dst": np.arange(n, dtype=np.uint32)}, epoch)
    log.ready()
    log.keep()


def read(log: Log) -> list[tuple[int, int]]:
    """The epochs and sizes of what the file has, all columns verified."""
    found = scan(DISK, log.folder, LOG, verify=True)
    assert found.broken is None
    return [(entry.epoch, entry.n) for entry in found.entries if entry.kind == "batch"]


def killed(log: Log) -> int:
    """What `finish` finds if the process ends now: its lock is the kernel's."""
    log._segments._spool._lock.close()
    return finish(log.store)


def test_a_record_is_ready_before_it_is_written_and_is_found_after_a_kill(log):
    sizes = [100, 3, 0, 400]
    for epoch, n in enumerate(sizes, 1):
        change(log, epoch, n)
    assert read(log) == []
    assert finish(log.store) == 0, "while its process lives"
    assert read(log) == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(File, "write", lambda file, at, parts: os.pwritev(file._fd, list(parts), at))
        assert killed(log) == 4
    assert read(log) == list(enumerate(sizes, 1))
    assert not [name for name in names() if name.endswith(f"{LOG:016x}")]


def test_bytes_come_round_and_a_record_without_room_is_written_at_once(log):
    rng = np.random.default_rng(5)
    log.go.set()
    sizes = [int(n) for n in rng.integers(0, 700, 120)]
    sizes[60] = 5000  # more than the spool has
    for epoch, n in enumerate(sizes, 1):
        change(log, epoch, n)
    log.flush()
    assert [n for _, n in read(log)] == sizes
    assert log._segments._start > 0, "segments were turned"
    assert killed(log) == 0


def test_a_refusal_holds_and_no_room_waits(log):
    change(log, 1, 10)
    log.begin("batch", {"src": np.zeros(5, np.uint32), "dst": np.zeros(5, np.uint32)}, 2)
    threading.Timer(0.2, log.go.set).start()
    log.refuse()
    change(log, 2, 7)
    log.flush()
    entries = [(entry.kind, entry.epoch, entry.n) for entry in scan(DISK, log.folder, LOG, verify=True).entries]
    assert entries == [("batch", 1, 10), ("batch", 2, 5), ("refused", 2, 0), ("batch", 2, 7)]


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
    log._segments._spool.close(keep=True)
    assert finish(log.store) == 1
    assert read(log) == [(1, 10)]


def test_what_refers_to_a_closed_log_does_not_keep_its_memory(tmp_path):
    made = Log(Segments(DISK, str(tmp_path / "store" / "term-000001" / "rank-0000"), LOG), "background", 0)
    made.hold(lambda: (Spool(PAGE, LOG, str(tmp_path / "store")), Copies()))
    made.flush()
    change(made, 1, 10)
    memory = weakref.ref(made._segments._spool.memory)
    made.close()
    assert memory() is None


@pytest.mark.parametrize("what", ["copy", "term", "gone"])
def test_a_spool_is_for_the_file_that_its_process_wrote(log, tmp_path, what):
    change(log, 1, 10)
    log._segments._spool._lock.close()
    segment = Path(log.folder) / f"{0:016x}.log"
    if what == "copy":
        segment.with_suffix(".copy").write_bytes(segment.read_bytes())
        segment.with_suffix(".copy").replace(segment)
        assert finish(log.store) == 0
        assert read(log) == []
        assert names()  # its own file may come back
    elif what == "term":
        (tmp_path / "store" / "term-000002.json").touch()
        assert finish(log.store) == 0
        assert read(log) == []
        assert not names()
    else:
        Path(log.store).rename(tmp_path / "moved")
        Spool(PAGE, 1, log.store).close()
        assert not names()
        (tmp_path / "moved").rename(log.store)


def test_without_room_in_shared_memory(tmp_path, caplog, monkeypatch):
    def full(descriptor: int, at: int, nbytes: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DeviceError, match="12345 bytes of shared memory cannot be had in /dev/shm: No space"):
        Spool(12345, 1, str(tmp_path))
    with caplog.at_level("INFO", "mgraph"):
        assert spool_of(Device("cpu"), 12345, 1, str(tmp_path)) is None
    assert "records are written to the log before they are acknowledged: 15431 bytes" in caplog.text


def test_a_file_of_another_user_is_left_alone(tmp_path, monkeypatch):
    path = Path(FOLDER) / f"{NAME}{1:016x}"
    path.write_bytes(b"theirs")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(DeviceError, match="another user's"):
        Spool(PAGE, 1, str(tmp_path))
    assert finish(str(tmp_path)) == 0
    assert path.read_bytes() == b"theirs"
    path.unlink()


CHILD = """
import os, signal, sys, threading, time
import numpy as np
from mgraph import DynamicGraph
from mgraph.log.files import File
from mgraph.worker import storage
storage.SPOOLED = {"cpu"}
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


@pytest.mark.parametrize("seed", range(2))
def test_a_graph_that_is_killed_has_all_that_it_acknowledged(tmp_path, seed):
    path, wait = str(tmp_path / "store"), 0.2 + 0.2 * seed
    with subprocess.Popen([sys.executable, "-c", CHILD, path, str(seed)], stdout=subprocess.PIPE, text=True) as child:
        said = [child.stdout.readline()]
        threading.Timer(wait, child.kill).start()
        said += child.stdout
    epoch, edges = max(tuple(map(int, line.split())) for line in said if line.endswith("\n"))
    with DynamicGraph.open(None, path, device="cpu") as graph:
        print(seed, epoch, graph.epoch)
        assert epoch <= graph.epoch <= epoch + 1
        if graph.epoch == epoch:
            assert graph.num_edges == edges
    with DynamicGraph.open(None, path, device="cpu") as graph:
        assert graph.epoch >= epoch
