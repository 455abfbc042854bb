"""Disks that are full, that err, that lost or damaged something: what is raised, what stays, and how it goes on."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from changed_ranks import CONTENT, Changed, N, assert_same
from graph_model import random_batch
from plain_graph import fresh_rng
from ranks import Ranks
from stores import end, opened, raised, store_of, written

from mgraph.errors import Aborted, StoreError
from mgraph.log import segments
from mgraph.log.files import File, Files
from mgraph.log.records import HEADER, header_of
from mgraph.log.recovery_scan import scan_store
from mgraph.log.store import Store

STARTS = (0, 13, 20, N)


def changed(path: Any, sync: str = "always", starts: Any = STARTS) -> Changed:
    graph = Changed(starts, fresh_rng(), {"weighted": True})
    store_of(graph.ranks, path, sync)
    return graph


class Fault:
    """Makes an operation on files of a rank fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def at(self, operation: str, part: str, number: int, times: int = 1 << 30) -> None:
        """From now on, `times` times, it fails with this errno where the path has `part` in it."""
        real, left = getattr(File, operation), [times]

        def fails(file: File, *args: Any) -> None:
            if part in file.path and left[0] and (operation != "write" or len(args[1]) > 1):  # of a change
                left[0] -= 1
                if operation == "write":
                    real(file, args[0], [bytes(args[1][0])[:50]])  # some of it is there
                raise OSError(number, os.strerror(number))
            real(file, *args)

        self._patch.setattr(File, operation, fails)

    def mend(self) -> None:
        self._patch.undo()


@pytest.fixture
def fault() -> Iterator[Fault]:
    with pytest.MonkeyPatch.context() as patch:
        yield Fault(patch)


def release(graph: Changed) -> None:
    """What a client does after a call that failed."""
    graph.ranks.reconnect()
    if any(servant.state.in_doubt for servant in graph.ranks.servants):
        raised(graph.ranks.call("resolve", changes=max(servant.state.changes for servant in graph.ranks.servants)))


def refused(graph: Changed, match: str, kinds: tuple[str, ...] = ("batch", "delete_vertices", "add_vertices")) -> None:
    """A change is refused on all ranks, and the graph is as it was."""
    before = graph.held()
    with pytest.raises(StoreError, match=match):
        raised(graph.change(str(graph.rng.choice(kinds))))
    release(graph)
    assert graph.held() == before


@pytest.mark.parametrize("sync", ["always", "background"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_disk_refuses_changes_and_the_graph_goes_on_when_there_is_room(tmp_path, sync, rank, fault, monkeypatch):
    monkeypatch.setattr(segments, "CHUNK", 1 << 13)
    graph = changed(tmp_path, sync)
    for what in CONTENT:
        raised(graph.change(what))
    batch = random_batch(graph.rng, graph.model.n_vertices, 3000, True)
    fault.at("allocate", f"rank-{rank:04d}", errno.ENOSPC)
    for _ in range(3):
        with pytest.raises(StoreError, match=rf"rank-{rank:04d}/0+\.log: No space left .* make room and repeat"):
            raised(graph.change("batch", (batch,)))
        release(graph)
        graph.check()
    raised(graph.change("add_vertices"))  # it fits what is allocated
    fault.mend()
    raised(graph.change("batch", (batch,)))
    graph.check()
    end(graph.ranks)
    ranks = opened(tmp_path, 2)
    assert_same(ranks, graph.model, graph.epoch)
    end(ranks)


@pytest.mark.parametrize("sync", ["always", "background"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_half_way_refuses_the_change_alone(tmp_path, sync, number, fault):
    graph = changed(tmp_path, sync)
    raised(graph.change("batch"))
    for rank in (0, 2):
        fault.at("write", f"rank-{rank:04d}", number, times=1)
        refused(graph, f"the log cannot be written: .*rank-{rank:04d}", ("batch", "delete_vertices"))
        fault.mend()
        raised(graph.change("batch"))
    end(graph.ranks)
    ranks = opened(tmp_path, 2)
    assert_same(ranks, graph.model, 3)
    end(ranks)


def test_after_a_failing_sync_nothing_is_logged_and_acknowledged_changes_stay(tmp_path, fault):
    graph = changed(tmp_path)
    for what in CONTENT:
        raised(graph.change(what))
    fault.at("sync", "rank-0001", errno.EIO, times=1)
    refused(graph, "rank-0001.*; whether the store has it is known when it is opened again")
    for _ in range(2):
        refused(graph, "nothing more can be logged: open the store again")
    graph.check()  # reads go on
    end(graph.ranks)
    ranks = opened(tmp_path, 2)
    assert_same(ranks, graph.model, graph.epoch)
    raised(ranks.update(random_batch(graph.rng, N, 5, True), graph.epoch + 1))
    end(ranks)


def test_a_failing_background_sync_is_reported_with_a_later_change(tmp_path, fault):
    graph = changed(tmp_path, "background", (0, N))
    raised(graph.change("batch"))
    fault.at("sync", "rank-0000", errno.EIO)
    answers = [graph.change("batch") for _ in range(200)]
    end(graph.ranks)
    failed = [answer for (answer,) in answers if isinstance(answer, BaseException)]
    assert failed
    assert "the log cannot be synced" in str(failed[-1])
    assert "nothing more can be logged" in str(failed[-1])
    fault.mend()
    ranks = opened(tmp_path, 2)
    assert ranks.shards[0].epoch >= 1
    end(ranks)


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.EACCES, "right to write there"), (errno.EROFS, "choose another folder")]
)
def test_a_folder_that_cannot_be_written(tmp_path, number, advice, monkeypatch):
    def refuses(files: Files, path: str) -> None:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(Files, "folder", refuses)
    ranks = Ranks((0, 5, N))
    with pytest.raises(StoreError, match=f"{tmp_path}/s: .*{advice}"):
        store_of(ranks, tmp_path / "s")
    end(ranks)


def test_a_path_below_a_file(tmp_path):
    (tmp_path / "file").write_text("here")
    ranks = Ranks((0, 5, N))
    with pytest.raises(StoreError, match="file/s: .*a file is where a folder is needed"):
        store_of(ranks, tmp_path / "file" / "s")
    end(ranks)


# ---- what is found when a store is opened ----------------------------------------------------------------------------


def logged(path: Path, turns: int = 1) -> Changed:
    """A graph that was closed, of some terms with five epochs each, whose batches have edges of each rank."""
    graph = changed(path)
    for turn in range(turns):
        if turn:
            graph.ranks = opened(path, 3)
        for _ in range(5):
            raised(graph.change("batch", (random_batch(graph.rng, N, 120, True),)))
        end(graph.ranks)
    return graph


def records(path: Path) -> list[Any]:
    """The records of a log's only segment, marks too."""
    data, at, found = path.read_bytes(), 0, []
    number = int.from_bytes(data[HEADER - 16 : HEADER - 8], "little")
    while (entry := header_of(data[at : at + HEADER], at, at, number, str(path), len(data))) is not None:
        found.append(entry)
        at = entry.end
    return found


def segment(path: Path, rank: int, term: int = 1) -> Path:
    return path / f"term-{term:06d}" / f"rank-{rank:04d}" / "0000000000000000.log"


def damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def test_a_version_to_come_is_named(tmp_path):
    logged(tmp_path)
    store = Store(str(tmp_path))
    store.describe("store.json", {**store.about(), "format": 99})
    with pytest.raises(StoreError, match=r"store\.json has format 99 and this mgraph reads up to 5"):
        opened(tmp_path)


def test_a_description_that_was_edited_is_named(tmp_path):
    logged(tmp_path)
    text = (tmp_path / "term-000001.json").read_text()
    (tmp_path / "term-000001.json").write_text(text.replace('"size": 3', '"size": 2'))
    with pytest.raises(StoreError, match=r"term-000001\.json is damaged"):
        opened(tmp_path)


def test_logs_of_another_store_are_refused(tmp_path):
    logged(tmp_path / "a")
    logged(tmp_path / "b")
    shutil.rmtree(tmp_path / "a" / "term-000001")
    shutil.copytree(tmp_path / "b" / "term-000001", tmp_path / "a" / "term-000001")
    with pytest.raises(StoreError, match=r"rank-0000/0+\.log belongs to another store, or to another rank"):
        opened(tmp_path / "a")


@pytest.mark.parametrize("sync", ["always", "background"])
def test_a_missing_snapshot_is_named(tmp_path, sync):
    """Also where the log before it was dropped, and the one after it begins with a term."""
    pytest.importorskip("pyarrow")
    graph = logged(tmp_path, turns=1)
    graph.ranks = opened(tmp_path, 2, retain=1, sync=sync)
    raised(graph.ranks.call("snapshot"))
    written(graph.ranks)
    raised(graph.change("batch"))
    end(graph.ranks)
    for path in tmp_path.glob("snapshot-*.json"):
        path.unlink()
    with pytest.raises(StoreError, match=r"a snapshot or a log with the epochs 1 to 5 is missing"):
        scan_store(Store(str(tmp_path)))
    found = scan_store(Store(str(tmp_path)), repair=True)
    assert found.epoch == 0
    assert "epochs after 0 are given up" in found.notes[0]


def test_a_repair_does_without_a_damaged_snapshot(tmp_path):
    """It takes the one before, and the log; and the store is whole afterwards."""
    pytest.importorskip("pyarrow")
    graph = logged(tmp_path, turns=1)
    graph.ranks = opened(tmp_path, 2)
    for _ in range(2):
        raised(graph.ranks.call("snapshot"))
        written(graph.ranks)
        raised(graph.change("batch"))
    model, epoch = graph.model, graph.ranks.shards[0].epoch
    end(graph.ranks)
    newest = max(tmp_path.glob("snapshot-*.json"))
    newest.write_bytes(newest.read_bytes()[:-7])
    with pytest.raises(StoreError, match=rf"{newest} is damaged.*backup, or open the store with repair=True"):
        opened(tmp_path)
    found = scan_store(Store(str(tmp_path)), repair=True)
    assert (found.epoch, found.snapshot["epoch"]) == (epoch, epoch - 2)
    assert found.notes == [f"{newest} is damaged, and what is before it is read"]
    end(opened(tmp_path, 2, repair=True))
    ranks = opened(tmp_path, 1)
    assert_same(ranks, model, epoch)
    end(ranks)


def test_a_missing_log_is_named(tmp_path):
    logged(tmp_path)
    shutil.rmtree(segment(tmp_path, 1).parent)
    with pytest.raises(StoreError, match="rank-0001 is missing"):
        opened(tmp_path)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_disk_that_errs_when_it_is_read_names_the_file(tmp_path, rank, monkeypatch):
    """First in the scans of the headers, then in the thread that reads ahead, until all reads are good."""
    logged(tmp_path, turns=1)
    path, real, places, told = segment(tmp_path, rank), os.preadv, set(), set()
    for good in count():
        left = [good]

        def fails(file: int, parts: Any, at: int, left: list[int] = left) -> int:
            left[0] -= (here := os.readlink(f"/proc/self/fd/{file}") == str(path))
            if here and left[0] < 0:
                places.add(threading.current_thread().name.rpartition("-")[2])
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(file, parts, at)

        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", fails)
            try:
                ranks = opened(tmp_path, 2)
                break
            except StoreError as error:
                told.add(str(error))
    assert told == {f"the log cannot be read: {path}: Input/output error; look at the disk"}
    assert "ahead" in places
    end(ranks)


@pytest.mark.parametrize("cut", [1, 100, 170])
def test_a_torn_tail_is_cut(tmp_path, cut):
    """Bytes that are missing at the end of a log of which nothing says that they were synced; a head would say it."""
    graph = changed(tmp_path, starts=(0, N))
    models = []
    for _ in range(3):
        raised(graph.change("batch"))
        models.append(dict(graph.model.edges))
    end(graph.ranks)
    path = segment(tmp_path, 0)
    data = path.read_bytes()
    path.write_bytes(data[:-cut])  # the last record, and the mark behind it
    with pytest.raises(StoreError, match=rf"{path}, offset \d+: a record that was synced is (missing|damaged)"):
        opened(tmp_path, 2)
    (tmp_path / "head-0000.json").unlink()
    ranks = opened(tmp_path, 2)
    epoch = ranks.shards[0].epoch
    graph.model.edges = models[epoch - 1]
    assert epoch == (3 if cut <= HEADER else 2)
    assert_same(ranks, graph.model, epoch)
    raised(ranks.update(random_batch(graph.rng, N, 5, True), epoch + 1))
    end(ranks)
    ranks = opened(tmp_path, 1)
    assert ranks.shards[0].epoch == epoch + 1
    end(ranks)


@pytest.mark.parametrize("where", ["header", "columns"])
@pytest.mark.parametrize("turns", [1, 2])
def test_a_broken_middle_is_named_and_repair_says_what_it_gives_up(tmp_path, where, turns):
    graph = logged(tmp_path, turns)
    path = segment(tmp_path, 1)
    third = [entry for entry in records(path) if entry.kind == "batch"][2]
    damage(path, third.at + (20 if where == "header" else HEADER + 5))
    with pytest.raises(StoreError, match=rf"rank-0001/0+\.log, offset {third.at}.*whole up to epoch 2; repair=True"):
        opened(tmp_path, 2)
    found = scan_store(Store(str(tmp_path)), repair=True)
    assert found.epoch == 2
    assert len(found.notes) == 1
    assert "epochs after 2 are given up" in found.notes[0]
    ranks = opened(tmp_path, 2, repair=True)
    assert [shard.epoch for shard in ranks.shards] == [2, 2]
    raised(ranks.update(random_batch(graph.rng, N, 5, True), 3))
    end(ranks)
    ranks = opened(tmp_path, 3)  # whole again, without repair
    assert ranks.shards[0].epoch == 3
    end(ranks)


def test_an_abort_while_the_log_is_written_ends_the_wait(tmp_path, monkeypatch):
    """A disk that stalls holds no call for ever: the ranks leave when they are told to."""
    import threading

    stalled, real = threading.Event(), File.sync
    graph = changed(tmp_path, starts=(0, N))
    monkeypatch.setattr(File, "sync", lambda file: (stalled.wait(5), real(file))[1])
    servant = graph.ranks.servants[0]
    log = servant.ballot.log
    log._aborted = lambda: True
    timer = threading.Timer(0.3, stalled.set)
    timer.start()
    with pytest.raises(Aborted):
        raised(graph.change("batch"))
    timer.join()
    monkeypatch.undo()
    log._aborted = lambda: False
    raised(graph.change("batch"))
    end(graph.ranks)
    ranks = opened(tmp_path)
    assert_same(ranks, graph.model, 1)
    end(ranks)
