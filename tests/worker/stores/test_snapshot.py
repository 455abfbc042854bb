"""Snapshots: the edges of an epoch as Arrow files, from which a graph is opened without the log before it."""

from __future__ import annotations

import copy
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from changed_ranks import CONTENT, KINDS, STARTS, Changed, N, assert_same
from graph_model import GraphModel, random_batch
from local_disks import Disks
from plain_graph import cuts, fresh_rng
from stores import end, idle, opened, raised, store_of, written

from mgraph.client.stores import storing
from mgraph.device import Device
from mgraph.errors import InvalidOption, StoreError
from mgraph.log import snapshot as arrow_files
from mgraph.log.files import Files
from mgraph.log.store import Store
from mgraph.structures import names
from mgraph.worker.stores import restore as restoring
from mgraph.worker.stores import snapshot as snapshots

pa = pytest.importorskip("pyarrow")


def changed(path: Any, starts: Any, rng: np.random.Generator, kind: dict[str, Any], **how: int) -> Changed:
    graph = Changed(starts, rng, kind)
    store_of(graph.ranks, path, str(rng.choice(["always", "background"])), **how)
    return graph


def edges(model: GraphModel) -> dict[tuple[int, int], float]:
    return dict(model.edges)


@pytest.mark.parametrize("starts", STARTS, ids=str)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_opened_from_a_snapshot_and_what_follows_it(tmp_path, starts, kind):
    rng = fresh_rng()
    graph, models = changed(tmp_path, starts, rng, kind, retain=2), {}
    for what in rng.permutation([*CONTENT, *CONTENT, "reorder", *["snapshot"] * 4]).tolist():
        if what != "snapshot":
            raised(graph.change(what))
        else:
            raised(graph.ranks.call("snapshot"))
            if rng.random() < 0.5:  # what is made meanwhile is not in it
                raised(graph.change("batch"))
            written(graph.ranks)
        models[graph.epoch] = copy.deepcopy(graph.model)
    end(graph.ranks)
    store = Store(str(tmp_path))
    there = [one["epoch"] for one in store.snapshots()]
    assert len(there) <= 2
    for epoch in [*there, graph.epoch]:
        if epoch in models:
            n = models[epoch].n_vertices
            order = rng.permutation(n).astype(np.uint32) if rng.random() < 0.5 else None
            ranges, structure = cuts(rng, n, int(rng.integers(1, 5))).starts, rng.choice(names())
            ranks = opened(tmp_path, starts=ranges, structure=structure, order=order, epoch=epoch)
            assert_same(ranks, models[epoch], epoch)
            end(ranks)
    ranks = opened(tmp_path, 2)
    assert_same(ranks, graph.model, graph.epoch)
    end(ranks)


def test_epochs_before_the_oldest_snapshot_are_gone_and_named(tmp_path):
    graph = changed(tmp_path, (0, 13, N), fresh_rng(), {}, retain=1)
    for _ in range(3):
        raised(graph.change("batch"))
        raised(graph.ranks.call("snapshot"))
        written(graph.ranks)
    raised(graph.change("batch"))
    end(graph.ranks)
    assert [one["epoch"] for one in Store(str(tmp_path)).snapshots()] == [3]
    for epoch in (0, 2):
        with pytest.raises(InvalidOption, match=f"has epochs from 3 on, and {epoch} was asked for"):
            opened(tmp_path, epoch=epoch)
    ranks = opened(tmp_path, 3, retain=1)
    assert_same(ranks, graph.model, 4)
    raised(ranks.call("snapshot"))
    written(ranks)
    end(ranks)
    assert not (tmp_path / "term-000001").exists(), "the log before the oldest snapshot"
    ranks = opened(tmp_path, 1)
    assert_same(ranks, graph.model, 4)
    end(ranks)


def test_all_epochs_stay_where_all_snapshots_are_kept(tmp_path):
    graph, models = changed(tmp_path, (0, 13, N), fresh_rng(), {}, retain=0), []
    for _ in range(4):
        models.append(copy.deepcopy(graph.model))
        raised(graph.change("batch"))
        raised(graph.ranks.call("snapshot"))
        written(graph.ranks)
    end(graph.ranks)
    for epoch, model in enumerate(models):
        ranks = opened(tmp_path, 2, epoch=epoch)
        assert_same(ranks, model, epoch)
        end(ranks)


def test_taken_by_itself_when_the_log_is_long(tmp_path):
    graph = changed(tmp_path, (0, 13, 20, N), fresh_rng(), {"weighted": True}, snapshot_bytes=6000)
    for _ in range(12):
        raised(graph.change("batch", (random_batch(graph.rng, N, 100, True),)))
        written(graph.ranks)
    taken = [one["epoch"] for one in Store(str(tmp_path)).snapshots()]
    assert taken == [8, 12], "about 500 bytes a rank and batch"
    end(graph.ranks)
    ranks = opened(tmp_path, 2)
    assert_same(ranks, graph.model, 12)
    end(ranks)


def test_one_that_cannot_be_taken_harms_nothing(tmp_path, monkeypatch, caplog):
    graph = changed(tmp_path, (0, 13, N), fresh_rng(), {}, snapshot_bytes=1)

    def full(*args: Any) -> None:
        raise StoreError("the disk is full")

    write, failing = snapshots.write_part, {1}

    def fails(store: Store, folder: str, rank: int, *rest: Any) -> None:
        full() if rank in failing else write(store, folder, rank, *rest)

    monkeypatch.setattr(snapshots, "write_part", fails)
    raised(graph.change("batch"))
    with pytest.raises(AssertionError, match="the disk is full"):
        written(graph.ranks)
    monkeypatch.setattr(snapshots, "edges_of", full)
    raised(graph.change("batch"))
    assert "no snapshot was taken: the disk is full" in caplog.text
    idle(graph.ranks)
    with pytest.raises(StoreError, match="the disk is full"):
        raised(graph.ranks.call("snapshot"))
    monkeypatch.undo()
    graph.ranks.reconnect()
    idle(graph.ranks)
    raised(graph.change("batch"))
    written(graph.ranks)
    assert [one["epoch"] for one in Store(str(tmp_path)).snapshots()] == [3]
    end(graph.ranks)
    ranks = opened(tmp_path, 2)
    assert_same(ranks, graph.model, 3)
    end(ranks)


def test_sources_are_made_in_steps(monkeypatch):
    monkeypatch.setattr(snapshots, "ROWS", 3)
    rng = fresh_rng()
    for n in (0, 1, 3, 10):
        lengths = rng.integers(0, 4, n)
        found = snapshots._sources(5, np.concatenate([[0], np.cumsum(lengths)]))
        np.testing.assert_array_equal(found, np.repeat(np.arange(5, 5 + n), lengths))


@pytest.mark.gpu
def test_columns_leave_a_gpu_in_pieces(monkeypatch):
    monkeypatch.setattr(snapshots, "STAGED", 4096)
    for n in (0, 1, 1024, 10_000):
        column = Device("cuda").arange(3, 3 + n, np.uint32)
        np.testing.assert_array_equal(snapshots._fetched(column), np.arange(3, 3 + n))


def snapshot_of_two(path: Path, monkeypatch: pytest.MonkeyPatch) -> Changed:
    """A graph that was closed after a snapshot, whose files have many pieces and are read in many parts."""
    monkeypatch.setattr(arrow_files, "ROWS", 5)
    monkeypatch.setattr(restoring, "CHUNK", 7)
    graph = changed(path, (0, 13, N), fresh_rng(), {})
    while len(graph.model.edges) < 50:
        raised(graph.change("batch"))
    raised(graph.ranks.call("snapshot"))
    written(graph.ranks)
    end(graph.ranks)
    return graph


def test_a_damaged_file_is_named(tmp_path, monkeypatch):
    snapshot_of_two(tmp_path, monkeypatch)
    (path,) = tmp_path.glob("snapshot-*/rank-0001.arrow")
    data = path.read_bytes()
    for at in fresh_rng().integers(0, len(data), 10).tolist():
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(StoreError, match=r"rank-0001\.arrow is damaged"):
            opened(tmp_path, 3)
    path.write_bytes(data[:-1])
    with pytest.raises(StoreError, match=r"rank-0001\.arrow is damaged"):
        opened(tmp_path, 3)
    path.unlink()
    with pytest.raises(StoreError, match=r"cannot be read: .*rank-0001\.arrow"):
        opened(tmp_path, 2)


def test_one_without_checksums_of_its_pieces_is_checked_as_a_whole(tmp_path, monkeypatch):
    graph = snapshot_of_two(tmp_path, monkeypatch)
    store = Store(str(tmp_path))
    (about,) = store.snapshots()
    files = [{key: value for key, value in one.items() if key != "pieces"} for one in about["files"]]
    store.describe(f"{about['folder']}.json", {**about, "files": files})
    ranks = opened(tmp_path, 3)
    assert_same(ranks, graph.model, graph.epoch)
    end(ranks)
    (path,) = tmp_path.glob("snapshot-*/rank-0001.arrow")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"rank-0001\.arrow is damaged"):
        opened(tmp_path, 3)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_saved_without_a_log_and_loaded(tmp_path, kind):
    rng = fresh_rng()
    graph = Changed((0, 13, N), rng, kind)
    for what in CONTENT:
        raised(graph.change(what))
    spec = graph.ranks.shards[0].spec
    about = {name: getattr(spec, name) for name in ("structure", "directed", "weighted", "reverse")}
    about["n_vertices"] = graph.model.n_vertices
    raised(graph.ranks.call("save", path=str(tmp_path / "a"), kind=about))
    written(graph.ranks)
    with pytest.raises(InvalidOption, match="choose another folder"):
        raised(graph.ranks.call("save", path=str(tmp_path / "a"), kind=about))
    end(graph.ranks)
    before = sorted((p.name, p.stat().st_mtime_ns) for p in (tmp_path / "a").rglob("*"))
    ranks = opened(tmp_path / "a", 3, logged=False)
    assert_same(ranks, graph.model, graph.epoch)
    graph.ranks = ranks
    raised(graph.change("batch"))  # goes on, unlogged
    end(ranks)
    assert before == sorted((p.name, p.stat().st_mtime_ns) for p in (tmp_path / "a").rglob("*"))


def test_saved_to_a_folder_that_a_rank_does_not_see(tmp_path):
    graph = Changed((0, 13, N), fresh_rng(), KINDS[0])
    about = {"n_vertices": N}
    disks = Disks(graph.ranks, [tmp_path / "a", tmp_path / "b"])
    with pytest.raises(StoreError, match=r"rank 1, on host .+, does not see what rank 0 has written to .*/b: "):
        disks.call("save", {"path": "", "kind": about})
    end(graph.ranks)
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]


# ---- what others read ------------------------------------------------------------------------------------------------


def taken(tmp_path: Path, kind: dict[str, Any]) -> tuple[list[str], dict[tuple[int, int], float]]:
    """The files of a snapshot, and the edges that they must have."""
    graph = changed(tmp_path, (0, 13, 20, N), fresh_rng(), kind)
    for what in CONTENT:
        raised(graph.change(what))
    raised(graph.ranks.call("snapshot"))
    written(graph.ranks)
    end(graph.ranks)
    return sorted(map(str, tmp_path.glob("snapshot-*/*.arrow"))), edges(graph.model)


def as_edges(columns: dict[str, Any], weighted: bool) -> dict[tuple[int, int], float]:
    pairs = list(zip(columns["src"], columns["dst"], strict=True))
    weight = columns["weight"] if weighted else [1.0] * len(pairs)
    found = dict(zip(pairs, weight, strict=True))
    assert len(found) == len(pairs), "an edge is there twice"
    return found


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_pyarrow_reads_it(tmp_path, kind):
    files, model = taken(tmp_path, kind)
    table = pa.concat_tables([pa.ipc.open_file(path).read_all() for path in files])
    assert table.schema.names == ["src", "dst", *(["weight"] if "weighted" in kind else [])]
    assert as_edges(table.to_pydict(), "weighted" in kind) == (
        model if "weighted" in kind else dict.fromkeys(model, 1.0)
    )


def test_polars_reads_it(tmp_path):
    polars = pytest.importorskip("polars")
    files, model = taken(tmp_path, {"weighted": True})
    table = polars.concat([polars.read_ipc(path) for path in files])
    assert as_edges(table.to_dict(as_series=False), True) == model


def test_duckdb_reads_it(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    files, model = taken(tmp_path, {"weighted": True})
    stored = pa.concat_tables([pa.ipc.open_file(path).read_all() for path in files])  # noqa: F841  # named in the query
    rows = duckdb.sql("SELECT src, dst, weight FROM stored").fetchall()
    assert as_edges(dict(zip(("src", "dst", "weight"), zip(*rows, strict=True), strict=True)), True) == model


def test_a_worker_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    graph = changed(tmp_path, (0, N), fresh_rng(), {})
    raised(graph.change("batch"))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(StoreError, match=r'pip install "dask-mgraph\[snapshots\]"'):
        raised(graph.ranks.call("snapshot"))
    monkeypatch.undo()
    assert arrow_files.arrow() is pa
    end(graph.ranks)


def test_a_graph_that_is_closed_ends_its_snapshot(tmp_path, monkeypatch, caplog):
    graph = changed(tmp_path, (0, 13, N), fresh_rng(), {})
    raised(graph.change("batch"))
    monkeypatch.setattr(arrow_files, "ROWS", 1)
    # A rank writes nothing before it is closed.
    write_part = snapshots.write_part

    def waits(*given: Any) -> None:
        *_, over, _ = given
        while not over():
            time.sleep(0.001)
        write_part(*given)

    monkeypatch.setattr(snapshots, "write_part", waits)
    raised(graph.ranks.call("snapshot"))
    end(graph.ranks)
    assert "closed before the snapshot was written" in caplog.text
    ranks = opened(tmp_path, 2)
    assert_same(ranks, graph.model, 1)
    end(ranks)


@pytest.mark.parametrize("fails", ["edges_of", "write_part"])
def test_a_rank_that_writes_no_part_says_so_until_rank_0_can_read_it(tmp_path, monkeypatch, fails):
    """Its first word is lost, too. Rank 0 waits for no other one."""
    graph = changed(tmp_path, (0, 13, N), fresh_rng(), {})
    raised(graph.change("batch"))
    right, folder, lost = getattr(snapshots, fails), Files.folder, []

    def failing(*given: Any) -> Any:
        if "-1-" in threading.current_thread().name or getattr(given[0], "rank", 0) == 1:
            raise StoreError("rank 1 has no room")
        return right(*given)

    def loses(files: Files, path: str) -> None:
        if "-1-" in threading.current_thread().name and not lost:
            lost.append(path)
            raise OSError("no room for a word")
        folder(files, path)

    monkeypatch.setattr(snapshots, fails, failing)
    monkeypatch.setattr(Files, "folder", loses)
    monkeypatch.setattr(snapshots, "RETRY_SECONDS", 0.01)
    graph.ranks.call("snapshot")
    with pytest.raises(AssertionError, match="rank 1 has no room"):
        written(graph.ranks)
    assert lost
    monkeypatch.undo()
    graph.ranks.reconnect()
    raised(graph.ranks.call("snapshot"))
    written(graph.ranks)
    end(graph.ranks)


class Caller:
    """A client's calls of the ranks."""

    def __init__(self, graph: Changed) -> None:
        self._graph = graph

    def call(self, name: str, args: Any = None, shares: Any = None) -> list[Any]:
        return raised(self._graph.ranks.call(name, shares, **(args or {})))


@pytest.mark.parametrize("fails", ["edges_of", "write_part"])
def test_the_client_tells_rank_0_of_a_rank_that_can_write_nothing(tmp_path, monkeypatch, fails):
    graph = changed(tmp_path, (0, 13, 20, N), fresh_rng(), {})
    raised(graph.change("batch"))
    right, folder = getattr(snapshots, fails), Files.folder

    def failing(*given: Any) -> Any:
        if "-1-" in threading.current_thread().name or getattr(given[0], "rank", 0) == 1:
            raise StoreError("rank 1 has no room")
        return right(*given)

    def loses(files: Files, path: str) -> None:
        if "-1-" in threading.current_thread().name:
            raise OSError("no room for a word")
        folder(files, path)

    monkeypatch.setattr(snapshots, fails, failing)
    monkeypatch.setattr(Files, "folder", loses)
    monkeypatch.setattr(snapshots, "RETRY_SECONDS", 0.01)
    graph.ranks.call("snapshot")
    if fails == "edges_of":
        graph.ranks.reconnect()
    storing._idle(Caller(graph))
    answers = raised(graph.ranks.call("writing"))
    assert [answer["problem"] for answer in answers] == ["rank 1 has no room", "rank 1 has no room", None]
    monkeypatch.undo()
    raised(graph.ranks.call("snapshot"))
    written(graph.ranks)
    end(graph.ranks)


def test_no_rank_begins_where_another_has_no_room_for_a_segment(tmp_path, monkeypatch):
    graph = changed(tmp_path, (0, 13, N), fresh_rng(), {})
    raised(graph.change("batch"))
    log = graph.ranks.servants[1].storage.log
    monkeypatch.setattr(log, "rotate", lambda: (_ for _ in ()).throw(StoreError("no room for a segment")))
    with pytest.raises(StoreError, match="no room for a segment"):
        raised(graph.ranks.call("snapshot"))
    monkeypatch.undo()
    graph.ranks.reconnect()
    assert not any(answer["busy"] for answer in raised(graph.ranks.call("writing")))
    raised(graph.ranks.call("snapshot"))
    written(graph.ranks)
    end(graph.ranks)


def test_parts_of_an_attempt_that_failed_are_not_mixed_with_those_after_a_move(tmp_path, monkeypatch):
    """One rank's part is written, another's is not; then rows move, at the same epoch."""
    graph = changed(tmp_path, (0, 13, N), fresh_rng(), {})
    raised(graph.change("batch"))
    write = snapshots.write_part

    def fails(store: Store, folder: str, rank: int, *rest: Any) -> None:
        if rank == 1:
            raise StoreError("the disk is full")
        write(store, folder, rank, *rest)

    monkeypatch.setattr(snapshots, "write_part", fails)
    raised(graph.ranks.call("snapshot"))
    with pytest.raises(AssertionError, match="the disk is full"):
        written(graph.ranks)
    monkeypatch.undo()
    raised(graph.change("reorder"))
    raised(graph.ranks.call("snapshot"))
    written(graph.ranks)
    end(graph.ranks)
    ranks = opened(tmp_path, 2)
    assert_same(ranks, graph.model, 1)
    end(ranks)
