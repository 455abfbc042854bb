"""A store of which each worker has a part on a disk of its own: opened on other ranks, and what is missing is named."""

from __future__ import annotations

import copy
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from changed_ranks import CONTENT, KINDS, MOVES, Changed, N, assert_same
from local_disks import reopened, stored
from plain_graph import cuts, fresh_rng
from ranks import Ranks
from stores import end, raised, store_of, written

from mgraph.errors import Aborted, InvalidOption, StoreError
from mgraph.log import local_disks
from mgraph.log.local_disks import LocalStore
from mgraph.log.store import Store
from mgraph.structures import names
from mgraph.worker.stores import restore


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that is held is told at once."""
    monkeypatch.setattr(Store.lock, "__defaults__", ("lock", "", 0.2))


@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[:-1]), KINDS[-1]], ids=str
)
def test_opened_again_and_again_by_workers_of_other_disks_in_another_order(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(restore, "CHUNK", 64)  # several pieces
    rng = fresh_rng()
    disks = [tmp_path / name for name in "ab"]
    graph, models = Changed((0, 13, N), rng, kind), []
    stored(graph.ranks, disks, str(rng.choice(["always", "background"])), retain=0)
    models.append(copy.deepcopy(graph.model))
    for turn in range(4):
        for what in rng.permutation([*CONTENT, *CONTENT, *MOVES]).tolist():
            raised(graph.change(what))
            if what in CONTENT:
                models.append(copy.deepcopy(graph.model))
            if rng.random() < 0.2:
                raised(graph.ranks.call("snapshot"))
                written(graph.ranks)
        end(graph.ranks)
        used = disks[: 2 + turn // 2]  # a new disk joins, and several workers may see one
        paths = rng.permutation([*used, *rng.choice(used, int(rng.integers(0, 3)))]).tolist()
        n = graph.model.n_vertices
        options = {"n": n, "kind": kind, "starts": cuts(rng, n, len(paths)).starts, "structure": rng.choice(names())}
        epoch = int(rng.integers(0, graph.epoch + 1))
        then = reopened(paths, epoch=epoch, n=models[epoch].n_vertices, kind=kind)
        assert_same(then, models[epoch], epoch)
        end(then)
        graph.ranks = reopened(paths, how={"retain": 0}, **options)
        assert_same(graph.ranks, graph.model, graph.epoch)
        disks.append(tmp_path / f"new {turn}")
    end(graph.ranks)
    for disk in disks:
        assert not list(disk.glob("*.lock"))


def test_snapshots_replace_the_log_on_every_disk(tmp_path):
    rng = fresh_rng()
    disks = [tmp_path / "a", tmp_path / "b"]
    graph = Changed((0, 20, N), rng, {})
    stored(graph.ranks, disks, retain=1)
    for _ in range(4):
        raised(graph.change("batch"))
        raised(graph.ranks.call("snapshot"))
        written(graph.ranks)
    for disk in disks:  # the newest is known to be whole on all disks only when the next one begins
        assert len(list(disk.glob("snapshot-*"))) == 2
        assert len([*disk.glob("term-000001/*/*.log")]) == 2
    (disks[1] / f"snapshot-{4:012d}-000001-{4:012d}" / "rank-0001.json").unlink()  # as if that had not been written
    end(graph.ranks)
    graph.ranks = reopened(disks[::-1], n=N, how={"retain": 1})
    assert_same(graph.ranks, graph.model, 4)
    answers = raised(graph.ranks.call("store"))
    marks = [mark for answer in answers for mark in answer["marks"]]
    assert [one["epoch"] for one in local_disks.whole(marks)] == [3]
    raised(graph.change("batch"))
    for _ in range(2):
        raised(graph.ranks.call("snapshot"))
        written(graph.ranks)
        raised(graph.change("batch"))
    for disk in disks:
        assert not [*disk.glob("term-000001")]
    end(graph.ranks)
    with pytest.raises(InvalidOption, match="has epochs from 5 on, and 4 was asked for"):
        reopened(disks, epoch=4, n=N)
    ranks = reopened(disks, n=N)
    assert_same(ranks, graph.model, graph.epoch)
    end(ranks)


def test_a_rank_that_cannot_write_its_snapshot_leaves_the_one_before(tmp_path):
    rng = fresh_rng()
    disks = [tmp_path / "a", tmp_path / "b"]
    graph = Changed((0, 20, N), rng, {})
    stored(graph.ranks, disks, retain=1)
    for turn in range(4):
        raised(graph.change("batch"))
        folder = disks[1] / f"snapshot-{turn + 1:012d}-000001-{turn + 1:012d}"
        if turn:
            folder.write_text("in the way")
        raised(graph.ranks.call("snapshot"))
        if turn:
            with pytest.raises(AssertionError, match="cannot be written"):
                written(graph.ranks)
        else:
            written(graph.ranks)
    end(graph.ranks)
    for disk in disks:
        assert (disk / f"snapshot-{1:012d}-000001-{1:012d}" / "rank-0000.json").exists() == (disk == disks[0])
    ranks = reopened(disks, n=N)
    assert_same(ranks, graph.model, 4)
    end(ranks)


@pytest.mark.parametrize("epochs", [0, 3])
def test_a_disk_that_is_missing_is_named(tmp_path, epochs):
    rng = fresh_rng()
    disks = [tmp_path / "a", tmp_path / "b"]
    graph = Changed((0, 20, N), rng, {})
    stored(graph.ranks, disks)
    raised(graph.change("batch"))
    end(graph.ranks)
    graph.ranks = reopened(disks, n=N)
    for _ in range(epochs):
        raised(graph.change("batch"))
    end(graph.ranks)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        StoreError, match=rf"rank 1's part of term [12] is missing: it was on host .* in {disks[1]}, .*"
    ):
        reopened([disks[0]], n=N)
    unseen = "no worker of this graph sees it; a worker on that host does not have it"
    with pytest.raises(StoreError, match=unseen) as refused:
        reopened([disks[0], tmp_path / "c"], n=N)
    assert refused.value.reason == "unseen"
    with pytest.raises(StoreError, match=f"{tmp_path}/c holds no store on host "):
        reopened([tmp_path / "c"], n=N)
    assert sorted(tmp_path.rglob("*")) == before
    graph.ranks = reopened([tmp_path / "c", *disks], n=N)
    assert_same(graph.ranks, graph.model, graph.epoch)
    end(graph.ranks)
    ranks = reopened([disks[0]], n=N, repair=True)  # there is no snapshot, and a disk of each term is gone
    assert (ranks.shards[0].epoch, ranks.shards[0].num_edges) == (0, 0)
    end(ranks)


def test_an_opening_that_did_not_reach_all_disks_is_as_if_it_had_not_been(tmp_path, monkeypatch):
    rng = fresh_rng()
    disks = [tmp_path / name for name in "abc"]
    graph = Changed((0, 20, N), rng, {})
    stored(graph.ranks, disks[:2])
    raised(graph.change("batch"))
    end(graph.ranks)
    begin = LocalStore.begin_part
    for turn, fails in enumerate([0, 2]):
        with monkeypatch.context() as patch:

            def begun(self: LocalStore, *args: Any, fails: int = fails) -> Any:
                if self.rank == fails:
                    raise OSError(5, "Input/output error")
                return begin(self, *args)

            patch.setattr(LocalStore, "begin_part", begun)
            with pytest.raises((OSError, Aborted), match="Input/output"):
                reopened(disks, n=N)
        graph.ranks = reopened(disks[:2][:: 1 - 2 * turn], n=N)  # those that are needed
        assert_same(graph.ranks, graph.model, graph.epoch)
        raised(graph.change("batch"))
        end(graph.ranks)
    ranks = reopened(disks, n=N)
    assert_same(ranks, graph.model, graph.epoch)
    end(ranks)


def test_one_graph_at_a_time(tmp_path):
    disks = [tmp_path / "a", tmp_path / "b"]
    graph = Changed((0, 20, N), fresh_rng(), {})
    stored(graph.ranks, disks)
    raised(graph.change("batch"))
    for servant in graph.ranks.servants:
        servant.storage.store.disown()  # its name has gone, its lock has not: the graph was made before
    end(graph.ranks)
    graph.ranks = reopened(disks, n=N)
    other = Ranks((0, 20, N))
    for servant in other.servants:
        servant.graph = "h"
    with pytest.raises(StoreError, match=f"{tmp_path}/[ab] is in use by process"):
        raised(other.call("claim", [{"path": str(disk)} for disk in disks[::-1]]))
    end(other)
    raised(graph.change("batch"))
    then = reopened(disks, epoch=1, n=N)  # reads beside it
    assert then.shards[0].epoch == 1
    end(then)
    end(graph.ranks)


def test_folders_of_other_stores_are_refused(tmp_path):
    ranks = [Ranks((0, 5)), Ranks((0, 5)), Ranks((0, 5))]
    stored(ranks[0], [tmp_path / "a"])
    with pytest.raises(InvalidOption, match=f"{tmp_path}/a on .* holds a store: open it with"):
        stored(ranks[1], [tmp_path / "a"])
    with pytest.raises(InvalidOption, match=f"{tmp_path}/a holds a store"):
        store_of(ranks[1], tmp_path / "a")
    store_of(ranks[1], tmp_path / "b")
    with pytest.raises(InvalidOption, match=f"{tmp_path}/b on .* holds a store"):
        stored(ranks[2], [tmp_path / "b"])
    stored(ranks[2], [tmp_path / "c"])
    for one in ranks:
        end(one)
    for part in (tmp_path / "c").glob("term-*/rank-*.json"):  # another id
        seal(part, lambda content: content["about"].update(id="b" * 32))
    with pytest.raises(StoreError, match=f"parts of one store in {tmp_path}/a on .* and of another in {tmp_path}/c on"):
        reopened([tmp_path / "a", tmp_path / "c"], n=5)
    for part in (tmp_path / "c").glob("term-*/rank-*.json"):
        seal(part, lambda content: content["about"].update(format=99))
    with pytest.raises(StoreError, match=r"c/term-000001/rank-0000\.json has format 99 and this mgraph reads up to"):
        reopened([tmp_path / "c"], n=5)
    with pytest.raises(StoreError, match=r"the worker at worker 1 sees, and the one at worker 0 does not"):
        reopened([tmp_path / "d", tmp_path / "b"], n=5)


def seal(path: Path, change: Any) -> None:
    content = json.loads(path.read_text())["content"]
    change(content)
    LocalStore(str(path.parent), 0, "g").describe(path.name, content)


def test_two_graphs_that_went_on_apart_are_distinguished(tmp_path):
    """Two copies of a store, both continued."""
    graph = Changed((0, N), fresh_rng(), {})
    stored(graph.ranks, [tmp_path / "a"])
    raised(graph.change("batch"))
    end(graph.ranks)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for name in "ab":
        graph.ranks = reopened(
            [tmp_path / name],
            n=N,
        )
        for servant in graph.ranks.servants:
            assert servant.storage.store.graph == "g"
        raised(graph.ranks.update(graph.draw("batch")[0], 2))
        end(graph.ranks)
    for part in (tmp_path / "b").glob("term-000002/rank-*.json"):
        seal(part, lambda content: content.update(opening="h"))
    with pytest.raises(StoreError, match="two graphs have gone on from term 1, each on a part of the disks"):
        reopened([tmp_path / "a", tmp_path / "b"], n=N)


def test_a_damaged_record_is_named_by_the_host_that_has_it(tmp_path):
    rng = fresh_rng()
    disks = [tmp_path / "a", tmp_path / "b"]
    graph = Changed((0, 20, N), rng, {})
    stored(graph.ranks, disks)
    for _ in range(6):
        raised(graph.change("batch"))
    end(graph.ranks)
    (log,) = disks[1].glob("term-000001/rank-0001/*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(StoreError, match=rf"{log}, offset \d+: .* damaged.*; repair=True"):
        reopened(disks, n=N)
    ranks = reopened(disks, n=N, repair=True)
    epoch = ranks.shards[0].epoch
    assert epoch < 6
    end(ranks)
    ranks = reopened(disks[::-1], n=N)
    assert ranks.shards[0].epoch == epoch
    end(ranks)


def test_who_reads_what(tmp_path):
    """Where workers see the same disk, they share what is to be read; each file is read by one."""
    graph = Changed((0, 5, 10, 20, N), fresh_rng(), {})
    stored(graph.ranks, [tmp_path / "a"] * 3 + [tmp_path / "b"])
    raised(graph.change("batch"))
    end(graph.ranks)
    paths = [tmp_path / "b", tmp_path / "a", tmp_path / "a"]
    graph.ranks = reopened(paths, n=N)
    holders = [servant.storage.store._holders for servant in graph.ranks.servants]
    assert holders[0] == holders[1] == holders[2]
    assert Counter(holders[0][1, rank] for rank in range(4)) == {0: 1, 1: 2, 2: 1}
    assert_same(graph.ranks, graph.model, 1)
    end(graph.ranks)


def test_snapshots_at_a_place_that_all_see(tmp_path):
    graph = Changed((0, 20, N), fresh_rng(), {})
    disks = [tmp_path / "a", tmp_path / "b"]
    stored(graph.ranks, disks, retain=1, snapshots=f"file://{tmp_path}/bucket")
    for _ in range(3):
        raised(graph.change("batch"))
        raised(graph.ranks.call("snapshot"))
        written(graph.ranks)
    raised(graph.change("batch"))
    assert raised(graph.ranks.call("store"))[0]["snapshots"] == [3]
    end(graph.ranks)
    assert [len(list(disk.glob("snapshot-*"))) for disk in disks] == [0, 0]
    graph.ranks = reopened([tmp_path / "c", *disks[::-1]], n=N)
    assert_same(graph.ranks, graph.model, 4)
    end(graph.ranks)
